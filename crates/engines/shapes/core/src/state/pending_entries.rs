//! Pending entries: a shape has them and does not publish them, because fetched rows belong before them.

use super::entries::Entry;
use std::collections::VecDeque;
use thalweg_base::Lsn;

/// The pending entries and barriers, in the order of the log.
#[derive(Debug, Default)]
pub struct PendingEntries {
    items: VecDeque<Item>,
    /// If set, the log is incomplete above this LSN: rows that a transaction moves in are being fetched.
    cap: Option<u64>,
    /// The log is incomplete above this LSN, because of the items.
    held_cap: Option<u64>,
}

#[derive(Debug)]
enum Item {
    Change(u32, Entry),
    /// A barrier: fetched rows belong here.
    Barrier {
        pending: u64,
        cap: Option<u64>,
    },
    /// The entries that follow are published when the journal is durable up to here.
    Durable {
        end: Lsn,
        cap: Option<u64>,
    },
}

impl Item {
    /// The LSN up to which the log is complete while this item is held. Entries that were missing when it was added are
    /// still missing.
    fn cap(&self) -> Option<u64> {
        match self {
            Self::Change(_, entry) => Some(entry.lsn.saturating_sub(1)),
            Self::Barrier { cap, .. } | Self::Durable { cap, .. } => *cap,
        }
    }

    fn is_gate(&self, number: u64) -> bool {
        matches!(self, Self::Barrier { pending, .. } if *pending == number)
    }
}

fn lower(cap: Option<u64>, other: Option<u64>) -> Option<u64> {
    cap.into_iter().chain(other).min()
}

impl PendingEntries {
    pub fn is_holding(&self) -> bool {
        !self.items.is_empty()
    }

    /// Adds a barrier: the rows of `pending` belong before all later entries.
    pub fn barrier(&mut self, pending: u64) {
        self.hold(Item::Barrier { pending, cap: self.cap });
    }

    /// Later entries are published when the journal is durable up to `end`.
    pub fn durable(&mut self, end: Lsn) {
        self.hold(Item::Durable { end, cap: self.cap });
    }

    fn hold(&mut self, item: Item) {
        self.held_cap = lower(self.held_cap, item.cap());
        self.items.push_back(item);
    }

    pub fn push(&mut self, xid: u32, entry: Entry) {
        self.hold(Item::Change(xid, entry));
    }

    /// Replaces a barrier by its rows; they and the entries behind it are published when the journal is durable up to
    /// `end`. Returns the entries behind it, up to the next barrier.
    pub fn open(&mut self, pending: u64, rows: &[(u32, Entry)], end: Lsn) {
        let Some(at) = self.items.iter().position(|item| item.is_gate(pending)) else { return };
        let after = self.items.split_off(at + 1);
        let cap = self.items.pop_back().and_then(|barrier| barrier.cap());
        self.hold(Item::Durable { end, cap });
        rows.iter().for_each(|(xid, entry)| self.hold(Item::Change(*xid, *entry)));
        self.items.extend(after);
    }

    /// The entries between a barrier and the next one.
    pub fn behind(&self, pending: u64) -> Vec<(u32, Entry)> {
        let behind = self.items.iter().skip_while(|item| !item.is_gate(pending)).skip(1);
        let until = behind.take_while(|item| !matches!(item, Item::Barrier { .. }));
        until.filter_map(|item| if let Item::Change(xid, entry) = item { Some((*xid, *entry)) } else { None }).collect()
    }

    /// Takes the entries that can be published when the journal is durable up to `durable`.
    pub fn take(&mut self, durable: Lsn) -> Vec<(u32, Entry)> {
        let mut out = Vec::new();
        while let Some(item) = self.items.pop_front_if(|item| match item {
            Item::Change(..) => true,
            Item::Barrier { .. } => false,
            Item::Durable { end, .. } => *end <= durable,
        }) {
            if let Item::Change(xid, entry) = item {
                out.push((xid, entry));
            }
        }
        self.held_cap = self.items.iter().filter_map(Item::cap).min();
        out
    }

    pub fn lower_cap(&mut self, lsn: u64) {
        self.cap = lower(self.cap, Some(lsn));
    }

    pub fn set_cap(&mut self, cap: Option<u64>) {
        self.cap = cap;
    }

    /// The LSN up to which the log is complete when changes are applied up to `lsn`.
    pub fn complete(&self, lsn: u64) -> u64 {
        lower(self.cap, self.held_cap).map_or(lsn, |cap| cap.min(lsn))
    }

    /// The position in the change log of the oldest pending body.
    pub fn oldest(&self) -> Option<u64> {
        let changes =
            self.items.iter().filter_map(|item| if let Item::Change(_, entry) = item { Some(entry.at) } else { None });
        changes.min()
    }

    /// Whether no entry is held or missing.
    pub fn is_idle(&self) -> bool {
        self.items.is_empty() && self.cap.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(lsn: u64) -> Entry {
        Entry { lsn, at: 0, op: 0, len: 1 }
    }

    fn lsns(taken: &[(u32, Entry)]) -> Vec<u64> {
        taken.iter().map(|(_, entry)| entry.lsn).collect()
    }

    #[test]
    fn rows_come_before_what_waited_for_them_and_when_they_are_durable() {
        let mut pending_entries = PendingEntries::default();
        pending_entries.lower_cap(9);
        pending_entries.barrier(1);
        pending_entries.push(7, entry(20));
        pending_entries.barrier(2);
        pending_entries.push(8, entry(30));
        assert_eq!(lsns(&pending_entries.take(Lsn(99))), [0_u64; 0]);
        assert_eq!(lsns(&pending_entries.behind(1)), [20]);
        pending_entries.open(1, &[(6, entry(10))], Lsn(5));
        assert_eq!(lsns(&pending_entries.take(Lsn(4))), [0_u64; 0]);
        assert_eq!(lsns(&pending_entries.take(Lsn(5))), [10, 20]);
        assert_eq!(pending_entries.complete(40), 9, "something is still awaited");
        pending_entries.set_cap(None);
        assert_eq!(pending_entries.complete(40), 9, "the second barrier began when that was awaited");
        pending_entries.open(2, &[], Lsn(6));
        assert_eq!(lsns(&pending_entries.take(Lsn(6))), [30]);
        assert_eq!(pending_entries.complete(40), 40);
        assert!(pending_entries.is_idle());
    }

    #[test]
    fn nothing_is_claimed_that_is_held_whenever_it_began_to_be_held() {
        let mut pending_entries = PendingEntries::default();
        pending_entries.durable(Lsn(5));
        pending_entries.push(7, entry(20));
        assert_eq!(pending_entries.complete(40), 19, "a change is held that nothing was awaited for");
        pending_entries.lower_cap(24);
        pending_entries.barrier(1);
        pending_entries.push(8, entry(30));
        assert_eq!(lsns(&pending_entries.take(Lsn(5))), [20]);
        pending_entries.open(1, &[(6, entry(28))], Lsn(6));
        pending_entries.set_cap(None);
        assert_eq!(pending_entries.complete(40), 24, "the rows of 25 came, and are not shown yet");
        assert_eq!(lsns(&pending_entries.take(Lsn(6))), [28, 30]);
        assert_eq!(pending_entries.complete(40), 40);
    }
}

//! Entries that a shape has and does not show yet, because others belong before them.

use super::entries::Entry;
use std::collections::VecDeque;
use thalweg_base::Lsn;

/// What waits, in the order of the log.
#[derive(Debug, Default)]
pub(crate) struct Holding {
    items: VecDeque<Item>,
    /// Nothing above this LSN is complete, if set: rows that a transaction brings in are on their way.
    cap: Option<u64>,
    /// Nothing above this LSN is complete, because of the items.
    held_cap: Option<u64>,
}

#[derive(Debug)]
enum Item {
    Change(u32, Entry),
    /// Rows that are on their way belong here.
    Gate {
        pending: u64,
        cap: Option<u64>,
    },
    /// What follows is shown when the journal is durable up to here.
    Durable {
        end: Lsn,
        cap: Option<u64>,
    },
}

impl Item {
    /// Up to where the log is complete for as long as this is held. What was missing when a gate or a wait for the disk began is still missing.
    fn cap(&self) -> Option<u64> {
        match self {
            Self::Change(_, entry) => Some(entry.lsn.saturating_sub(1)),
            Self::Gate { cap, .. } | Self::Durable { cap, .. } => *cap,
        }
    }

    fn is_gate(&self, number: u64) -> bool {
        matches!(self, Self::Gate { pending, .. } if *pending == number)
    }
}

fn lower(cap: Option<u64>, other: Option<u64>) -> Option<u64> {
    cap.into_iter().chain(other).min()
}

impl Holding {
    pub(crate) fn is_holding(&self) -> bool {
        !self.items.is_empty()
    }

    /// Rows that are known by this number belong before all that comes from now on.
    pub(crate) fn gate(&mut self, pending: u64) {
        self.hold(Item::Gate { pending, cap: self.cap });
    }

    /// What comes from now on is shown when the journal is durable up to `end`.
    pub(crate) fn durable(&mut self, end: Lsn) {
        self.hold(Item::Durable { end, cap: self.cap });
    }

    fn hold(&mut self, item: Item) {
        self.held_cap = lower(self.held_cap, item.cap());
        self.items.push_back(item);
    }

    pub(crate) fn push(&mut self, xid: u32, entry: Entry) {
        self.hold(Item::Change(xid, entry));
    }

    /// Puts the rows of a gate in its place; they and what follows are shown when the journal is durable up to `end`. Gives what follows, up to
    /// the next gate.
    pub(crate) fn open(&mut self, pending: u64, rows: &[(u32, Entry)], end: Lsn) {
        let Some(at) = self.items.iter().position(|item| item.is_gate(pending)) else { return };
        let after = self.items.split_off(at + 1);
        let cap = self.items.pop_back().and_then(|gate| gate.cap());
        self.hold(Item::Durable { end, cap });
        rows.iter().for_each(|(xid, entry)| self.hold(Item::Change(*xid, *entry)));
        self.items.extend(after);
    }

    /// What stands between a gate and the next one.
    pub(crate) fn behind(&self, pending: u64) -> Vec<(u32, Entry)> {
        let behind = self.items.iter().skip_while(|item| !item.is_gate(pending)).skip(1);
        let until = behind.take_while(|item| !matches!(item, Item::Gate { .. }));
        until.filter_map(|item| if let Item::Change(xid, entry) = item { Some((*xid, *entry)) } else { None }).collect()
    }

    /// What may be shown now that the journal is durable up to `durable`.
    pub(crate) fn take(&mut self, durable: Lsn) -> Vec<(u32, Entry)> {
        let mut out = Vec::new();
        while let Some(item) = self.items.pop_front_if(|item| match item {
            Item::Change(..) => true,
            Item::Gate { .. } => false,
            Item::Durable { end, .. } => *end <= durable,
        }) {
            if let Item::Change(xid, entry) = item {
                out.push((xid, entry));
            }
        }
        self.held_cap = self.items.iter().filter_map(Item::cap).min();
        out
    }

    pub(crate) fn lower_cap(&mut self, lsn: u64) {
        self.cap = lower(self.cap, Some(lsn));
    }

    pub(crate) fn set_cap(&mut self, cap: Option<u64>) {
        self.cap = cap;
    }

    /// Up to where the log is complete that is applied up to `lsn`.
    pub(crate) fn complete(&self, lsn: u64) -> u64 {
        lower(self.cap, self.held_cap).map_or(lsn, |cap| cap.min(lsn))
    }

    /// Where the oldest body that is held lies in the change log.
    pub(crate) fn oldest(&self) -> Option<u64> {
        let changes =
            self.items.iter().filter_map(|item| if let Item::Change(_, entry) = item { Some(entry.at) } else { None });
        changes.min()
    }

    /// Nothing is held or missing.
    pub(crate) fn is_idle(&self) -> bool {
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
        let mut holding = Holding::default();
        holding.lower_cap(9);
        holding.gate(1);
        holding.push(7, entry(20));
        holding.gate(2);
        holding.push(8, entry(30));
        assert_eq!(lsns(&holding.take(Lsn(99))), [0_u64; 0]);
        assert_eq!(lsns(&holding.behind(1)), [20]);
        holding.open(1, &[(6, entry(10))], Lsn(5));
        assert_eq!(lsns(&holding.take(Lsn(4))), [0_u64; 0]);
        assert_eq!(lsns(&holding.take(Lsn(5))), [10, 20]);
        assert_eq!(holding.complete(40), 9, "something is still awaited");
        holding.set_cap(None);
        assert_eq!(holding.complete(40), 9, "the second gate began when that was awaited");
        holding.open(2, &[], Lsn(6));
        assert_eq!(lsns(&holding.take(Lsn(6))), [30]);
        assert_eq!(holding.complete(40), 40);
        assert!(holding.is_idle());
    }

    #[test]
    fn nothing_is_claimed_that_is_held_whenever_it_began_to_be_held() {
        let mut holding = Holding::default();
        holding.durable(Lsn(5));
        holding.push(7, entry(20));
        assert_eq!(holding.complete(40), 19, "a change is held that nothing was awaited for");
        holding.lower_cap(24);
        holding.gate(1);
        holding.push(8, entry(30));
        assert_eq!(lsns(&holding.take(Lsn(5))), [20]);
        holding.open(1, &[(6, entry(28))], Lsn(6));
        holding.set_cap(None);
        assert_eq!(holding.complete(40), 24, "the rows of 25 came, and are not shown yet");
        assert_eq!(lsns(&holding.take(Lsn(6))), [28, 30]);
        assert_eq!(holding.complete(40), 40);
    }
}

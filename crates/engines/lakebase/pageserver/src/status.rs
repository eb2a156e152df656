//! Status pages: how transactions ended (`pg_xact`), and which transactions a multixact has (`pg_multixact`).
//!
//! Layouts: `clog.c`, `multixact.c`. No page of these has a header.

use std::collections::BTreeMap;
use std::io;
use thalweg_lakebase_redo::Page;
use thalweg_lakebase_wal::{Effect, PAGE_BYTES, TransactionEnd};
use thalweg_pg::PgLsn;

/// Transactions per page of `pg_xact`: two bits each.
const XACTS_PER_PAGE: u32 = PAGE_BYTES as u32 * 4;
/// Multixacts per page of offsets: four bytes each.
const OFFSETS_PER_PAGE: u32 = PAGE_BYTES as u32 / 4;
/// Members stand in groups: a byte of flags for each of four, and then the four transactions.
const MEMBERS_PER_GROUP: u32 = 4;
const GROUP_BYTES: u32 = 20;
const MEMBERS_PER_PAGE: u32 = PAGE_BYTES as u32 / GROUP_BYTES * MEMBERS_PER_GROUP;
const COMMITTED: u8 = 1;
const ABORTED: u8 = 2;

/// A kind of status pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// How transactions ended: `pg_xact`.
    Transactions,
    /// Where the members of multixacts begin: `pg_multixact/offsets`.
    MultiOffsets,
    /// Transactions of multixacts, and what each does: `pg_multixact/members`.
    MultiMembers,
}

impl Status {
    /// The pages that hold the numbers from `first` up to and with `last`.
    pub(crate) fn pages(self, first: u32, last: u32) -> std::ops::RangeInclusive<u64> {
        let per_page = match self {
            Self::Transactions => XACTS_PER_PAGE,
            Self::MultiOffsets => OFFSETS_PER_PAGE,
            Self::MultiMembers => MEMBERS_PER_PAGE,
        };
        u64::from(first / per_page)..=u64::from(last / per_page)
    }
}

/// A status page by its place.
pub type StatusKey = (Status, u64);

#[derive(Clone, Copy, Debug)]
enum Change {
    Zeroed,
    /// The two bits of a transaction.
    Ended {
        slot: u32,
        status: u8,
    },
    /// Four bytes at a place.
    Word {
        at: u32,
        value: u32,
    },
    /// One byte at a place.
    Byte {
        at: u32,
        value: u8,
    },
}

impl Change {
    fn apply(self, page: &mut Page) {
        match self {
            Self::Zeroed => page.fill(0),
            Self::Ended { slot, status } => {
                let (byte, shift) = ((slot / 4) as usize, slot % 4 * 2);
                page[byte] = page[byte] & !(3 << shift) | status << shift;
            }
            Self::Word { at, value } => page[at as usize..at as usize + 4].copy_from_slice(&value.to_le_bytes()),
            Self::Byte { at, value } => page[at as usize] = value,
        }
    }
}

/// All status pages through time.
#[derive(Debug, Default)]
pub(crate) struct Statuses {
    pages: BTreeMap<StatusKey, Vec<(PgLsn, Change)>>,
    /// Pages of a kind before this one are gone from a position on.
    truncated: BTreeMap<Status, Vec<(PgLsn, u64)>>,
}

impl Statuses {
    fn put(&mut self, at: PgLsn, key: StatusKey, change: Change) {
        self.pages.entry(key).or_default().push((at, change));
    }

    fn ended(&mut self, at: PgLsn, end: &TransactionEnd) {
        let status = if end.is_commit { COMMITTED } else { ABORTED };
        // A transaction that had no id leaves none.
        for xid in [end.xid].iter().chain(&end.subxids).filter(|xid| **xid != 0) {
            let key = (Status::Transactions, u64::from(xid / XACTS_PER_PAGE));
            self.put(at, key, Change::Ended { slot: xid % XACTS_PER_PAGE, status });
        }
    }

    fn offset(&mut self, at: PgLsn, multi: u32, offset: u32) {
        let key = (Status::MultiOffsets, u64::from(multi / OFFSETS_PER_PAGE));
        self.put(at, key, Change::Word { at: multi % OFFSETS_PER_PAGE * 4, value: offset });
    }

    fn multi(&mut self, at: PgLsn, multi: u32, offset: u32, members: &[(u32, u32)]) {
        self.offset(at, multi, offset);
        let mut next = offset;
        for (xid, status) in members {
            let key = (Status::MultiMembers, u64::from(next / MEMBERS_PER_PAGE));
            let (group, member) = (next % MEMBERS_PER_PAGE / MEMBERS_PER_GROUP, next % MEMBERS_PER_GROUP);
            let begin = group * GROUP_BYTES;
            self.put(at, key, Change::Byte { at: begin + member, value: *status as u8 });
            self.put(at, key, Change::Word { at: begin + MEMBERS_PER_GROUP + member * 4, value: *xid });
            // Offset 0 says that there is none.
            next = next.checked_add(1).unwrap_or(1);
        }
    }

    /// What a record that ends at `at` changes.
    pub(crate) fn affect(&mut self, at: PgLsn, effect: &Effect) {
        match effect {
            Effect::TransactionEnd(end) => self.ended(at, end),
            Effect::ClogPageZeroed(page) => self.put(at, (Status::Transactions, *page), Change::Zeroed),
            Effect::MultiOffsetsPageZeroed(page) => self.put(at, (Status::MultiOffsets, *page), Change::Zeroed),
            Effect::MultiMembersPageZeroed(page) => self.put(at, (Status::MultiMembers, *page), Change::Zeroed),
            Effect::MultiCreated { multi, offset, members } => self.multi(at, *multi, *offset, members),
            Effect::ClogTruncated { page, .. } => {
                self.truncated.entry(Status::Transactions).or_default().push((at, *page));
            }
            Effect::MultiTruncated { offsets, members, .. } => {
                let (offsets, members) = (offsets.1 / OFFSETS_PER_PAGE, members.1 / MEMBERS_PER_PAGE);
                self.truncated.entry(Status::MultiOffsets).or_default().push((at, offsets.into()));
                self.truncated.entry(Status::MultiMembers).or_default().push((at, members.into()));
            }
            _ => {}
        }
    }

    /// Whether a page was given up before a position. Numbers of pages go round: only those a little before count.
    fn is_gone(&self, (kind, page): StatusKey, at: PgLsn) -> bool {
        let truncated = self.truncated.get(&kind).map_or(&[][..], Vec::as_slice);
        truncated
            .iter()
            .take_while(|(position, _)| *position <= at)
            .any(|(_, first)| page < *first && first - page < 1 << 17)
    }

    /// A page at a position; `base` gives it as it was before the first record. `None`: there is none.
    pub(crate) fn page(
        &self,
        key: StatusKey,
        at: PgLsn,
        base: impl FnOnce() -> io::Result<Option<Page>>,
    ) -> io::Result<Option<Page>> {
        let changes = self.pages.get(&key).map_or(&[][..], Vec::as_slice);
        let changes = &changes[..changes.partition_point(|(position, _)| *position <= at)];
        let begin = changes.iter().rposition(|(_, change)| matches!(change, Change::Zeroed));
        if begin.is_none() && self.is_gone(key, at) {
            return Ok(None);
        }
        let empty = || -> Page { Box::new([0; PAGE_BYTES]) };
        let page = match begin {
            Some(_) => Some(empty()),
            None => base()?,
        };
        if page.is_none() && changes.is_empty() {
            return Ok(None);
        }
        let mut page = page.unwrap_or_else(empty);
        changes[begin.unwrap_or(0)..].iter().for_each(|(_, change)| change.apply(&mut page));
        Ok(Some(page))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(xid: u32, is_commit: bool, subxids: &[u32]) -> Effect {
        let subxids = subxids.to_vec();
        let (dropped, origin) = (Vec::new(), None);
        Effect::TransactionEnd(TransactionEnd {
            is_commit,
            time: 0,
            xid,
            was_prepared: false,
            subxids,
            dropped,
            origin,
        })
    }

    #[test]
    fn ends_of_transactions_are_those_of_each_position() {
        let mut statuses = Statuses::default();
        statuses.affect(PgLsn(10), &end(5, true, &[6, 32_768]));
        statuses.affect(PgLsn(20), &end(7, false, &[]));
        let page = |number, at| {
            statuses.page((Status::Transactions, number), PgLsn(at), || Ok(None)).unwrap().map(|page| page[1])
        };
        assert_eq!((page(0, 9), page(0, 10), page(0, 20)), (None, Some(0b01_0100), Some(0b1001_0100)));
        assert_eq!(page(1, 15), Some(0));
    }

    #[test]
    fn members_stand_in_groups_of_four_and_a_page_that_was_given_up_is_gone() {
        let mut statuses = Statuses::default();
        statuses.affect(PgLsn(10), &Effect::MultiCreated { multi: 3, offset: 3, members: vec![(700, 1), (701, 5)] });
        let page = |kind, at| statuses.page((kind, 0), PgLsn(at), || Ok(None)).unwrap().unwrap();
        assert_eq!(page(Status::MultiOffsets, 10)[12], 3);
        let members = page(Status::MultiMembers, 10);
        assert_eq!((members[3], &members[16..20]), (1, &700_u32.to_le_bytes()[..]));
        assert_eq!((members[20], &members[24..28]), (5, &701_u32.to_le_bytes()[..]));
        statuses.affect(PgLsn(20), &Effect::ClogTruncated { page: 1, oldest_xid: 0, oldest_xid_database: 0 });
        let gone =
            |at| statuses.page((Status::Transactions, 0), PgLsn(at), || Ok(Some(Box::new([7; PAGE_BYTES])))).unwrap();
        assert!(gone(19).is_some() && gone(20).is_none());
    }
}

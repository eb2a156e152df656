//! The transactions that were applied most recently.
//!
//! Postgres sends a transaction as soon as its commit is in the log, but shows it to snapshots a moment later (with
//! synchronous replication, much later). So a shape that begins in between may have missed it on the stream *and* not
//! have it in its snapshot. After taking a snapshot, the maker of a shape checks here for such a transaction, and takes
//! another snapshot if there is one.

use std::collections::VecDeque;
use thalweg_shapes_model::snapshot::PgSnapshot;

/// The number of xids that are kept: more than a snapshot can lag behind the applied transactions.
const KEPT: usize = 1 << 16;

/// A place between two transactions of [`Recent`]: the number of transactions that were read before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecentMark(u64);

impl RecentMark {
    /// Before every transaction.
    pub const START: Self = Self(0);
}

/// The xids of the last transactions, in the order of their commits.
#[derive(Debug, Default)]
pub struct Recent {
    xids: VecDeque<u32>,
    /// The number of all transactions so far.
    count: u64,
}

impl Recent {
    /// A transaction begins to be applied.
    pub fn push(&mut self, xid: u32) {
        if self.xids.len() == KEPT {
            self.xids.pop_front();
        }
        self.xids.push_back(xid);
        self.count += 1;
    }

    /// The last `max` of them, oldest first.
    #[must_use]
    pub fn last(&self, max: usize) -> Vec<u32> {
        let skipped = self.xids.len().saturating_sub(max);
        self.xids.iter().skip(skipped).copied().collect()
    }

    /// Empties the list: another history begins, in which these xids mean other transactions.
    pub fn forget(&mut self) {
        self.xids.clear();
    }

    /// The mark of a shape that begins to receive changes now.
    #[must_use]
    pub fn mark(&self) -> RecentMark {
        RecentMark(self.count)
    }

    /// Whether a transaction that began to be applied before `mark` is not in the snapshot.
    #[must_use]
    pub fn missed(&self, mark: RecentMark, snapshot: &PgSnapshot) -> bool {
        let first = self.count - self.xids.len() as u64;
        let before = usize::try_from(mark.0.saturating_sub(first)).unwrap_or(usize::MAX).min(self.xids.len());
        // The commits were in the WAL before the snapshot was taken, so the xid alone decides.
        self.xids.iter().take(before).any(|xid| !snapshot.contains(*xid, 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_that_was_sent_before_it_was_visible_is_noticed() {
        let mut recent = Recent::default();
        recent.push(5);
        recent.push(8);
        let mark = recent.mark();
        recent.push(9);
        let snapshot = |text: &str| text.parse::<PgSnapshot>().unwrap();
        assert!(
            recent.missed(mark, &snapshot("8:12:8")),
            "8 was applied before the shape listened, and is not visible"
        );
        assert!(!recent.missed(mark, &snapshot("9:12:9")), "9 comes to the shape on the stream");
        assert!(!recent.missed(RecentMark(0), &snapshot("1:2:")), "nothing was applied before");
    }

    #[test]
    fn numbers_of_another_history_are_not_missed() {
        let mut recent = Recent::default();
        (100..110).for_each(|xid| recent.push(xid));
        let early = recent.mark();
        recent.forget();
        let snapshot = "5:5:".parse().unwrap();
        assert!(!recent.missed(early, &snapshot) && !recent.missed(recent.mark(), &snapshot));
        recent.push(7);
        assert!(!recent.missed(early, &snapshot) && recent.missed(recent.mark(), &snapshot));
    }

    #[test]
    fn only_the_last_ones_are_kept() {
        let mut recent = Recent::default();
        (0..KEPT as u32 + 10).for_each(|xid| recent.push(xid));
        assert_eq!(recent.xids.len(), KEPT);
        assert!(!recent.missed(RecentMark(5), &"0:1:".parse().unwrap()));
        assert!(recent.missed(RecentMark(11), &"0:1:".parse().unwrap()));
    }
}

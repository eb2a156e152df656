//! Proof that a replication stream belongs to the history that was read so far.
//!
//! A server restored from an earlier state may have written so much since that its WAL ends after the last LSN that was
//! read. But its transactions differ: the last transaction that was read must come again at its LSN, unless the slot
//! begins after it.

use thalweg_pg::PgLsn;
use thalweg_shapes_model::history::Anchor;

/// The stream belongs to another history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the transaction {} that was read at {} does not come again: the server's storage was set back to an earlier time", .0.xid, PgLsn(.0.lsn))]
pub struct Diverged(pub Anchor);

/// The transaction that a stream must repeat before its new transactions count.
#[derive(Debug, Default)]
pub struct Proof(Option<Anchor>);

impl Proof {
    /// `last`: the last transaction that was read; `from`: the LSN at which the slot begins.
    pub fn new(last: Option<Anchor>, from: u64) -> Self {
        Self(last.filter(|last| last.lsn >= from))
    }

    /// Checks a transaction of the stream.
    pub fn came(&mut self, anchor: Anchor) -> Result<(), Diverged> {
        match self.0 {
            Some(last) if anchor.lsn > last.lsn || anchor.lsn == last.lsn && anchor != last => Err(Diverged(last)),
            Some(last) if anchor == last => {
                self.0 = None;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Checks that the stream may have sent everything before `lsn`.
    pub fn passed(&self, lsn: u64) -> Result<(), Diverged> {
        match self.0 {
            Some(last) if lsn > last.lsn => Err(Diverged(last)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAST: Anchor = Anchor { lsn: 100, xid: 7, time: 55 };

    fn other(change: impl FnOnce(&mut Anchor)) -> Anchor {
        let mut anchor = LAST;
        change(&mut anchor);
        anchor
    }

    #[test]
    fn the_same_history_proves_itself_by_its_last_transaction() {
        let mut proof = Proof::new(Some(LAST), 50);
        assert_eq!(proof.came(other(|anchor| anchor.lsn = 60)), Ok(()));
        assert_eq!(proof.passed(100), Ok(()));
        assert_eq!(proof.came(LAST), Ok(()));
        assert_eq!(proof.came(other(|anchor| anchor.lsn = 110)), Ok(()));
        assert_eq!(proof.passed(200), Ok(()));
    }

    #[test]
    fn another_history_is_found_out_by_the_first_thing_that_should_not_be() {
        let came = |anchor| Proof::new(Some(LAST), 50).came(anchor);
        assert_eq!(came(other(|anchor| anchor.lsn = 101)), Err(Diverged(LAST)));
        assert_eq!(came(other(|anchor| anchor.xid = 8)), Err(Diverged(LAST)));
        assert_eq!(
            came(other(|anchor| anchor.time = 56)),
            Err(Diverged(LAST)),
            "the same transaction number, at the same place"
        );
        assert_eq!(Proof::new(Some(LAST), 50).passed(101), Err(Diverged(LAST)));
    }

    #[test]
    fn a_slot_that_is_past_it_need_not_prove_it() {
        let mut proof = Proof::new(Some(LAST), 101);
        assert_eq!(proof.came(other(|anchor| anchor.lsn = 150)), Ok(()));
        assert_eq!(Proof::new(None, 0).passed(1000), Ok(()));
    }
}

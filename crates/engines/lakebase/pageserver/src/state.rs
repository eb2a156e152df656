//! The counters of a cluster: what the next transaction, object and multixact are.

use thalweg_lakebase_wal::{Checkpoint, Effect};
use thalweg_pg::PgLsn;

/// The counters of a cluster at a position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The next transaction, with its epoch in the high 32 bits.
    pub next_xid: u64,
    /// The next object id.
    pub next_oid: u32,
    /// The next multixact.
    pub next_multi: u32,
    /// The next member of a multixact.
    pub next_multi_offset: u32,
    /// The oldest transaction whose status is kept.
    pub oldest_xid: u32,
    /// The oldest multixact that is kept.
    pub oldest_multi: u32,
}

impl State {
    pub(crate) fn of(checkpoint: &Checkpoint) -> Self {
        Self {
            next_xid: checkpoint.next_xid,
            next_oid: checkpoint.next_oid,
            next_multi: checkpoint.next_multi,
            next_multi_offset: checkpoint.next_multi_offset,
            oldest_xid: checkpoint.oldest_xid.0,
            oldest_multi: checkpoint.oldest_multi.0,
        }
    }

    /// A transaction was seen: the next one comes after it. Numbers go round (`TransactionIdPrecedes`).
    pub(crate) fn saw(&mut self, xid: u32) {
        const NORMAL: u32 = 3;
        let ahead = xid.wrapping_sub(self.next_xid as u32);
        if xid >= NORMAL && ahead < 1 << 31 {
            self.next_xid += u64::from(ahead) + 1;
            // Numbers below are special.
            if (self.next_xid as u32) < NORMAL {
                self.next_xid += u64::from(NORMAL - self.next_xid as u32);
            }
        }
    }

    /// What a record changes.
    pub(crate) fn affect(&mut self, effect: &Effect) {
        match effect {
            Effect::Checkpoint { checkpoint, is_shutdown } => {
                let at_it = Self::of(checkpoint);
                let next_xid = self.next_xid.max(at_it.next_xid);
                // That of a checkpoint while the server runs is of its beginning.
                let behind =
                    |own: u32, its: u32| if *is_shutdown || its.wrapping_sub(own) < 1 << 31 { its } else { own };
                *self = Self {
                    next_xid,
                    next_oid: behind(self.next_oid, at_it.next_oid),
                    next_multi: behind(self.next_multi, at_it.next_multi),
                    next_multi_offset: behind(self.next_multi_offset, at_it.next_multi_offset),
                    ..at_it
                };
            }
            Effect::NextOid(next) => self.next_oid = *next,
            Effect::TransactionEnd(end) => {
                [end.xid].iter().chain(&end.subxids).for_each(|xid| self.saw(*xid));
            }
            Effect::RunningXacts { next_xid, .. } => self.saw(next_xid.wrapping_sub(1)),
            Effect::MultiCreated { multi, offset, members } => {
                members.iter().for_each(|(xid, _)| self.saw(*xid));
                self.next_multi = multi.wrapping_add(1).max(1);
                self.next_multi_offset = offset.wrapping_add(members.len() as u32);
            }
            Effect::ClogTruncated { oldest_xid, .. } => self.oldest_xid = *oldest_xid,
            Effect::MultiTruncated { offsets, .. } => self.oldest_multi = offsets.1,
            _ => {}
        }
    }
}

/// The counters through time.
#[derive(Debug)]
pub(crate) struct States(Vec<(PgLsn, State)>);

impl States {
    pub(crate) fn new(at: PgLsn, state: State) -> Self {
        Self(vec![(at, state)])
    }

    pub(crate) fn newest(&self) -> State {
        self.0.last().map(|(_, state)| *state).unwrap_or_default()
    }

    pub(crate) fn put(&mut self, at: PgLsn, state: State) {
        if state != self.newest() {
            self.0.push((at, state));
        }
    }

    pub(crate) fn at(&self, at: PgLsn) -> State {
        let behind = self.0.partition_point(|(position, _)| *position <= at);
        behind.checked_sub(1).map(|newest| self.0[newest].1).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_transaction_is_behind_all_that_were_seen_also_where_numbers_go_round() {
        let mut state = State { next_xid: 100, ..State::default() };
        [7, 99, 100, 105, 0, 2].into_iter().for_each(|xid| state.saw(xid));
        assert_eq!(state.next_xid, 106);
        state.next_xid = u64::from(u32::MAX);
        state.saw(u32::MAX);
        assert_eq!(state.next_xid, (1 << 32) + 3);
        state.saw(u32::MAX - 5);
        assert_eq!(state.next_xid, (1 << 32) + 3);
    }
}

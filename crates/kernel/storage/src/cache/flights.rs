//! Blocks in flight: the cache requests each once, for all reads that wait for it. No IO, no lock.
//!
//! ```text
//! (none) ── read ──► asked ── answer ──► filling ── written, or not cached ──► (none)
//!                      └───── error ──────────────────────────────────────────► (none)
//! ```
//!
//! Reads join an *asked* block, and take the bytes of a *filling* one from memory. A fill makes its block resident only
//! if the flight still stands: removing an object ends its flights.

use super::format::BlockKey;
use super::gather::Gather;
use bytes::Bytes;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::Arc;
use thalweg_base::ObjectId;

#[derive(Default)]
pub(crate) struct Flights(HashMap<BlockKey, Flight>);

enum Flight {
    Asked {
        waiters: Vec<Arc<Gather>>,
        /// The object was removed since: reads from before get the answer, and it is not cached.
        removed: bool,
    },
    Filling(Bytes),
}

/// The outcome of joining the flight of a block.
pub(crate) enum Joined {
    /// There was no flight: one begins, and the caller asks the remote storage.
    First,
    /// The read waits for the answer to an earlier one.
    Waiting,
    Bytes(Bytes),
}

pub(crate) type Waiters = Vec<(BlockKey, Vec<Arc<Gather>>)>;

impl Flights {
    pub(crate) fn join(&mut self, key: BlockKey, gather: &Arc<Gather>) -> Joined {
        match self.0.entry(key) {
            Entry::Vacant(vacant) => {
                vacant.insert(Flight::Asked { waiters: vec![Arc::clone(gather)], removed: false });
                Joined::First
            }
            Entry::Occupied(mut flight) => match flight.get_mut() {
                Flight::Asked { waiters, .. } => {
                    waiters.push(Arc::clone(gather));
                    Joined::Waiting
                }
                Flight::Filling(bytes) => Joined::Bytes(bytes.clone()),
            },
        }
    }

    /// Whether the block was asked for before its object was removed.
    pub(crate) fn is_removed(&self, key: BlockKey) -> bool {
        matches!(self.0.get(&key), Some(Flight::Asked { removed: true, .. }))
    }

    pub(crate) fn filling(&self, key: BlockKey) -> Option<&Bytes> {
        match self.0.get(&key) {
            Some(Flight::Filling(bytes)) => Some(bytes),
            _ => None,
        }
    }

    /// The answer for a block is there. It goes on as filling if `fill`, and if its object was not removed; whether it
    /// does.
    pub(crate) fn answered(&mut self, key: BlockKey, bytes: Bytes, fill: bool) -> (Vec<Arc<Gather>>, bool) {
        match self.0.remove(&key) {
            Some(Flight::Asked { waiters, removed }) => {
                let fill = fill && !removed;
                if fill {
                    self.0.insert(key, Flight::Filling(bytes));
                }
                (waiters, fill)
            }
            Some(filling @ Flight::Filling(_)) => {
                self.0.insert(key, filling);
                (Vec::new(), false)
            }
            None => (Vec::new(), false),
        }
    }

    /// A block that was written through becomes filling, unless a read asked for it already.
    pub(crate) fn fill(&mut self, key: BlockKey, bytes: Bytes) {
        self.0.entry(key).or_insert(Flight::Filling(bytes));
    }

    /// Ends the flights of blocks that were asked for and not answered; the reads that wait for them.
    pub(crate) fn fail(&mut self, object: ObjectId, blocks: Range<u32>) -> Waiters {
        let mut all = Vec::new();
        for key in blocks.map(|block| BlockKey { object, block }) {
            if let Entry::Occupied(flight) = self.0.entry(key)
                && let Flight::Asked { .. } = flight.get()
                && let Flight::Asked { waiters, .. } = flight.remove()
            {
                all.push((key, waiters));
            }
        }
        all
    }

    /// Ends the flight of a filling block; whether it still stood.
    pub(crate) fn filled(&mut self, key: BlockKey) -> bool {
        match self.0.entry(key) {
            Entry::Occupied(flight) if matches!(flight.get(), Flight::Filling(_)) => {
                flight.remove();
                true
            }
            _ => false,
        }
    }

    pub(crate) fn remove(&mut self, object: ObjectId) {
        self.0.retain(|key, flight| match flight {
            _ if key.object != object => true,
            Flight::Asked { removed, .. } => {
                *removed = true;
                true
            }
            Flight::Filling(_) => false,
        });
    }

    /// The local disk takes no more blocks: only flights that wait for an answer stay.
    pub(crate) fn drop_filling(&mut self) {
        self.0.retain(|_, flight| matches!(flight, Flight::Asked { .. }));
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::gather::Assembly;
    use super::*;

    const KEY: BlockKey = BlockKey { object: ObjectId(1), block: 0 };

    fn gather() -> Arc<Gather> {
        Arc::new(Gather::new(Assembly::new(ObjectId(1), 0..1, 10), 1).0)
    }

    #[test]
    fn an_answer_from_before_a_removal_reaches_its_reads_and_is_not_kept() {
        let mut flights = Flights::default();
        assert!(matches!(flights.join(KEY, &gather()), Joined::First));
        assert!(matches!(flights.join(KEY, &gather()), Joined::Waiting));
        flights.remove(ObjectId(1));
        assert!(flights.is_removed(KEY));
        let (waiters, filling) = flights.answered(KEY, Bytes::new(), true);
        assert_eq!((waiters.len(), filling, flights.len()), (2, false, 0));
    }

    #[test]
    fn a_block_whose_object_was_removed_while_it_was_written_is_not_made_resident() {
        let mut flights = Flights::default();
        flights.join(KEY, &gather());
        assert!(flights.answered(KEY, Bytes::new(), true).1);
        assert!(matches!(flights.join(KEY, &gather()), Joined::Bytes(_)));
        flights.remove(ObjectId(1));
        assert!(!flights.filled(KEY));
    }
}

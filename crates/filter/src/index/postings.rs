//! Slots by the hashes of their keys. Most hashes have one slot, which needs no allocation.
//!
//! Half of a hash is kept. Two keys that share it make slots candidates of each other's rows, now and then, which costs
//! a little time.

use hashbrown::HashTable;
use std::collections::BTreeSet;

#[derive(Default)]
pub(super) struct Postings {
    table: HashTable<(Half, Posting)>,
    /// Slots of the hashes that have several.
    lists: slab::Slab<BTreeSet<u32>>,
}

/// A slot, or with the highest bit set a list of them.
#[derive(Clone, Copy)]
struct Posting(u32);

const LIST: u32 = 1 << 31;

/// Half of a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Half(u32);

impl Half {
    pub(super) fn of(hash: u64) -> Self {
        Self((hash >> 32) as u32)
    }

    /// A hash of the half, for a table of halves, which can then grow without the keys.
    pub(super) fn spread(self) -> u64 {
        u64::from(self.0).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// The largest number of slots.
pub(super) const SLOTS_MAX: u32 = LIST - 1;

impl Postings {
    pub(super) fn insert(&mut self, hash: Half, slot: u32) {
        match self.table.find_mut(hash.spread(), |(h, _)| *h == hash) {
            None => {
                self.table.insert_unique(hash.spread(), (hash, Posting(slot)), |(h, _)| h.spread());
            }
            Some((_, posting)) if posting.0 & LIST != 0 => {
                self.lists[(posting.0 & !LIST) as usize].insert(slot);
            }
            Some((_, posting)) if posting.0 == slot => {}
            Some((_, posting)) => {
                let list = self.lists.insert(BTreeSet::from([posting.0, slot]));
                posting.0 = LIST | u32::try_from(list).unwrap_or(0);
            }
        }
    }

    pub(super) fn remove(&mut self, hash: Half, slot: u32) {
        let Ok(mut entry) = self.table.find_entry(hash.spread(), |(h, _)| *h == hash) else { return };
        let posting = entry.get_mut();
        if posting.1.0 & LIST == 0 {
            if posting.1.0 == slot {
                entry.remove();
            }
            return;
        }
        let at = (posting.1.0 & !LIST) as usize;
        let list = &mut self.lists[at];
        list.remove(&slot);
        if let (1, Some(last)) = (list.len(), list.first()) {
            posting.1 = Posting(*last);
            self.lists.remove(at);
        }
    }

    pub(super) fn count(&self, hash: Half) -> usize {
        match self.table.find(hash.spread(), |(h, _)| *h == hash) {
            None => 0,
            Some((_, posting)) if posting.0 & LIST == 0 => 1,
            Some((_, posting)) => self.lists[(posting.0 & !LIST) as usize].len(),
        }
    }

    pub(super) fn for_each(&self, hash: Half, each: &mut impl FnMut(u32)) {
        match self.table.find(hash.spread(), |(h, _)| *h == hash) {
            None => {}
            Some((_, posting)) if posting.0 & LIST == 0 => each(posting.0),
            Some((_, posting)) => self.lists[(posting.0 & !LIST) as usize].iter().for_each(|slot| each(*slot)),
        }
    }
}

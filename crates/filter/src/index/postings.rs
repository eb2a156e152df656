//! Slots by hashes of what they are filed under. Most hashes have one slot: then nothing is allocated for it.
//!
//! Half of a hash is kept. Two keys that share it make slots candidates of each other's rows, now and then, which costs a little time.

use hashbrown::HashTable;
use std::collections::BTreeSet;

#[derive(Default)]
pub(super) struct Postings {
    table: HashTable<(u32, Posting)>,
    /// Slots of the hashes that have several.
    lists: slab::Slab<BTreeSet<u32>>,
}

/// A slot, or with the highest bit set a list of them.
#[derive(Clone, Copy)]
struct Posting(u32);

const LIST: u32 = 1 << 31;

fn half(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// A hash of the half, for the table.
fn spread(half: u32) -> u64 {
    u64::from(half).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Most slots that can be told apart.
pub(super) const SLOTS_MAX: u32 = LIST - 1;

impl Postings {
    pub(super) fn insert(&mut self, hash: u64, slot: u32) {
        let hash = half(hash);
        match self.table.find_mut(spread(hash), |(h, _)| *h == hash) {
            None => {
                self.table.insert_unique(spread(hash), (hash, Posting(slot)), |(h, _)| spread(*h));
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

    pub(super) fn remove(&mut self, hash: u64, slot: u32) {
        let hash = half(hash);
        let Ok(mut entry) = self.table.find_entry(spread(hash), |(h, _)| *h == hash) else { return };
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

    pub(super) fn count(&self, hash: u64) -> usize {
        let hash = half(hash);
        match self.table.find(spread(hash), |(h, _)| *h == hash) {
            None => 0,
            Some((_, posting)) if posting.0 & LIST == 0 => 1,
            Some((_, posting)) => self.lists[(posting.0 & !LIST) as usize].len(),
        }
    }

    pub(super) fn for_each(&self, hash: u64, each: &mut impl FnMut(u32)) {
        let hash = half(hash);
        match self.table.find(spread(hash), |(h, _)| *h == hash) {
            None => {}
            Some((_, posting)) if posting.0 & LIST == 0 => each(posting.0),
            Some((_, posting)) => self.lists[(posting.0 & !LIST) as usize].iter().for_each(|slot| each(*slot)),
        }
    }
}

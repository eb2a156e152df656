//! The blocks on the local disk and their places: the eviction policy, the slots, and the lengths of objects. No IO, no
//! lock.
//!
//! A slot is in exactly one of these states: *free*, *held* by the fill that writes it, or *resident*: named by one
//! entry of `blocks`.

use super::format::{BlockKey, Entry};
use quick_cache::unsync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, UnitWeighter};
use std::ops::Range;
use thalweg_base::ObjectId;

/// The slot of a block, and the checksum that it must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) slot: u32,
    pub(crate) len: u32,
    pub(crate) crc: u32,
    /// Tells a block from an earlier stay of the same block in the same slot.
    pub(crate) stay: u32,
}

/// Whether looking a block up counts as a use of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    New,
    Continued,
}

/// How the blocks of one read are used, see [`Index::note_read`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Uses {
    /// The block in which an earlier read ended.
    continued: Option<u64>,
}

impl Uses {
    pub(crate) fn of(self, block: u32) -> Use {
        if self.continued == Some(u64::from(block)) { Use::Continued } else { Use::New }
    }
}

pub(crate) struct Index {
    blocks: Cache<BlockKey, Place, UnitWeighter, DefaultHashBuilder, Evicting>,
    objects: Cache<ObjectId, Known>,
    free: Vec<u32>,
    /// Slots from here on were never used: the file does not reach there.
    unused: u32,
    slots: u32,
    removals: u64,
    stays: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    len: Option<u64>,
    /// The end of the last read of this object.
    read_to: u64,
}

/// Collects the slots of evicted blocks.
#[derive(Clone)]
struct Evicting;

impl Lifecycle<BlockKey, Place> for Evicting {
    type RequestState = Vec<u32>;

    fn on_evict(&self, slots: &mut Vec<u32>, _: BlockKey, place: Place) {
        slots.push(place.slot);
    }
}

impl Index {
    /// An empty index over `slots` slots, of which `spare` are never resident: fills hold them.
    pub(crate) fn new(slots: u32, spare: u32) -> Self {
        let resident = slots.saturating_sub(spare).max(1);
        let (estimate, capacity) = (resident as usize, u64::from(resident));
        Self {
            blocks: Cache::with(estimate, capacity, UnitWeighter, DefaultHashBuilder::default(), Evicting),
            objects: Cache::new(estimate.max(1024)),
            free: Vec::new(),
            unused: 0,
            slots,
            removals: 0,
            stays: 0,
        }
    }

    /// Takes over the state of an earlier run: `entries` of slots below `used`.
    pub(crate) fn restore(&mut self, used: u32, entries: impl IntoIterator<Item = (u32, Entry)>) {
        let mut taken = vec![false; used as usize];
        for (slot, entry) in entries {
            // A block may have been written twice: both copies are right.
            if self.blocks.contains_key(&entry.key) {
                continue;
            }
            taken[slot as usize] = true;
            if let Some(len) = entry.object_len {
                self.known(entry.key.object, |known| known.len = Some(len));
            }
            self.insert(entry.key, Place { slot, len: entry.len, crc: entry.crc, stay: 0 });
        }
        self.unused = used;
        self.free.extend((0..used).rev().filter(|slot| !taken[*slot as usize]));
    }

    pub(crate) fn len(&self, object: ObjectId) -> Option<u64> {
        self.objects.get(&object)?.len
    }

    /// Remembers the length of an object, unless something was removed since [`Index::removals`] was `removals`: then
    /// it may have been this object.
    pub(crate) fn learn(&mut self, object: ObjectId, len: u64, removals: u64) {
        if self.removals == removals {
            self.known(object, |known| known.len = Some(len));
        }
    }

    pub(crate) fn removals(&self) -> u64 {
        self.removals
    }

    fn known(&mut self, object: ObjectId, change: impl FnOnce(&mut Known)) {
        let mut known = self.objects.get(&object).copied().unwrap_or_default();
        change(&mut known);
        self.objects.insert(object, known);
    }

    /// Notes a read, and how it uses its blocks. A scan in small steps meets each block several times in a row; this
    /// counts as one use, else every scan would look like a hot set. So a read that starts inside a block, where the
    /// last read of that object ended, continues the use of that block.
    pub(crate) fn note_read(&mut self, object: ObjectId, range: &Range<u64>, block_bytes: u64) -> Uses {
        let mut continued = None;
        self.known(object, |known| {
            let continues = known.read_to == range.start && !range.start.is_multiple_of(block_bytes);
            continued = continues.then_some(range.start / block_bytes);
            known.read_to = range.end;
        });
        Uses { continued }
    }

    pub(crate) fn find(&self, key: BlockKey, how: Use) -> Option<Place> {
        match how {
            Use::New => self.blocks.get(&key).copied(),
            Use::Continued => self.blocks.peek(&key).copied(),
        }
    }

    pub(crate) fn contains(&self, key: BlockKey) -> bool {
        self.blocks.contains_key(&key)
    }

    /// A slot to fill: it is the caller's until [`Index::insert`] or [`Index::release`].
    pub(crate) fn hold(&mut self) -> Option<u32> {
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        let slot = self.unused;
        (slot < self.slots).then(|| {
            self.unused += 1;
            slot
        })
    }

    pub(crate) fn release(&mut self, slot: u32) {
        self.free.push(slot);
    }

    /// Makes a filled slot resident; how many blocks were evicted for it.
    pub(crate) fn insert(&mut self, key: BlockKey, place: Place) -> u64 {
        // A replaced block would not be given back by the policy.
        self.forget(key, None);
        self.stays = self.stays.wrapping_add(1);
        let place = Place { stay: self.stays, ..place };
        let mut evicted = Vec::new();
        self.blocks.insert_with_lifecycle(key, place, &mut evicted);
        self.free.extend(&evicted);
        evicted.len() as u64
    }

    /// Drops a block if it is resident, and still at `place` if one is given; whether it was.
    pub(crate) fn forget(&mut self, key: BlockKey, place: Option<Place>) -> bool {
        if place.is_some() && self.blocks.peek(&key).copied() != place {
            return false;
        }
        let removed = self.blocks.remove(&key);
        self.free.extend(removed.iter().map(|(_, place)| place.slot));
        removed.is_some()
    }

    /// Drops the blocks that an object of `len` bytes will have, for the object to take their place.
    pub(crate) fn make_way(&mut self, object: ObjectId, len: u64, block_bytes: u64) {
        for block in 0..u32::try_from(len.div_ceil(block_bytes)).unwrap_or(u32::MAX) {
            self.forget(BlockKey { object, block }, None);
        }
    }

    /// Drops everything that is known of an object.
    pub(crate) fn remove(&mut self, object: ObjectId, block_bytes: u64) {
        self.removals += 1;
        let len = self.objects.remove(&object).and_then(|(_, known)| known.len);
        let blocks = len.map(|len| len.div_ceil(block_bytes)).filter(|blocks| *blocks <= self.blocks.len() as u64);
        if let Some(blocks) = blocks {
            for block in 0..blocks as u32 {
                self.forget(BlockKey { object, block }, None);
            }
            return;
        }
        let keys: Vec<_> = self.blocks.iter().map(|(key, _)| *key).filter(|key| key.object == object).collect();
        for key in keys {
            self.forget(key, None);
        }
    }

    /// Drops all blocks. Their slots are not free again: the cache is turned off.
    pub(crate) fn clear(&mut self) {
        self.blocks.clear();
        self.free = Vec::new();
        self.slots = 0;
    }

    /// How many blocks are resident, and how many slots the file has.
    pub(crate) fn sizes(&self) -> (u64, u32) {
        (self.blocks.len() as u64, self.unused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_that_was_asked_for_before_a_removal_is_not_remembered() {
        let mut index = Index::new(20, 1);
        let before = index.removals();
        index.learn(ObjectId(1), 100, before);
        assert_eq!(index.len(ObjectId(1)), Some(100));
        index.remove(ObjectId(1), 10);
        index.learn(ObjectId(1), 100, before);
        assert_eq!(index.len(ObjectId(1)), None);
    }

    #[test]
    fn removing_an_object_frees_its_slots_whether_or_not_its_length_is_known() {
        for known in [true, false] {
            let mut index = Index::new(20, 1);
            for block in 0..10 {
                let slot = index.hold().unwrap();
                let object = ObjectId(u64::from(block % 2));
                index.insert(BlockKey { object, block: block / 2 }, Place { slot, len: 10, crc: 0, stay: 0 });
            }
            if known {
                index.learn(ObjectId(1), 50, 0);
            }
            index.remove(ObjectId(1), 10);
            assert_eq!((index.blocks.len(), index.free.len()), (5, 5));
        }
    }

    #[test]
    fn a_slot_is_never_given_to_two() {
        let mut index = Index::new(20, 3);
        let mut held: Vec<u32> = Vec::new();
        for n in 0..1000 {
            let slot = index.hold().unwrap();
            assert!(!held.contains(&slot), "slot {slot} is held already");
            assert!(index.blocks.iter().all(|(_, place)| place.slot != slot), "slot {slot} is resident");
            held.push(slot);
            if held.len() == 3 {
                let key = BlockKey { object: ObjectId(n % 50), block: 0 };
                index.insert(key, Place { slot: held.remove(0), len: 1, crc: 0, stay: 0 });
                index.release(held.remove(0));
            }
        }
    }
}

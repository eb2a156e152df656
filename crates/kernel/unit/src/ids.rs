//! Ids of objects: the epoch of the owner that makes them, and a number that this owner gives out once.

use crate::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use thalweg_base::ObjectId;

const NUMBER_BITS: u32 = 32;

/// The last epoch that ids have room for.
pub const EPOCH_MAX: u64 = (1 << (u64::BITS - NUMBER_BITS)) - 1;

/// The object with this number of an epoch's owner. Ids of one epoch are above those of all epochs before it, and
/// numbers that were given out before owners had epochs are those of epoch 0.
#[must_use]
pub fn object_id(epoch: u64, number: u64) -> ObjectId {
    ObjectId(epoch << NUMBER_BITS | number)
}

/// The epoch of the owner that made an object.
#[must_use]
pub fn epoch_of(object: ObjectId) -> u64 {
    object.0 >> NUMBER_BITS
}

/// Gives out the ids of one owner.
#[derive(Clone, Debug)]
pub(crate) struct Ids {
    pub(crate) epoch: u64,
    next: Arc<AtomicU64>,
}

impl Ids {
    pub(crate) fn of(epoch: u64) -> Self {
        Self { epoch, next: Arc::new(AtomicU64::new(object_id(epoch, 1).0)) }
    }

    /// An id that was not given out before.
    ///
    /// # Panics
    ///
    /// If the owner has used up its 2^32 numbers, which takes a hundred years at one object a second: the next id would
    /// be one of the next owner's.
    pub(crate) fn next(&self) -> ObjectId {
        let id = ObjectId(self.next.fetch_add(1, Ordering::Relaxed));
        assert_eq!(epoch_of(id), self.epoch, "all ids of objects of this owner are used up: a restart gives new ones");
        id
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn ids_of_a_later_epoch_are_higher_and_tell_it() {
        let ids = Ids::of(7);
        let (first, second) = (ids.next(), ids.clone().next());
        assert_eq!((first, second), (object_id(7, 1), object_id(7, 2)));
        assert!(object_id(6, u64::from(u32::MAX)) < first && second < object_id(8, 0));
        assert_eq!([first, object_id(EPOCH_MAX, 5), ObjectId(900)].map(epoch_of), [7, EPOCH_MAX, 0]);
    }
}

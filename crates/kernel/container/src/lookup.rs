//! Lookup of one key: three reads at most, none if all is cached.

use crate::block::BlockCursor;
use crate::cache::BlockCache;
use crate::codec::{Codec, Kind};
use crate::error::ContainerError;
use crate::load::{Loader, Need};
use crate::object::Object;
use bytes::Bytes;
use std::marker::PhantomData;

/// An entry that was found. The value shares the memory of its block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The entry's key.
    pub key: Vec<u8>,
    /// The entry's effect on its key.
    pub kind: Kind,
    /// The entry's value.
    pub value: Bytes,
}

impl Found {
    pub(crate) fn of(cursor: &BlockCursor) -> Self {
        let entry = cursor.entry();
        Self { key: entry.key.to_vec(), kind: entry.kind, value: cursor.value() }
    }
}

/// Finds one entry; never waits.
pub struct Lookup<C> {
    load: Loader,
    key: Vec<u8>,
    is_exact: bool,
    codec: PhantomData<C>,
}

impl<C: Codec> Lookup<C> {
    /// The entry of this key.
    #[must_use]
    pub fn exact(object: Object, key: &[u8]) -> Self {
        Self { load: Loader::new(object, C::ID), key: key.to_vec(), is_exact: true, codec: PhantomData }
    }

    /// The first entry at or after this key which has the key's prefix (or any prefix, if the index has no filter): the
    /// newest version at or before a sequence number, the extent that covers an offset.
    #[must_use]
    pub fn at_or_after(object: Object, key: &[u8]) -> Self {
        Self { is_exact: false, ..Self::exact(object, key) }
    }

    /// Goes on with the bytes that the step before wanted.
    pub fn step(&mut self, cache: &dyn BlockCache, fed: Option<Bytes>) -> Result<Need<Option<Found>>, ContainerError> {
        self.load.feed(fed)?;
        let Some(root) = self.load.root(cache)? else { return Ok(self.load.wants()) };
        let number = root.part_of(&self.key);
        let Some(part) = root.parts.get(number) else { return Ok(Need::Done(None)) };
        let Some(partition) = self.load.partition(cache, &root, number)? else { return Ok(self.load.wants()) };
        if !partition.may_hold::<C>(&self.key) {
            return Ok(Need::Done(None));
        }
        let range = partition.range(partition.block_of(&self.key), part.data);
        let at = range.start;
        let Some(block) = self.load.block(cache, range)? else { return Ok(self.load.wants()) };
        let damaged = |what: String| ContainerError::corrupt(self.load.object().id, at, what);
        let mut cursor = BlockCursor::new(block);
        if !cursor.seek(&self.key).map_err(|error| damaged(error.to_string()))? {
            return Err(damaged("the block ends before the key that its partition names".to_owned()));
        }
        Ok(Need::Done(self.is_wanted(cursor.entry().key).then(|| Found::of(&cursor))))
    }

    fn is_wanted(&self, found: &[u8]) -> bool {
        if self.is_exact {
            found == self.key
        } else {
            C::prefix(found) == C::prefix(&self.key) || C::prefix(found).is_none()
        }
    }
}

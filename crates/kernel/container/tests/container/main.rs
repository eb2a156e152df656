//! The promises of containers.
#![allow(clippy::unwrap_used, reason = "a test that fails should say where")]

mod content;
mod damage;
mod golden;
mod index;
mod merging;
mod model;
mod reads;

use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_base::ObjectId;
use thalweg_container::{
    BlockCache, Builder, Codec, Compression, ContainerError, Cursor, Entry, Found, Kind, Lookup, NoCache, Object,
    Options, Scan, Source, Written, wait,
};
use thalweg_storage::{MemoryStorage, Storage};

/// Of entries: kind and value, by key.
type Model = BTreeMap<Vec<u8>, (Kind, Vec<u8>)>;

/// An index whose filter knows the first two bytes of each key, and whose measure is the first byte of a value.
struct Pairs;

impl Codec for Pairs {
    const ID: u32 = 77;

    fn prefix(key: &[u8]) -> Option<&[u8]> {
        Some(&key[..key.len().min(2)])
    }

    fn measure(entry: &Entry<'_>) -> Option<u64> {
        entry.value.first().map(|byte| u64::from(*byte))
    }
}

fn memory() -> Arc<dyn Storage> {
    Arc::new(MemoryStorage::new())
}

fn stored(bytes: &[u8]) -> Arc<dyn Storage> {
    let storage = memory();
    let mut writer = storage.create(ObjectId(1)).unwrap();
    writer.write(bytes).unwrap();
    writer.finish().unwrap();
    storage
}

fn builder(storage: &Arc<dyn Storage>, id: u64, options: Options) -> Builder<Pairs> {
    Builder::new(ObjectId(id), storage.create(ObjectId(id)).unwrap(), options).unwrap()
}

fn write(storage: &Arc<dyn Storage>, id: u64, options: Options, model: &Model) -> Written {
    let mut out = builder(storage, id, options);
    for (key, (kind, value)) in model {
        out.push(&Entry { key, kind: *kind, value }).unwrap();
    }
    out.finish().unwrap()
}

fn all_bytes(storage: &Arc<dyn Storage>, object: Object) -> Bytes {
    storage.read(object.id, 0..object.bytes).wait().unwrap()
}

fn scan(storage: &Arc<dyn Storage>, object: Object) -> Result<Model, ContainerError> {
    collect(&mut Scan::<Pairs>::open(storage, object)?)
}

fn collect(source: &mut impl Source) -> Result<Model, ContainerError> {
    let mut found = Model::new();
    while source.advance()? {
        let Entry { key, kind, value } = source.entry();
        found.insert(key.to_vec(), (kind, value.to_vec()));
    }
    Ok(found)
}

fn look_up(
    storage: &Arc<dyn Storage>,
    cache: &dyn BlockCache,
    object: Object,
    mut lookup: Lookup<Pairs>,
) -> Result<Option<Found>, ContainerError> {
    wait(storage, object, |fed| lookup.step(cache, fed))
}

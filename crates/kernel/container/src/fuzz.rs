//! A way in for fuzz targets: everything that is decoded from a container. Nothing may panic, or take memory that its
//! input does not justify; keys rise, and a cursor meets the same entries in both directions.
//!
//! Checksums stop nearly every input before it gets anywhere, so parts of containers are taken with checksums that fit,
//! too.

use crate::block::Block;
use crate::cache::{NoCache, SharedCache};
use crate::codec::{Codec, Entry, Kind};
use crate::compress::Compression;
use crate::cursor::Cursor;
use crate::error::ContainerError;
use crate::footer::{self, Footer};
use crate::frame::{BlockType, Packed, Place};
use crate::index::Index;
use crate::load::{Need, wait};
use crate::lookup::Lookup;
use crate::object::Object;
use crate::read_content::ContentRead;
use crate::{Builder, Options, verify};
use bytes::Bytes;
use std::sync::Arc;
use thalweg_base::ObjectId;
use thalweg_storage::{MemoryStorage, Storage};

const ID: ObjectId = ObjectId(1);

struct Any;

impl Codec for Any {
    const ID: u32 = 0;

    fn prefix(key: &[u8]) -> Option<&[u8]> {
        key.get(..2)
    }

    fn measure(entry: &Entry<'_>) -> Option<u64> {
        entry.value.first().map(|byte| u64::from(*byte))
    }
}

/// Takes `data` for a container, for each part of one, and for a compressed block.
#[doc(hidden)]
pub fn fuzz_container(data: &[u8]) {
    read(data.to_vec());
    let Some((shape, data)) = data.split_first() else { return };
    for compression in [Compression::Lz4, Compression::Zstd] {
        let _ = compression.unpack(data, usize::from(*shape) * 64);
    }
    let cut = data.len() * usize::from(shape >> 2) / 64;
    let (first, second) = data.split_at(cut);
    let (block, partition, root) = parts();
    match shape & 3 {
        0 => read(assemble(data, &partition, &root)),
        1 => read(assemble(&block, data, &root)),
        2 => read(assemble(&block, &partition, data)),
        _ => read(assemble(first, second, &root)),
    }
}

/// Inputs to begin with: whole containers, and parts.
#[doc(hidden)]
#[must_use]
pub fn fuzz_samples() -> Vec<Vec<u8>> {
    let (block, partition, root) = parts();
    let whole = assemble(&block, &partition, &root);
    vec![whole, [&[0], &block[..]].concat(), [&[1], &partition[..]].concat(), [&[2], &root[..]].concat()]
}

/// The contents of the parts of a container with one block.
fn parts() -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let bytes = write(&storage).ok().map(|object| (object, storage.read(ID, 0..object.bytes).wait()));
    let Some((object, Ok(bytes))) = bytes else { return Default::default() };
    let framed = |range: std::ops::Range<u64>, kind| {
        let framed = bytes.slice(range.start as usize..range.end as usize);
        crate::frame::open(Place { object: ID, at: range.start }, kind, &framed).unwrap_or_default().to_vec()
    };
    let Ok(footer) = Footer::decode(object, &bytes[object.footer_at() as usize..]) else { return Default::default() };
    let root = framed(footer.root.clone(), BlockType::Root);
    let decoded = crate::root::Root::decode(&root.clone().into(), footer.root.start);
    let Some(part) = decoded.ok().and_then(|root| root.parts.first().cloned()) else { return Default::default() };
    (framed(part.data(), BlockType::Data), framed(part.range(), BlockType::Partition), root)
}

fn write(storage: &Arc<dyn Storage>) -> Result<Object, ContainerError> {
    let options = Options { compression: Compression::None, ..Options::default() };
    let mut out = Builder::<Any>::new(ID, storage.create(ID)?, options)?;
    for n in 0..40u8 {
        let kind = if n % 7 == 0 { Kind::Tombstone } else { Kind::Value };
        out.push(&Entry { key: &[1, n / 4, n], kind, value: &[n; 3] })?;
    }
    out.finish().map(|written| written.object)
}

/// A container of these parts, with frames, checksums and places that fit.
fn assemble(block: &[u8], partition: &[u8], root: &[u8]) -> Vec<u8> {
    let mut out = footer::header(ID, Any::ID);
    let mut root_at = 0;
    for (kind, content) in [(BlockType::Data, block), (BlockType::Partition, partition), (BlockType::Root, root)] {
        root_at = out.len() as u64;
        let packed = Packed::new(kind, Compression::None, content.to_vec());
        out.extend(packed.seal(Place { object: ID, at: root_at }));
    }
    let footer = Footer { root: root_at..out.len() as u64 };
    out.extend(footer.encode(ID));
    out
}

fn read(bytes: Vec<u8>) {
    let storage = MemoryStorage::new();
    let written = storage.create(ID).and_then(|mut writer| {
        writer.write(&bytes)?;
        writer.finish()
    });
    let Ok(len) = written else { return };
    let storage: Arc<dyn Storage> = Arc::new(storage);
    let object = Object::new(ID, len);
    if let Ok(Need::Done(index)) = Index::decode::<Any>(ID, len, &bytes.clone().into()) {
        let blocks = index.blocks();
        assert!(index.block_of(&[1, 3]) <= blocks && index.block_range(blocks).is_empty());
        let _ = (index.may_hold::<Any>(&[1, 3]), index.check_pages(index.content().start, &bytes));
        for block in (0..blocks).map(|block| index.block_range(block)) {
            let framed = bytes.get(block.start as usize..block.end as usize).unwrap_or_default();
            let _ = Block::open(ID, block.start, &Bytes::copy_from_slice(framed));
        }
    }
    let is_whole = verify::<Any>(&storage, object).is_ok();
    for key in [&[][..], &[1, 3, 14], &[255; 9]] {
        let mut lookup = Lookup::<Any>::at_or_after(object, key);
        let _ = wait(&storage, object, |fed| lookup.step(&NoCache, fed));
    }
    let mut content = ContentRead::new(object, Any::ID, 0..len.min(crate::CONTENT_READ_MAX));
    if let Ok(content) = &mut content {
        let _ = wait(&storage, object, |fed| content.step(&NoCache, fed));
    }
    let (forth, back) = (walk(&storage, object, false), walk(&storage, object, true));
    if is_whole {
        let mut back = back.unwrap_or_default();
        back.reverse();
        assert!(forth.as_ref().is_ok_and(|keys| keys.is_sorted()), "keys rise");
        assert_eq!(forth, Ok(back), "both directions meet the same entries");
    }
}

/// All keys, or an error; a walk over damage may not end by itself.
fn walk(storage: &Arc<dyn Storage>, object: Object, is_backward: bool) -> Result<Vec<Vec<u8>>, ContainerError> {
    let cache = SharedCache::new(1 << 20);
    let mut cursor = Cursor::new(object, Any::ID);
    let mut keys = Vec::new();
    if is_backward {
        cursor.seek_last()
    } else {
        cursor.seek_first()
    }
    while wait(storage, object, |fed| cursor.step(&cache, fed))? {
        keys.extend(cursor.entry().map(|entry| entry.key.to_vec()));
        if is_backward {
            cursor.previous()
        } else {
            cursor.next()
        }
        assert!(keys.len() as u64 <= object.bytes, "a walk ends");
    }
    Ok(keys)
}

//! Writing objects of the earlier format, for tests of their readers.

use super::block::{DATA, REFERENCE};
use super::filter;
use super::map::{Address, FOOTER_BYTES, FORMAT, Footer, MAGIC, Map, PAGE_BYTES};
use crate::run::extent::{Content, Entry, Extent, Place};
use crate::run::meta::ObjectMeta;
use thalweg_base::{Encoder, LogId, ObjectId, Offset, crc};

/// A block is closed when it has grown so long. Only the last one of an object is shorter.
const BYTES_MIN: usize = 4 << 10;

/// Gathers the entries of one block.
#[derive(Default)]
struct BlockBuilder {
    bytes: Vec<u8>,
    first: Option<(LogId, Offset)>,
    log: LogId,
    end: Offset,
}

impl BlockBuilder {
    /// Appends an entry. In the first one of a block, `data` is where the block's data starts in the object.
    fn push(&mut self, entry: &Entry, data: u64) {
        if self.first.is_none() {
            self.first = Some((entry.log, entry.start));
            self.log = LogId::ZERO;
            self.end = Offset::ZERO;
            self.bytes.put_varint(data);
        }
        self.bytes.put_varint(entry.log.since(self.log));
        let before = if entry.log == self.log { self.end } else { Offset::ZERO };
        self.bytes.put_varint(entry.start.since(before));
        match entry.place {
            Place::Data { .. } => self.bytes.put_u8(DATA),
            Place::Reference { source, from } => {
                self.bytes.put_u8(REFERENCE);
                self.bytes.put_varint(source.0);
                self.bytes.put_varint(from.0);
            }
        }
        entry.lengths.encode(&mut self.bytes);
        self.log = entry.log;
        self.end = entry.end();
    }

    fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The key of its first entry and its bytes, if there are any; it is empty again afterwards.
    fn take(&mut self) -> Option<((LogId, Offset), Vec<u8>)> {
        let first = self.first.take()?;
        let mut bytes = std::mem::take(&mut self.bytes);
        let sum = crc(&bytes);
        bytes.put_u32(sum);
        Some((first, bytes))
    }
}

impl Footer {
    fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let meta = &self.meta;
        out.extend_from_slice(&MAGIC);
        out.put_u32(FORMAT);
        out.put_u32(0);
        out.put_u64(meta.id.0);
        out.put_u64(meta.data_bytes);
        out.put_u64(meta.index_bytes);
        out.put_u32(self.blocks);
        out.put_u32(PAGE_BYTES as u32);
        out.put_u64(self.filter_bytes);
        out.put_u64(meta.entries);
        out.put_u64(meta.logs);
        out.put_u64(meta.messages);
        out.put_u64(meta.reference_bytes);
        out.put_u64(meta.first.0.0);
        out.put_u64(meta.first.1.0);
        out.put_u64(meta.last.0);
        out.put_u64(meta.end.0);
        let sum = crc(&out[start..]);
        out.put_u32(sum);
    }
}

impl Map {
    /// The map and the footer as bytes. Sets the number of index bytes: `blocks_bytes` and their length.
    fn encode(&mut self, blocks_bytes: u64) -> Vec<u8> {
        let mut out = Vec::new();
        for block in &self.blocks {
            out.put_u64(block.first.0.0);
            out.put_u64(block.first.1.0);
            out.put_u64(block.at);
            out.put_u32(block.len);
        }
        for sum in &self.sums {
            out.put_u32(*sum);
        }
        out.extend_from_slice(&self.filter);
        let sum = crc(&out);
        out.put_u32(sum);
        self.meta.index_bytes = blocks_bytes + out.len() as u64 + FOOTER_BYTES;
        let footer =
            Footer { meta: self.meta, blocks: self.blocks.len() as u32, filter_bytes: self.filter.len() as u64 };
        footer.encode(&mut out);
        out
    }
}

/// The object of extents that are of one entry each.
pub(in crate::run) fn write(id: ObjectId, extents: &[Extent]) -> Vec<u8> {
    let (mut data, mut blocks, mut sealed, mut addresses, mut logs) =
        (Vec::new(), BlockBuilder::default(), Vec::new(), Vec::new(), Vec::new());
    let mut meta = ObjectMeta {
        id,
        first: extents.first().map(|extent| (extent.log, extent.start)).unwrap_or_default(),
        last: extents.last().map(|extent| extent.log).unwrap_or_default(),
        end: extents.last().map(Extent::end).unwrap_or_default(),
        data_bytes: 0,
        reference_bytes: 0,
        index_bytes: 0,
        entries: extents.len() as u64,
        logs: 0,
        messages: 0,
    };
    for extent in extents {
        let at = data.len() as u64;
        let place = match &extent.content {
            Content::Bytes { parts, .. } => {
                parts.iter().for_each(|part| data.extend_from_slice(part));
                Place::Data { object: id, at }
            }
            Content::Reference { source, from, lengths } => {
                meta.reference_bytes += lengths.bytes();
                Place::Reference { source: *source, from: *from }
            }
        };
        let lengths = extent.lengths().clone();
        meta.messages += lengths.count();
        if logs.last() != Some(&extent.log) {
            logs.push(extent.log);
        }
        blocks.push(&Entry { log: extent.log, start: extent.start, place, lengths }, at);
        if blocks.len() >= BYTES_MIN {
            close(&mut blocks, &mut sealed, &mut addresses);
        }
    }
    close(&mut blocks, &mut sealed, &mut addresses);
    meta.data_bytes = data.len() as u64;
    meta.logs = logs.len() as u64;
    addresses.iter_mut().for_each(|address: &mut Address| address.at += meta.data_bytes);
    let sums = data.chunks(PAGE_BYTES as usize).map(crc).collect();
    let mut map = Map { meta, blocks: addresses, sums, filter: filter::build(&logs) };
    let end = map.encode(sealed.len() as u64);
    [data, sealed, end].concat()
}

fn close(block: &mut BlockBuilder, sealed: &mut Vec<u8>, addresses: &mut Vec<Address>) {
    if let Some((first, bytes)) = block.take() {
        addresses.push(Address { first, at: sealed.len() as u64, len: bytes.len() as u32 });
        sealed.extend_from_slice(&bytes);
    }
}

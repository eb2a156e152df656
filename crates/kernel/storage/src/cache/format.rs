//! The bytes of `cache.index`: a header, then one entry for each slot of `cache.blocks`. `docs/format/cache.md`
//! describes both files.

use super::options::StoreId;
use thalweg_base::{Crc, Decoder, Encoder, ObjectId, crc};

const MAGIC: &[u8; 8] = b"thwgcach";
const VERSION: u32 = 1;
/// The header takes a whole page, so that no entry shares a sector with it.
pub(crate) const HEADER_SPAN: u64 = 4096;
pub(crate) const HEADER_BYTES: usize = 36;
/// Entries are aligned to their size, so that none lies in two sectors.
pub(crate) const ENTRY_BYTES: usize = 32;
/// Stands in an entry for the length of an object that was not known when the block was written.
const UNKNOWN: u64 = u64::MAX;

/// The identity of a cache folder: its content is used only if all fields are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) block_bytes: u32,
    pub(crate) store: StoreId,
}

/// One block of an object: bytes `block * block_bytes` up to the next block, or to the end of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BlockKey {
    pub(crate) object: ObjectId,
    pub(crate) block: u32,
}

/// The content of one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: BlockKey,
    pub(crate) object_len: Option<u64>,
    /// Length of the block in bytes.
    pub(crate) len: u32,
    /// Checksum of the block, see [`Header::block_crc`].
    pub(crate) crc: u32,
}

impl Header {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend_from_slice(MAGIC);
        out.put_u32(VERSION);
        out.put_u32(self.block_bytes);
        out.extend_from_slice(&self.store.0);
        out.put_u32(crc(&out));
        out
    }

    /// The checksum of a block's bytes under its name: a block of another object, position or store never passes.
    pub(crate) fn block_crc(&self, key: BlockKey, bytes: &[u8]) -> u32 {
        Crc::new().bytes(&self.store.0).u64(key.object.0).u32(key.block).bytes(bytes).finish()
    }

    /// The checksum of an entry covers its slot: an entry that a device returns from another place never passes.
    fn entry_crc(&self, slot: u32, fields: &[u8]) -> u32 {
        Crc::new().bytes(&self.store.0).u32(self.block_bytes).u32(slot).bytes(fields).finish()
    }

    pub(crate) fn encode_entry(&self, slot: u32, entry: &Entry) -> Vec<u8> {
        let mut out = Vec::with_capacity(ENTRY_BYTES);
        out.put_u64(entry.key.object.0);
        out.put_u64(entry.object_len.unwrap_or(UNKNOWN));
        out.put_u32(entry.key.block);
        out.put_u32(entry.len);
        out.put_u32(entry.crc);
        out.put_u32(self.entry_crc(slot, &out));
        out
    }

    /// The entry of `slot`; `None` for a slot that was never written and for damaged bytes.
    pub(crate) fn decode_entry(&self, slot: u32, bytes: &[u8]) -> Option<Entry> {
        let mut decoder = Decoder::new(bytes);
        let fields = decoder.take(ENTRY_BYTES - 4).ok()?;
        let crc = decoder.u32().ok()?;
        decoder.end().ok()?;
        if crc != self.entry_crc(slot, fields) {
            return None;
        }
        let mut decoder = Decoder::new(fields);
        let object = ObjectId(decoder.u64().ok()?);
        let object_len = Some(decoder.u64().ok()?).filter(|len| *len != UNKNOWN);
        let key = BlockKey { object, block: decoder.u32().ok()? };
        let entry = Entry { key, object_len, len: decoder.u32().ok()?, crc: decoder.u32().ok()? };
        (self.block_len(key.block, object_len) == Some(entry.len)).then_some(entry)
    }

    /// The length that a block must have; `None` where the object has no such block.
    pub(crate) fn block_len(&self, block: u32, object_len: Option<u64>) -> Option<u32> {
        let Some(object_len) = object_len else { return Some(self.block_bytes) };
        let from = u64::from(block) * u64::from(self.block_bytes);
        let rest = object_len.checked_sub(from).filter(|rest| *rest > 0)?;
        Some(u32::try_from(rest).unwrap_or(u32::MAX).min(self.block_bytes))
    }
}

/// A fuzz target's way in: takes `data` for entries from slot 0 on, as they are and with checksums that fit.
#[doc(hidden)]
pub fn fuzz_cache_index(data: &[u8]) {
    let header = Header { block_bytes: 4096, store: StoreId([7; 16]) };
    for (slot, bytes) in data.chunks(ENTRY_BYTES).enumerate() {
        let slot = slot as u32;
        check_entry(&header, slot, bytes);
        // With a checksum that fits, so that the decoder behind the checksum runs as well.
        if let Some((fields, _)) = bytes.split_at_checked(ENTRY_BYTES - 4) {
            let mut sealed = fields.to_vec();
            sealed.put_u32(header.entry_crc(slot, fields));
            check_entry(&header, slot, &sealed);
        }
    }
}

fn check_entry(header: &Header, slot: u32, bytes: &[u8]) {
    if let Some(entry) = header.decode_entry(slot, bytes) {
        assert!(entry.len > 0 && entry.len <= header.block_bytes, "a block is never empty and fits into its slot");
        assert_eq!(header.encode_entry(slot, &entry), bytes, "what is decoded is the same when encoded again");
        assert_eq!(header.decode_entry(slot.wrapping_add(1), bytes), None, "an entry is for one slot alone");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> Header {
        Header { block_bytes: 4096, store: StoreId([7; 16]) }
    }

    fn entry(object: u64, block: u32, object_len: Option<u64>) -> Option<Entry> {
        let len = header().block_len(block, object_len)?;
        Some(Entry { key: BlockKey { object: ObjectId(object), block }, object_len, len, crc: 0x1234_5678 })
    }

    proptest! {
        #[test]
        fn entries_round_trip_and_every_flipped_bit_is_refused(object: u64, block: u32, rest in 1u64..10_000, known: bool, slot: u32, bit in 0..256usize) {
            let object_len = known.then(|| u64::from(block) * 4096 + rest);
            let entry = entry(object, block, object_len).unwrap();
            let mut bytes = header().encode_entry(slot, &entry);
            prop_assert_eq!(header().decode_entry(slot, &bytes), Some(entry));
            prop_assert_eq!(header().decode_entry(slot ^ 1, &bytes), None);
            prop_assert_eq!(Header { store: StoreId([8; 16]), ..header() }.decode_entry(slot, &bytes), None);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(header().decode_entry(slot, &bytes), None);
        }

        #[test]
        fn garbage_in_the_index_never_panics(data: Vec<u8>) {
            fuzz_cache_index(&data);
        }
    }

    #[test]
    fn a_slot_that_was_never_written_has_no_entry() {
        assert_eq!(header().decode_entry(0, &[0; ENTRY_BYTES]), None);
        assert_eq!(header().decode_entry(0, &[0; ENTRY_BYTES - 1]), None);
    }

    #[test]
    fn the_bytes_of_version_1_never_change() {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(hex(&header().encode()), "74687767636163680100000000100000070707070707070707070707070707078c676c74");
        let entry = entry(0x0102_0304_0506_0708, 2, Some(8192 + 100)).unwrap();
        let golden = "08070605040302016420000000000000020000006400000078563412c87b22a3";
        assert_eq!(hex(&header().encode_entry(3, &entry)), golden);
        assert_eq!(header().block_crc(entry.key, b"abc"), 0xd142_c914);
    }
}

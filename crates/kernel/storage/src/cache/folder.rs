//! The two files of a cache folder. `docs/format/cache.md` describes them.
//!
//! No block is ever synced: it is believed only if its checksum fits the entry of its slot, so that any mixture of old
//! and new bytes, which a kill or a power cut may leave, is either a block that is right or none. The names of the
//! files are synced once, so that a power cut rarely costs all of the cache.

use super::format::{BlockKey, ENTRY_BYTES, Entry, HEADER_BYTES, HEADER_SPAN, Header};
use super::index::Place;
use super::options::CacheError;
use std::io;
use std::sync::Arc;
use thalweg_disk::{Disk, File};

const INDEX: &str = "cache.index";
const BLOCKS: &str = "cache.blocks";
/// The index is read in pieces of this size at the start.
const PIECE_ENTRIES: usize = 32 << 10;

pub(crate) struct Folder {
    index: Arc<dyn File>,
    blocks: Arc<dyn File>,
    header: Header,
}

/// The entries of an earlier run by slot, all of slots below `used`.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) used: u32,
    pub(crate) entries: Vec<(u32, Entry)>,
}

/// Refuses a folder with files that are no files of a cache. An error of the disk is no refusal.
pub(crate) fn check_names(disk: &dyn Disk, dir: &str) -> Result<io::Result<()>, CacheError> {
    match disk.list(dir) {
        Ok(names) => match names.into_iter().find(|name| name != INDEX && name != BLOCKS) {
            Some(name) => Err(CacheError::Foreign { dir: dir.to_owned(), name }),
            None => Ok(Ok(())),
        },
        Err(error) => Ok(Err(error)),
    }
}

impl Folder {
    /// Opens the folder, and empties it if its header is not exactly `header`.
    pub(crate) fn open(disk: &dyn Disk, dir: &str, header: Header, slots: u32) -> io::Result<(Self, Found)> {
        let (index_path, blocks_path) = (format!("{dir}/{INDEX}"), format!("{dir}/{BLOCKS}"));
        let names = disk.list(dir)?;
        let has = |name: &str| names.iter().any(|found| found == name);
        if !(has(INDEX) && has(BLOCKS) && header_fits(disk, &index_path, &header)) {
            for (name, path) in [(INDEX, &index_path), (BLOCKS, &blocks_path)] {
                if has(name) {
                    tracing::info!(
                        path,
                        "the cache folder is of another store, block size or version, or damaged: emptied"
                    );
                    disk.remove(path)?;
                }
                disk.create(path)?;
            }
            let index = disk.open(&index_path)?;
            index.write_at(&header.encode(), 0)?;
            index.sync()?;
            disk.sync_dir(dir)?;
        }
        let folder = Self { index: disk.open(&index_path)?, blocks: disk.open(&blocks_path)?, header };
        folder.cut(slots)?;
        let found = folder.load()?;
        Ok((folder, found))
    }

    /// Cuts off slots beyond the capacity, which may have been larger before.
    fn cut(&self, slots: u32) -> io::Result<()> {
        for (file, max) in [(&self.index, entry_at(slots)), (&self.blocks, self.block_at(slots))] {
            if file.len()? > max {
                file.set_len(max)?;
            }
        }
        Ok(())
    }

    /// Reads the index, not the blocks. Slots without a whole entry are free.
    fn load(&self) -> io::Result<Found> {
        let entries = self.index.len()?.saturating_sub(HEADER_SPAN).div_ceil(ENTRY_BYTES as u64);
        // A crash may leave one file longer than the other.
        let used = entries.max(self.blocks.len()?.div_ceil(u64::from(self.header.block_bytes))) as u32;
        let mut found = Found { used, entries: Vec::new() };
        let mut piece = vec![0; PIECE_ENTRIES * ENTRY_BYTES];
        let mut slot = 0;
        while slot < used {
            let wanted = piece.len().min((used - slot) as usize * ENTRY_BYTES);
            // An unreadable entry counts as never written.
            let read = self.index.read_at(&mut piece[..wanted], entry_at(slot)).unwrap_or(0);
            for (slot, bytes) in (slot..).zip(piece[..read].chunks(ENTRY_BYTES)) {
                found.entries.extend(self.header.decode_entry(slot, bytes).map(|entry| (slot, entry)));
            }
            slot += wanted.div_ceil(ENTRY_BYTES) as u32;
        }
        Ok(found)
    }

    /// Writes a block and its entry into a slot that the caller holds.
    pub(crate) fn write(&self, slot: u32, key: BlockKey, object_len: Option<u64>, bytes: &[u8]) -> io::Result<Place> {
        let place = Place { slot, len: bytes.len() as u32, crc: self.header.block_crc(key, bytes), stay: 0 };
        let entry = Entry { key, object_len, len: place.len, crc: place.crc };
        self.blocks.write_at(bytes, self.block_at(slot))?;
        self.index.write_at(&self.header.encode_entry(slot, &entry), entry_at(slot))?;
        Ok(place)
    }

    /// The block at `place` if all of its bytes are as they were written.
    pub(crate) fn read(&self, key: BlockKey, place: Place) -> Option<Vec<u8>> {
        let mut bytes = vec![0; place.len as usize];
        let read = self.blocks.read_at(&mut bytes, self.block_at(place.slot));
        (read.ok() == Some(bytes.len()) && self.is_whole(key, place, &bytes)).then_some(bytes)
    }

    /// Like [`Folder::read`]; `Ok(None)` where the answer would have to wait for the device, `Err` for a damaged block.
    pub(crate) fn try_read(&self, key: BlockKey, place: Place) -> Result<Option<Vec<u8>>, Damaged> {
        let mut bytes = vec![0; place.len as usize];
        match self.blocks.try_read_at(&mut bytes, self.block_at(place.slot)) {
            Ok(None) => Ok(None),
            Ok(Some(read)) if read == bytes.len() && self.is_whole(key, place, &bytes) => Ok(Some(bytes)),
            _ => Err(Damaged),
        }
    }

    fn is_whole(&self, key: BlockKey, place: Place, bytes: &[u8]) -> bool {
        self.header.block_crc(key, bytes) == place.crc
    }

    fn block_at(&self, slot: u32) -> u64 {
        u64::from(slot) * u64::from(self.header.block_bytes)
    }
}

/// A local block that is short, stale, unreadable or altered.
pub(crate) struct Damaged;

fn entry_at(slot: u32) -> u64 {
    HEADER_SPAN + u64::from(slot) * ENTRY_BYTES as u64
}

fn header_fits(disk: &dyn Disk, path: &str, header: &Header) -> bool {
    let mut bytes = [0; HEADER_BYTES];
    let read = disk.open(path).and_then(|file| file.read_at(&mut bytes, 0));
    read.ok() == Some(HEADER_BYTES) && bytes[..] == header.encode()[..]
}

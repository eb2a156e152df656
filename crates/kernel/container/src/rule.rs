//! Rules: which entries a merge leaves out. A rule sees all entries of all sources in key order, of equal keys the
//! newest source's first. It remembers only the key before.

use crate::codec::{Entry, Kind};
use crate::error::ContainerError;
use crate::ordered;

/// Decides on one entry after the other.
pub trait Rule {
    /// Whether the entry is still wanted.
    fn keep(&mut self, entry: &Entry<'_>) -> Result<bool, ContainerError>;

    /// Whether a container may end before the last entry that [`Rule::keep`] was asked about.
    fn may_cut(&self) -> bool {
        true
    }
}

/// Of several entries of a key the newest counts.
#[derive(Clone, Debug, Default)]
pub struct NewestWins {
    drops_tombstones: bool,
    last: Option<Vec<u8>>,
}

impl NewestWins {
    /// Tombstones may be dropped only if no older source is left beside the inputs: they hide its entries.
    #[must_use]
    pub fn new(drops_tombstones: bool) -> Self {
        Self { drops_tombstones, last: None }
    }
}

impl Rule for NewestWins {
    fn keep(&mut self, entry: &Entry<'_>) -> Result<bool, ContainerError> {
        let last = self.last.get_or_insert_default();
        if !last.is_empty() && last[1..] == *entry.key {
            return Ok(false);
        }
        // With a byte before it, so that an empty key differs from none.
        last.clear();
        last.push(1);
        last.extend_from_slice(entry.key);
        Ok(entry.kind != Kind::Tombstone || !self.drops_tombstones)
    }
}

/// Versions of keys: a key ends with its version, as [`ordered::put_u64_descending`] puts it, so that the newest comes
/// first.
///
/// Everything above the lowest version that a reader may ask for is kept. At or below it the newest counts: operands
/// and deltas down to the value, image or tombstone that they change, which hides everything older.
#[derive(Clone, Debug)]
pub struct Versions {
    lowest_read: u64,
    drops_tombstones: bool,
    key: Option<Vec<u8>>,
    version: u64,
    is_hidden: bool,
    is_first: bool,
}

impl Versions {
    /// `lowest_read` is the lowest version at which anything still reads. Tombstones may be dropped only if no older
    /// source is left beside the inputs.
    #[must_use]
    pub fn new(lowest_read: u64, drops_tombstones: bool) -> Self {
        Self { lowest_read, drops_tombstones, key: None, version: 0, is_hidden: false, is_first: true }
    }
}

impl Rule for Versions {
    fn keep(&mut self, entry: &Entry<'_>) -> Result<bool, ContainerError> {
        let split = entry.key.len().saturating_sub(size_of::<u64>());
        let (key, mut version) = entry.key.split_at(split);
        let version = ordered::take_u64_descending(&mut version).map_err(ContainerError::Key)?;
        let is_same = self.key.as_deref() == Some(key);
        self.is_first = !is_same;
        if is_same && version == self.version {
            return Ok(false);
        }
        if !is_same {
            let held = self.key.get_or_insert_default();
            held.clear();
            held.extend_from_slice(key);
            self.is_hidden = false;
        }
        self.version = version;
        if version > self.lowest_read {
            return Ok(true);
        }
        let was_hidden = self.is_hidden;
        self.is_hidden |= entry.kind != Kind::Operand;
        Ok(!was_hidden && (entry.kind != Kind::Tombstone || !self.drops_tombstones))
    }

    /// Versions of one key stay in one container, so that a lookup reads one.
    fn may_cut(&self) -> bool {
        self.is_first
    }
}

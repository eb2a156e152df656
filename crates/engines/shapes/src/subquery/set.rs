//! The values that an inner query selects.

use hashbrown::HashMap;
use thalweg_filter::Key;

/// Values with how many rows have each.
#[derive(Debug, Default)]
pub(super) struct Set {
    counts: HashMap<Box<[u8]>, u64>,
    rows: u64,
    /// Rows with a null among their values.
    nulls: u64,
    /// Of a query of several columns, all of them: with nulls they are not found by their bytes.
    wide: HashMap<Key, u64>,
}

/// What one transaction does to a set, while it does it.
#[derive(Debug)]
pub(super) struct Changes {
    /// Values that were touched, and whether they were in the set before.
    touched: HashMap<Key, bool>,
    rows: u64,
    nulls: u64,
    /// A row of several columns with a null came or went.
    partial: bool,
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Moves {
    /// Values without nulls, and whether they entered (or left).
    pub(super) keys: Vec<(Key, bool)>,
    /// It was empty and is not any more, or the reverse.
    pub(super) filled: Option<bool>,
    /// Nulls entered an inner query's values, or the last one left: that decides about every row that a NOT IN asks for.
    pub(super) nulls: bool,
}

impl Moves {
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.filled.is_none() && !self.nulls
    }
}

impl Set {
    /// Its values, as the bytes of their keys.
    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.counts.keys().map(AsRef::as_ref)
    }

    pub(super) fn begin(&self) -> Changes {
        Changes { touched: HashMap::new(), rows: self.rows, nulls: self.nulls, partial: false }
    }

    pub(super) fn add(&mut self, key: Key, changes: &mut Changes) {
        self.rows += 1;
        if key.width() > 1 {
            *self.wide.entry(key.clone()).or_default() += 1;
        }
        if key.has_null() {
            self.nulls += 1;
            changes.partial |= key.width() > 1;
            return;
        }
        let was = match self.counts.get_mut(key.bytes()) {
            Some(count) => {
                *count += 1;
                true
            }
            None => self.counts.insert(key.bytes().into(), 1).is_some(),
        };
        changes.touched.entry(key).or_insert(was);
    }

    pub(super) fn remove(&mut self, key: Key, changes: &mut Changes) {
        self.rows = self.rows.saturating_sub(1);
        if let hashbrown::hash_map::Entry::Occupied(mut entry) = self.wide.entry(key.clone()) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
        if key.has_null() {
            self.nulls = self.nulls.saturating_sub(1);
            changes.partial |= key.width() > 1;
            return;
        }
        if let Some(count) = self.counts.get_mut(key.bytes()) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(key.bytes());
            }
        }
        changes.touched.entry(key).or_insert(true);
    }

    pub(super) fn end(&self, changes: Changes) -> Moves {
        let touched = changes.touched.into_iter();
        let mut keys: Vec<(Key, bool)> = touched
            .filter_map(|(key, was)| {
                let is = self.counts.contains_key(key.bytes());
                (is != was).then_some((key, is))
            })
            .collect();
        // The same order in each run.
        keys.sort_unstable_by(|(a, _), (b, _)| a.bytes().cmp(b.bytes()));
        let filled = ((changes.rows == 0) != (self.rows == 0)).then_some(self.rows > 0);
        Moves { keys, filled, nulls: changes.partial || (changes.nulls == 0) != (self.nulls == 0) }
    }

    /// Whether a value is in it; a key with nulls asks whether there is anything at all.
    pub(super) fn has(&self, key: &Key) -> bool {
        if key.has_null() { self.rows > 0 } else { self.counts.contains_key(key.bytes()) }
    }

    /// Whether a value of several columns is, or for a null may be, in it: then NOT IN is not true.
    pub(super) fn may_have(&self, key: &Key) -> bool {
        self.wide.keys().any(|known| known.may_equal(key))
    }

    /// Whether a null in it keeps a value, which may be in it or not, from being surely not in it.
    pub(super) fn is_unsure_of(&self, key: &Key) -> bool {
        self.nulls > 0 && (key.width() == 1 || self.wide.keys().any(|known| known.has_null() && known.may_equal(key)))
    }

    pub(super) fn has_nulls(&self) -> bool {
        self.nulls > 0
    }
}

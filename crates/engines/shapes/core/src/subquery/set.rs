//! The set of values that an inner query selects.

use hashbrown::HashMap;
use thalweg_filter::Key;

/// Values, each with the number of rows that have it.
#[derive(Debug, Default)]
pub struct Set {
    counts: HashMap<Box<[u8]>, u64>,
    rows: u64,
    /// The number of rows with a null among their values.
    nulls: u64,
    /// For a query of several columns: all keys, because keys with nulls cannot be found by their bytes.
    wide: HashMap<Key, u64>,
}

/// The changes of a set within one transaction.
#[derive(Debug)]
pub struct Changes {
    /// The touched values, and whether each was in the set before.
    touched: HashMap<Key, bool>,
    rows: u64,
    nulls: u64,
    /// A row of several columns with a null came or went.
    partial: bool,
}

/// The result of a transaction's changes.
#[derive(Debug, Default)]
pub struct Moves {
    /// The values without nulls that entered (`true`) or left.
    pub keys: Vec<(Key, bool)>,
    /// The set's emptiness changed.
    pub filled: Option<bool>,
    /// The first null entered the set, or the last one left: that decides every row of a NOT IN.
    pub nulls: bool,
}

impl Moves {
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.filled.is_none() && !self.nulls
    }
}

impl Set {
    /// The values, as the bytes of their keys.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.counts.keys().map(AsRef::as_ref)
    }

    pub fn begin(&self) -> Changes {
        Changes { touched: HashMap::new(), rows: self.rows, nulls: self.nulls, partial: false }
    }

    pub fn add(&mut self, key: Key, changes: &mut Changes) {
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

    pub fn remove(&mut self, key: Key, changes: &mut Changes) {
        debug_assert!(self.rows > 0, "a value is taken out of an empty set");
        debug_assert!(key.has_null() || self.counts.contains_key(key.bytes()), "a value is taken out that is not in");
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

    pub fn end(&self, changes: Changes) -> Moves {
        let touched = changes.touched.into_iter();
        let mut keys: Vec<(Key, bool)> = touched
            .filter_map(|(key, was)| {
                let is = self.counts.contains_key(key.bytes());
                (is != was).then_some((key, is))
            })
            .collect();
        // Sorted, so that the order is the same in each run.
        keys.sort_unstable_by(|(a, _), (b, _)| a.bytes().cmp(b.bytes()));
        let filled = ((changes.rows == 0) != (self.rows == 0)).then_some(self.rows > 0);
        Moves { keys, filled, nulls: changes.partial || (changes.nulls == 0) != (self.nulls == 0) }
    }

    /// Whether the set contains a value; for a key with nulls, whether the set has any value.
    pub fn has(&self, key: &Key) -> bool {
        if key.has_null() { self.rows > 0 } else { self.counts.contains_key(key.bytes()) }
    }

    /// Whether the set contains a value of several columns, or may contain it because of a null: then NOT IN is not
    /// true.
    pub fn may_have(&self, key: &Key) -> bool {
        self.wide.keys().any(|known| known.may_equal(key))
    }

    /// Whether a null in the set makes NOT IN unknown for a value.
    pub fn is_unsure_of(&self, key: &Key) -> bool {
        self.nulls > 0 && (key.width() == 1 || self.wide.keys().any(|known| known.has_null() && known.may_equal(key)))
    }

    pub fn has_nulls(&self) -> bool {
        self.nulls > 0
    }
}

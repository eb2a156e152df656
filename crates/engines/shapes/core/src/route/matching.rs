//! The shapes of a table that a row belongs to.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use thalweg_filter::{Explanation, Filing, Index};
use thalweg_shapes_model::predicate::Predicate;

/// Shapes of one table by their predicates.
pub struct Matcher<K> {
    index: Index<K>,
    /// The index entry of each slot, for its removal.
    filings: HashMap<K, Filing>,
}

impl<K: Copy + Ord> Default for Matcher<K> {
    fn default() -> Self {
        Self { index: Index::default(), filings: HashMap::new() }
    }
}

impl<K: Copy + Ord + Hash> Matcher<K> {
    pub fn insert(&mut self, key: K, predicate: Option<Arc<Predicate>>) {
        self.remove(key);
        let filing = self.index.insert(key, predicate.as_ref());
        self.filings.insert(key, filing);
    }

    pub fn remove(&mut self, key: K) {
        if let Some(filing) = self.filings.remove(&key) {
            self.index.remove(key, filing);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.filings.is_empty()
    }

    /// Appends the keys whose predicate holds for the row, ascending, and those whose evaluation costs too much.
    pub fn matching(&mut self, row: &[Option<&[u8]>], out: &mut Vec<K>, costly: &mut Vec<K>) {
        self.index.matching(row, out, costly);
    }

    /// Explains how the index finds a predicate.
    pub fn explain(&self, predicate: &Predicate) -> Explanation {
        self.index.explain(predicate)
    }

    /// The number of evaluations since the last call.
    pub fn take_evaluations(&mut self) -> u64 {
        self.index.take_evaluations()
    }
}

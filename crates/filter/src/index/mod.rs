//! Which of many predicates a row satisfies, without asking each.
//!
//! A predicate is filed under *keys*: values, ranges or pieces of text of which a row must have one if the predicate is to be true for it.
//! A row's values lead to the predicates filed under them, its *candidates*; those are then evaluated whole. So a key may promise too much
//! (two texts with one hash, a prefix of a prefix), but never too little, and nothing else has to be right for the answer to be. Predicates
//! without keys are candidates of every row. Equal predicates are filed and evaluated once.

mod access;
mod explain;
mod keys;
mod plan;
mod postings;
mod ranges;
mod scalars;
#[cfg(test)]
mod tests;

use crate::Predicate;
use crate::row::Row;
use crate::schema::Schema;
use access::Access;
pub use explain::Explanation;
use hashbrown::{DefaultHashBuilder, HashTable};
use postings::Postings;
use scalars::Scalars;
use slab::Slab;
use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::sync::Arc;

/// Predicates of one table by the keys (not to be confused with the above: of the caller) of those who asked for them.
pub struct Index<K> {
    /// Who wants every row.
    everything: BTreeSet<K>,
    slots: Slab<Slot<K>>,
    /// Slots by their predicate.
    interned: HashTable<u32>,
    hasher: DefaultHashBuilder,
    filed: Filed,
    /// Of all predicates that are filed.
    schema: Option<Schema>,
    /// Slots whose predicate was read for other columns: they are evaluated on their own.
    foreign: BTreeSet<u32>,
    /// Of each slot, the last row of which it was a candidate.
    seen: Vec<u32>,
    row: u32,
    candidates: Vec<u32>,
    /// Since it was asked last.
    evaluations: u64,
}

/// Where slots are found by the values of a row.
struct Filed {
    scalars: Scalars,
    postings: Postings,
    /// Without keys.
    residual: BTreeSet<u32>,
}

/// A predicate and who wants it.
struct Slot<K> {
    predicate: Arc<Predicate>,
    wanted_by: Wanted<K>,
    access: Access,
}

enum Wanted<K> {
    One(K),
    /// Ascending. Boxed, as there may be a million predicates that one wants each.
    #[expect(clippy::box_collection, reason = "the enum is half as large")]
    Many(Box<Vec<K>>),
}

impl<K: Copy + Ord> Default for Index<K> {
    fn default() -> Self {
        Self {
            everything: BTreeSet::new(),
            slots: Slab::new(),
            interned: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            filed: Filed { scalars: Scalars::default(), postings: Postings::default(), residual: BTreeSet::new() },
            schema: None,
            foreign: BTreeSet::new(),
            seen: Vec::new(),
            row: 0,
            candidates: Vec::new(),
            evaluations: 0,
        }
    }
}

impl<K: Copy + Ord> Index<K> {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn is_empty(&self) -> bool {
        self.everything.is_empty() && self.slots.is_empty()
    }

    /// Files `key` under a predicate, or under every row if there is none. A key may have several predicates.
    pub fn insert(&mut self, key: K, predicate: Option<&Arc<Predicate>>) {
        let Some(predicate) = predicate else {
            self.everything.insert(key);
            return;
        };
        if let Some(slot) = self.find(predicate) {
            self.slots[slot as usize].wanted_by.add(key);
            return;
        }
        let Ok(slot) = u32::try_from(self.slots.vacant_key()) else { return };
        if self.slots.is_empty() {
            self.schema = None;
        }
        let schema = self.schema.get_or_insert_with(|| predicate.schema.clone());
        let access = if schema.is_same(&predicate.schema) {
            self.filed.insert(slot, &predicate.expr, &self.hasher)
        } else {
            self.foreign.insert(slot);
            Access::Residual
        };
        self.slots.insert(Slot { predicate: Arc::clone(predicate), wanted_by: Wanted::One(key), access });
        if self.seen.len() <= slot as usize {
            self.seen.resize(slot as usize + 1, 0);
        }
        let (slots, hasher) = (&self.slots, &self.hasher);
        let rehash = |slot: &u32| hasher.hash_one(&slots[*slot as usize].predicate.expr);
        self.interned.insert_unique(hasher.hash_one(&predicate.expr), slot, rehash);
    }

    /// Takes back what [`Index::insert`] did with the same arguments.
    pub fn remove(&mut self, key: K, predicate: Option<&Arc<Predicate>>) {
        let Some(predicate) = predicate else {
            self.everything.remove(&key);
            return;
        };
        let Some(slot) = self.find(predicate) else { return };
        if !self.slots[slot as usize].wanted_by.take(key) {
            return;
        }
        if let Ok(entry) = self.interned.find_entry(self.hasher.hash_one(&predicate.expr), |s| *s == slot) {
            entry.remove();
        }
        let removed = self.slots.remove(slot as usize);
        if !self.foreign.remove(&slot) {
            self.filed.remove(slot, removed.access);
        }
    }

    fn find(&self, predicate: &Predicate) -> Option<u32> {
        let same = |slot: &u32| {
            let own = &self.slots[*slot as usize].predicate;
            own.expr == predicate.expr && own.schema.is_same(&predicate.schema)
        };
        self.interned.find(self.hasher.hash_one(&predicate.expr), same).copied()
    }

    /// Appends the keys whose predicate is true for a row: ascending, none twice.
    pub fn matching(&mut self, values: &[Option<&[u8]>], out: &mut Vec<K>) {
        let from = out.len();
        out.extend(&self.everything);
        if !self.slots.is_empty() {
            self.evaluate(values, out);
        }
        out[from..].sort_unstable();
        let mut last = from;
        for i in from + 1..out.len() {
            if out[i] != out[last] {
                last += 1;
                out[last] = out[i];
            }
        }
        out.truncate(if out.len() > from { last + 1 } else { from });
    }

    fn evaluate(&mut self, values: &[Option<&[u8]>], out: &mut Vec<K>) {
        let Some(schema) = &self.schema else { return };
        self.row = self.row.wrapping_add(1);
        if self.row == 0 {
            self.seen.fill(0);
            self.row = 1;
        }
        let row = Row::new(schema, values);
        let (seen, candidates, now) = (&mut self.seen, &mut self.candidates, self.row);
        candidates.clear();
        self.filed.candidates(&row, &self.hasher, &mut |slot| {
            let last = &mut seen[slot as usize];
            if *last != now {
                *last = now;
                candidates.push(slot);
            }
        });
        self.evaluations += (candidates.len() + self.foreign.len()) as u64;
        for slot in candidates.drain(..) {
            let slot = &self.slots[slot as usize];
            if slot.predicate.expr.truth(&row) == Ok(Some(true)) {
                slot.wanted_by.append_to(out);
            }
        }
        for slot in &self.foreign {
            let slot = &self.slots[*slot as usize];
            if slot.predicate.holds(values) {
                slot.wanted_by.append_to(out);
            }
        }
    }

    /// How often a predicate was evaluated since this was asked last.
    pub fn take_evaluations(&mut self) -> u64 {
        std::mem::take(&mut self.evaluations)
    }
}

impl<K: Copy + Ord> Wanted<K> {
    fn add(&mut self, key: K) {
        match self {
            Self::One(one) if *one == key => {}
            Self::One(one) => *self = Self::Many(Box::new(vec![(*one).min(key), (*one).max(key)])),
            Self::Many(all) => {
                if let Err(at) = all.binary_search(&key) {
                    all.insert(at, key);
                }
            }
        }
    }

    /// Whether nobody is left.
    fn take(&mut self, key: K) -> bool {
        match self {
            Self::One(one) => *one == key,
            Self::Many(all) => {
                if let Ok(at) = all.binary_search(&key) {
                    all.remove(at);
                }
                if let [last] = all[..] {
                    *self = Self::One(last);
                }
                false
            }
        }
    }

    fn append_to(&self, out: &mut Vec<K>) {
        match self {
            Self::One(one) => out.push(*one),
            Self::Many(all) => out.extend(all.iter()),
        }
    }
}

//! An index of many predicates, which finds those that a row satisfies without evaluating each.
//!
//! A predicate is filed under *keys*: values, ranges or pieces of text of which a row must have one for the predicate
//! to be true. A row's values lead to the predicates filed under them, its *candidates*; each candidate is then
//! evaluated whole. So a key may match too much (two texts with one hash, a prefix of a prefix), but never too little,
//! and the answer depends on nothing else. Predicates without keys are candidates of every row. Equal predicates are
//! filed and evaluated once, and predicates that differ in constants only share all else.

mod access;
mod explain;
mod keys;
mod plan;
mod postings;
mod ranges;
mod scalars;
mod template;
#[cfg(test)]
mod tests;

use crate::Predicate;
use crate::budget::{HEAVY_TOGETHER, LIGHT};
use crate::predicate::decided;
use crate::row::Row;
use crate::schema::Schema;
use access::Access;
pub use explain::Explanation;
use hashbrown::{DefaultHashBuilder, HashTable};
use postings::{Half, Postings};
use scalars::Scalars;
use slab::Slab;
use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::sync::Arc;
use template::{Constants, Templates};

/// Predicates of one table, each with its callers' keys (`K`; not the keys above).
pub struct Index<K> {
    /// Callers' keys without a predicate: they match every row.
    everything: BTreeSet<K>,
    slots: Slab<Slot<K>>,
    /// Slots by their predicate.
    interned: HashTable<(Half, u32)>,
    templates: Templates,
    hasher: DefaultHashBuilder,
    filed: Filed,
    /// The schema of all filed predicates.
    schema: Option<Schema>,
    /// Predicates over other columns, with their callers' keys: they are evaluated one by one.
    foreign: Slab<(K, Arc<Predicate>)>,
    /// For each slot, the last row that had it as a candidate.
    seen: Vec<u32>,
    row: u32,
    candidates: Vec<u32>,
    /// Since it was asked last.
    evaluations: u64,
}

/// Tables that find slots by the values of a row.
struct Filed {
    scalars: Scalars,
    postings: Postings,
    /// Slots without keys.
    residual: BTreeSet<u32>,
}

/// A predicate and its callers' keys.
struct Slot<K> {
    template: u32,
    access: Access,
    constants: Constants,
    owners: Owners<K>,
}

/// Handle of a filed key, for its removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filing(u32);

/// Under every row.
const EVERYTHING: Filing = Filing(u32::MAX);
/// Marks a place among the predicates of other columns. The number of slots stays below it.
const FOREIGN: u32 = 1 << 31;

enum Owners<K> {
    One(K),
    /// Ascending. Boxed, as there may be a million predicates with one key each.
    #[expect(clippy::box_collection, reason = "the enum is half as large")]
    Many(Box<Vec<K>>),
}

impl<K: Copy + Ord> Default for Index<K> {
    fn default() -> Self {
        Self {
            everything: BTreeSet::new(),
            slots: Slab::new(),
            interned: HashTable::new(),
            templates: Templates::default(),
            hasher: DefaultHashBuilder::default(),
            filed: Filed { scalars: Scalars::default(), postings: Postings::default(), residual: BTreeSet::new() },
            schema: None,
            foreign: Slab::new(),
            seen: Vec::new(),
            row: 0,
            candidates: Vec::new(),
            evaluations: 0,
        }
    }
}

impl<K: Copy + Ord> Index<K> {
    /// An index without predicates.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the index has no predicate.
    pub fn is_empty(&self) -> bool {
        self.everything.is_empty() && self.slots.is_empty() && self.foreign.is_empty()
    }

    /// Files `key` under a predicate, or under every row for `None`. A key may have several predicates. The predicate
    /// itself is not kept.
    pub fn insert(&mut self, key: K, predicate: Option<&Arc<Predicate>>) -> Filing {
        let Some(predicate) = predicate else {
            self.everything.insert(key);
            return EVERYTHING;
        };
        if self.slots.is_empty() {
            self.schema = None;
        }
        let schema = self.schema.get_or_insert_with(|| predicate.schema.clone());
        let room = self.slots.vacant_key() < FOREIGN as usize;
        if !schema.is_same(&predicate.schema) || !room {
            return Filing(FOREIGN | self.foreign.insert((key, Arc::clone(predicate))) as u32);
        }
        let (expr, constants) = template::split(&predicate.expr);
        let template = self.templates.share(expr, &self.hasher);
        let hash = Half::of(self.hasher.hash_one((template, &constants)));
        let same = |slot: u32| self.slots[slot as usize].is(template, &constants);
        if let Some((_, slot)) = self.interned.find(hash.spread(), |(known, slot)| *known == hash && same(*slot)) {
            self.templates.release(template, &self.hasher);
            self.slots[*slot as usize].owners.add(key);
            return Filing(*slot);
        }
        let slot = self.slots.vacant_key() as u32;
        let access = self.filed.insert(slot, &predicate.expr, &self.hasher);
        self.slots.insert(Slot { template, access, constants, owners: Owners::One(key) });
        if self.seen.len() <= slot as usize {
            self.seen.resize(slot as usize + 1, 0);
        }
        self.interned.insert_unique(hash.spread(), (hash, slot), |(hash, _)| hash.spread());
        Filing(slot)
    }

    /// About how many others would be evaluated with a predicate for a row that leads to it; `None`: nothing leads to
    /// it, and it would be evaluated for each row.
    pub fn cost(&self, predicate: &Predicate) -> Option<u64> {
        Some(plan::plan(&predicate.expr, &self.filed, &self.hasher)?.cost)
    }

    /// Removes a key by the filing that [`Index::insert`] returned for it.
    pub fn remove(&mut self, key: K, filing: Filing) {
        if filing == EVERYTHING {
            self.everything.remove(&key);
            return;
        }
        if filing.0 & FOREIGN != 0 {
            let at = (filing.0 & !FOREIGN) as usize;
            if self.foreign.get(at).is_some_and(|(known, _)| *known == key) {
                self.foreign.remove(at);
            }
            return;
        }
        let Some(slot) = self.slots.get_mut(filing.0 as usize) else { return };
        if !slot.owners.take(key) {
            return;
        }
        let slot = self.slots.remove(filing.0 as usize);
        let hash = Half::of(self.hasher.hash_one((slot.template, &slot.constants)));
        if let Ok(entry) = self.interned.find_entry(hash.spread(), |known| *known == (hash, filing.0)) {
            entry.remove();
        }
        self.templates.release(slot.template, &self.hasher);
        self.filed.remove(filing.0, slot.access);
    }

    /// Appends the keys whose predicate is true for a row: ascending, without duplicates; and to `costly` the keys
    /// whose predicate is [too costly](crate::TooCostly) to evaluate.
    pub fn matching(&mut self, values: &[Option<&[u8]>], out: &mut Vec<K>, costly: &mut Vec<K>) {
        let (from, costly_from) = (out.len(), costly.len());
        out.extend(&self.everything);
        if !self.slots.is_empty() {
            self.evaluate(values, out, costly);
        }
        for (_, (key, predicate)) in &self.foreign {
            match predicate.holds(values) {
                Ok(true) => out.push(*key),
                Ok(false) => {}
                Err(_) => costly.push(*key),
            }
        }
        in_order(out, from);
        in_order(costly, costly_from);
    }

    fn evaluate(&mut self, values: &[Option<&[u8]>], out: &mut Vec<K>, costly: &mut Vec<K>) {
        let Some(schema) = &self.schema else { return };
        self.row = self.row.wrapping_add(1);
        if self.row == 0 {
            self.seen.fill(0);
            self.row = 1;
        }
        let mut row = Row::new(schema, values);
        let allowance = row.allowance();
        let (seen, candidates, now) = (&mut self.seen, &mut self.candidates, self.row);
        candidates.clear();
        let mut each = |slot: u32| {
            let last = &mut seen[slot as usize];
            if *last != now {
                *last = now;
                candidates.push(slot);
            }
        };
        let undecided = self.filed.candidates(&row, self.slots.len(), &self.hasher, &mut each);
        if !undecided.is_empty() {
            // These keys could not be computed for the row: all predicates filed under them are candidates.
            let filed = self.slots.iter().filter(|(_, slot)| slot.access.is_under(&undecided));
            filed.for_each(|(slot, _)| each(slot as u32));
        }
        self.evaluations += (candidates.len() + self.foreign.len()) as u64;
        let mut heavy = 0;
        for slot in candidates.drain(..) {
            let slot = &self.slots[slot as usize];
            let Some(expr) = self.templates.get(slot.template) else { continue };
            row.holes = slot.constants.as_slice();
            let budget = if heavy < HEAVY_TOGETHER { allowance } else { LIGHT };
            row.budget.refill(budget);
            match decided(expr.holds(&row)) {
                Ok(true) => slot.owners.append_to(out),
                Ok(false) => {}
                Err(_) => slot.owners.append_to(costly),
            }
            let spent = budget - row.budget.left();
            heavy += if spent > LIGHT { spent } else { 0 };
        }
    }

    /// Number of evaluations of predicates since the last call.
    pub fn take_evaluations(&mut self) -> u64 {
        std::mem::take(&mut self.evaluations)
    }
}

/// Sorts the appended items, and removes duplicates.
fn in_order<K: Copy + Ord>(list: &mut Vec<K>, from: usize) {
    list[from..].sort_unstable();
    let mut last = from;
    for i in from + 1..list.len() {
        if list[i] != list[last] {
            last += 1;
            list[last] = list[i];
        }
    }
    list.truncate(if list.len() > from { last + 1 } else { from });
}

impl<K> Slot<K> {
    fn is(&self, template: u32, constants: &Constants) -> bool {
        self.template == template && self.constants == *constants
    }
}

impl<K: Copy + Ord> Owners<K> {
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

    /// Whether no owner is left.
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

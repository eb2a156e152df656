//! All shapes: by handle, by identity (what they select), and by query key (the parameters of a request).

use crate::shape::Shape;
use hashbrown::HashTable;
use quick_cache::sync::Cache;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use thalweg_shapes_core::request::params;
use thalweg_shapes_model::definition::Identity;
use thalweg_shapes_model::name::Name;

/// The number of remembered query keys of shapes that were made with another query key.
const OTHER_QUERY_KEYS: usize = 64 << 10;

/// The shapes that answer requests. Each is found by the query key that it was made with, for as long as it lives.
pub(crate) struct Registry {
    /// Rises when all shapes are dropped.
    epoch: u64,
    hasher: RandomState,
    second: RandomState,
    shapes: Vec<Option<Arc<Shape>>>,
    /// Places in `shapes` that are free.
    free: Vec<u32>,
    by_handle: Places,
    by_identity: Places,
    by_query_key: Places,
    /// Other query keys, hashed twice, to the place and the number of a shape. A lookup is wrong only if two of 2^128
    /// hashes collide; the seeds are random per process, so a client cannot search for a collision.
    other_query_keys: Cache<u128, (u32, u64)>,
}

impl Default for Registry {
    fn default() -> Self {
        Self {
            epoch: 0,
            hasher: RandomState::new(),
            second: RandomState::new(),
            shapes: Vec::new(),
            free: Vec::new(),
            by_handle: Places::default(),
            by_identity: Places::default(),
            by_query_key: Places::default(),
            other_query_keys: Cache::new(OTHER_QUERY_KEYS),
        }
    }
}

impl Registry {
    /// The number of times that all shapes were dropped. Knowledge of the source from one epoch is not valid in the
    /// next one.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The next epoch begins; the shapes of the ones before.
    pub(crate) fn begin_epoch(&mut self) -> Vec<Arc<Shape>> {
        self.epoch += 1;
        self.all().cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.shapes.len() - self.free.len()
    }

    fn shape(&self, place: u32) -> Option<&Arc<Shape>> {
        self.shapes.get(place as usize)?.as_ref()
    }

    pub(crate) fn by_handle(&self, handle: &str) -> Option<&Arc<Shape>> {
        self.by_name(handle.parse().ok()?)
    }

    pub(crate) fn by_name(&self, name: Name) -> Option<&Arc<Shape>> {
        self.find(&self.by_handle, self.hasher.hash_one(name), |shape| shape.handle == name)
    }

    /// The shape that selects this.
    pub(crate) fn by_identity(&self, identity: Identity) -> Option<&Arc<Shape>> {
        self.find(&self.by_identity, self.hasher.hash_one(identity), |shape| shape.identity == identity)
    }

    /// The shape of a query key.
    pub(crate) fn by_query_key(&self, query_key: &[u8]) -> Option<&Arc<Shape>> {
        let hash = self.hasher.hash_one(query_key);
        self.find(&self.by_query_key, hash, |shape| own_query_key(shape) == query_key).or_else(|| {
            let (place, number) = self.other_query_keys.get(&self.twice(hash, query_key))?;
            self.at(place, number)
        })
    }

    /// The shape at a place of [`Registry::places`], if it is still there.
    pub(crate) fn at(&self, place: u32, number: u64) -> Option<&Arc<Shape>> {
        self.shape(place).filter(|shape| shape.number == number)
    }

    fn find(&self, places: &Places, hash: u64, is: impl Fn(&Shape) -> bool) -> Option<&Arc<Shape>> {
        self.shape(places.find(hash, |place| self.shape(place).is_some_and(|shape| is(shape)))?)
    }

    fn twice(&self, hash: u64, query_key: &[u8]) -> u128 {
        u128::from(hash) << 64 | u128::from(self.second.hash_one(query_key))
    }

    /// Remembers that a query key selects this shape.
    pub(crate) fn learn(&self, query_key: &[u8], shape: &Shape) {
        let hash = self.hasher.hash_one(query_key);
        if self
            .find(&self.by_query_key, hash, |known| known.number == shape.number && own_query_key(known) == query_key)
            .is_some()
        {
            return;
        }
        let handle = self.hasher.hash_one(shape.handle);
        let is = |place| self.at(place, shape.number).is_some();
        if let Some(place) = self.by_handle.find(handle, is) {
            self.other_query_keys.insert(self.twice(hash, query_key), (place, shape.number));
        }
    }

    pub(crate) fn insert(&mut self, shape: Arc<Shape>) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.shapes.push(None);
            u32::try_from(self.shapes.len() - 1).unwrap_or(u32::MAX)
        });
        debug_assert!(
            self.by_name(shape.handle).is_none(),
            "invariant 2: the handle {} names two shapes",
            shape.handle
        );
        self.by_handle.insert(self.hasher.hash_one(shape.handle), place);
        self.by_identity.insert(self.hasher.hash_one(shape.identity), place);
        self.by_query_key.insert(self.hasher.hash_one(&own_query_key(&shape)[..]), place);
        self.shapes[place as usize] = Some(shape);
    }

    /// Makes room for so many shapes more.
    pub(crate) fn reserve(&mut self, count: usize) {
        self.shapes.reserve(count);
        [&mut self.by_handle, &mut self.by_identity, &mut self.by_query_key].into_iter().for_each(|p| p.reserve(count));
    }

    /// Takes a shape out; whether it was in.
    pub(crate) fn remove(&mut self, shape: &Shape) -> bool {
        let handle = self.hasher.hash_one(shape.handle);
        let Some(place) = self.by_handle.find(handle, |place| self.at(place, shape.number).is_some()) else {
            return false;
        };
        self.by_handle.remove(handle, place);
        self.by_identity.remove(self.hasher.hash_one(shape.identity), place);
        self.by_query_key.remove(self.hasher.hash_one(&own_query_key(shape)[..]), place);
        self.shapes[place as usize] = None;
        self.free.push(place);
        true
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Shape>> {
        self.shapes.iter().flatten()
    }

    /// Every shape with its place.
    pub(crate) fn places(&self) -> impl Iterator<Item = (u32, &Arc<Shape>)> {
        (0..).zip(&self.shapes).filter_map(|(place, shape)| Some((place, shape.as_ref()?)))
    }
}

/// The query key that a shape was made with. It is assembled again each time: keeping it would cost more.
fn own_query_key(shape: &Shape) -> Vec<u8> {
    params::Shape::of(&shape.family, &shape.condition).key()
}

/// The number of hash tables of one kind: one grows at a time, and lookups wait during that.
const TABLES: usize = 64;

/// Places of shapes by half a hash. The other half chooses the table, so that a table grows without reading its shapes.
struct Places(Box<[HashTable<(u32, u32)>]>);

impl Default for Places {
    fn default() -> Self {
        Self((0..TABLES).map(|_| HashTable::new()).collect())
    }
}

fn half(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// A hash of the half, for the table.
fn spread(half: u32) -> u64 {
    u64::from(half).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Places {
    fn find(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        let half = half(hash);
        let found = self.0[hash as usize % TABLES].find(spread(half), |(known, place)| *known == half && is(*place));
        found.map(|(_, place)| *place)
    }

    fn reserve(&mut self, count: usize) {
        self.0.iter_mut().for_each(|table| table.reserve(count / TABLES, |(half, _)| spread(*half)));
    }

    fn insert(&mut self, hash: u64, place: u32) {
        let half = half(hash);
        self.0[hash as usize % TABLES].insert_unique(spread(half), (half, place), |(half, _)| spread(*half));
    }

    fn remove(&mut self, hash: u64, place: u32) {
        let half = half(hash);
        if let Ok(found) = self.0[hash as usize % TABLES].find_entry(spread(half), |known| *known == (half, place)) {
            found.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::{State, sample_of};
    use thalweg_shapes_model::definition::Definition;

    fn shape(number: u64, clause: &str) -> Arc<Shape> {
        let definition = Definition { where_sql: Some(clause.into()), ..Definition::of_table("public", "t") };
        Arc::new(sample_of(number, &definition, State::default()))
    }

    fn query_key(clause: &str) -> Vec<u8> {
        own_query_key(&shape(0, clause))
    }

    #[test]
    fn a_shape_is_found_by_each_of_its_names_until_it_is_removed() {
        let mut registry = Registry::default();
        let (a, b) = (shape(1, "a"), shape(2, "b"));
        registry.insert(Arc::clone(&a));
        registry.insert(Arc::clone(&b));
        registry.learn(&query_key("(a)"), &a);
        let number = |found: Option<&Arc<Shape>>| found.map(|shape| shape.number);
        assert_eq!(number(registry.by_handle("1-1")), Some(1));
        assert_eq!(number(registry.by_handle("1-2")), None);
        assert_eq!(number(registry.by_identity(b.identity)), Some(2));
        assert_eq!(number(registry.by_query_key(&query_key("a"))), Some(1));
        assert_eq!(number(registry.by_query_key(&query_key("(a)"))), Some(1));
        assert_eq!(number(registry.by_query_key(&query_key("c"))), None);
        assert!(registry.remove(&a));
        assert!(!registry.remove(&a));
        assert_eq!(number(registry.by_handle("1-1")), None);
        assert_eq!(number(registry.by_identity(a.identity)), None);
        assert_eq!(
            (number(registry.by_query_key(&query_key("a"))), number(registry.by_query_key(&query_key("(a)")))),
            (None, None)
        );
        assert_eq!(registry.len(), 1);
        // The next shape has its place, and another query key.
        registry.insert(shape(3, "c"));
        assert_eq!(number(registry.by_query_key(&query_key("(a)"))), None);
        assert_eq!(registry.shapes.len(), 2);
    }

    #[test]
    fn many_shapes_are_found() {
        let mut registry = Registry::default();
        (0..5000).for_each(|number| registry.insert(shape(number, &format!("id = {number}"))));
        for number in 0..5000 {
            assert_eq!(
                registry.by_query_key(&query_key(&format!("id = {number}"))).map(|shape| shape.number),
                Some(number)
            );
            assert_eq!(registry.by_handle(&format!("{number}-{number}")).map(|shape| shape.number), Some(number));
        }
        let all: Vec<Arc<Shape>> = registry.all().cloned().collect();
        assert!(all.iter().all(|shape| registry.remove(shape)));
        assert_eq!((registry.len(), registry.all().count()), (0, 0));
    }

    #[test]
    fn words_do_not_gather_for_ever() {
        let mut registry = Registry::default();
        let a = shape(1, "a");
        registry.insert(Arc::clone(&a));
        (0..2 * OTHER_QUERY_KEYS).for_each(|n| registry.learn(&n.to_le_bytes(), &a));
        assert!(registry.other_query_keys.len() <= OTHER_QUERY_KEYS);
        assert!(registry.by_query_key(&query_key("a")).is_some(), "its own query key stays");
    }
}

//! Every shape by its names: its handle, what it selects, and what was asked for in these very words.

use crate::shape::Shape;
use hashbrown::{HashMap, HashTable};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// How many words are remembered for one that is known by others.
const WORDS_PER_SHAPE: usize = 2;
const WORDS_MIN: usize = 1024;

/// The shapes that answer requests.
#[derive(Default)]
pub(crate) struct Registry {
    hasher: RandomState,
    by_handle: HashTable<Arc<Shape>>,
    by_identity: HashTable<Arc<Shape>>,
    /// A request's definition in its own words, hashed twice, to the number of its shape. Wrong only if two of 2^128 meet: the seeds are
    /// this process's own, so nobody can look for such a pair.
    by_words: HashMap<u128, u64>,
    by_number: HashMap<u64, Arc<Shape>>,
    second: RandomState,
}

impl Registry {
    pub(crate) fn len(&self) -> usize {
        self.by_number.len()
    }

    fn words(&self, words: &[u8]) -> u128 {
        u128::from(self.hasher.hash_one(words)) << 64 | u128::from(self.second.hash_one(words))
    }

    pub(crate) fn by_handle(&self, handle: &str) -> Option<&Arc<Shape>> {
        self.by_handle.find(self.hasher.hash_one(handle), |shape| *shape.handle == *handle)
    }

    /// The shape that selects this.
    pub(crate) fn by_identity(&self, identity: &str) -> Option<&Arc<Shape>> {
        self.by_identity.find(self.hasher.hash_one(identity), |shape| *shape.identity == *identity)
    }

    /// The shape that was asked for in these words.
    pub(crate) fn by_words(&self, words: &[u8]) -> Option<&Arc<Shape>> {
        self.by_number.get(self.by_words.get(&self.words(words))?)
    }

    pub(crate) fn by_number(&self, number: u64) -> Option<&Arc<Shape>> {
        self.by_number.get(&number)
    }

    /// Remembers that these words mean this shape.
    pub(crate) fn learn(&mut self, words: &[u8], shape: &Shape) {
        if self.by_words.len() >= WORDS_MIN.max(self.by_number.len() * WORDS_PER_SHAPE) {
            let known = &self.by_number;
            self.by_words.retain(|_, number| known.contains_key(number));
            if self.by_words.len() >= WORDS_MIN.max(known.len() * WORDS_PER_SHAPE) {
                self.by_words.clear();
            }
        }
        self.by_words.insert(self.words(words), shape.number);
    }

    pub(crate) fn insert(&mut self, shape: Arc<Shape>) {
        let hasher = &self.hasher;
        let by_handle = |shape: &Arc<Shape>| hasher.hash_one(&*shape.handle);
        let by_identity = |shape: &Arc<Shape>| hasher.hash_one(&*shape.identity);
        self.by_handle.insert_unique(by_handle(&shape), Arc::clone(&shape), by_handle);
        self.by_identity.insert_unique(by_identity(&shape), Arc::clone(&shape), by_identity);
        self.by_number.insert(shape.number, shape);
    }

    /// Takes a shape out; whether it was in.
    pub(crate) fn remove(&mut self, shape: &Shape) -> bool {
        if self.by_number.remove(&shape.number).is_none() {
            return false;
        }
        let (handle, identity) = (self.hasher.hash_one(&*shape.handle), self.hasher.hash_one(&*shape.identity));
        if let Ok(found) = self.by_handle.find_entry(handle, |known| known.number == shape.number) {
            found.remove();
        }
        if let Ok(found) = self.by_identity.find_entry(identity, |known| known.number == shape.number) {
            found.remove();
        }
        true
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Shape>> {
        self.by_number.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Definition;
    use crate::shape::State;

    fn shape(number: u64, handle: &str, identity: &str) -> Arc<Shape> {
        let definition = Definition::of_table("public", "t");
        Arc::new(Shape::new(number, handle, definition, identity, 1, "".into(), State::default()))
    }

    #[test]
    fn a_shape_is_found_by_each_of_its_names_until_it_is_removed() {
        let mut registry = Registry::default();
        let (a, b) = (shape(1, "a-1", "t where a"), shape(2, "b-2", "t where b"));
        registry.insert(Arc::clone(&a));
        registry.insert(Arc::clone(&b));
        registry.learn(b"table=t&where=a", &a);
        let number = |found: Option<&Arc<Shape>>| found.map(|shape| shape.number);
        assert_eq!(number(registry.by_handle("a-1")), Some(1));
        assert_eq!(number(registry.by_identity("t where b")), Some(2));
        assert_eq!(number(registry.by_words(b"table=t&where=a")), Some(1));
        assert_eq!(number(registry.by_words(b"table=t&where=c")), None);
        assert!(registry.remove(&a));
        assert!(!registry.remove(&a));
        assert_eq!(number(registry.by_handle("a-1")), None);
        assert_eq!(number(registry.by_identity("t where a")), None);
        assert_eq!(number(registry.by_words(b"table=t&where=a")), None);
        assert_eq!(registry.len(), 1);
    }

    #[test]
    fn words_do_not_gather_for_ever() {
        let mut registry = Registry::default();
        let a = shape(1, "a-1", "t");
        registry.insert(Arc::clone(&a));
        (0..10 * WORDS_MIN).for_each(|n| registry.learn(&n.to_le_bytes(), &a));
        assert!(registry.by_words.len() <= WORDS_MIN);
    }
}

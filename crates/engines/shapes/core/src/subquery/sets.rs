//! The sets of all inner queries, and for each value the sets that contain it.

use super::set::{Changes, Moves, Set};
use hashbrown::HashMap;
use thalweg_filter::{Key, Query};

/// A kind of inner queries, whose values compare by their bytes: inner queries on one table with the same columns.
pub type Kind = u32;

#[derive(Default)]
pub struct Sets {
    /// The sets, by the numbers of the inner shapes.
    all: HashMap<u64, (Kind, Set)>,
    kinds: Vec<Values>,
    by_source: HashMap<(u32, String), Kind>,
}

/// The sets of one kind that contain each value.
#[derive(Default)]
struct Values {
    holders: HashMap<Box<[u8]>, Holders>,
    /// The number of values of all sets together.
    held: usize,
}

/// Numbers of sets. Most values are in one only.
enum Holders {
    One(u64),
    /// Ascending. Boxed, because there is one per value.
    #[expect(clippy::box_collection, reason = "the enum is half as large")]
    Many(Box<Vec<u64>>),
}

impl Sets {
    /// Adds an empty set.
    pub fn insert(&mut self, number: u64, query: &Query) {
        let kind = self.kind(query);
        self.all.entry(number).or_insert_with(|| (kind, Set::default()));
    }

    pub fn remove(&mut self, number: u64) {
        let Some((kind, set)) = self.all.remove(&number) else { return };
        if let Some(values) = self.kinds.get_mut(kind as usize) {
            set.keys().for_each(|key| values.left(key, number));
        }
    }

    pub fn get(&self, number: u64) -> Option<&Set> {
        self.all.get(&number).map(|(_, set)| set)
    }

    /// The kind of a query's values. Kinds are as few as the tables and columns of inner queries, so none is removed.
    pub fn kind(&mut self, query: &Query) -> Kind {
        let source = (query.table.oid, query.source().to_owned());
        *self.by_source.entry(source).or_insert_with(|| {
            self.kinds.push(Values::default());
            self.kinds.len() as Kind - 1
        })
    }

    /// Applies `change` to a set and returns the result. During the call the set is not among the others.
    pub fn change(&mut self, number: u64, change: impl FnOnce(&Self, &mut Set, &mut Changes)) -> Moves {
        let Some((kind, mut set)) = self.all.remove(&number) else { return Moves::default() };
        let mut changes = set.begin();
        change(self, &mut set, &mut changes);
        let moves = set.end(changes);
        if let Some(values) = self.kinds.get_mut(kind as usize) {
            for (key, entered) in &moves.keys {
                if *entered { values.entered(key.bytes(), number) } else { values.left(key.bytes(), number) }
            }
        }
        self.all.insert(number, (kind, set));
        moves
    }

    /// The sets that contain a value.
    pub fn holders(&self, kind: Kind, key: &Key) -> &[u64] {
        let values = self.kinds.get(kind as usize);
        match values.and_then(|values| values.holders.get(key.bytes())) {
            None => &[],
            Some(Holders::One(one)) => std::slice::from_ref(one),
            Some(Holders::Many(all)) => all,
        }
    }

    /// The average number of sets that contain a value.
    pub fn crowd(&self, kind: Kind) -> u64 {
        self.kinds.get(kind as usize).map_or(1, |values| (values.held / values.holders.len().max(1)).max(1) as u64)
    }
}

impl Values {
    fn entered(&mut self, key: &[u8], set: u64) {
        match self.holders.get_mut(key) {
            None => {
                self.holders.insert(key.into(), Holders::One(set));
            }
            Some(Holders::One(one)) if *one == set => return,
            Some(holders @ Holders::One(_)) => {
                let Holders::One(one) = *holders else { return };
                *holders = Holders::Many(Box::new(vec![one.min(set), one.max(set)]));
            }
            Some(Holders::Many(all)) => match all.binary_search(&set) {
                Ok(_) => return,
                Err(at) => all.insert(at, set),
            },
        }
        self.held += 1;
    }

    fn left(&mut self, key: &[u8], set: u64) {
        let last = match self.holders.get_mut(key) {
            Some(Holders::One(one)) if *one == set => true,
            Some(Holders::Many(all)) => {
                let Ok(at) = all.binary_search(&set) else { return };
                all.remove(at);
                if let [last] = all[..] {
                    self.holders.insert(key.into(), Holders::One(last));
                }
                false
            }
            _ => return,
        };
        if last {
            self.holders.remove(key);
        }
        self.held -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_leads_to_the_sets_that_have_it() {
        let mut values = Values::default();
        for set in [3, 1, 2, 2] {
            values.entered(b"x", set);
        }
        values.entered(b"y", 7);
        let holders = |values: &Values, key: &[u8]| match values.holders.get(key) {
            None => vec![],
            Some(Holders::One(one)) => vec![*one],
            Some(Holders::Many(all)) => all.to_vec(),
        };
        assert_eq!((holders(&values, b"x"), holders(&values, b"y"), values.held), (vec![1, 2, 3], vec![7], 4));
        for set in [2, 2, 3, 9] {
            values.left(b"x", set);
        }
        assert_eq!((holders(&values, b"x"), values.held), (vec![1], 2));
        values.left(b"x", 1);
        values.left(b"y", 7);
        assert_eq!((values.holders.len(), values.held), (0, 0));
    }
}

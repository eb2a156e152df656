//! The wanted streams of all units, as their owners have reported them. No clock, no IO.

use crate::watched::Interest;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use thalweg_base::LogId;
use thalweg_streams::Changes;
use thalweg_streams::format::offset::Position;

/// What is known of the streams of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Synced {
    source: String,
    /// The wishes that are answered: those up to this number.
    version: u64,
}

/// A node that is followed.
#[derive(Default)]
struct SourceState {
    passed: u64,
    serves: BTreeSet<u64>,
}

struct Known {
    id: LogId,
    /// The units that have a stream of the name: one, but for the moment in which it moves.
    ends: Vec<(u64, Position)>,
}

pub(super) struct Table {
    units: Vec<Option<Synced>>,
    /// The highest epoch in which each unit was heard of. What an earlier owner has said, and comes late, counts no more.
    epochs: Vec<u64>,
    /// Wishes in their order, each with its number.
    wishes: Vec<(u64, Interest)>,
    version: u64,
    /// What is wanted, by the number of its wish.
    patterns: BTreeMap<String, u64>,
    wanted: HashMap<Box<str>, u64>,
    names: HashMap<Box<str>, Known>,
    ids: HashMap<LogId, Box<str>>,
    next_id: u64,
    changed: BTreeSet<LogId>,
    gone: Vec<(LogId, Box<str>)>,
    sources: BTreeMap<String, SourceState>,
}

impl Table {
    pub(super) fn new(units: u64) -> Self {
        Self {
            units: (0..units).map(|_| None).collect(),
            epochs: (0..units).map(|_| 0).collect(),
            wishes: Vec::new(),
            version: 0,
            patterns: BTreeMap::new(),
            wanted: HashMap::new(),
            names: HashMap::new(),
            ids: HashMap::new(),
            next_id: 0,
            changed: BTreeSet::new(),
            gone: Vec::new(),
            sources: BTreeMap::new(),
        }
    }

    /// Nothing is wanted any more.
    pub(super) fn clear(&mut self) {
        // Those who have answered every wish must answer once more: what they said of their units is forgotten.
        let (units, version, next_id) = (self.units.len() as u64, self.version + 1, self.next_id);
        let epochs = std::mem::take(&mut self.epochs);
        *self = Self { version, next_id, epochs, ..Self::new(units) };
    }

    // ---- wishes

    /// Wants more: the number of the last wish that has anything of it, and whether that is a new one.
    pub(super) fn want(&mut self, interest: Interest) -> (u64, bool) {
        let mut last = 0;
        let mut new = Interest::default();
        for pattern in interest.patterns {
            match self.patterns.get(&pattern) {
                Some(known) => last = last.max(*known),
                None => new.patterns.push(pattern),
            }
        }
        for name in interest.names {
            match self.wanted.get(name.as_str()) {
                Some(known) => last = last.max(*known),
                None => new.names.push(name),
            }
        }
        if new.is_empty() {
            return (last, false);
        }
        self.version += 1;
        self.patterns.extend(new.patterns.iter().map(|pattern| (pattern.clone(), self.version)));
        self.wanted.extend(new.names.iter().map(|name| (Box::from(name.as_str()), self.version)));
        self.wishes.push((self.version, new));
        (self.version, true)
    }

    /// Wants this alone, which was wanted before.
    pub(super) fn keep(&mut self, interest: Interest) {
        self.patterns = interest.patterns.iter().map(|pattern| (pattern.clone(), self.version)).collect();
        self.wanted = interest.names.iter().map(|name| (Box::from(name.as_str()), self.version)).collect();
        self.wishes = vec![(self.version, interest)];
        let dropped: Vec<Box<str>> = self.names.keys().filter(|name| !self.is_wanted(name)).cloned().collect();
        for name in dropped {
            if let Some(known) = self.names.remove(&name) {
                self.ids.remove(&known.id);
                self.changed.remove(&known.id);
            }
        }
    }

    /// The number of the last wish.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// The wishes after a number.
    pub(super) fn wishes_after(&self, version: u64) -> Interest {
        let mut all = Interest::default();
        for (number, wish) in &self.wishes {
            if *number > version {
                all.patterns.extend(wish.patterns.iter().cloned());
                all.names.extend(wish.names.iter().cloned());
            }
        }
        all
    }

    pub(super) fn is_wanted(&self, name: &str) -> bool {
        self.wanted.contains_key(name) || self.patterns.keys().any(|pattern| crate::glob::matches(pattern, name))
    }

    // ---- reports

    /// The owner of a unit by this epoch has answered; whether none is known of a later one.
    fn is_of_now(&mut self, unit: u64, epoch: u64) -> bool {
        let Some(known) = self.epochs.get_mut(unit as usize) else { return false };
        *known = epoch.max(*known);
        *known == epoch
    }

    /// A stream's end, as the owner of its unit by this epoch says; `None`: the unit has no stream of that name.
    pub(super) fn set(&mut self, (unit, epoch): (u64, u64), name: &str, end: Option<Position>) {
        if self.is_of_now(unit, epoch) && self.is_wanted(name) {
            self.put(unit, name, end);
        }
    }

    fn put(&mut self, unit: u64, name: &str, end: Option<Position>) {
        let Some(known) = self.names.get_mut(name) else {
            let Some(end) = end else { return };
            self.next_id += 1;
            let id = LogId(self.next_id);
            self.names.insert(name.into(), Known { id, ends: vec![(unit, end)] });
            self.ids.insert(id, name.into());
            self.changed.insert(id);
            return;
        };
        let before = known.ends.iter().position(|(of, _)| *of == unit);
        match (before, end) {
            (Some(at), Some(end)) if known.ends[at].1 == end => return,
            (Some(at), Some(end)) => known.ends[at].1 = end,
            (Some(at), None) => drop(known.ends.swap_remove(at)),
            (None, Some(end)) => known.ends.push((unit, end)),
            (None, None) => return,
        }
        let id = known.id;
        if known.ends.is_empty() {
            self.names.remove(name);
            self.ids.remove(&id);
            self.changed.remove(&id);
            self.gone.push((id, name.into()));
        } else {
            self.changed.insert(id);
        }
    }

    /// A source has said everything that is wanted of a unit, up to a wish: `all` are its streams, if they were all
    /// asked for.
    pub(super) fn synced(
        &mut self,
        (unit, epoch): (u64, u64),
        source: &str,
        version: u64,
        all: Option<&HashSet<Box<str>>>,
    ) {
        if !self.is_of_now(unit, epoch) {
            return;
        }
        if let Some(all) = all {
            let has = |known: &Known| known.ends.iter().any(|(of, _)| *of == unit);
            let missing: Vec<Box<str>> = self
                .names
                .iter()
                .filter(|(name, known)| has(known) && !all.contains(*name))
                .map(|(name, _)| name.clone())
                .collect();
            missing.iter().for_each(|name| self.put(unit, name, None));
        }
        if let Some(slot) = self.units.get_mut(unit as usize) {
            *slot = Some(Synced { source: source.into(), version });
        }
    }

    /// A source has answered: it serves these units, each by its epoch, and everything of them is known that was visible
    /// at a mark. Nothing is taken from it of a unit that has had a later owner.
    pub(super) fn answered(&mut self, source: &str, mut serves: BTreeMap<u64, u64>, passed: u64) {
        serves.retain(|unit, epoch| self.is_of_now(*unit, *epoch));
        let serves: BTreeSet<u64> = serves.into_keys().collect();
        let state = self.sources.entry(source.into()).or_default();
        state.passed = state.passed.max(passed);
        state.serves = serves;
        for (unit, slot) in self.units.iter_mut().enumerate() {
            slot.take_if(|synced| synced.source == source && !state.serves.contains(&(unit as u64)));
        }
    }

    /// A source does not answer, or is followed no longer.
    pub(super) fn forget(&mut self, source: &str) {
        self.sources.remove(source);
        for slot in &mut self.units {
            slot.take_if(|synced| synced.source == source);
        }
    }

    // ---- questions

    /// Whether the owners of all units have answered the wishes up to a number.
    pub(super) fn has_answered(&self, version: u64) -> bool {
        self.units.iter().all(|unit| unit.as_ref().is_some_and(|synced| synced.version >= version))
    }

    /// The last mark that the owners of all units have passed.
    pub(super) fn passed(&self) -> u64 {
        let of = |unit: u64| {
            let serving = self.sources.values().filter(|source| source.serves.contains(&unit));
            serving.map(|source| source.passed).max().unwrap_or_default()
        };
        (0..self.units.len() as u64).map(of).min().unwrap_or_default()
    }

    pub(super) fn take_changes(&mut self) -> Changes {
        let logs = std::mem::take(&mut self.changed).into_iter().collect();
        let gone = std::mem::take(&mut self.gone);
        Changes { logs, gone, overflowed: false }
    }

    pub(super) fn each_name(&self, f: &mut dyn FnMut(&str)) {
        self.names.keys().for_each(|name| f(name));
    }

    pub(super) fn name_of(&self, log: LogId) -> Option<Box<str>> {
        self.ids.get(&log).cloned()
    }

    pub(super) fn end_of(&self, name: &str) -> Option<Position> {
        let ends = self.names.get(name)?.ends.iter().map(|(_, end)| *end);
        ends.max_by_key(|end| crate::state::order(*end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_base::Offset;

    fn end(offset: u64) -> Option<Position> {
        Some(Position { incarnation: 7, offset: Offset(offset) })
    }

    fn wish(pattern: &str, name: &str) -> Interest {
        Interest { patterns: vec![pattern.into()], names: vec![name.into()] }
    }

    fn serve(table: &mut Table, source: &str, units: &[u64], passed: u64) {
        let by = |unit: &u64| table.epochs.get(*unit as usize).copied().unwrap_or_default();
        let serves = units.iter().map(|unit| (*unit, by(unit))).collect();
        table.answered(source, serves, passed);
    }

    #[test]
    fn what_is_not_wanted_is_not_kept() {
        let mut table = Table::new(1);
        assert_eq!(table.want(wish("a/*", "b")), (1, true));
        assert_eq!(table.want(wish("a/*", "b")), (1, false));
        for name in ["a/1", "b", "c"] {
            table.set((0, 1), name, end(1));
        }
        assert_eq!((table.end_of("a/1"), table.end_of("b"), table.end_of("c")), (end(1), end(1), None));
        assert_eq!(table.take_changes().logs.len(), 2);
        table.keep(wish("z", "b"));
        assert_eq!((table.end_of("a/1"), table.end_of("b")), (None, end(1)));
    }

    #[test]
    fn the_table_is_complete_when_every_unit_has_answered_every_wish() {
        let mut table = Table::new(2);
        table.want(wish("a", "b"));
        table.synced((0, 1), "n", 1, None);
        assert!(!table.has_answered(table.version()));
        table.synced((1, 1), "m", 1, None);
        serve(&mut table, "n", &[0], 3);
        assert_eq!((table.has_answered(table.version()), table.passed()), (true, 0));
        serve(&mut table, "m", &[1], 5);
        assert_eq!(table.passed(), 3);
        // A further wish, and an owner that gives a unit up.
        table.want(wish("c", "d"));
        assert!(!table.has_answered(table.version()));
        assert_eq!(table.wishes_after(1), wish("c", "d"));
        table.synced((0, 1), "n", 2, None);
        table.synced((1, 1), "m", 2, None);
        assert!(table.has_answered(table.version()));
        serve(&mut table, "n", &[], 9);
        assert_eq!((table.has_answered(table.version()), table.passed()), (false, 0));
        // The next owner of the unit has its own knowledge.
        table.synced((0, 2), "m", 2, None);
        serve(&mut table, "n", &[], 10);
        assert!(table.has_answered(table.version()));
        table.forget("m");
        assert!(!table.has_answered(table.version()));
    }

    #[test]
    fn a_stream_that_a_new_owner_does_not_have_is_gone_once() {
        let mut table = Table::new(2);
        table.want(wish("*", "x"));
        table.set((0, 1), "x", end(1));
        table.set((0, 1), "y", end(1));
        table.set((1, 1), "y", end(2));
        let _ = table.take_changes();
        table.synced((0, 1), "n", 1, Some(&HashSet::new()));
        let changes = table.take_changes();
        assert_eq!(changes.gone.len(), 1);
        assert_eq!(&*changes.gone[0].1, "x");
        // The name has moved to another unit.
        assert_eq!((table.end_of("x"), table.end_of("y")), (None, end(2)));
        table.set((0, 1), "x", None);
        assert!(table.take_changes().gone.is_empty());
    }

    #[test]
    fn what_an_earlier_owner_says_late_counts_no_more() {
        let mut table = Table::new(1);
        table.want(wish("*", "x"));
        table.set((0, 1), "x", end(1));
        table.synced((0, 2), "m", 1, None);
        table.set((0, 2), "x", end(5));
        table.set((0, 2), "new", end(5));
        // The answers of the owner before come now.
        table.set((0, 1), "x", end(2));
        table.set((0, 1), "new", None);
        table.synced((0, 1), "n", 1, Some(&HashSet::new()));
        assert_eq!((table.end_of("x"), table.end_of("new")), (end(5), end(5)));
        table.forget("n");
        assert!(table.has_answered(1), "the unit is the later owner's");
    }

    #[test]
    fn a_late_answer_of_an_earlier_owner_passes_nothing() {
        let mut table = Table::new(1);
        table.synced((0, 2), "new", 0, None);
        table.answered("old", BTreeMap::from([(0, 1)]), 5);
        assert_eq!(table.passed(), 0);
        table.answered("new", BTreeMap::from([(0, 2)]), 4);
        assert_eq!(table.passed(), 4);
    }
}

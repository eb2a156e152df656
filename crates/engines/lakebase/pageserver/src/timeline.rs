//! The pages of one history of a cluster.

use crate::error::{IngestError, PageError};
use crate::fold::{Fold, finish};
use crate::history::{Chain, History};
use crate::state::{State, States};
use crate::status::{StatusKey, Statuses};
use crate::value::Value;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use thalweg_lakebase_redo::{Change, Page, Redo, heap_blocks_per_map};
use thalweg_lakebase_wal::{Checkpoint, Effect, Fork, Framed, PgVersion, Record, Relation};
use thalweg_pg::PgLsn;

/// A page by its place.
pub type Key = (Relation, Fork, u32);

/// The pages of a cluster as it was before the first record: stopped in order, at that position.
pub trait Base: Send + Sync {
    /// How many blocks a fork has; `None`: it does not exist.
    fn blocks(&self, relation: Relation, fork: Fork) -> io::Result<Option<u32>>;

    /// A page that is there.
    fn page(&self, key: Key) -> io::Result<Page>;

    /// A status page; `None`: there is none.
    fn status(&self, key: StatusKey) -> io::Result<Option<Page>>;

    /// The content of `pg_filenode.map` of a database; 0: of the shared catalogs.
    fn map(&self, database: u32) -> io::Result<Option<Bytes>>;

    /// The databases, without 0.
    fn databases(&self) -> io::Result<Vec<u32>>;

    /// All forks of a database; 0: those that all databases share.
    fn forks(&self, database: u32) -> io::Result<Vec<(Relation, Fork)>>;
}

/// The pages of one history of a cluster.
pub struct Timeline {
    version: PgVersion,
    base: Box<dyn Base>,
    /// The end of the last record.
    last: PgLsn,
    forks: BTreeMap<(Relation, Fork), History>,
    /// Databases that were copied file by file: what each is a copy of, and when.
    copies: BTreeMap<u32, (u32, PgLsn)>,
    /// Databases that were made (`true`) and dropped.
    databases: BTreeMap<u32, Vec<(PgLsn, bool)>>,
    states: States,
    statuses: Statuses,
    /// The content of `pg_filenode.map` by database, from each position on.
    maps: BTreeMap<u32, Vec<(PgLsn, Bytes)>>,
    /// Prepared transactions: from and up to which position, and the content of their files.
    prepared: BTreeMap<u32, Vec<(PgLsn, Option<Bytes>)>>,
}

impl Timeline {
    /// A timeline that begins with the pages of `base`, which was stopped by this checkpoint, whose record ends at `at`.
    #[must_use]
    pub fn new(version: PgVersion, base: Box<dyn Base>, checkpoint: &Checkpoint, at: PgLsn) -> Self {
        Self {
            version,
            base,
            last: at,
            forks: BTreeMap::new(),
            copies: BTreeMap::new(),
            databases: BTreeMap::new(),
            states: States::new(at, State::of(checkpoint)),
            statuses: Statuses::default(),
            maps: BTreeMap::new(),
            prepared: BTreeMap::new(),
        }
    }

    /// The version of its log.
    #[must_use]
    pub fn version(&self) -> PgVersion {
        self.version
    }

    /// The end of the last record that was taken.
    #[must_use]
    pub fn last(&self) -> PgLsn {
        self.last
    }

    /// The history of a fork; as the base has it, if nothing has changed it yet.
    fn history(&mut self, relation: Relation, fork: Fork) -> io::Result<&mut History> {
        if !self.forks.contains_key(&(relation, fork)) {
            let blocks = match self.origin_of(relation) {
                Some((source, at)) => self.size_of(source, fork, at)?,
                None => self.base.blocks(relation, fork)?,
            };
            self.forks.insert((relation, fork), History::new(blocks));
        }
        Ok(self.forks.entry((relation, fork)).or_default())
    }

    /// Where the files of a relation were copied from, with those of its whole database, and when.
    fn origin_of(&self, relation: Relation) -> Option<(Relation, PgLsn)> {
        let (source, at) = self.copies.get(&relation.database)?;
        Some((Relation { database: *source, ..relation }, *at))
    }

    fn size_of(&self, relation: Relation, fork: Fork, at: PgLsn) -> io::Result<Option<u32>> {
        match (self.forks.get(&(relation, fork)), self.origin_of(relation)) {
            (Some(history), _) => Ok(history.size(at)),
            (None, Some((source, copied))) => self.size_of(source, fork, copied.min(at)),
            (None, None) => self.base.blocks(relation, fork),
        }
    }

    /// Takes the next record of the log.
    pub fn ingest(&mut self, framed: &Framed) -> Result<(), IngestError> {
        let at = framed.end;
        if framed.start < self.last {
            return Err(IngestError::Order { at: framed.start, last: self.last });
        }
        let of_record = |error| IngestError::Record { at: framed.start, error };
        let record = Record::decode(&framed.bytes).map_err(of_record)?;
        let effect = Effect::of(&record, self.version).map_err(of_record)?;
        let change = Change { start: framed.start, end: at, bytes: framed.bytes.clone() };
        let mut state = self.states.newest();
        state.saw(record.header.xid);
        record.toplevel_xid.into_iter().for_each(|xid| state.saw(xid));
        effect.iter().for_each(|effect| state.affect(effect));
        self.states.put(at, state);
        let mut before = None;
        for block in record.blocks {
            let key = (block.relation, block.fork, block.block);
            // A record may name a block twice; it changes the page once.
            if before.replace(key) == Some(key) {
                continue;
            }
            let value = match block.image {
                Some(image) if image.is_applied => Value::Image(image),
                _ => Value::Record { change: change.clone(), begins: block.will_init },
            };
            self.history(block.relation, block.fork)?.put(at, block.block, value);
        }
        if let Some(effect) = effect {
            self.affect(at, effect)?;
        }
        self.last = at;
        Ok(())
    }

    fn affect(&mut self, at: PgLsn, effect: Effect) -> io::Result<()> {
        self.statuses.affect(at, &effect);
        match effect {
            Effect::RelmapUpdated { database, content, .. } => {
                self.maps.entry(database).or_default().push((at, content));
            }
            Effect::Prepared { xid, state } => self.prepared.entry(xid).or_default().push((at, Some(state))),
            Effect::ForkCreated { relation, fork } => self.history(relation, fork)?.create(at),
            Effect::TransactionEnd(end) => {
                if end.was_prepared {
                    self.prepared.entry(end.xid).or_default().push((at, None));
                }
                for relation in end.dropped {
                    Fork::ALL
                        .iter()
                        .try_for_each(|fork| self.history(relation, *fork).map(|history| history.remove(at)))?;
                }
            }
            Effect::Truncated { relation, blocks, heap, visibility, .. } => {
                if heap {
                    self.history(relation, Fork::Main)?.truncate(at, blocks);
                }
                if visibility {
                    let per_map = heap_blocks_per_map();
                    let map = self.history(relation, Fork::Visibility)?;
                    map.truncate(at, blocks.div_ceil(per_map));
                    map.put_if_there(at, blocks / per_map, Value::HideFrom { heap_block: blocks });
                }
            }
            Effect::VisibilityCleared { blocks, only_frozen } => {
                for (relation, heap_block) in blocks {
                    let map = self.history(relation, Fork::Visibility)?;
                    map.put_if_there(at, heap_block / heap_blocks_per_map(), Value::Hide { heap_block, only_frozen });
                }
            }
            Effect::DatabaseCopied { database, source, .. } => {
                self.copies.insert(database, (source, at));
                self.databases.entry(database).or_default().push((at, true));
            }
            Effect::DatabaseCreated { database, .. } => self.databases.entry(database).or_default().push((at, true)),
            Effect::DatabaseDropped { database, .. } => {
                self.databases.entry(database).or_default().push((at, false));
                for (relation, fork) in self.base.forks(database)? {
                    self.history(relation, fork)?.remove(at);
                }
                let of_it = self.forks.iter_mut().filter(|((relation, _), _)| relation.database == database);
                of_it.for_each(|(_, history)| history.remove(at));
            }
            _ => {}
        }
        Ok(())
    }

    /// How many blocks a fork has at a position; `None`: it does not exist.
    pub fn size(&self, relation: Relation, fork: Fork, at: PgLsn) -> Result<Option<u32>, PageError> {
        self.check(at)?;
        Ok(self.size_of(relation, fork, at)?)
    }

    fn check(&self, at: PgLsn) -> Result<(), PageError> {
        if at > self.last { Err(PageError::NotYet { at, last: self.last }) } else { Ok(()) }
    }

    /// The counters at a position.
    #[must_use]
    pub fn state(&self, at: PgLsn) -> State {
        self.states.at(at)
    }

    /// The databases at a position, with 0 for what all of them share.
    pub fn databases(&self, at: PgLsn) -> Result<Vec<u32>, PageError> {
        self.check(at)?;
        let mut all: BTreeSet<u32> = self.base.databases()?.into_iter().chain([0]).collect();
        for (database, changes) in &self.databases {
            match changes.iter().rev().find(|(position, _)| *position <= at) {
                Some((_, true)) => drop(all.insert(*database)),
                Some((_, false)) => drop(all.remove(database)),
                None => {}
            }
        }
        Ok(all.into_iter().collect())
    }

    /// All forks at a position, and how many blocks each has.
    pub fn relations(&self, at: PgLsn) -> Result<Vec<(Relation, Fork, u32)>, PageError> {
        let mut all: BTreeSet<(Relation, Fork)> = BTreeSet::new();
        for database in self.databases(at)? {
            let mut place = database;
            loop {
                let of_database = |(relation, fork): (Relation, Fork)| (Relation { database, ..relation }, fork);
                let changed = self.forks.keys().copied().filter(|(relation, _)| relation.database == place);
                all.extend(self.base.forks(place)?.into_iter().chain(changed).map(of_database));
                match self.copies.get(&place) {
                    Some((source, _)) => place = *source,
                    None => break,
                }
            }
        }
        let mut found = Vec::new();
        for (relation, fork) in all {
            if let Some(blocks) = self.size(relation, fork, at)? {
                found.push((relation, fork, blocks));
            }
        }
        Ok(found)
    }

    /// A status page at a position; `None`: there is none.
    pub fn status(&self, key: StatusKey, at: PgLsn) -> Result<Option<Page>, PageError> {
        self.check(at)?;
        Ok(self.statuses.page(key, at, || self.base.status(key))?)
    }

    /// The content of `pg_filenode.map` of a database at a position; 0: of the shared catalogs.
    pub fn map(&self, database: u32, at: PgLsn) -> Result<Option<Bytes>, PageError> {
        self.check(at)?;
        let changes = self.maps.get(&database).map_or(&[][..], Vec::as_slice);
        match (changes.iter().rev().find(|(position, _)| *position <= at), self.copies.get(&database)) {
            (Some((_, content)), _) => Ok(Some(content.clone())),
            (None, Some((source, copied))) => self.map(*source, at.min(*copied)),
            (None, None) => Ok(self.base.map(database)?),
        }
    }

    /// The transactions that are prepared at a position, and the content of their files in `pg_twophase`.
    pub fn prepared(&self, at: PgLsn) -> Result<Vec<(u32, Bytes)>, PageError> {
        self.check(at)?;
        let state = |(xid, changes): (&u32, &Vec<(PgLsn, Option<Bytes>)>)| {
            let (_, state) = changes.iter().rev().find(|(position, _)| *position <= at)?;
            Some((*xid, state.clone()?))
        };
        Ok(self.prepared.iter().filter_map(state).collect())
    }

    /// Pages at a position: a result for each, in order.
    pub fn pages(&self, redo: &Redo, keys: &[Key], at: PgLsn) -> Vec<Result<Page, PageError>> {
        let (mut folds, mut places, mut results) = (Vec::new(), Vec::new(), Vec::new());
        for key in keys {
            match self.fold(*key, at) {
                Ok(fold) => {
                    places.push(results.len());
                    folds.push(fold);
                    results.push(Err(PageError::Missing));
                }
                Err(error) => results.push(Err(error)),
            }
        }
        for (place, made) in places.into_iter().zip(finish(redo, folds)) {
            results[place] = made;
        }
        results
    }

    fn fold(&self, key: Key, at: PgLsn) -> Result<Fold, PageError> {
        let (relation, fork, block) = key;
        match self.size(relation, fork, at)? {
            Some(blocks) if block < blocks => {}
            _ => return Err(PageError::Missing),
        }
        let chain =
            |place, at| self.forks.get(&(place, fork)).map_or_else(Chain::default, |history| history.chain(block, at));
        let (mut place, mut upto) = (relation, at);
        let Chain { mut begins, values } = chain(place, upto);
        let mut values = values.to_vec();
        // Before it was copied, it was a page of the database that it was copied from.
        while !begins && let Some((source, copied)) = self.origin_of(place) {
            (place, upto) = (source, copied.min(upto));
            let before = chain(place, upto);
            values.splice(0..0, before.values.iter().cloned());
            begins = before.begins;
        }
        let base = match self.base.blocks(place, fork)? {
            Some(blocks) if !begins && block < blocks => Some(self.base.page((place, fork, block))?),
            _ => None,
        };
        Ok(Fold::new(key, base, values))
    }
}

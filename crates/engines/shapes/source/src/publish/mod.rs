//! Checks that a table's changes come through the publication, and alters the publication so that they do.
//!
//! A table's changes are complete when the publication has the table, the table and its parts have
//! `REPLICA IDENTITY FULL`, and every transaction has ended that wrote to it before: such a transaction is in no
//! snapshot taken now, and the stream lacks its earlier changes.

mod alter;
mod busy;
mod error;
mod verify;

pub(crate) use alter::{drop_table, members, sql};
pub use error::PublishError;
pub use verify::Lacking;
pub(crate) use verify::writers;

use super::catalog::{Found, Standing, lookup_oids};
use super::error::SourceError;
use super::ownership::Ownership;
use super::session::Session;
use crate::clock::Clock;
use busy::Busy;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use thalweg_shapes_model::table::{Table, TableName};
use verify::Verdict;

/// Maintains one publication. Any number of threads may ask at once: one thread does the work for all of them.
#[derive(Debug)]
pub struct Publisher {
    publication: String,
    /// Tables and the publication are checked and never altered.
    manual: bool,
    /// Whether this process may alter them.
    ownership: Ownership,
    tables: Mutex<Complete>,
    waiting: Mutex<Vec<Arc<Request>>>,
    /// The thread that holds it queries Postgres for all waiting threads.
    working: Mutex<()>,
    /// Tables that could not be published a moment ago because transactions write to them.
    busy: Busy,
    /// Threads that have begun to publish tables and have released `working` for a pause.
    pausing: AtomicUsize,
    /// Notified when a thread releases `working`.
    ended: Condvar,
}

/// A thread's turn to ask Postgres.
struct Turn<'a> {
    publisher: &'a Publisher,
    clock: &'a dyn Clock,
    working: MutexGuard<'a, ()>,
}

impl Turn<'_> {
    /// Waits, and lets other threads publish other tables during that time.
    fn pause(&mut self, time: Duration) {
        let pausing = &self.publisher.pausing;
        pausing.fetch_add(1, Ordering::Relaxed);
        MutexGuard::unlocked(&mut self.working, || self.clock.sleep(time));
        pausing.fetch_sub(1, Ordering::Relaxed);
    }

    /// Waits until another thread's turn has ended.
    fn give_way(&mut self) {
        self.publisher.ended.wait(&mut self.working);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.publisher.ended.notify_all();
    }
}

/// How often a check of tables is repeated that something else invalidated while it ran.
const CHECKS_MAX: usize = 3;

/// The tables whose changes are complete, by oid.
#[derive(Debug, Default)]
struct Complete {
    tables: HashMap<u32, Known>,
    /// Counts the times that tables were forgotten. A check that began before the last of them is out of date: a
    /// transaction that it did not wait for may have committed before the slot that replaced the checked one.
    epoch: u64,
}

/// A table whose changes are complete.
#[derive(Debug)]
struct Known {
    parts: Vec<u32>,
    /// Time of the last request of a shape for it.
    asked: Instant,
}

#[derive(Debug)]
struct Request {
    table: u32,
    name: TableName,
    done: Mutex<Option<Result<(), PublishError>>>,
}

impl Publisher {
    #[must_use]
    pub fn new(publication: String, manual: bool) -> Self {
        let (tables, waiting) = (Mutex::default(), Mutex::default());
        let (working, busy, pausing, ended) = Default::default();
        let ownership = Ownership::default();
        Self { publication, manual, ownership, tables, waiting, working, busy, pausing, ended }
    }

    /// The same, for shapes that other processes may take over.
    #[must_use]
    pub fn owned(self, ownership: Ownership) -> Self {
        Self { ownership, ..self }
    }

    /// Alters the publication, unless another process owns the shapes by now: it would take the change for a foreign
    /// one, and drop them.
    fn alter(
        &self,
        session: &mut Session,
        found: &Found,
        lacking: Lacking,
        turn: &mut Turn<'_>,
    ) -> Result<(), PublishError> {
        if !self.ownership.is_held() {
            return Err(PublishError::Source(SourceError::Stopped));
        }
        alter::publish(session, &self.publication, found, lacking, turn)
    }

    fn turn<'a>(&'a self, clock: &'a dyn Clock) -> Turn<'a> {
        Turn { publisher: self, clock, working: self.working.lock() }
    }

    /// [`Publisher::ensure`] for a table that was looked up a moment ago. If the lookup showed a defect, it is fixed
    /// without another lookup: a defect that is gone shows when it is fixed. If the lookup showed no defect, the table
    /// is checked again.
    pub fn ensure_found(&self, session: &mut Session, found: &Found) -> Result<(), PublishError> {
        let clock = Arc::clone(&session.clock);
        let clock = &*clock;
        if !self.manual
            && !self.is_known(&found.table, clock)
            && let Verdict::Lacking(lacking) = verify::verdict(&found.standing, &self.publication)
        {
            let mut turn = self.turn(clock);
            // Another thread may have done it, or found the table busy, while this one waited.
            if self.is_known(&found.table, clock) {
                return Ok(());
            }
            self.busy.check(&found.table, clock)?;
            let epoch = self.tables.lock().epoch;
            let outcome = self.alter(session, found, lacking, &mut turn);
            self.busy.noted(&found.table, outcome, clock)?;
            if self.know([found], clock.now(), epoch) {
                return Ok(());
            }
        }
        self.ensure(session, &found.table)
    }

    fn is_known(&self, table: &Table, clock: &dyn Clock) -> bool {
        let mut tables = self.tables.lock();
        let known = tables.tables.get_mut(&table.oid).filter(|known| known.parts == table.parts);
        known.map(|known| known.asked = clock.now()).is_some()
    }

    /// Ensures that the stream brings every change of the table that a snapshot taken after this call lacks. Costs
    /// nothing for a table that was ensured before. Refuses at once a table that was busy a moment ago.
    pub fn ensure(&self, session: &mut Session, table: &Table) -> Result<(), PublishError> {
        let clock = Arc::clone(&session.clock);
        let clock = &*clock;
        if self.is_known(table, clock) {
            return Ok(());
        }
        self.busy.check(table, clock)?;
        let request = Arc::new(Request { table: table.oid, name: table.name.clone(), done: Mutex::new(None) });
        self.waiting.lock().push(Arc::clone(&request));
        let mut turn = self.turn(clock);
        loop {
            if let Some(done) = request.done.lock().take() {
                return self.busy.noted(table, done, clock);
            }
            let requests = std::mem::take(&mut *self.waiting.lock());
            if !requests.is_empty() {
                self.work(session, &requests, &mut turn);
            } else if Arc::strong_count(&request) > 1 {
                // The thread that took this request pauses.
                turn.give_way();
            } else {
                return Err(PublishError::Source(SourceError::Stopped));
            }
        }
    }

    /// Refuses selected generated columns if the publication does not publish them.
    pub fn generated(&self, table: &Table, selected: &[usize], standing: &Standing) -> Result<(), PublishError> {
        let any = selected.iter().any(|at| table.columns[*at].generated.is_some());
        if any && !standing.publishes_generated {
            return Err(PublishError::Generated { publication: self.publication.clone() });
        }
        Ok(())
    }

    /// Marks tables as complete without a check: their shapes continue from an earlier run, so no transaction from
    /// before can be open.
    pub fn trust<'a>(&self, tables: impl IntoIterator<Item = &'a Table>, now: Instant) {
        let mut known = self.tables.lock();
        for table in tables {
            known.tables.insert(table.oid, Known { parts: table.parts.clone(), asked: now });
        }
    }

    /// A table was altered: the next call of [`Publisher::ensure`] checks it again.
    pub fn forget(&self, table: u32) {
        let mut known = self.tables.lock();
        known.tables.remove(&table);
        known.epoch += 1;
        drop(known);
        self.busy.forget(table);
    }

    /// The publication or the slot was replaced: all tables are checked again.
    pub fn forget_all(&self) {
        let mut known = self.tables.lock();
        known.tables.clear();
        known.epoch += 1;
    }

    /// Removes from the publication the tables that no shape needed during `idle` and that are not `in_use`. Returns
    /// the removed ones.
    pub fn release(
        &self,
        session: &mut Session,
        idle: Duration,
        in_use: impl Fn(u32) -> bool,
    ) -> Result<Vec<TableName>, SourceError> {
        if self.manual {
            return Ok(Vec::new());
        }
        let _working = self.working.lock();
        // A thread that waits for the writers of a table counts on the table's membership.
        if self.pausing.load(Ordering::Relaxed) > 0 {
            return Ok(Vec::new());
        }
        let members = session.connection.members(&self.publication).map_err(SourceError::from)?;
        let now = session.clock.now();
        let mut known = self.tables.lock();
        let tables = &mut known.tables;
        let unused: Vec<(u32, TableName)> = members
            .into_iter()
            .filter(|(oid, _)| {
                let recent = |known: &Known| now.saturating_duration_since(known.asked) < idle;
                // A partition is a member itself where it only inherits.
                let is_part =
                    tables.iter().any(|(whole, known)| known.parts.contains(oid) && (recent(known) || in_use(*whole)));
                !is_part && !in_use(*oid) && !tables.get(oid).is_some_and(recent)
            })
            .collect();
        unused.iter().for_each(|(oid, _)| drop(tables.remove(oid)));
        drop(known);
        if !unused.is_empty() && !self.ownership.is_held() {
            return Err(SourceError::Stopped);
        }
        let mut released = Vec::new();
        for (_, name) in unused {
            match session.connection.unpublish(alter::LOCK_TIMEOUT, &self.publication, &name) {
                Ok(()) => released.push(name),
                // Locked, dropped, or owned by another role: the next round tries again.
                Err(error) if session.is_usable() => tracing::debug!(table = %name, "stays published: {error}"),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(released)
    }

    fn work(&self, session: &mut Session, requests: &[Arc<Request>], turn: &mut Turn<'_>) {
        let mut oids: Vec<u32> = requests.iter().map(|request| request.table).collect();
        oids.sort_unstable();
        oids.dedup();
        let results = self.tables_ready(session, &oids, turn);
        for request in requests {
            let result = match results.get(&request.table) {
                Some(result) => result.clone(),
                None => Err(PublishError::Gone { table: request.name.clone() }),
            };
            *request.done.lock() = Some(result);
        }
    }

    /// The results by oid; tables that do not exist are left out. Tables that are complete are known afterwards.
    fn tables_ready(
        &self,
        session: &mut Session,
        oids: &[u32],
        turn: &mut Turn<'_>,
    ) -> HashMap<u32, Result<(), PublishError>> {
        let mut checks = 0;
        loop {
            checks += 1;
            let epoch = self.tables.lock().epoch;
            let checked = match self.inspect(session, oids) {
                Ok(found) => self.check(session, found, turn),
                Err(error) => {
                    let error = PublishError::Source(error);
                    return oids.iter().map(|oid| (*oid, Err(error.clone()))).collect();
                }
            };
            let complete = checked.iter().filter(|(_, result)| result.is_ok()).map(|(found, _)| found);
            let is_current = self.know(complete, turn.clock.now(), epoch);
            if is_current || checks == CHECKS_MAX {
                let out_of_date = |found: &Found| PublishError::Busy { table: found.table.name.clone() };
                let result = |(found, result): (Found, Result<(), PublishError>)| {
                    let oid = found.table.oid;
                    (oid, if is_current { result } else { result.and(Err(out_of_date(&found))) })
                };
                return checked.into_iter().map(result).collect();
            }
        }
    }

    /// Checks tables, and alters the publication for those that it lacks.
    fn check(
        &self,
        session: &mut Session,
        tables: Vec<Found>,
        turn: &mut Turn<'_>,
    ) -> Vec<(Found, Result<(), PublishError>)> {
        let (mut results, mut quiet) = (Vec::new(), Vec::new());
        for found in tables {
            match verify::verdict(&found.standing, &self.publication) {
                // The lock of the table has waited for its writers.
                Verdict::Lacking(lacking) => {
                    let done = match self.manual {
                        true => Err(lacking.refusal(&self.publication, true)),
                        false => self.alter(session, &found, lacking, turn),
                    };
                    results.push((found, done));
                }
                Verdict::Impossible(error) => results.push((found, Err(error))),
                Verdict::Ready => quiet.push(found),
            }
        }
        if !quiet.is_empty() {
            results.extend(verify::writers_have_ended(session, quiet, turn));
        }
        results
    }

    fn inspect(&self, session: &mut Session, oids: &[u32]) -> Result<Vec<Found>, SourceError> {
        lookup_oids(session, &self.publication, oids)
    }

    /// Marks tables as complete that a check since `epoch` found to be so. `false`: tables were forgotten in the
    /// meantime, so the check is out of date and nothing is marked.
    fn know<'a>(&self, tables: impl IntoIterator<Item = &'a Found>, now: Instant, epoch: u64) -> bool {
        let mut known = self.tables.lock();
        if known.epoch != epoch {
            return false;
        }
        for found in tables {
            known.tables.insert(found.table.oid, Known { parts: found.table.parts.clone(), asked: now });
        }
        true
    }
}

//! Whether we get a table's changes, and seeing to it that we do.
//!
//! A table's changes are complete when the publication has it, it and its parts tell whole old rows, and every transaction that wrote to
//! it before that was so has ended: what such a transaction commits later is in no snapshot of now, and the stream lacks its beginning.

mod alter;
mod busy;
mod error;
mod verify;

pub(crate) use error::PublishError;

use super::catalog::{Found, Standing, lookup_oids};
use super::error::SourceError;
use super::session::Session;
use crate::table::{Table, TableName};
use busy::Busy;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use verify::Verdict;

/// Looks after one publication. Any number of threads may ask at once: what they ask for together is done together.
#[derive(Debug)]
pub(crate) struct Publisher {
    publication: String,
    /// Tables are only looked at, never changed.
    manual: bool,
    tables: Mutex<HashMap<u32, Known>>,
    waiting: Mutex<Vec<Arc<Request>>>,
    /// Who has it asks Postgres, for all who wait.
    working: Mutex<()>,
    /// Tables that could not be published a moment ago because others write to them.
    busy: Busy,
    /// Threads that have begun to publish tables and have given `working` to others for a moment.
    pausing: AtomicUsize,
    /// A thread has given `working` back.
    ended: Condvar,
}

/// A thread's turn to ask Postgres.
struct Turn<'a> {
    publisher: &'a Publisher,
    working: MutexGuard<'a, ()>,
}

impl Turn<'_> {
    /// Waits, and lets other threads publish other tables meanwhile.
    fn pause(&mut self, time: Duration) {
        let pausing = &self.publisher.pausing;
        pausing.fetch_add(1, Ordering::Relaxed);
        MutexGuard::unlocked(&mut self.working, || std::thread::sleep(time));
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

/// A table whose changes are complete.
#[derive(Debug)]
struct Known {
    parts: Vec<u32>,
    /// When a shape asked for it last.
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
    pub(crate) fn new(publication: String, manual: bool) -> Self {
        let (tables, waiting) = (Mutex::default(), Mutex::default());
        let (working, busy, pausing, ended) = Default::default();
        Self { publication, manual, tables, waiting, working, busy, pausing, ended }
    }

    fn turn(&self) -> Turn<'_> {
        Turn { publisher: self, working: self.working.lock() }
    }

    /// The same as [`Publisher::ensure`] for a table that was looked up a moment ago: if something was lacking then, it is not looked at once
    /// more. If it no longer is, that shows when it is to be changed. That nothing was lacking says nothing of now.
    pub(crate) fn ensure_found(&self, session: &mut Session, found: &Found) -> Result<(), PublishError> {
        if !self.manual
            && !self.is_known(&found.table)
            && let Verdict::Lacking(lacking) = verify::verdict(&found.standing, &self.publication)
        {
            let mut turn = self.turn();
            // Another thread may have done it, or found the table busy, while this one waited.
            if !self.is_known(&found.table) {
                self.busy.check(&found.table)?;
                self.busy.noted(&found.table, alter::publish(session, &self.publication, found, lacking, &mut turn))?;
                self.know(found);
            }
            return Ok(());
        }
        self.ensure(session, &found.table)
    }

    fn is_known(&self, table: &Table) -> bool {
        let mut tables = self.tables.lock();
        let known = tables.get_mut(&table.oid).filter(|known| known.parts == table.parts);
        known.map(|known| known.asked = Instant::now()).is_some()
    }

    /// Sees to it that every change of the table comes that a snapshot taken after this does not have. Costs nothing for a table that
    /// was asked for before. A table that was busy a moment ago is refused at once.
    pub(crate) fn ensure(&self, session: &mut Session, table: &Table) -> Result<(), PublishError> {
        if self.is_known(table) {
            return Ok(());
        }
        self.busy.check(table)?;
        let request = Arc::new(Request { table: table.oid, name: table.name.clone(), done: Mutex::new(None) });
        self.waiting.lock().push(Arc::clone(&request));
        let mut turn = self.turn();
        loop {
            if let Some(done) = request.done.lock().take() {
                return self.busy.noted(table, done);
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

    /// Whether changes of generated columns come, if some are selected.
    pub(crate) fn generated(&self, table: &Table, selected: &[usize], standing: &Standing) -> Result<(), PublishError> {
        let any = selected.iter().any(|at| table.columns[*at].generated.is_some());
        if any && !standing.publishes_generated {
            return Err(PublishError::Generated { publication: self.publication.clone() });
        }
        Ok(())
    }

    /// These tables were in order when changes were last applied, and shapes of them go on: no transaction can be left from before.
    pub(crate) fn trust<'a>(&self, tables: impl IntoIterator<Item = &'a Table>) {
        let mut known = self.tables.lock();
        for table in tables {
            known.insert(table.oid, Known { parts: table.parts.clone(), asked: Instant::now() });
        }
    }

    /// A table is no longer as it was: the next who asks for it has it looked at again.
    pub(crate) fn forget(&self, table: u32) {
        self.tables.lock().remove(&table);
        self.busy.forget(table);
    }

    /// The publication is another one, or its slot.
    pub(crate) fn forget_all(&self) {
        self.tables.lock().clear();
    }

    /// Takes tables out of the publication that nobody has asked for during `idle` and that `in_use` does not know. Gives those that
    /// were taken out.
    pub(crate) fn release(
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
        let members = alter::members(session, &self.publication)?;
        let mut tables = self.tables.lock();
        let unused: Vec<(u32, TableName)> = members
            .into_iter()
            .filter(|(oid, _)| {
                let recent = |known: &Known| known.asked.elapsed() < idle;
                // A part is a member of its own where it only inherits.
                let is_part =
                    tables.iter().any(|(whole, known)| known.parts.contains(oid) && (recent(known) || in_use(*whole)));
                !is_part && !in_use(*oid) && !tables.get(oid).is_some_and(recent)
            })
            .collect();
        unused.iter().for_each(|(oid, _)| drop(tables.remove(oid)));
        drop(tables);
        let mut released = Vec::new();
        for (_, name) in unused {
            match alter::drop_table(session, &self.publication, &name) {
                Ok(()) => released.push(name),
                // Locked, gone, or not ours: another time.
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

    /// By oid; tables that there are not are left out.
    fn tables_ready(
        &self,
        session: &mut Session,
        oids: &[u32],
        turn: &mut Turn<'_>,
    ) -> HashMap<u32, Result<(), PublishError>> {
        let found = match self.look(session, oids) {
            Ok(found) => found,
            Err(error) => {
                let error = PublishError::Source(error);
                return oids.iter().map(|oid| (*oid, Err(error.clone()))).collect();
            }
        };
        let (mut results, mut quiet) = (HashMap::new(), Vec::new());
        for found in found {
            let oid = found.table.oid;
            match verify::verdict(&found.standing, &self.publication) {
                // Who locked the table has waited for its writers.
                Verdict::Lacking(lacking) => {
                    let done = match self.manual {
                        true => Err(lacking.refusal(&self.publication, true)),
                        false => alter::publish(session, &self.publication, &found, lacking, turn),
                    };
                    if done.is_ok() {
                        self.know(&found);
                    }
                    results.insert(oid, done);
                }
                Verdict::Impossible(error) => drop(results.insert(oid, Err(error))),
                Verdict::Ready => quiet.push(found),
            }
        }
        if !quiet.is_empty() {
            for (found, result) in verify::writers_have_ended(session, quiet, turn) {
                if result.is_ok() {
                    self.know(&found);
                }
                results.insert(found.table.oid, result);
            }
        }
        results
    }

    fn look(&self, session: &mut Session, oids: &[u32]) -> Result<Vec<Found>, SourceError> {
        lookup_oids(session, &self.publication, oids)
    }

    fn know(&self, found: &Found) {
        let known = Known { parts: found.table.parts.clone(), asked: Instant::now() };
        self.tables.lock().insert(found.table.oid, known);
    }
}

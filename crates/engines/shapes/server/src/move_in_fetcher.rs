//! Fetches move-ins: rows that enter a shape because its inner query selects new values.
//!
//! The applier only enqueues requests: it never waits for Postgres, nor for a queue in front of it. Threads of a
//! separate pool take a snapshot, ensure that it contains all applied transactions, and read the rows. Until the
//! snapshot is known the shape behaves as if the values had not changed, and further values of the same shape join the
//! request.
//!
//! A fetch that fails for now (the table is locked, the database cannot be reached, a commit is not visible yet) is
//! tried again later, each table independently of the others, until [`PATIENCE`] is over: then the shape is dropped.

use crate::faults::Fault;
use crate::feed_lock::SharedFeed;
use crate::lifetime::Lifetime;
use crate::source::Source;
use crate::subquery::{Ask, FetchedRows, MoveInRequest, Turn, cells};
use crate::watermarks::Watermarks;
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thalweg_pg::PgLsn;
use thalweg_shapes_core::subquery::place::ROWS_MAX;
use thalweg_shapes_model::copy::CopyRow;
use thalweg_shapes_model::health::Health;
use thalweg_shapes_model::row::Cells;
use thalweg_shapes_model::snapshot::PgSnapshot;
use thalweg_shapes_source::error::SourceError;
use thalweg_shapes_source::pool::Jobs;
use thalweg_shapes_source::session::{Limits, Session};
use thalweg_shapes_source::snapshot;

/// Queries that run at a time: all, and those of one table.
const RUNNING_MAX: usize = 8;
const RUNNING_OF_TABLE_MAX: usize = 4;
/// Shapes whose rows one snapshot is for.
const TOGETHER_MAX: usize = 256;
/// Shapes that may wait. Each has one place in the queue, however many values come.
const QUEUE_MAX: usize = 1_000_000;
/// Rows that one shape may get at a time are held in memory.
const ROWS_BYTES_MAX: usize = 256 << 20;
/// Their places behind a transaction are kept, and those of a few events.
const ROWS_AT_ONCE_MAX: usize = ROWS_MAX as usize - 4096;
/// How long a shape waits for a snapshot, while changes come from Postgres.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long to wait for a lock: as long as that a connection is taken up by a table that is locked.
const LOCK: Duration = Duration::from_secs(1);
/// How long reading the rows of one shape may take.
const FETCH: Duration = Duration::from_secs(600);
/// How often a snapshot that lacks applied transactions is taken again at once, and the pause in between.
const SNAPSHOTS_MAX: usize = 20;
const VISIBLE_AFTER: Duration = Duration::from_millis(2);
/// How long a table is left alone after an attempt that failed.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(2);

pub(crate) struct MoveInFetcher {
    pool: Mutex<Option<Box<dyn Jobs>>>,
    queue: Mutex<Queue>,
    arrivals: Mutex<Vec<FetchedRows>>,
    feed: Arc<SharedFeed>,
    lifetime: Arc<Lifetime>,
    source: Arc<Source>,
    watermarks: Arc<Watermarks>,
}

#[derive(Default)]
struct Queue {
    tables: HashMap<u32, Line>,
    /// Of all tables.
    waiting: usize,
    running: usize,
}

/// The requests that wait for rows of one table.
#[derive(Default)]
struct Line {
    waiting: VecDeque<Waiting>,
    running: usize,
    /// The last attempt failed: the next one is made after that, alone.
    not_before: Option<Instant>,
    pause: Duration,
}

#[derive(Clone, Copy)]
struct Waiting {
    wanted: MoveInRequest,
    since: Instant,
}

/// Why rows were not fetched.
enum Unfetched {
    /// A second attempt may help.
    Later(SourceError),
    Never(String),
}

impl From<SourceError> for Unfetched {
    fn from(error: SourceError) -> Self {
        match error {
            SourceError::Permission(_)
            | SourceError::SchemaChanged(_)
            | SourceError::Replaced
            | SourceError::Invalid(_)
            | SourceError::TooLarge(_)
            | SourceError::Catalog(_) => Self::Never(error.to_string()),
            error => Self::Later(error),
        }
    }
}

impl MoveInFetcher {
    pub(crate) fn new(
        feed: Arc<SharedFeed>,
        lifetime: Arc<Lifetime>,
        source: Arc<Source>,
        watermarks: Arc<Watermarks>,
    ) -> Self {
        Self {
            pool: Mutex::new(Some(source.queries.jobs(RUNNING_MAX))),
            queue: Mutex::default(),
            arrivals: Mutex::default(),
            feed,
            lifetime,
            source,
            watermarks,
        }
    }

    /// Interrupts running fetches, and prevents new ones.
    pub(crate) fn stop(&self) {
        let pool = self.pool.lock().take();
        drop(pool);
    }

    /// Rows are wanted: at once if there is a thread for them. Never waits.
    pub(crate) fn want(self: &Arc<Self>, all: &[MoveInRequest]) {
        let since = self.lifetime.clock.now();
        {
            let mut queue = self.queue.lock();
            for wanted in all {
                if queue.waiting >= QUEUE_MAX {
                    self.fail(&[(wanted.shape, wanted.pending)], "too many shapes wait for rows");
                    continue;
                }
                queue.waiting += 1;
                let line = queue.tables.entry(wanted.table).or_default();
                line.waiting.push_back(Waiting { wanted: *wanted, since });
            }
        }
        self.start();
        while self.lifetime.faults.has(Fault::ApplierWaits)
            && !self.lifetime.stopping()
            && self.queue.lock().running > 0
        {
            self.lifetime.clock.sleep(VISIBLE_AFTER);
        }
    }

    /// Starts the fetches that can run now.
    pub(crate) fn start(self: &Arc<Self>) {
        let now = self.lifetime.clock.now();
        let pool = self.pool.lock();
        let Some(pool) = &*pool else { return };
        loop {
            let next = self.queue.lock().next(now);
            let Some((table, batch)) = next else { return };
            let (fetcher, again) = (Arc::clone(self), batch.clone());
            let queued = pool.submit(Box::new(move |session| {
                let left = fetcher.work(session, &batch);
                fetcher.ended(table, left);
            }));
            if let Err(error) = queued {
                tracing::debug!(%error, "rows of subqueries are asked for later");
                self.queue.lock().end(table, again, true, now);
                return;
            }
        }
    }

    /// Takes the rows that were fetched since the last call.
    pub(crate) fn arrivals(&self) -> Vec<FetchedRows> {
        std::mem::take(&mut *self.arrivals.lock())
    }

    fn fail(&self, pendings: &[(u64, u64)], why: &str) {
        let arrivals = pendings.iter().map(|(shape, pending)| FetchedRows {
            shape: *shape,
            pending: *pending,
            rows: Err(why.to_owned()),
        });
        self.arrivals.lock().extend(arrivals);
    }

    /// An attempt is over: the requests that it left are tried again, unless they have waited for too long.
    fn ended(self: &Arc<Self>, table: u32, left: Vec<Waiting>) {
        let now = self.lifetime.clock.now();
        let failed = !left.is_empty();
        // While no changes come from Postgres the requests do not age.
        let away = self.source.health() != Health::Active;
        let (mut again, mut over) = (Vec::new(), Vec::new());
        for waiting in left {
            let since = if away { now } else { waiting.since };
            if now.duration_since(since) < PATIENCE {
                again.push(Waiting { since, ..waiting });
            } else {
                over.push((waiting.wanted.shape, waiting.wanted.pending));
            }
        }
        self.fail(&over, "Postgres did not give them in time");
        self.queue.lock().end(table, again, failed, now);
        if !self.lifetime.stopping() {
            self.start();
        }
    }

    /// Fetches the batch of one table from one snapshot. Returns the requests to try again.
    fn work(&self, session: Result<&mut Session, SourceError>, batch: &[Waiting]) -> Vec<Waiting> {
        let (mut asks, mut later) = (Vec::with_capacity(batch.len()), Vec::new());
        {
            let mut feed = self.feed.lock();
            for waiting in batch {
                match feed.graph.turn(waiting.wanted.shape, waiting.wanted.pending) {
                    Turn::Ask(ask) => asks.push((ask, *waiting)),
                    Turn::Later => later.push(*waiting),
                    Turn::Gone => {}
                }
            }
        }
        let Some((first, _)) = asks.first() else { return later };
        let table = Arc::clone(&first.table);
        let taken = session.map_err(Unfetched::from).and_then(|session| {
            let snapshot = self.snapshot(session, &table, &asks)?;
            Ok((session, snapshot))
        });
        let (session, snapshot) = match taken {
            Ok(taken) => taken,
            Err(why) => {
                self.leave(&asks, &why, &mut later);
                return later;
            }
        };
        let mut fetched = Vec::with_capacity(asks.len());
        for (at, (ask, _)) in asks.iter().enumerate() {
            match fetch(session, ask) {
                Ok(rows) => fetched.push(FetchedRows { shape: ask.shape, pending: ask.pending, rows: Ok(rows) }),
                Err(why) => {
                    self.leave(&asks[at..], &why, &mut later);
                    break;
                }
            }
        }
        session.roll_back();
        // A crash of Postgres could undo transactions that the snapshot contains; the stream would never bring them.
        // And the stream has to reach the snapshot's position.
        match snapshot::flush(session, snapshot.lsn) {
            Ok(()) => {
                self.watermarks.fetched(PgLsn(snapshot.lsn));
                self.arrivals.lock().append(&mut fetched);
            }
            Err(error) => self.leave(&asks[..fetched.len()], &error.into(), &mut later),
        }
        later
    }

    /// Handles requests that failed: they are tried again if that may help and their place in the stream is still to
    /// come.
    fn leave(&self, asks: &[(Ask, Waiting)], why: &Unfetched, later: &mut Vec<Waiting>) {
        let (error, again) = match why {
            Unfetched::Later(error) => (error.to_string(), true),
            Unfetched::Never(error) => (error.clone(), false),
        };
        // Logged once per table, until a fetch of its rows succeeds again.
        let table = asks.first().map(|(_, waiting)| waiting.wanted.table);
        let is_known = again && table.is_some_and(|table| self.queue.lock().is_failing(table));
        if is_known {
            tracing::debug!(shapes = asks.len(), error, "rows of subqueries cannot be fetched yet");
        } else {
            tracing::warn!(shapes = asks.len(), error, again, "rows of subqueries cannot be fetched");
        }
        let mut feed = self.feed.lock();
        for (ask, waiting) in asks {
            if again && feed.graph.unask(ask.shape, ask.pending) {
                later.push(*waiting);
            } else {
                self.fail(&[(ask.shape, ask.pending)], &error);
            }
        }
    }

    /// Takes a snapshot for these, and tells the graph before anything is applied that the snapshot has not.
    fn snapshot(
        &self,
        session: &mut Session,
        table: &Arc<thalweg_shapes_model::table::Table>,
        asks: &[(Ask, Waiting)],
    ) -> Result<PgSnapshot, Unfetched> {
        for _ in 0..SNAPSHOTS_MAX {
            let limits = Limits { statement: Some(FETCH), lock: LOCK };
            let snapshot = snapshot::begin(session, table, limits).inspect_err(|_| session.roll_back())?;
            {
                let mut feed = self.feed.lock();
                if !feed.missed_any(&snapshot) {
                    feed.graph.asked(asks.iter().map(|(ask, _)| ask), &snapshot);
                    return Ok(snapshot);
                }
            }
            session.roll_back();
            if self.lifetime.stopping() {
                break;
            }
            self.lifetime.clock.sleep(VISIBLE_AFTER);
        }
        Err(Unfetched::Later(SourceError::Other("transactions that were applied are not visible yet".to_owned())))
    }
}

impl Queue {
    /// The next requests of one table that may run.
    fn next(&mut self, now: Instant) -> Option<(u32, Vec<Waiting>)> {
        if self.running >= RUNNING_MAX {
            return None;
        }
        let ready = self.tables.iter_mut().filter(|(_, line)| line.may_begin(now));
        // The one that has least, and of these the one that has waited for longest.
        let (table, line) =
            ready.min_by_key(|(_, line)| (line.running, line.waiting.front().map(|first| first.since)))?;
        let count = line.waiting.len().min(TOGETHER_MAX);
        let batch: Vec<Waiting> = line.waiting.drain(..count).collect();
        line.running += 1;
        self.waiting -= count;
        self.running += 1;
        Some((*table, batch))
    }

    /// Whether the last attempt of a table failed.
    fn is_failing(&self, table: u32) -> bool {
        self.tables.get(&table).is_some_and(|line| line.not_before.is_some())
    }

    /// An attempt is over, which leaves these.
    fn end(&mut self, table: u32, left: Vec<Waiting>, failed: bool, now: Instant) {
        self.running -= 1;
        self.waiting += left.len();
        let line = self.tables.entry(table).or_default();
        line.running = line.running.saturating_sub(1);
        left.into_iter().rev().for_each(|waiting| line.waiting.push_front(waiting));
        if failed {
            line.pause = (line.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
            line.not_before = Some(now + line.pause);
        } else {
            (line.pause, line.not_before) = (Duration::ZERO, None);
        }
        if line.waiting.is_empty() && line.running == 0 {
            self.tables.remove(&table);
        }
    }
}

impl Line {
    fn may_begin(&self, now: Instant) -> bool {
        let running_max = if self.not_before.is_some() { 1 } else { RUNNING_OF_TABLE_MAX };
        !self.waiting.is_empty() && self.running < running_max && self.not_before.is_none_or(|at| at <= now)
    }
}

fn fetch(session: &mut Session, ask: &Ask) -> Result<Vec<Cells>, Unfetched> {
    let Some(filter) = &ask.filter else { return Ok(Vec::new()) };
    let select = snapshot::select(&ask.table, &ask.columns, Some(filter));
    let mut line = CopyRow::default();
    let (mut rows, mut bytes) = (Vec::new(), 0_usize);
    let mut bad = None;
    let read = snapshot::rows_within(session, &select, FETCH, |text| {
        bytes += text.len();
        if bytes > ROWS_BYTES_MAX || rows.len() >= ROWS_AT_ONCE_MAX {
            bad = Some("more rows came at once than are held in memory".to_owned());
            return ControlFlow::Break(());
        }
        match line.decode(text) {
            Ok(()) => rows.push(cells(&ask.columns, &line, ask.table.columns.len())),
            Err(error) => bad = Some(error.to_string()),
        }
        if bad.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    match (read, bad) {
        (_, Some(why)) => Err(Unfetched::Never(why)),
        (Err(error), None) => Err(error.into()),
        (Ok(()), None) => Ok(rows),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(table: u32, shape: u64) -> Waiting {
        Waiting { wanted: MoveInRequest { shape, pending: 1, table }, since: Instant::now() }
    }

    fn queue(tables: &[(u32, usize)]) -> Queue {
        let mut queue = Queue::default();
        for (table, shapes) in tables {
            let line = queue.tables.entry(*table).or_default();
            line.waiting.extend((0..*shapes as u64).map(|shape| waiting(*table, shape)));
            queue.waiting += shapes;
        }
        queue
    }

    fn begin(queue: &mut Queue, now: Instant) -> Vec<(u32, usize)> {
        let mut begun: Vec<(u32, usize)> =
            std::iter::from_fn(|| queue.next(now)).map(|(table, batch)| (table, batch.len())).collect();
        begun.sort_unstable();
        begun
    }

    #[test]
    fn no_table_takes_up_all_connections() {
        let now = Instant::now();
        let mut all = queue(&[(1, 10 * TOGETHER_MAX), (2, 3)]);
        let begun = begin(&mut all, now);
        assert_eq!(begun, [vec![(1, TOGETHER_MAX); RUNNING_OF_TABLE_MAX], vec![(2, 3)]].concat());
        assert_eq!((all.running, all.waiting), (5, 6 * TOGETHER_MAX));
        let mut many = queue(&(0..20).map(|table| (table, 1)).collect::<Vec<_>>());
        assert_eq!(begin(&mut many, now).len(), RUNNING_MAX);
    }

    #[test]
    fn a_table_that_failed_is_left_alone_for_a_while_and_tried_by_one() {
        let now = Instant::now();
        let mut queue = queue(&[(1, 2 * TOGETHER_MAX)]);
        let (_, batch) = queue.next(now).unwrap();
        let (_, other) = queue.next(now).unwrap();
        queue.end(1, batch, true, now);
        queue.end(1, other, true, now);
        assert_eq!((queue.running, queue.waiting), (0, 2 * TOGETHER_MAX));
        assert!(queue.next(now + PAUSE_MIN).is_none());
        let late = now + PAUSE_MAX;
        assert_eq!(begin(&mut queue, late), [(1, TOGETHER_MAX)]);
        queue.end(1, Vec::new(), false, late);
        assert_eq!(begin(&mut queue, late), [(1, TOGETHER_MAX)]);
        queue.end(1, Vec::new(), false, late);
        assert!(queue.tables.is_empty() && queue.running == 0 && queue.waiting == 0);
    }
}

//! Fetching rows that come because an inner query's values did.
//!
//! The snapshot is taken at once, by the thread that applies changes: until the next transaction it must know which ones the rows contain. The
//! rows are read by threads of their own.

use super::graph::Ask;
use super::node::Cells;
use crate::engine::Engine;
use crate::format::copy::CopyRow;
use crate::format::projection::Row;
use crate::source::error::SourceError;
use crate::source::session::Session;
use crate::source::snapshot;
use crate::state::snapshot::PgSnapshot;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Queries that run at a time.
const RUNNING_MAX: usize = 8;
/// Sessions that are kept for the next ones.
const IDLE_MAX: usize = 2;
/// Rows that one shape may get at a time are held in memory.
const ROWS_BYTES_MAX: usize = 256 << 20;
/// How long to wait until a transaction is visible that was sent already, and how long for a database that does not answer.
const VISIBLE_AFTER: Duration = Duration::from_millis(2);
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// Rows for a shape, or why there are none.
pub(crate) struct Arrival {
    pub(crate) shape: u64,
    pub(crate) pending: u64,
    pub(crate) rows: Result<Vec<Cells>, String>,
}

#[derive(Default)]
pub(crate) struct Asking {
    idle: Mutex<Vec<Session>>,
    running: AtomicUsize,
    arrivals: Mutex<Vec<Arrival>>,
}

impl Asking {
    /// Takes a snapshot that has everything that was applied, and begins to fetch; `None` if the engine stops.
    pub(crate) fn begin(engine: &Arc<Engine>, asks: Vec<Ask>) -> Option<PgSnapshot> {
        let asking = &engine.subqueries.asking;
        while asking.running.load(Ordering::Acquire) >= RUNNING_MAX && !engine.stopping() {
            std::thread::sleep(VISIBLE_AFTER);
        }
        let table = Arc::clone(&asks.first()?.table);
        while !engine.stopping() {
            let idle = asking.idle.lock().pop();
            let session = match idle {
                Some(session) => Ok(session),
                None => engine.queries.connect().map_err(SourceError::from),
            };
            let begun = session.and_then(|mut session| {
                let snapshot = snapshot::begin(&mut session, &table, None);
                Ok((session, snapshot?))
            });
            match begun {
                Ok((mut session, snapshot)) => {
                    let recent = engine.recent.lock();
                    if recent.missed(recent.mark(), &snapshot) {
                        drop(recent);
                        session.roll_back();
                        asking.give_back(session);
                        std::thread::sleep(VISIBLE_AFTER);
                        continue;
                    }
                    drop(recent);
                    asking.run(engine, session, asks, snapshot.lsn);
                    return Some(snapshot);
                }
                Err(SourceError::Replaced) => {
                    // The catalog is compared soon, and then the shape goes.
                    asking.fail(&asks, "the table was replaced");
                    return Some(PgSnapshot { xmin: 0, xmax: 0, xip: Vec::new(), lsn: 0 });
                }
                Err(error) => {
                    tracing::warn!(%error, "rows of a subquery cannot be fetched; it is tried again");
                    std::thread::sleep(RETRY_AFTER);
                }
            }
        }
        None
    }

    /// What came since the last time.
    pub(crate) fn arrivals(&self) -> Vec<Arrival> {
        std::mem::take(&mut *self.arrivals.lock())
    }

    /// Those that are kept may be of another server than the next ones.
    pub(super) fn forget_sessions(&self) {
        self.idle.lock().clear();
    }

    fn give_back(&self, session: Session) {
        let mut idle = self.idle.lock();
        if session.is_usable() && idle.len() < IDLE_MAX {
            idle.push(session);
        }
    }

    fn fail(&self, asks: &[Ask], why: &str) {
        let arrivals = asks.iter().map(|ask| Arrival { shape: ask.shape, pending: ask.pending, rows: Err(why.into()) });
        self.arrivals.lock().extend(arrivals);
    }

    fn run(&self, engine: &Arc<Engine>, mut session: Session, asks: Vec<Ask>, lsn: u64) {
        self.running.fetch_add(1, Ordering::AcqRel);
        let engine = Arc::clone(engine);
        let work = move || {
            let asking = &engine.subqueries.asking;
            for (at, ask) in asks.iter().enumerate() {
                match fetch(&mut session, ask) {
                    Ok(rows) => {
                        asking.arrivals.lock().push(Arrival { shape: ask.shape, pending: ask.pending, rows: Ok(rows) });
                    }
                    Err(error) => {
                        asking.fail(&asks[at..], &error.to_string());
                        break;
                    }
                }
            }
            session.roll_back();
            // What was written without a commit may stay in the server's memory for long, and the stream has to get there.
            if let Err(error) = snapshot::flush(&mut session, lsn) {
                tracing::debug!(%error, "rows of a subquery may wait for the next transaction");
            }
            asking.give_back(session);
            asking.running.fetch_sub(1, Ordering::AcqRel);
        };
        if std::thread::Builder::new().name("shapes-moves".into()).spawn(work).is_err() {
            // Without threads nothing else works either: whoever waits is dropped with the next failure.
            self.running.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

fn fetch(session: &mut Session, ask: &Ask) -> Result<Vec<Cells>, SourceError> {
    let select = snapshot::select(&ask.table, &ask.columns, Some(&ask.filter));
    let mut line = CopyRow::default();
    let (mut rows, mut bytes) = (Vec::new(), 0_usize);
    let mut bad = None;
    snapshot::rows(session, &select, |text| {
        bytes += text.len();
        if bytes > ROWS_BYTES_MAX {
            bad = Some(format!("more than {ROWS_BYTES_MAX} bytes of rows came at once"));
            return std::ops::ControlFlow::Break(());
        }
        match line.decode(text) {
            Ok(()) => rows.push(cells(&ask.columns, &line, ask.table.columns.len())),
            Err(error) => bad = Some(error.to_string()),
        }
        if bad.is_some() { std::ops::ControlFlow::Break(()) } else { std::ops::ControlFlow::Continue(()) }
    })
    .map_err(|error| bad.map_or(error, SourceError::Catalog))?;
    Ok(rows)
}

/// A row by the table's columns, of one that has only some of them, in this order.
pub(super) fn cells(columns: &[usize], line: &CopyRow, width: usize) -> Cells {
    let mut cells: Vec<Option<Box<[u8]>>> = vec![None; width];
    for (place, at) in columns.iter().enumerate() {
        if let Some(cell) = cells.get_mut(*at) {
            *cell = line.cell(place).map(Into::into);
        }
    }
    cells.into()
}

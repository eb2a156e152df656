//! Making a shape: from a definition to rows that can be shown. Runs on a thread that may wait for Postgres and for the disk.

use crate::definition::{Condition, Definition, Identity, LogMode};
use crate::engine::{Counted, Engine};
use crate::family::Family;
use crate::format::copy::CopyRow;
use crate::format::note::{ShapeNote, Stored};
use crate::format::projection::Projection;
use crate::predicate::{self, Predicate};
use crate::serve::columns::selected;
use crate::serve::invalid::Invalid;
use crate::shape::{Copied, Failure, Phase, Shape, State};
use crate::source::catalog::LookupError;
use crate::source::error::SourceError;
use crate::source::publish::PublishError;
use crate::source::session::Session;
use crate::source::snapshot::{self, Taken};
use crate::source::validate::{self, ValidateError};
use crate::state::snapshot::PgSnapshot;
use crate::store::StoreError;
use crate::table::Table;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use thalweg_base::{LogId, Lsn};
use thalweg_log::Lengths;

/// Rows go to the shape's log in blocks of about this size.
const BLOCK_BYTES: usize = 256 << 10;
/// How long to wait until a transaction is visible that was sent already, see [`crate::state::recent`].
const VISIBLE_AFTER: Duration = Duration::from_millis(2);

/// A definition that Postgres has agreed to.
struct Checked {
    table: Arc<Table>,
    /// Places of the columns, ascending.
    selected: Vec<usize>,
    predicate: Option<Arc<Predicate>>,
    /// The predicate for the snapshot's query.
    filter: Option<String>,
    identity: Identity,
}

impl Engine {
    /// Finds the shape of a definition, or begins one: it is registered and listens when this returns; then
    /// [`Engine::fill`] fetches its rows.
    pub(crate) fn begin(
        self: &Arc<Self>,
        session: &mut Session,
        definition: &Definition,
        words: &[u8],
        now_micros: u64,
    ) -> Result<(Arc<Shape>, Option<Filling>), Failure> {
        let checked = self.check(session, definition)?;
        if let Some(known) = self.known(checked.identity, words) {
            return Ok((known, None));
        }
        self.publisher.ensure(session, &checked.table).map_err(not_published)?;
        // Shapes of one table see its changes by the same columns.
        let known = self.router.lock().table(checked.table.oid).cloned();
        if known.is_some_and(|known| !known.same_shape(&checked.table)) {
            self.drop_table(checked.table.oid, "was altered");
        }
        let number = self.new_number();
        let identity = checked.identity;
        let handle = self.new_handle(identity, now_micros);
        let schema = crate::format::schema::header(&checked.table, &checked.selected);
        let family = self.families.share(Family::of(definition, checked.table.oid, schema));
        let mut state = State::default();
        state.phase = Phase::Snapshotting;
        let shape = Arc::new(Shape::new(number, handle, family, Condition::of(definition), identity, state));
        {
            let mut registry = self.registry.write();
            if let Some(known) = registry.by_identity(identity).cloned() {
                registry.learn(words, &known);
                return Ok((known, None));
            }
            registry.insert(Arc::clone(&shape));
        }
        // From here on the shape gets changes. What was applied before must be in its snapshot.
        let mark = {
            let mut router = self.router.lock();
            let slot = router.insert(Arc::clone(&shape), &checked.table, &checked.selected, checked.predicate.clone());
            shape.lock().slot = Some(slot);
            self.recent.lock().mark()
        };
        Ok((Arc::clone(&shape), Some(Filling { shape, checked, mark })))
    }

    fn known(&self, identity: Identity, words: &[u8]) -> Option<Arc<Shape>> {
        let registry = self.registry.read();
        let known = registry.by_identity(identity).cloned()?;
        registry.learn(words, &known);
        Some(known)
    }

    fn check(&self, session: &mut Session, definition: &Definition) -> Result<Checked, Failure> {
        let found = match self.tables.find(&mut session.conn, &definition.table) {
            Ok(Some(found)) => found,
            Ok(None) => return Err(no_table(definition)),
            Err(LookupError::Unsupported(error)) => return Err(invalid("table", error.to_string())),
            Err(LookupError::Source(error)) => return Err(unavailable(error)),
        };
        let table = Arc::new(found.table.clone());
        let selected =
            selected(&table, definition, session.conn.server_version().major >= 18).map_err(Failure::Invalid)?;
        self.publisher.generated(&table, &selected, &found.standing).map_err(not_published)?;
        // Postgres reads it first: its words for what is no SQL are better than ours.
        if let Some(sql) = &definition.where_sql {
            validate::filter(session, &table, sql, &definition.params).map_err(|error| match error {
                ValidateError::Invalid(message) => invalid("where", message),
                ValidateError::Source(error) => unavailable(error),
            })?;
        }
        let predicate = match &definition.where_sql {
            None => None,
            Some(sql) => {
                let parsed = predicate::parse(sql, &definition.params, &table);
                Some(Arc::new(parsed.map_err(|error| invalid("where", error))?))
            }
        };
        let filter = predicate.as_ref().map(|predicate| predicate.sql());
        let names: Vec<&str> = selected.iter().map(|at| table.columns[*at].name.as_str()).collect();
        // Two definitions that say the same select the same: one shape serves both.
        let identity = serde_json::to_vec(&(
            table.oid,
            table.name.to_string(),
            &filter,
            &names,
            definition.replica,
            definition.log,
            &definition.queryable,
        ));
        Ok(Checked { table, selected, predicate, filter, identity: Identity::of(&identity.unwrap_or_default()) })
    }

    /// Fetches the rows of a shape that [`Engine::begin`] began.
    pub(crate) fn fill(self: &Arc<Self>, session: &mut Session, filling: Filling) {
        let shape = Arc::clone(&filling.shape);
        if let Err(failure) = self.try_fill(session, filling) {
            tracing::info!(table = %shape.family.name, ?failure, "a shape could not be made");
            self.fail_shape(&shape, failure);
        }
    }

    fn try_fill(self: &Arc<Self>, session: &mut Session, filling: Filling) -> Result<(), Failure> {
        let Filling { shape, checked, mark } = filling;
        let _running = Counted::new(self, |counters| &counters.snapshots);
        let stored = Stored {
            number: shape.number,
            table: checked.table.oid,
            definition: shape.definition(),
            identity: shape.identity,
            snapshot: None,
            chunks: Vec::new(),
            complete: false,
            rows_gone: false,
        };
        self.store.put_table(&checked.table).map_err(cannot_store)?;
        let (log, _) = self.store.create_shape(shape.handle, &stored).map_err(cannot_store)?;
        if !shape.change(|state| {
            // It may have been dropped meanwhile.
            let wanted = matches!(state.phase, Phase::Snapshotting);
            state.log = wanted.then_some(log);
            wanted
        }) {
            self.store.delete_shape(&[log]).map_err(cannot_store)?;
            return Ok(());
        }
        let projection = Projection::new(&checked.table, &checked.selected, shape.family.replica);
        let select = snapshot::select(&checked.table, &checked.selected, rows_filter(&checked, shape.family.log));
        loop {
            let mut rows = Rows::new(self, &shape, log, &projection);
            let mut missed = false;
            let copied = snapshot::copy(session, &checked.table, &select, None, |taken| match taken {
                Taken::Snapshot(snapshot) => {
                    missed = self.recent.lock().missed(mark, snapshot);
                    if missed { ControlFlow::Break(()) } else { rows.begin(snapshot) }
                }
                Taken::Row(row) => rows.row(row),
            });
            match copied {
                _ if missed => std::thread::sleep(VISIBLE_AFTER),
                Ok(_) => return rows.finish(),
                Err(error) => return Err(rows.failed.unwrap_or_else(|| unavailable(error))),
            }
            if self.stopping() {
                return Err(Failure::Rotated);
            }
        }
    }
}

/// A shape that listens to changes and has no rows yet.
pub(crate) struct Filling {
    shape: Arc<Shape>,
    checked: Checked,
    mark: u64,
}

/// Rows on their way from Postgres into a shape's log.
struct Rows<'a> {
    engine: &'a Engine,
    shape: &'a Shape,
    log: LogId,
    projection: &'a Projection,
    row: CopyRow,
    block: Vec<u8>,
    lengths: Lengths,
    /// Bytes that were written.
    written: u64,
    /// Rows that were taken.
    rows: u64,
    /// Where the last complete chunk ends.
    chunk: u64,
    failed: Option<Failure>,
}

impl<'a> Rows<'a> {
    fn new(engine: &'a Engine, shape: &'a Shape, log: LogId, projection: &'a Projection) -> Self {
        Self {
            engine,
            shape,
            log,
            projection,
            row: CopyRow::default(),
            block: Vec::new(),
            lengths: Lengths::default(),
            written: 0,
            rows: 0,
            chunk: 0,
            failed: None,
        }
    }

    fn begin(&mut self, snapshot: &PgSnapshot) -> ControlFlow<()> {
        let note = ShapeNote::SnapshotTaken(snapshot.clone());
        let kept = self.engine.store.write_shape(self.log, Some(&note), b"", &Lengths::default());
        let kept = self.kept(kept);
        self.shape.lock().snapshot_taken(self.engine.shared_snapshot(snapshot), self.engine.config.http.chunk_bytes);
        kept
    }

    fn row(&mut self, row: &[u8]) -> ControlFlow<()> {
        if let Err(error) = self.row.decode(row) {
            self.failed = Some(Failure::unavailable("snapshot_error", error.to_string(), 10));
            return ControlFlow::Break(());
        }
        // A chunk that is shown before the last one has a row after it, so that only the last one need say that it is.
        if self.written + self.block.len() as u64 - self.chunk >= self.engine.config.http.chunk_bytes {
            self.end_chunk()?;
        }
        let before = self.block.len();
        self.projection.snapshot_row(&self.row, &mut self.block);
        self.lengths.push(u32::try_from(self.block.len() - before).unwrap_or(u32::MAX));
        self.rows += 1;
        if self.block.len() >= BLOCK_BYTES { self.write(None) } else { ControlFlow::Continue(()) }
    }

    fn write(&mut self, note: Option<&ShapeNote>) -> ControlFlow<()> {
        let written = self.engine.store.write_shape(self.log, note, &self.block, &self.lengths);
        self.written += self.block.len() as u64;
        self.block.clear();
        let rows = self.lengths.count();
        self.engine.counters.rows_copied.fetch_add(rows, Ordering::Relaxed);
        self.shape.lock().set_copied(Copied { rows: self.rows, bytes: self.written });
        self.lengths = Lengths::default();
        self.kept(written)
    }

    /// Ends a chunk, and shows it when it is durable.
    fn end_chunk(&mut self) -> ControlFlow<()> {
        let end = self.written + self.block.len() as u64;
        self.write(Some(&ShapeNote::ChunkEnd(end)))?;
        self.chunk = end;
        let durable = self.engine.store.wait(self.engine.store.logs().journal().end());
        self.kept(durable.map(|()| Lsn::ZERO))?;
        self.shape.change(|state| state.chunks.push(end));
        ControlFlow::Continue(())
    }

    fn finish(mut self) -> Result<(), Failure> {
        let done = self.try_finish();
        match (done, self.failed) {
            (_, Some(failure)) => Err(failure),
            _ => Ok(()),
        }
    }

    fn try_finish(&mut self) -> ControlFlow<()> {
        let end = self.written + self.block.len() as u64;
        // A shape without rows has one empty chunk, so that there is something to show.
        let last = (end > self.chunk || self.chunk == 0).then_some(end);
        if let Some(end) = last {
            self.write(Some(&ShapeNote::ChunkEnd(end)))?;
        }
        let complete = self.engine.store.write_shape(self.log, Some(&ShapeNote::Complete), b"", &Lengths::default());
        let durable = complete.and_then(|end| self.engine.store.wait(end));
        self.kept(durable.map(|()| Lsn::ZERO))?;
        self.shape.change(|state| {
            if let Some(end) = last {
                state.chunks.push(end);
            }
            if matches!(state.phase, Phase::Snapshotting) {
                state.phase = Phase::Live;
            }
        });
        ControlFlow::Continue(())
    }

    fn kept(&mut self, result: Result<Lsn, StoreError>) -> ControlFlow<()> {
        match result {
            Ok(_) => ControlFlow::Continue(()),
            Err(error) => {
                self.failed = Some(cannot_store(error));
                ControlFlow::Break(())
            }
        }
    }
}

/// Which rows a snapshot has: none, if only changes are wanted.
fn rows_filter(checked: &Checked, log: LogMode) -> Option<&str> {
    match log {
        LogMode::ChangesOnly => Some("false"),
        LogMode::Full => checked.filter.as_deref(),
    }
}

fn no_table(definition: &Definition) -> Failure {
    invalid(
        "table",
        format!(
            "Table {} does not exist. If the table name contains capitals or special characters you must quote it.",
            definition.table
        ),
    )
}

pub(crate) fn invalid(field: &'static str, message: impl ToString) -> Failure {
    Failure::Invalid(Invalid::shape(field, message.to_string()))
}

pub(crate) fn unavailable(error: SourceError) -> Failure {
    match error {
        SourceError::SchemaChanged(_) | SourceError::Replaced => Failure::Rotated,
        SourceError::Permission(error) => invalid("table", error),
        SourceError::Invalid(error) => invalid("where", error),
        SourceError::Unreachable(_) => Failure::unavailable("database_unreachable", "Database is unreachable", 10),
        error => Failure::unavailable("snapshot_error", error, 10),
    }
}

/// The table's changes cannot be had, for now.
fn not_published(error: PublishError) -> Failure {
    match error {
        PublishError::Source(error) => unavailable(error),
        PublishError::Gone { .. } => Failure::Rotated,
        PublishError::Unsupported(error) => invalid("table", error),
        error => Failure::unavailable(error.code(), error, 10),
    }
}

fn cannot_store(error: StoreError) -> Failure {
    Failure::unavailable("storage_error", error, 10)
}

//! One query for the rows of one shape, or of many that are alike.
//!
//! Shapes that wait at the same time, select the same columns and want one value of the same column each, or whose
//! predicates are conditions of any other kind, share a scan: one `COPY` in one transaction with all their conditions.
//! Its result is a superset of each one's rows, so every row is matched as changes are, and all shapes have the same
//! snapshot.
//!
//! Rows that several of them have are written once, into a log of their own, which the logs of these shapes refer to
//! ([`crate::shared_rows`]).

use super::groups::{Group, Groups};
use super::target::{Common, Target};
use super::{Filling, ScanContext};
use crate::failures::{cannot_store, not_visible, unavailable};
use crate::lifetime::Counted;
use crate::server::ShapesServer;
use crate::shape::Shape;
use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use thalweg_base::{LogId, Lsn, Offset};
use thalweg_log::{Append, Lengths};
use thalweg_shapes_core::encode::projection::Projection;
use thalweg_shapes_core::route::matching::Matcher;
use thalweg_shapes_model::copy::CopyRow;
use thalweg_shapes_model::definition::LogMode;
use thalweg_shapes_model::failure::Failure;
use thalweg_shapes_model::row::Row;
use thalweg_shapes_model::snapshot::PgSnapshot;
use thalweg_shapes_source::error::SourceError;
use thalweg_shapes_source::session::Session;
use thalweg_shapes_source::snapshot::{self, Taken};

/// Rows of one shape are written in blocks of about this size.
const BLOCK_BYTES: usize = 256 << 10;
/// Rows of all shapes of a scan that wait to be written.
const BUFFERED_MAX: usize = 8 << 20;
/// Fewer rows that several shapes have in common are copied into the log of each: so many bytes, and so many groups of
/// a shape at a time.
const COMMON_MIN: usize = 4 << 10;
const COMMON_MAX: usize = 64;
/// After so many bytes a sync is started; the disk may be behind by this many times as much.
const SYNC_BYTES: usize = 2 << 20;
const SYNCS_BEHIND: usize = 3;
/// Shapes of one scan, and bytes of their conditions: more than that are several scans, that run at the same time and
/// end one by one.
const SHAPES_MAX: usize = 256;
const SQL_BYTES_MAX: usize = 512 << 10;
/// How long to wait until a transaction is visible that was sent already, see [`thalweg_shapes_core::state::recent`]:
/// from the first look to the last, and between the first two. One that waits for a standby may take for ever.
const VISIBLE_WITHIN: Duration = Duration::from_secs(5);
const VISIBLE_AFTER: Duration = Duration::from_millis(2);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The common part of the shapes of one scan.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Likeness {
    selected: Vec<usize>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    /// One value of this column.
    Equal(usize),
    Other,
    /// The whole table: it would keep the others waiting. By number, as no two share.
    Whole(u64),
}

/// Puts shapes of one table that are alike together, in the order in which they came.
pub(crate) fn scans(fillings: Vec<Filling>) -> Vec<Vec<Filling>> {
    let mut all: Vec<(Vec<Filling>, usize)> = Vec::new();
    let mut open: HashMap<Likeness, usize> = HashMap::new();
    for filling in fillings {
        let kind = match (&filling.checked.predicate, filling.shape.family.log) {
            _ if filling.checked.dependence.is_some() => Kind::Whole(filling.shape.number),
            (_, LogMode::ChangesOnly) => Kind::Other,
            (None, _) => Kind::Whole(filling.shape.number),
            (Some(predicate), _) => predicate.equal_column().map_or(Kind::Other, Kind::Equal),
        };
        let like = Likeness { selected: filling.checked.selected.clone(), kind };
        // Constants are most of a condition, and a little is added to each.
        let bytes = filling.shape.condition.where_sql().map_or(0, str::len) * 2 + 64;
        let found = open.get(&like).map(|at| &mut all[*at]);
        match found {
            Some((scan, sql)) if scan.len() < SHAPES_MAX && *sql + bytes <= SQL_BYTES_MAX => {
                scan.push(filling);
                *sql += bytes;
            }
            _ => {
                open.insert(like, all.len());
                all.push((vec![filling], bytes));
            }
        }
    }
    all.into_iter().map(|(scan, _)| scan).collect()
}

impl ShapesServer {
    /// Fetches the rows of shapes that [`ShapesServer::begin`] began and [`scans`] put together.
    pub(crate) fn fill(self: &Arc<Self>, session: &mut Session, fillings: Vec<Filling>) {
        let (dependent, fillings): (Vec<_>, Vec<_>) =
            fillings.into_iter().partition(|filling| filling.checked.dependence.is_some());
        dependent.iter().for_each(|filling| self.fill_with_subqueries(session, filling));
        let context = ScanContext::of(self);
        let mut targets: Vec<Target> = fillings.into_iter().map(|filling| Target::new(&context, filling)).collect();
        let Err(failure) = scan(&context, session, &mut targets) else { return };
        let alone = targets.len() == 1;
        for mut target in targets {
            // One that fails must not take the others with it.
            let hopeless = alone || failure == Failure::Rotated || !session.is_usable();
            let failure = if hopeless || !target.restart() {
                failure.clone()
            } else {
                match scan(&context, session, std::slice::from_mut(&mut target)) {
                    Ok(()) => continue,
                    Err(failure) => failure,
                }
            };
            let shape = &target.filling.shape;
            could_not_be_made(shape, &failure);
            self.retirement.fail_shape(shape, failure);
        }
    }

    fn fill_with_subqueries(self: &Arc<Self>, session: &mut Session, filling: &Filling) {
        let Filling { shape, checked, .. } = filling;
        let Some(dependence) = &checked.dependence else { return };
        let _running = Counted::new(&self.lifetime, |counters| &counters.snapshots);
        let filter = match shape.family.log {
            LogMode::ChangesOnly => "false".to_owned(),
            LogMode::Full | LogMode::Inner => dependence.condition.sql(),
        };
        let filled = self.fill_outer(session, shape, &checked.table, &checked.selected, dependence, Some(&filter));
        if let Err(failure) = filled {
            could_not_be_made(shape, &failure);
            self.retirement.fail_shape(shape, failure);
        }
    }

    /// No session can be had for them.
    pub(crate) fn fail(&self, fillings: &[Filling], failure: &Failure) {
        for filling in fillings {
            self.retirement.fail_shape(&filling.shape, failure.clone());
        }
    }
}

/// Fetches the rows of all targets with one query.
fn scan(context: &ScanContext<'_>, session: &mut Session, targets: &mut [Target]) -> Result<(), Failure> {
    let Some(first) = targets.first() else { return Ok(()) };
    let table = Arc::clone(&first.filling.checked.table);
    context.changes.store.put_table(&table).map_err(cannot_store)?;
    let selected = first.filling.checked.selected.clone();
    // Rows of snapshots look the same in every replica mode.
    let projection = Projection::new(&table, &selected, first.filling.shape.family.replica);
    let (columns, filter) = wanted(targets, selected);
    let select = snapshot::select(&table, &columns, filter.as_deref());
    // The snapshot must contain every transaction that began to be applied before the last of the shapes was
    // registered.
    let mark = targets.iter().map(|target| target.filling.mark).max().unwrap_or_default();
    let (until, mut pause) = (context.lifetime.clock.now() + VISIBLE_WITHIN, VISIBLE_AFTER);
    loop {
        let router = (targets.len() > 1).then(|| Router::new(targets, &columns, table.columns.len()));
        let mut rows = Rows {
            context,
            targets: &mut *targets,
            projection: &projection,
            row: CopyRow::default(),
            router,
            snapshot: None,
            buffered: 0,
            unsynced: 0,
            marks: VecDeque::new(),
            failed: None,
        };
        let mut missed = false;
        let copied = snapshot::copy(session, &table, &select, None, |taken| match taken {
            Taken::Snapshot(snapshot) => {
                missed = context.feed.lock().missed(mark, snapshot);
                rows.snapshot = Some(snapshot.clone());
                if missed { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            }
            Taken::Row(row) => rows.take(row),
        });
        match copied {
            _ if missed && context.lifetime.clock.now() < until => {
                context.lifetime.clock.sleep(pause);
                pause = (pause * 2).min(LOOK_EVERY);
            }
            _ if missed => return Err(not_visible()),
            Ok(_) => return rows.finish(),
            Err(error) => return Err(rows.failed.unwrap_or_else(|| unavailable(error))),
        }
        if context.lifetime.stopping() {
            return Err(Failure::Rotated);
        }
    }
}

fn could_not_be_made(shape: &Shape, failure: &Failure) {
    tracing::info!(table = %shape.family.name, failure = ?failure.without_values(), "a shape could not be made");
}

fn stopped() -> Failure {
    unavailable(SourceError::Stopped)
}

/// The columns to ask for, those of the rows first, and the condition.
fn wanted(targets: &[Target], selected: Vec<usize>) -> (Vec<usize>, Option<String>) {
    let full = |target: &&Target| target.filling.shape.family.log == LogMode::Full;
    let mut predicates = Vec::with_capacity(targets.len());
    for target in targets.iter().filter(full) {
        match &target.filling.checked.predicate {
            None => return (selected, None),
            Some(predicate) => predicates.push(predicate),
        }
    }
    if let ([predicate], 1) = (&predicates[..], targets.len()) {
        return (selected, Some(predicate.sql()));
    }
    let mut columns = selected;
    for predicate in &predicates {
        for column in predicate.columns() {
            if !columns.contains(&column) {
                columns.push(column);
            }
        }
    }
    // No rows, if the shapes have changes only.
    (columns, Some(thalweg_filter::any_sql(predicates.iter().map(|predicate| &***predicate))))
}

/// Tells which of many shapes a row belongs to.
struct Router {
    matcher: Matcher<u32>,
    /// The column of the table that each value of a row belongs to.
    columns: Vec<usize>,
    width: usize,
    found: Vec<u32>,
    costly: Vec<u32>,
    rendered: Vec<u8>,
    groups: Groups,
}

impl Router {
    fn new(targets: &[Target], columns: &[usize], width: usize) -> Self {
        let mut matcher = Matcher::default();
        for (at, target) in targets.iter().enumerate() {
            if target.filling.shape.family.log == LogMode::Full {
                matcher.insert(at as u32, target.filling.checked.predicate.clone());
            }
        }
        Self {
            matcher,
            columns: columns.to_vec(),
            width,
            found: Vec::new(),
            costly: Vec::new(),
            rendered: Vec::new(),
            groups: Groups::default(),
        }
    }

    /// Finds the shapes that have this row.
    fn find(&mut self, row: &CopyRow) {
        let mut cells = vec![None; self.width];
        self.columns.iter().enumerate().for_each(|(at, column)| cells[*column] = row.cell(at));
        self.found.clear();
        self.matcher.matching(&cells, &mut self.found, &mut self.costly);
    }
}

/// Rows of one scan.
struct Rows<'a> {
    context: &'a ScanContext<'a>,
    targets: &'a mut [Target],
    projection: &'a Projection,
    row: CopyRow,
    /// `None`: there is one target, and Postgres knows best which rows it has.
    router: Option<Router>,
    snapshot: Option<PgSnapshot>,
    /// Bytes that wait in the targets, about.
    buffered: usize,
    /// Bytes that were written since the last sync was started.
    unsynced: usize,
    /// Ends of the frames that were written.
    marks: VecDeque<Lsn>,
    failed: Option<Failure>,
}

impl Rows<'_> {
    fn take(&mut self, row: &[u8]) -> ControlFlow<()> {
        match self.try_take(row) {
            Ok(()) => ControlFlow::Continue(()),
            Err(failure) => {
                self.failed = Some(failure);
                ControlFlow::Break(())
            }
        }
    }

    fn try_take(&mut self, row: &[u8]) -> Result<(), Failure> {
        let broken = |error: thalweg_shapes_model::copy::CopyError| Failure::unavailable("snapshot_error", error, 10);
        self.row.decode(row).map_err(broken)?;
        let Some(router) = &mut self.router else {
            let length = self.targets[0].render(self.projection, &self.row);
            return self.added(0, length);
        };
        router.find(&self.row);
        for at in router.costly.drain(..) {
            // The others go on without it.
            router.matcher.remove(at);
            self.context.retirement.drop_costly(&self.targets[at as usize].filling.shape);
        }
        if router.found.is_empty() {
            return Ok(());
        }
        if let [at] = router.found[..] {
            let at = at as usize;
            let length = self.targets[at].render(self.projection, &self.row);
            return self.added(at, length);
        }
        router.rendered.clear();
        self.projection.snapshot_row(&self.row, &mut router.rendered);
        if let Some(length) = router.groups.add(&router.found, &router.rendered) {
            return self.gathered(length);
        }
        // Too many sets of shapes to keep them apart.
        let (found, rendered) = (std::mem::take(&mut router.found), std::mem::take(&mut router.rendered));
        for at in &found {
            let at = *at as usize;
            self.targets[at].add(&rendered, &Lengths::one(u32::try_from(rendered.len()).unwrap_or(u32::MAX)));
            self.added(at, rendered.len())?;
        }
        if let Some(router) = &mut self.router {
            (router.found, router.rendered) = (found, rendered);
        }
        Ok(())
    }

    /// A row was added to a target's block.
    fn added(&mut self, at: usize, length: usize) -> Result<(), Failure> {
        if self.targets[at].buffered() < BLOCK_BYTES {
            return self.gathered(length);
        }
        self.buffered = (self.buffered + length).saturating_sub(self.targets[at].buffered());
        self.write(at, &[], false)?;
        let target = &mut self.targets[at];
        if let Some(first) = target.hidden()
            && (target.hidden_count() > 1 || target.is_first())
        {
            // The first chunk is shown at once, others when the disk has come that far.
            self.context.changes.store.wait(first).map_err(cannot_store)?;
        }
        target.show(self.context.changes.store.durable());
        if target.is_dropped() && self.router.is_none() { Err(Failure::Rotated) } else { Ok(()) }
    }

    /// So much more waits to be written.
    fn gathered(&mut self, length: usize) -> Result<(), Failure> {
        self.buffered += length;
        if self.buffered < BUFFERED_MAX {
            return Ok(());
        }
        let end = self.write_all(false)?;
        if self.targets.iter().any(|target| target.hidden_count() > 0) {
            self.context.changes.store.wait(end).map_err(cannot_store)?;
        }
        let durable = self.context.changes.store.durable();
        self.targets.iter_mut().for_each(|target| target.show(durable));
        Ok(())
    }

    /// Writes a target's block and the rows that it has in common with others. `last`: no more will come.
    fn write(&mut self, at: usize, common: &[Common<'_>], last: bool) -> Result<Lsn, Failure> {
        let Some(snapshot) = &self.snapshot else { return Err(stopped()) };
        let room = BUFFERED_MAX / self.targets.len().max(1);
        let target = &mut self.targets[at];
        let bytes = target.buffered();
        let end = target.write(self.context, snapshot, common, last)?;
        if self.router.is_some() {
            // Room for a whole block in each of many shapes would be too much.
            target.release(room);
        }
        self.wrote(bytes)?;
        Ok(end)
    }

    /// Writes all that waits; where the last of it ends.
    fn write_all(&mut self, last: bool) -> Result<Lsn, Failure> {
        let groups = self.router.as_mut().map(|router| router.groups.take()).unwrap_or_default();
        let places = self.write_groups(&groups)?;
        let mut groups_of: Vec<Vec<usize>> = vec![Vec::new(); self.targets.len()];
        for (number, group) in groups.iter().enumerate() {
            group.of.iter().for_each(|at| groups_of[*at as usize].push(number));
        }
        let mut end = Lsn::ZERO;
        for (at, numbers) in groups_of.into_iter().enumerate() {
            let mut common: Vec<Common<'_>> = Vec::new();
            for number in numbers {
                let group = &groups[number];
                match places[number] {
                    Some((log, from)) if common.len() < COMMON_MAX => {
                        common.push(Common { log, from, lengths: &group.lengths });
                        self.targets[at].counted(group.lengths.count());
                    }
                    _ => {
                        self.targets[at].add(&group.rows, &group.lengths);
                        if self.targets[at].buffered() >= BLOCK_BYTES {
                            self.write(at, &[], false)?;
                        }
                    }
                }
            }
            if last || self.targets[at].buffered() > 0 || !common.is_empty() {
                end = end.max(self.write(at, &common, last)?);
            }
        }
        self.buffered = 0;
        Ok(end)
    }

    /// Writes the rows that are worth it into one log; where those of each group lie.
    fn write_groups(&mut self, groups: &[Group]) -> Result<Vec<Option<(LogId, Offset)>>, Failure> {
        let mut places = vec![None; groups.len()];
        let large = |group: &&Group| group.rows.len() >= COMMON_MIN;
        let mut holders: Vec<u64> = groups
            .iter()
            .filter(large)
            .flat_map(|group| group.of.iter().map(|at| &self.targets[*at as usize]))
            .filter(|target| !target.is_dropped())
            .map(|target| target.filling.shape.number)
            .collect();
        holders.sort_unstable();
        holders.dedup();
        if holders.is_empty() {
            return Ok(places);
        }
        let (mut log, mut at) = (None, Offset::ZERO);
        for (number, group) in groups.iter().enumerate().filter(|(_, group)| large(group)) {
            let parts: [&[u8]; 1] = [&group.rows];
            let rows = Append::Bytes { parts: &parts, lengths: &group.lengths };
            let store = &self.context.changes.store;
            let log = match log {
                Some(log) => store.write_rows(log, &[rows], &[]).map(|_| log),
                None => {
                    store.create_shared_rows(self.context.catalog.ids.new_number(), &holders, rows).inspect(|made| {
                        self.context.changes.shared_rows.acquire(*made, &holders);
                        log = Some(*made);
                    })
                }
            };
            places[number] = Some((log.map_err(cannot_store)?, at));
            at = at.plus(group.lengths.bytes());
            self.wrote(group.rows.len())?;
        }
        Ok(places)
    }

    /// Keeps the disk busy, and no further behind than it may be.
    fn wrote(&mut self, bytes: usize) -> Result<(), Failure> {
        self.unsynced += bytes;
        if self.unsynced < SYNC_BYTES {
            return Ok(());
        }
        self.unsynced = 0;
        self.context.changes.store.kick();
        self.marks.push_back(self.context.changes.store.logs().journal().end());
        if self.marks.len() > SYNCS_BEHIND
            && let Some(oldest) = self.marks.pop_front()
        {
            self.context.changes.store.wait(oldest).map_err(cannot_store)?;
        }
        Ok(())
    }

    /// Completes all shapes, with one wait for the disk.
    fn finish(mut self) -> Result<(), Failure> {
        let end = self.write_all(true)?;
        self.context.changes.store.wait(end).map_err(cannot_store)?;
        self.targets.iter_mut().for_each(Target::finished);
        Ok(())
    }
}

//! The thin shell: takes requests, locks their streams, lets the core decide, commits, and answers.
//!
//! One request locks one shard of the logs (a fork two, a delete of a fork its chain), never across a read or a wait.

mod append;
mod chunk;
mod config;
mod create;
mod engine;
mod etag;
mod fields;
mod flights;
mod fork;
mod frames;
mod gate;
mod gzip;
mod head;
mod home;
mod list;
mod long_poll;
pub(crate) mod name;
mod observe;
mod pieces;
mod population;
mod query;
mod read;
mod remove;
mod retain;
mod sse;
mod stats;
#[cfg(test)]
mod tests;
mod turn;
mod units;
mod upkeep;
mod watch;

#[cfg(feature = "faults")]
pub use config::Faults;
pub use config::StreamsConfig;
pub use home::{GRANT, Home, SOURCE_UNIT};
pub(crate) use list::LIMIT_MAX;
pub use list::listed_prefix;
pub use name::{Place, place_of_path};
pub use observe::Changes;
pub use stats::Stats;

use crate::format::json;
use crate::format::offset::Position;
use crate::state::StreamState;
use std::sync::Arc;
use thalweg_base::{LogId, Lsn, Millis, Until};
use thalweg_http::{Context, Reply, Request, Response, Service};
use thalweg_journal::Class;
use thalweg_log::{Append, CommitError, Logs, Op, SweepCursor};
use units::Units;

/// The name of the stream at a path below the prefix of all streams, if the path is a stream's.
#[must_use]
pub fn normal_name(relative: &str) -> Option<String> {
    name::of_path(&format!("/{relative}"), "/").ok().map(std::borrow::Cow::into_owned)
}

/// A name as readers find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visible {
    /// A stream, and its end.
    To(Position),
    /// No stream.
    Gone,
    /// A change is under way that decides it, and is reported when it is durable.
    Unsettled,
}

/// Serves the protocol for the streams of a server's kernel units.
pub struct Streams {
    units: Arc<Units>,
}

impl Streams {
    /// Serves the streams in `logs`, whose journal the event loop's gate counts. The owner subscribes
    /// [`Streams::on_durable`] to that journal and calls [`Streams::tick`] about every 100 ms.
    #[must_use]
    pub fn new(logs: Arc<Logs<StreamState>>, config: StreamsConfig) -> Arc<Self> {
        Arc::new(Self { units: Units::new(logs, config) })
    }

    /// Serves the replicated streams in `logs`, too, from now on. Once. The owner subscribes
    /// [`Streams::on_replicated`] to their journal.
    pub fn join(&self, logs: Arc<Logs<StreamState>>, now: Millis) {
        let engine = self.units.join(logs, now);
        engine.observed.wake();
    }

    /// Serves the streams in `logs` as a unit of nodes, from now on. The owner calls the function that this returns at
    /// every advance of their journal. `None`: they are served already.
    pub fn join_unit(&self, unit: u64, logs: Arc<Logs<StreamState>>) -> Option<impl Fn() + Send + Sync + use<>> {
        let engine = self.units.join_unit(unit, logs)?;
        engine.observed.wake();
        // Also when the unit is served no longer: what waits for its journal gets its answer.
        let engine = Arc::downgrade(&engine);
        Some(move || engine.upgrade().into_iter().for_each(|engine| engine.wake()))
    }

    /// Serves a unit of nodes no longer: requests that wait for its journal still get their answers.
    pub fn leave_unit(&self, unit: u64) {
        if let Some(engine) = self.units.leave_unit(unit) {
            engine.end();
        }
    }

    /// The first home of the stream that a path below the prefix names; `None` if it names none.
    #[must_use]
    pub fn first_unit(&self, path: &str) -> Option<u64> {
        let name = self.units.local.name_at(path).ok()?;
        Some(self.units.first_unit(&name))
    }

    /// Answers a request for a stream whose home is this unit of nodes; `None` if the unit is not served here. A
    /// refusal with the status 421 names another home.
    pub fn handle_in(&self, unit: u64, request: &Request<'_>, cx: &mut Context<'_>) -> Option<Reply> {
        let engine = self.units.unit(unit)?;
        let answer = engine.answer(request, Millis(cx.now_ms));
        Some(turn::reply(answer, &engine))
    }

    /// Answers one request. Never waits for a device.
    pub fn handle(&self, request: &Request<'_>, cx: &mut Context<'_>) -> Reply {
        let (engine, answer) = self.units.answer(request, Millis(cx.now_ms));
        turn::reply(answer, engine)
    }

    /// Takes a step of a read that waits for a device, if there are no threads for that; whether there was one to take.
    pub fn read_on(&self) -> bool {
        self.units.local.pool.turn()
    }

    /// The journal's written or durable position has moved: wakes watchers of newly visible changes. Never blocks.
    pub fn on_durable(&self) {
        self.units.local.wake();
    }

    /// The same, of the journal of replicated streams.
    pub fn on_replicated(&self) {
        if let Some(engine) = self.units.replicated() {
            engine.wake();
        }
    }

    /// Upkeep: expires streams and records uses, a bounded amount per call. Call it from a background thread.
    pub fn tick(&self, now: Millis) {
        self.units.all().iter().for_each(|engine| engine.tick(now));
    }

    /// Calls `wake` whenever [`Streams::take_changes`] may have something new. Once; it must not block.
    pub fn observe(&self, wake: Arc<dyn Fn() + Send + Sync>) {
        self.units.each(|engine| engine.observed.by(Arc::clone(&wake)));
    }

    /// Starts or stops recording changes for the observer. Start before reading streams, so that no change is missed.
    pub fn turn_observing(&self, on: bool) {
        self.units.each(|engine| engine.observed.turn(on));
    }

    /// Changed streams whose changes are visible.
    #[must_use]
    pub fn take_changes(&self) -> Changes {
        let all = self.units.all();
        let taken = all.iter().map(|engine| engine.observed.take(engine.logs.reached()));
        taken.reduce(Changes::and).unwrap_or_default()
    }

    /// The names of streams that have changed, by unit of nodes that is served here; whether there were more than are
    /// recorded, so that any stream of the unit may have changed.
    #[must_use]
    pub fn take_changed_names(&self) -> Vec<(u64, Vec<Box<str>>, bool)> {
        let mut taken = Vec::new();
        for engine in self.units.all() {
            let Some(unit) = engine.unit else { continue };
            let changes = engine.observed.take(engine.logs.reached());
            let name_of = |log: &LogId| Some(engine.logs.lock_logs(&[*log], &[]).view(*log)?.name.into());
            let names = changes.logs.iter().filter_map(name_of).chain(changes.gone.into_iter().map(|(_, name)| name));
            taken.push((unit, names.filter(|name| !name::is_private(name)).collect(), changes.overflowed));
        }
        taken
    }

    /// The end of the journal of a unit of nodes, and its durable end; `None` if the unit is not served here.
    #[must_use]
    pub fn ends_of_unit(&self, unit: u64) -> Option<(Lsn, Lsn)> {
        let logs = &self.units.unit(unit)?.logs;
        Some((logs.when_all().position(), logs.durable()))
    }

    /// Whether readers find a stream of that name in a unit of nodes; `None` if the unit is not served here.
    #[must_use]
    pub fn visible_in(&self, unit: u64, name: &str) -> Option<Visible> {
        let engine = self.units.unit(unit)?;
        // Asked before: a delete that becomes durable meanwhile is told by its own change.
        let is_settled = engine.is_settled(name);
        let mut found = if is_settled { Visible::Gone } else { Visible::Unsettled };
        engine.logs.peek(name, &mut |seen| {
            let position = Position { incarnation: seen.incarnation, offset: seen.published };
            found = if seen.attachment.soft_deleted { Visible::Gone } else { Visible::To(position) };
        });
        Some(found)
    }

    /// Visits up to `count` logs of a unit of nodes: those that are streams, with their visible ends. Returns where to
    /// go on, or the end; `None` if the unit is not served here.
    pub fn sweep_unit(
        &self,
        unit: u64,
        at: SweepCursor,
        count: usize,
        f: &mut dyn FnMut(&str, Position),
    ) -> Option<Option<SweepCursor>> {
        let engine = self.units.unit(unit)?;
        Some(engine.logs.sweep_all(at, count, &mut |seen| {
            if !seen.attachment.soft_deleted && !name::is_private(seen.name) {
                f(seen.name, Position { incarnation: seen.incarnation, offset: seen.published });
            }
        }))
    }

    /// The first home of the stream, or other log, of that name.
    #[must_use]
    pub fn first_unit_of_name(&self, name: &str) -> u64 {
        self.units.first_unit(name)
    }

    /// Every stream that there is can be found: there are no replicated streams, or they are joined.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.units.is_complete()
    }

    /// An engine of this process has appended to a stream of the data folder by itself: readers are woken in time.
    pub fn announce(&self, until: Until, log: LogId) {
        self.units.local.announce(until, log);
        self.units.local.changed(until, log);
    }

    /// The visible end of the stream of that name, unless it is gone or deleted but for its forks.
    #[must_use]
    pub fn published(&self, name: &str) -> Option<Position> {
        let mut found = None;
        self.units.engine_of(name)?.logs.peek(name, &mut |seen| {
            let position = Position { incarnation: seen.incarnation, offset: seen.published };
            found = (!seen.attachment.soft_deleted).then_some(position);
        });
        found
    }

    /// The end of the stream of that name which an engine may note in the journal of the data folder: the accepted one
    /// of a stream that is in the same journal, the visible one of a replicated stream. `None` as for
    /// [`Streams::published`].
    #[must_use]
    pub fn end_to_note(&self, name: &str) -> Option<Position> {
        let engine = self.units.engine_of(name)?;
        if !engine.is_gated {
            return self.published(name);
        }
        let mut guard = engine.logs.lock(&[name]);
        let log = guard.find(name)?;
        let view = guard.view(log)?;
        (!view.attachment.soft_deleted).then(|| engine::position(&view, view.tail))
    }

    /// Whether nothing that is under way decides if there is a stream of that name: it is there, or its delete is
    /// durable.
    #[must_use]
    pub fn is_settled(&self, name: &str) -> bool {
        self.units.is_settled(name)
    }

    /// Whether the stream of that name is a replicated one.
    #[must_use]
    pub fn is_replicated(&self, name: &str) -> bool {
        self.units.engine_of(name).is_some_and(|engine| !engine.is_gated)
    }

    /// Appends a JSON value to a replicated stream, in a frame of its own; `false` if the stream takes none.
    pub fn append_replicated(&self, name: &str, json: &str, now: Millis) -> Result<bool, CommitError> {
        let Some(engine) = self.units.replicated() else { return Ok(false) };
        let mut guard = engine.logs.lock(&[name]);
        let Some(view) = guard.find(name).and_then(|log| guard.view(log)) else { return Ok(false) };
        if !view.attachment.takes_events(now) {
            return Ok(false);
        }
        let log = view.id;
        let (parts, lengths) = json::message_of(json);
        let append = Some(Append::Bytes { parts: &parts, lengths: &lengths });
        let end = guard.commit_durably(Class::User, &[Op::Write { log, note: b"", append }])?.end;
        drop(guard);
        engine.announce(end.into(), log);
        engine.changed(end.into(), log);
        engine.logs.journal().kick();
        Ok(true)
    }

    /// Visits every stream of all units, and the logs of other engines in the unit of the data folder.
    pub fn sweep(&self, f: &mut dyn FnMut(LogId, &str, &StreamState)) {
        for engine in self.units.all() {
            let mut cursor = Some(SweepCursor::default());
            while let Some(at) = cursor {
                // Sweeps in small steps, so that no shard is locked for long.
                cursor = engine.logs.sweep(at, 256, f);
            }
        }
    }

    /// The name of an existing stream, deleted or not.
    #[must_use]
    pub fn name_of(&self, log: LogId) -> Option<Box<str>> {
        self.units.all().iter().find_map(|engine| Some(engine.logs.lock_logs(&[log], &[]).view(log)?.name.into()))
    }

    /// How many streams are in the units beside that of the data folder: the replicated one, or those of a node.
    #[must_use]
    pub fn beside(&self) -> u64 {
        let mut logs = 0;
        self.units.each_beside(|engine| logs += engine.logs.stats().logs);
        logs
    }

    #[must_use]
    pub fn stats(&self) -> Stats {
        self.units.local.counters.snapshot()
    }
}

impl Service for Streams {
    fn handle(&self, request: &Request<'_>, cx: &mut Context<'_>) -> Reply {
        Self::handle(self, request, cx)
    }

    fn round_done(&self) {
        self.units.each(|engine| engine.logs.journal().kick());
    }

    fn gate_failed(&self) -> Response {
        head::unconfirmed()
    }

    fn refused(&self, status: u16, reason: &str) -> Response {
        let counters = &self.units.local.counters;
        stats::add(if status < 500 { &counters.refused_4xx } else { &counters.refused_5xx }, 1);
        let head = head::Head::new(status);
        let head = if status == 503 { head.line(b"Retry-After: ", b"1") } else { head };
        head::explained(head, "bad_request_framing", reason)
    }
}

/// A fuzz target's way in: reads a query, a path and headers from any bytes.
#[doc(hidden)]
pub fn fuzz_query_and_headers(data: &[u8]) {
    let mut lines = data.split(|b| *b == b'\n');
    let text = |line: Option<&[u8]>| String::from_utf8_lossy(line.unwrap_or_default()).into_owned();
    let (path, query) = (text(lines.next()), text(lines.next()));
    if let Ok(name) = name::of_path(&path, "/") {
        assert_eq!(name::of_path(&format!("/{name}"), "/").as_deref(), Ok(&*name));
    }
    let _ = gzip::accepts_gzip(query.as_bytes());
    let _ = (query::Query::parse(&query), list::Page::parse(&query));
    let names = [
        "stream-ttl",
        "stream-seq",
        "stream-closed",
        "stream-expires-at",
        "content-type",
        "producer-id",
        "producer-epoch",
        "producer-seq",
        "stream-forked-from",
        "stream-retention-bytes",
        "stream-retention-seconds",
        "stream-fork-offset",
        "stream-durability",
        "stream-fork-sub-offset",
        "if-none-match",
        "if-match",
        "last-event-id",
    ];
    let headers: Vec<(&str, &[u8])> =
        lines.filter_map(|line| Some((*names.get(usize::from(*line.first()?) % names.len())?, &line[1..]))).collect();
    if let Ok(fields) = fields::Fields::find(thalweg_http::Headers(&headers)) {
        let _ = (fields.retention(), fields.durability());
        let _ = (fields.closes(), fields.seq(), fields.claim(), fields.lifetime(), fields.fork_place());
        let _ = fields.content_type.and_then(crate::format::content_type::ContentType::parse);
        let _ =
            (fields.last_event_id(), fields.if_match.is_some_and(|given| etag::names_tail(given, Position::default())));
        let _ = fields.if_none_match.is_some_and(|given| etag::matches(given, b"\"1:2:3\""));
    }
}

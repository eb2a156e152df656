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
mod gzip;
mod head;
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
mod upkeep;
mod watch;

#[cfg(feature = "faults")]
pub use config::Faults;
pub use config::StreamsConfig;
pub(crate) use list::LIMIT_MAX;
pub use list::listed_prefix;
pub use name::{Place, place_of_path};
pub use observe::Changes;
pub use stats::Stats;

use crate::format::offset::Position;
use crate::state::StreamState;
use engine::Engine;
use std::sync::Arc;
use thalweg_base::{LogId, Millis, Until};
use thalweg_http::{Context, Reply, Request, Response, Service};
use thalweg_log::Logs;

/// Serves the protocol for the streams in `logs`.
pub struct Streams {
    engine: Arc<Engine>,
}

impl Streams {
    /// The owner subscribes [`Streams::on_durable`] to the journal and calls [`Streams::tick`] about every 100 ms.
    #[must_use]
    pub fn new(logs: Arc<Logs<StreamState>>, config: StreamsConfig) -> Arc<Self> {
        Arc::new(Self { engine: Engine::new(logs, config) })
    }

    /// Answers one request. Never waits for a device.
    pub fn handle(&self, request: &Request<'_>, cx: &mut Context<'_>) -> Reply {
        let answer = self.engine.answer(request, Millis(cx.now_ms));
        turn::reply(answer, self.engine.logs.reached())
    }

    /// The journal's written or durable position has moved: wakes watchers of newly visible changes. Never blocks.
    pub fn on_durable(&self) {
        self.engine.wake();
    }

    /// Upkeep: expires streams and records uses, a bounded amount per call. Call it from a background thread.
    pub fn tick(&self, now: Millis) {
        self.engine.tick(now);
    }

    /// Calls `wake` whenever [`Streams::take_changes`] may have something new. Once; it must not block.
    pub fn observe(&self, wake: Arc<dyn Fn() + Send + Sync>) {
        self.engine.observed.by(wake);
    }

    /// Starts or stops recording changes for the observer. Start before reading streams, so that no change is missed.
    pub fn turn_observing(&self, on: bool) {
        self.engine.observed.turn(on);
    }

    /// Changed streams whose changes are visible.
    #[must_use]
    pub fn take_changes(&self) -> Changes {
        self.engine.observed.take(self.engine.logs.reached())
    }

    /// An engine of this process has appended to a stream by itself: readers are woken in time.
    pub fn announce(&self, until: Until, log: LogId) {
        self.engine.announce(until, log);
        self.engine.changed(until, log);
    }

    /// The visible end of the stream of that name, unless it is gone or deleted but for its forks.
    #[must_use]
    pub fn published(&self, name: &str) -> Option<Position> {
        let mut found = None;
        self.engine.logs.peek(name, &mut |seen| {
            let position = Position { incarnation: seen.incarnation, offset: seen.published };
            found = (!seen.attachment.soft_deleted).then_some(position);
        });
        found
    }

    /// The accepted end of the stream of that name, visible or not, under the same conditions.
    #[must_use]
    pub fn accepted(&self, name: &str) -> Option<Position> {
        let mut guard = self.engine.logs.lock(&[name]);
        let log = guard.find(name)?;
        let view = guard.view(log)?;
        (!view.attachment.soft_deleted).then(|| engine::position(&view, view.tail))
    }

    /// The name of an existing stream, deleted or not.
    #[must_use]
    pub fn name_of(&self, log: LogId) -> Option<Box<str>> {
        Some(self.engine.logs.lock_logs(&[log], &[]).view(log)?.name.into())
    }

    /// The name of the stream at a path below the prefix, if the path is a stream's.
    #[must_use]
    pub fn normal_name(&self, relative: &str) -> Option<String> {
        name::of_path(&format!("/{relative}"), "/").ok().map(std::borrow::Cow::into_owned)
    }

    #[must_use]
    pub fn stats(&self) -> Stats {
        self.engine.counters.snapshot()
    }
}

impl Service for Streams {
    fn handle(&self, request: &Request<'_>, cx: &mut Context<'_>) -> Reply {
        Self::handle(self, request, cx)
    }

    fn round_done(&self) {
        self.engine.logs.journal().kick();
    }

    fn gate_failed(&self) -> Response {
        let head = head::Head::new(503).line(b"Retry-After: ", b"1");
        let text = "the journal stopped before this could be confirmed: it may or may not have happened; ask again after a restart";
        head::explained(head, "unconfirmed", text)
    }

    fn refused(&self, status: u16, reason: &str) -> Response {
        stats::add(if status < 500 { &self.engine.counters.refused_4xx } else { &self.engine.counters.refused_5xx }, 1);
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

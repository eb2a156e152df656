//! A unit of streams in memory, and manual requests.

use crate::serve::engine::Engine;
use crate::serve::turn::{Answer, Feed, Task, Turn};
use crate::serve::{Streams, StreamsConfig};
use crate::state::StreamState;
use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;
use thalweg_base::{Durability, Lsn, Millis, Ticket, Until};
use thalweg_http::{Body, BodySource, Context, Headers, Method, Pull, Reply, Request, Response, Service, Sink, Waker};
use thalweg_journal::{
    AppendError, Appended, Class, FrameRef, Journal, JournalStats, MemoryJournal, Options, Poisoned,
};
use thalweg_log::{Logs, LogsOptions, Loss};
use thalweg_manifest::MemoryManifest;
use thalweg_storage::{MemoryStorage, Storage};

/// A journal in memory that can be replayed.
pub(crate) struct Recorded {
    inner: MemoryJournal,
    frames: Mutex<Vec<(FrameRef, Bytes)>>,
    refuse: Mutex<Option<AppendError>>,
    /// While set, nothing above it becomes durable.
    unsynced: Mutex<Option<Lsn>>,
    durable_end: Mutex<Lsn>,
    stopped: Mutex<Option<Poisoned>>,
}

impl Journal for Recorded {
    fn append_as(&self, durability: Durability, class: Class, parts: &[&[u8]]) -> Result<Appended, AppendError> {
        if let Some(error) = self.refuse.lock().clone() {
            return Err(error);
        }
        let appended = self.inner.append_as(durability, class, parts)?;
        if durability == Durability::Durable {
            *self.durable_end.lock() = appended.end;
        }
        self.frames.lock().push((appended.frame, parts.concat().into()));
        Ok(appended)
    }

    fn kick(&self) {
        self.inner.kick();
    }

    fn durable(&self) -> Lsn {
        let durable = self.inner.durable();
        self.unsynced.lock().map_or(durable, |most| durable.min(most))
    }

    fn written(&self) -> Lsn {
        self.inner.written()
    }

    fn durable_end(&self) -> Lsn {
        *self.durable_end.lock()
    }

    fn end(&self) -> Lsn {
        self.inner.end()
    }

    fn poisoned(&self) -> Option<Poisoned> {
        self.stopped.lock().clone().or_else(|| self.inner.poisoned())
    }

    fn subscribe(&self, f: Arc<dyn Fn() + Send + Sync>) {
        self.inner.subscribe(f);
    }

    fn wait(&self, upto: Lsn) -> Result<(), Poisoned> {
        self.inner.wait(upto)
    }

    fn try_read(&self, frames: &[FrameRef]) -> Option<Result<Vec<Bytes>, thalweg_journal::ReadError>> {
        self.inner.try_read(frames)
    }

    fn read(&self, frames: &[FrameRef]) -> Ticket<Result<Vec<Bytes>, thalweg_journal::ReadError>> {
        self.inner.read(frames)
    }

    fn trim(&self, upto: Lsn) {
        self.inner.trim(upto);
    }

    fn start(&self) -> Lsn {
        self.inner.start()
    }

    fn term(&self) -> u64 {
        self.inner.term()
    }

    fn stats(&self) -> JournalStats {
        self.inner.stats()
    }
}

impl Recorded {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            inner: MemoryJournal::new(Options::default()),
            frames: Mutex::default(),
            refuse: Mutex::default(),
            unsynced: Mutex::default(),
            durable_end: Mutex::default(),
            stopped: Mutex::default(),
        })
    }

    /// From here on kicked frames are written, but not durable.
    pub(crate) fn stop_syncing(&self) {
        *self.unsynced.lock() = Some(self.inner.durable());
    }

    /// From here on it says that it has failed.
    pub(crate) fn stop(&self, why: Poisoned) {
        *self.stopped.lock() = Some(why);
    }

    /// Makes all written frames durable. The caller tells the streams.
    pub(crate) fn sync(&self) {
        *self.unsynced.lock() = None;
    }
}

pub(crate) struct Rig {
    pub(crate) journal: Arc<Recorded>,
    storage: Arc<dyn Storage>,
    manifest: Arc<MemoryManifest>,
    pub(crate) logs: Arc<Logs<StreamState>>,
    pub(crate) streams: Arc<Streams>,
    config: StreamsConfig,
    pub(crate) now: Cell<u64>,
}

/// An answer as a client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

/// All content of a source, or `None` if it is cut off.
pub(crate) fn pulled(source: &mut dyn BodySource) -> Option<Vec<u8>> {
    let (woken, waker) = counting();
    let waker = || waker.clone();
    let mut parts = Vec::new();
    for _ in 0..10_000 {
        let mut cx = Context::detached(T0, &waker);
        match source.pull(&mut cx, &mut Sink::detached(&mut parts)) {
            Pull::More => {}
            // A source may want to be called after a few milliseconds, too.
            Pull::Wait => woken.wait_for(Duration::from_millis(5)),
            Pull::End => return Some(parts.concat()),
            Pull::Abort => return None,
        }
    }
    panic!("the body does not end");
}

impl Got {
    pub(crate) fn of(response: Response) -> Self {
        let body = match response.body {
            Body::Empty => Vec::new(),
            Body::Bytes(bytes) => bytes.to_vec(),
            Body::Parts(parts) => parts.concat(),
            Body::Sized(len, mut source) => {
                let body = pulled(&mut *source).expect("the body is not cut off");
                assert_eq!(body.len() as u64, len, "the length that the head says");
                body
            }
            Body::Stream(_) => panic!("a stream has no whole body"),
        };
        Self { status: response.status, head: String::from_utf8(response.head).unwrap(), body }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.head
            .split("\r\n")
            .filter_map(|line| line.split_once(": "))
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, v)| v)
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn next(&self) -> String {
        self.get("Stream-Next-Offset").unwrap().to_owned()
    }

    /// The machine-readable code of a refusal.
    pub(crate) fn code(&self) -> String {
        let body: serde_json::Value = serde_json::from_slice(&self.body).unwrap();
        assert!(body["error"]["message"].as_str().unwrap().len() > 10);
        body["error"]["code"].as_str().unwrap().to_owned()
    }
}

pub(crate) const T0: u64 = 1_800_000_000_000;

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(StreamsConfig { long_poll_timeout: Duration::from_millis(500), ..StreamsConfig::default() })
    }

    pub(crate) fn with(config: StreamsConfig) -> Self {
        Self::of(config, Durability::Durable)
    }

    /// A server's, of that durability.
    pub(crate) fn of(config: StreamsConfig, durability: Durability) -> Self {
        let journal = Recorded::new();
        let (storage, manifest) = (Arc::new(MemoryStorage::new()), Arc::new(MemoryManifest::new()));
        Self::open(journal, storage, manifest, config, durability, Loss::Nothing)
    }

    fn open(
        journal: Arc<Recorded>,
        storage: Arc<dyn Storage>,
        manifest: Arc<MemoryManifest>,
        config: StreamsConfig,
        durability: Durability,
        loss: Loss,
    ) -> Self {
        let options = LogsOptions { chunk_bytes: 4_096, durability, ..LogsOptions::default() };
        let mut opening = Logs::begin(options, Arc::clone(&storage), Arc::clone(&manifest) as _, loss).unwrap();
        let floor = opening.bounds().floor;
        for (frame, bytes) in journal.frames.lock().iter().filter(|(frame, _)| frame.lsn >= floor) {
            opening.replay(*frame, bytes).unwrap();
        }
        let logs = Arc::new(opening.finish(Arc::clone(&journal) as _).unwrap());
        let streams = Streams::new(Arc::clone(&logs), config.clone());
        let weak = Arc::downgrade(&streams);
        journal.subscribe(Arc::new(move || {
            if let Some(streams) = weak.upgrade() {
                streams.on_durable();
            }
        }));
        Self { journal, storage, manifest, logs, streams, config, now: Cell::new(T0) }
    }

    /// Restarts with the durable state.
    pub(crate) fn reopen(self) -> Self {
        self.reopen_after(Loss::Nothing)
    }

    /// The same, with another storage of the same objects.
    pub(crate) fn reopen_over(mut self, storage: impl FnOnce(Arc<dyn Storage>) -> Arc<dyn Storage>) -> Self {
        self.storage = storage(self.storage);
        self.reopen()
    }

    /// The same, when something may have been lost.
    pub(crate) fn reopen_after(self, loss: Loss) -> Self {
        let durable = self.journal.durable();
        self.journal.frames.lock().retain(|(frame, _)| frame.lsn < durable);
        let now = self.now.get();
        let durability = self.logs.options().durability;
        let rig = Self::open(self.journal, self.storage, self.manifest, self.config, durability, loss);
        rig.now.set(now);
        rig
    }

    pub(crate) fn refuse(&self, error: Option<AppendError>) {
        *self.journal.refuse.lock() = error;
    }

    /// From here on kicked frames are written, but not durable.
    pub(crate) fn stop_syncing(&self) {
        self.journal.stop_syncing();
    }

    /// Makes all written frames durable.
    pub(crate) fn sync(&self) {
        self.journal.sync();
        self.streams.on_durable();
    }

    /// Joins a replicated unit, whose journal this returns.
    pub(crate) fn join(&self) -> Arc<Recorded> {
        let journal = Recorded::new();
        let options = LogsOptions { chunk_bytes: 4_096, ids_from: 1 << 40, ..LogsOptions::default() };
        let (storage, manifest) = (Arc::new(MemoryStorage::new()), Arc::new(MemoryManifest::new()));
        let opening = Logs::begin(options, storage, manifest, Loss::Nothing).unwrap();
        let logs = Arc::new(opening.finish(Arc::clone(&journal) as _).unwrap());
        self.streams.join(logs, Millis(self.now.get()));
        let weak = Arc::downgrade(&self.streams);
        journal.subscribe(Arc::new(move || {
            if let Some(streams) = weak.upgrade() {
                streams.on_replicated();
            }
        }));
        journal
    }

    /// Joins a unit of nodes, whose journal this returns.
    pub(crate) fn join_unit(&self, unit: u64) -> Arc<Recorded> {
        let journal = Recorded::new();
        let options = LogsOptions { chunk_bytes: 4_096, ids_from: (unit + 1) << 40, ..LogsOptions::default() };
        let (storage, manifest) = (Arc::new(MemoryStorage::new()), Arc::new(MemoryManifest::new()));
        let opening = Logs::begin(options, storage, manifest, Loss::Nothing).unwrap();
        let logs = Arc::new(opening.finish(Arc::clone(&journal) as _).unwrap());
        journal.subscribe(Arc::new(self.streams.join_unit(unit, logs).unwrap()));
        journal
    }

    /// The reply as the event loop gets it.
    pub(crate) fn reply(&self, method: Method<'_>, name: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let path = format!("/v1/stream/{name}");
        let headers: Vec<(&str, &[u8])> = headers.iter().map(|(n, v)| (*n, v.as_bytes())).collect();
        let request = Request { method, path: &path, query: None, headers: Headers(&headers), body };
        let waker = || Waker::from_fn(|| {});
        self.streams.handle(&request, &mut Context::detached(self.now.get(), &waker))
    }

    pub(crate) fn pass(&self, ms: u64) {
        self.now.set(self.now.get() + ms);
    }

    /// The answer as the engine gives it, before anything new is durable.
    pub(crate) fn ask(&self, method: Method<'_>, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        self.ask_unit(method, target, headers, body).1
    }

    /// The same, and the engine that it is from.
    fn ask_unit(
        &self,
        method: Method<'_>,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> (&Arc<Engine>, Answer) {
        let (name, query) = target.split_once('?').map_or((target, None), |(name, query)| (name, Some(query)));
        let path = if name.starts_with('/') { name.to_owned() } else { format!("/v1/stream/{name}") };
        let headers: Vec<(&str, &[u8])> = headers.iter().map(|(n, v)| (*n, v.as_bytes())).collect();
        let request = Request { method, path: &path, query, headers: Headers(&headers), body };
        self.streams.units.answer(&request, Millis(self.now.get()))
    }

    /// The answer once everything is durable.
    pub(crate) fn send(&self, method: Method<'_>, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Got {
        let (engine, answer) = self.ask_unit(method, target, headers, body);
        self.streams.round_done();
        match answer {
            Answer::Response(after, response) => {
                assert!(engine.logs.reached().covers(after));
                Got::of(response)
            }
            Answer::Later(task) => {
                let mut waiting = Waiting::new(task);
                loop {
                    if let Some(got) = self.step(&mut waiting) {
                        return got;
                    }
                    // A read on another thread: it wakes us.
                    waiting.woken.wait();
                }
            }
            Answer::Live(..) => panic!("an SSE response"),
        }
    }

    /// The result of a task, and the position that it waits for.
    pub(crate) fn finish(&self, task: Box<dyn Task>) -> (Until, Got) {
        let mut waiting = Waiting::new(task);
        loop {
            let waker = || waiting.waker.clone();
            let mut turn = Turn::new(Millis(self.now.get()), false, &waker);
            match waiting.task.step(&mut turn) {
                Some(Answer::Response(after, response)) => return (after, Got::of(response)),
                Some(_) => panic!("not a response"),
                None => waiting.woken.wait(),
            }
        }
    }

    pub(crate) fn put(&self, name: &str, content_type: &str, body: &str) -> Got {
        self.send(Method::Put, name, &[("Content-Type", content_type)], body.as_bytes())
    }

    pub(crate) fn post(&self, name: &str, content_type: &str, body: &str) -> Got {
        self.send(Method::Post, name, &[("Content-Type", content_type)], body.as_bytes())
    }

    pub(crate) fn get(&self, target: &str) -> Got {
        self.send(Method::Get, target, &[], b"")
    }

    pub(crate) fn head(&self, name: &str) -> Got {
        self.send(Method::Head, name, &[], b"")
    }

    pub(crate) fn delete(&self, name: &str) -> Got {
        self.send(Method::Delete, name, &[], b"")
    }

    /// A long-poll, stepped once.
    pub(crate) fn wait(&self, target: &str) -> Box<Waiting> {
        let Answer::Later(task) = self.ask(Method::Get, target, &[], b"") else { panic!("an answer at once") };
        let mut waiting = Waiting::new(task);
        assert!(self.step(&mut waiting).is_none());
        waiting
    }

    pub(crate) fn step(&self, waiting: &mut Waiting) -> Option<Got> {
        let waker = || waiting.waker.clone();
        let mut turn = Turn::new(Millis(self.now.get()), false, &waker);
        match waiting.task.step(&mut turn)? {
            Answer::Response(after, response) => {
                self.journal.kick();
                assert!(self.logs.reached().covers(after));
                Some(Got::of(response))
            }
            _ => panic!("not a response"),
        }
    }

    /// An SSE response, pulled until it waits.
    pub(crate) fn live(&self, target: &str) -> Live {
        self.live_with(target, &[])
    }

    pub(crate) fn live_with(&self, target: &str, headers: &[(&str, &str)]) -> Live {
        let Answer::Live(_, response, feed) = self.ask(Method::Get, target, headers, b"") else { panic!("no SSE") };
        let (woken, waker) = counting();
        Live { got: Got::of(response), feed, woken, waker }
    }

    /// The next output of an SSE response, and whether it has ended.
    pub(crate) fn pull(&self, live: &mut Live) -> (String, bool) {
        let waker = || live.waker.clone();
        let mut out = Vec::new();
        loop {
            let mut turn = Turn::new(Millis(self.now.get()), false, &waker);
            match live.feed.pull(&mut turn, &mut |bytes| out.push(bytes)) {
                Pull::More => {}
                Pull::Wait => return (String::from_utf8(out.concat()).unwrap(), false),
                Pull::End => return (String::from_utf8(out.concat()).unwrap(), true),
                Pull::Abort => panic!("aborted"),
            }
        }
    }

    /// The next output of an SSE response that is not empty.
    pub(crate) fn pull_something(&self, live: &mut Live) -> String {
        loop {
            let (sent, ended) = self.pull(live);
            if ended || !sent.is_empty() {
                return sent;
            }
            live.woken.wait();
        }
    }
}

/// How often a waker was used.
#[derive(Default)]
struct Wakes {
    count: Mutex<u64>,
    more: Condvar,
}

impl Wakes {
    fn wait_for(&self, time: Duration) {
        let mut count = self.count.lock();
        if *count == 0 {
            self.more.wait_for(&mut count, time);
        }
        *count = 0;
    }

    fn wait(&self) {
        let mut count = self.count.lock();
        let timed_out = *count == 0 && self.more.wait_for(&mut count, Duration::from_secs(10)).timed_out();
        assert!(!timed_out, "still waiting");
        *count = 0;
    }
}

fn counting() -> (Arc<Wakes>, Waker) {
    let wakes = Arc::new(Wakes::default());
    let counted = Arc::clone(&wakes);
    let waker = Waker::from_fn(move || {
        *counted.count.lock() += 1;
        counted.more.notify_all();
    });
    (wakes, waker)
}

pub(crate) struct Waiting {
    task: Box<dyn Task>,
    woken: Arc<Wakes>,
    waker: Waker,
}

impl Waiting {
    fn new(task: Box<dyn Task>) -> Box<Self> {
        let (woken, waker) = counting();
        Box::new(Self { task, woken, waker })
    }

    pub(crate) fn wakes(&self) -> u64 {
        *self.woken.count.lock()
    }
}

pub(crate) struct Live {
    pub(crate) got: Got,
    feed: Box<dyn Feed>,
    woken: Arc<Wakes>,
    waker: Waker,
}

impl Live {
    pub(crate) fn wakes(&self) -> u64 {
        *self.woken.count.lock()
    }
}

//! One thread that follows the desk of one node.

use super::wire::{News, NewsRequest, PageRequest};
use super::{Shared, Source};
use crate::watched::Interest;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a desk waits for changes.
const WAIT: Duration = Duration::from_secs(2);
/// The pause after a desk did not answer, and between questions whether deletes are durable.
const PAUSE: Duration = Duration::from_millis(50);
/// How many names one question has.
const NAMES_MAX: usize = 1_000;
/// How often it is asked whether deletes are durable.
const TRIES: usize = 200;

pub(super) struct Follower {
    over: Arc<AtomicBool>,
    source: Arc<dyn Source>,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    pub(super) fn start(shared: &Arc<Shared>, name: String, source: Arc<dyn Source>) -> std::io::Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let followed = Following {
            shared: Arc::clone(shared),
            over: Arc::clone(&over),
            name,
            source: Arc::clone(&source),
            request: NewsRequest::default(),
            synced: BTreeMap::new(),
            passed: 0,
            is_unsettled: false,
        };
        let thread = std::thread::Builder::new().name("follow".into()).spawn(move || followed.run())?;
        Ok(Self { over, source, thread: Some(thread) })
    }

    pub(super) fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends the thread, and waits for it.
    pub(super) fn stop(&mut self) {
        self.over.store(true, Ordering::Release);
        self.source.interrupt();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a thread that follows the streams of a node has panicked");
        }
    }
}

struct Following {
    shared: Arc<Shared>,
    over: Arc<AtomicBool>,
    name: String,
    source: Arc<dyn Source>,
    request: NewsRequest,
    /// The units whose streams are known: the epoch and revision that they had, and the last wish that was answered.
    synced: BTreeMap<u64, (u64, u64, u64)>,
    passed: u64,
    /// A unit could not be asked for its streams: it is moving.
    is_unsettled: bool,
}

impl Following {
    fn run(mut self) {
        let mut why = String::new();
        while !self.over.load(Ordering::Acquire) {
            match self.turn() {
                Ok(()) => why.clear(),
                Err(error) => {
                    if why != error {
                        tracing::info!(node = self.name, error, "the streams of a node cannot be followed just now");
                        why = error;
                    }
                    self.request = NewsRequest::default();
                    self.synced.clear();
                    self.shared.table.lock().forget(&self.name);
                    if self.shared.sleep(PAUSE) {
                        break;
                    }
                }
            }
        }
        self.shared.table.lock().forget(&self.name);
    }

    /// Asks once, and applies the answer.
    fn turn(&mut self) -> Result<(), String> {
        // Read before the question: the answer has everything that was visible then.
        let mark = self.shared.marks.load(Ordering::Acquire);
        let version = self.shared.table.lock().version();
        if self.is_unsettled && self.shared.sleep(PAUSE) {
            return Ok(());
        }
        let is_old = self.synced.values().any(|(.., known)| *known < version);
        let is_behind = mark > self.passed || is_old || self.is_unsettled;
        self.request.wait_ms = if is_behind { 0 } else { WAIT.as_millis() as u64 };
        let Some(news) = self.source.news(&self.request)? else { return Ok(()) };
        if news.session != self.request.session || news.is_lost {
            self.synced.clear();
        }
        self.request = NewsRequest { session: news.session.clone(), after: news.seq, wait_ms: 0 };
        let is_whole = !news.has_more;
        let serves = self.apply(&news);
        if is_whole {
            self.passed = mark;
        }
        self.shared.table.lock().answered(&self.name, serves, self.passed);
        self.shared.wake();
        Ok(())
    }

    /// Applies the news of units that the node serves; those of them that are known as a whole, each with its epoch.
    fn apply(&mut self, news: &News) -> BTreeMap<u64, u64> {
        let units: BTreeMap<u64, (u64, u64)> = news.units.iter().map(|(unit, a, b)| (*unit, (*a, *b))).collect();
        {
            let mut table = self.shared.table.lock();
            for change in &news.changes {
                // Without a lease it may be old; a unit that is served again is asked for everything.
                if let Some((epoch, _)) = units.get(&change.unit) {
                    table.set((change.unit, *epoch), &change.name, change.end);
                }
            }
        }
        self.synced.retain(|unit, (epoch, revision, _)| units.get(unit) == Some(&(*epoch, *revision)));
        self.is_unsettled = false;
        let mut known_units = BTreeMap::new();
        for (unit, (epoch, revision)) in &units {
            let known = self.synced.get(unit).map_or(0, |(.., known)| *known);
            let (version, wish) = {
                let table = self.shared.table.lock();
                (table.version(), table.wishes_after(known))
            };
            if known < version || !self.synced.contains_key(unit) {
                if let Err(why) = self.sync((*unit, *epoch), wish, version, known == 0) {
                    tracing::debug!(unit, why, "the streams of a unit cannot be asked for just now");
                    self.is_unsettled = true;
                    continue;
                }
                self.synced.insert(*unit, (*epoch, *revision, version));
            }
            known_units.insert(*unit, *epoch);
        }
        known_units
    }

    /// Asks for all wanted streams of a unit.
    fn sync(&self, (unit, epoch): (u64, u64), wish: Interest, version: u64, is_whole: bool) -> Result<(), String> {
        let mut found: HashSet<Box<str>> = HashSet::new();
        let mut end = 0;
        let Interest { patterns, names } = wish;
        let mut rests = names.chunks(NAMES_MAX);
        let mut request = PageRequest {
            unit,
            at: if patterns.is_empty() { PageRequest::END } else { 0 },
            interest: Interest { patterns, names: rests.next().unwrap_or_default().to_vec() },
        };
        loop {
            let page = self.source.page(&request)?;
            if page.epoch != epoch {
                return Err(format!("the unit {unit} has another owner"));
            }
            let mut table = self.shared.table.lock();
            for change in page.streams {
                table.set((unit, epoch), &change.name, change.end);
                found.insert(change.name);
            }
            drop(table);
            end = end.max(page.end);
            request.at = page.next;
            request.interest.names = rests.next().unwrap_or_default().to_vec();
            if request.at == PageRequest::END && request.interest.names.is_empty() {
                break;
            }
        }
        // A stream is missing for good once its delete is durable.
        let ask = PageRequest { unit, at: PageRequest::END, interest: Interest::default() };
        for _ in 0..TRIES {
            if self.source.page(&ask)?.durable >= end {
                let all = is_whole.then_some(&found);
                self.shared.table.lock().synced((unit, epoch), &self.name, version, all);
                return Ok(());
            }
            if self.shared.sleep(PAUSE) || self.over.load(Ordering::Acquire) {
                break;
            }
        }
        Err(format!("the journal of unit {unit} does not advance"))
    }
}

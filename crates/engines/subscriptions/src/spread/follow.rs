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
        let version = self.shared.table.lock().version();
        let mut waiting = Vec::new();
        for (unit, (epoch, revision)) in &units {
            let known = self.synced.get(unit).map_or(0, |(.., known)| *known);
            let (version, wish) = {
                let table = self.shared.table.lock();
                (table.version(), table.wishes_after(known))
            };
            if known < version || !self.synced.contains_key(unit) {
                let of = Asked { unit: *unit, epoch: *epoch, revision: *revision, version, is_whole: known == 0 };
                match self.ask(of, wish) {
                    Ok(answered) => waiting.push(answered),
                    Err(why) => {
                        tracing::debug!(unit, why, "the streams of a unit cannot be asked for just now");
                        self.is_unsettled = true;
                    }
                }
            }
        }
        self.wait_for(waiting);
        let is_known = |unit: &u64| self.synced.get(unit).is_some_and(|(.., known)| *known >= version);
        units.iter().filter(|(unit, _)| is_known(unit)).map(|(unit, (epoch, _))| (*unit, *epoch)).collect()
    }

    /// Asks for all wanted streams of a unit.
    fn ask(&self, asked: Asked, wish: Interest) -> Result<Answered, String> {
        let (unit, epoch) = (asked.unit, asked.epoch);
        let mut answered = Answered { asked, found: HashSet::new(), end: 0 };
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
                answered.found.insert(change.name);
            }
            drop(table);
            answered.end = answered.end.max(page.end);
            request.at = page.next;
            request.interest.names = rests.next().unwrap_or_default().to_vec();
            if request.at == PageRequest::END && request.interest.names.is_empty() {
                return Ok(answered);
            }
        }
    }

    /// Waits until what the units have answered is durable: a stream is missing for good once its delete is. All of them
    /// together: one after the other they would take as many commits as there are units, and no news would be taken.
    fn wait_for(&mut self, mut waiting: Vec<Answered>) {
        for _ in 0..TRIES {
            waiting.retain(|answered| {
                let Asked { unit, epoch, revision, version, is_whole } = answered.asked;
                let ask = PageRequest { unit, at: PageRequest::END, interest: Interest::default() };
                match self.source.page(&ask) {
                    Ok(page) if page.durable >= answered.end => {
                        let all = is_whole.then_some(&answered.found);
                        self.shared.table.lock().synced((unit, epoch), &self.name, version, all);
                        self.synced.insert(unit, (epoch, revision, version));
                        false
                    }
                    Ok(_) => true,
                    Err(why) => {
                        tracing::debug!(unit, why, "the journal of a unit cannot be asked for just now");
                        self.is_unsettled = true;
                        false
                    }
                }
            });
            if waiting.is_empty() {
                return;
            }
            if self.shared.sleep(PAUSE) || self.over.load(Ordering::Acquire) {
                break;
            }
        }
        for answered in waiting {
            tracing::debug!(unit = answered.asked.unit, "the journal of a unit does not advance");
            self.is_unsettled = true;
        }
    }
}

/// A question for the streams of a unit.
#[derive(Clone, Copy)]
struct Asked {
    unit: u64,
    epoch: u64,
    revision: u64,
    /// The last wish of the question.
    version: u64,
    /// All wishes are asked for, not those alone that are new.
    is_whole: bool,
}

/// The streams of a unit, some of which may not be durable yet.
struct Answered {
    asked: Asked,
    found: HashSet<Box<str>>,
    /// The end of the journal when they were read.
    end: u64,
}

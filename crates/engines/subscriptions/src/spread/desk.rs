//! The desk of a node: which streams of its units have changed lately, for the nodes whose subscriptions follow them.
//!
//! A change is a name with a number; a name that changes again gets a new number, so that a desk has each name once.
//! An answer looks up where the stream ends at that moment. Nothing is recorded before the first question, and nothing
//! any more when nobody has asked for a while. Lock order: the desk, then shards of logs.

use super::Source;
use super::wire::{Change, News, NewsRequest, Page, PageRequest};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};
use thalweg_http::Waker;
use thalweg_log::SweepCursor;
use thalweg_streams::{Streams, Visible};

/// How many names are kept.
const NAMES_MAX: usize = 1 << 16;
/// How many changes one answer has.
const CHANGES_MAX: usize = 4_096;
/// How many logs one page passes over at most, and how many names it compares with patterns.
const SWEPT_MAX: usize = 4_096;
const COMPARED_MAX: usize = 1 << 16;
/// How many names one question may have.
const ASKED_MAX: usize = 4_096;
/// How often a question that waits looks at the units of the node.
pub const LOOK_EVERY: Duration = Duration::from_millis(200);
/// A desk that nobody has asked for so long records nothing.
const IDLE_AFTER: Duration = Duration::from_secs(60);

/// The units that a node serves by a lease now, each with the epoch of its ownership.
pub type Served = Box<dyn Fn() -> Vec<(u64, u64)> + Send + Sync>;

/// The changes of one node's streams.
pub struct Desk {
    streams: Arc<Streams>,
    serves: Served,
    /// Differs from that of every other process.
    name: String,
    ring: Mutex<Ring>,
    bell: Arc<Bell>,
}

/// Rings when something may have changed.
#[derive(Default)]
struct Bell {
    state: Mutex<Rung>,
    rung: Condvar,
}

#[derive(Default)]
struct Rung {
    count: u64,
    is_interrupted: bool,
    wakers: Vec<Waker>,
}

#[derive(Default)]
struct Ring {
    /// How often recording was begun; 0: it is off.
    session: u64,
    is_on: bool,
    /// The last number that was given.
    seq: u64,
    /// Numbers up to this one may have been forgotten.
    forgotten: u64,
    by_number: BTreeMap<u64, (u64, Box<str>)>,
    numbers: HashMap<(u64, Box<str>), u64>,
    /// How often changes of a unit were not recorded.
    revisions: BTreeMap<u64, u64>,
    asked: Option<Instant>,
}

impl Bell {
    fn ring(&self) {
        let wakers = {
            let mut state = self.state.lock();
            state.count += 1;
            std::mem::take(&mut state.wakers)
        };
        self.rung.notify_all();
        wakers.into_iter().for_each(|waker| waker.wake());
    }
}

impl Desk {
    /// The desk of a node, which is the observer of its streams. `name` differs from that of every other process.
    pub fn new(streams: Arc<Streams>, name: String, serves: Served) -> Arc<Self> {
        let bell = Arc::<Bell>::default();
        let rings = Arc::clone(&bell);
        streams.observe(Arc::new(move || rings.ring()));
        Arc::new(Self { streams, serves, name, ring: Mutex::default(), bell })
    }

    /// Stops recording if nobody has asked for long, and forgets who waited. Call it every few seconds.
    pub fn tick(&self) {
        self.bell.ring();
        let mut ring = self.ring.lock();
        if ring.is_on && ring.asked.is_none_or(|asked| asked.elapsed() >= IDLE_AFTER) {
            self.streams.turn_observing(false);
            *ring = Ring { session: ring.session, seq: ring.seq, ..Ring::default() };
        }
    }

    /// How often the bell has rung: an answer that is empty may be another one when it rings again.
    pub fn rung(&self) -> u64 {
        self.bell.state.lock().count
    }

    /// Has a waker called when the bell has rung more often than `count`; `false`: it has already.
    pub fn wait(&self, count: u64, waker: impl FnOnce() -> Waker) -> bool {
        let mut state = self.bell.state.lock();
        if state.count != count {
            return false;
        }
        state.wakers.push(waker());
        true
    }

    /// Takes what has become visible.
    fn drain(&self, ring: &mut Ring) {
        for (unit, names, overflowed) in self.streams.take_changed_names() {
            if overflowed {
                *ring.revisions.entry(unit).or_default() += 1;
            }
            for name in names {
                ring.seq += 1;
                if let Some(before) = ring.numbers.insert((unit, name.clone()), ring.seq) {
                    ring.by_number.remove(&before);
                }
                ring.by_number.insert(ring.seq, (unit, name));
            }
        }
        while ring.by_number.len() > NAMES_MAX
            && let Some((number, change)) = ring.by_number.pop_first()
        {
            ring.numbers.remove(&change);
            ring.forgotten = number;
        }
    }

    /// The answer as of now; whether it says anything new.
    pub fn answer(&self, request: &NewsRequest) -> (News, bool) {
        let mut ring = self.ring.lock();
        ring.asked = Some(Instant::now());
        if !ring.is_on {
            ring.is_on = true;
            ring.session += 1;
            self.streams.turn_observing(true);
        }
        self.drain(&mut ring);
        let session = format!("{}/{}", self.name, ring.session);
        let is_first = request.session != session;
        // A new follower asks for everything else by units.
        let after = if is_first { ring.seq } else { request.after };
        let mut due = ring.by_number.range(after.saturating_add(1)..);
        let mut changes = Vec::new();
        let mut seq = ring.seq;
        for (number, (unit, name)) in due.by_ref().take(CHANGES_MAX) {
            seq = *number;
            // What is not known, or served no longer, is told when it is.
            let end = match self.streams.visible_in(*unit, name) {
                Some(Visible::To(end)) => Some(end),
                Some(Visible::Gone) => None,
                Some(Visible::Unsettled) | None => continue,
            };
            changes.push(Change { unit: *unit, name: name.clone(), end });
        }
        let has_more = due.next().is_some();
        let seq = if has_more { seq } else { ring.seq };
        let is_lost = !is_first && request.after < ring.forgotten;
        let is_new = is_first || is_lost || seq > request.after;
        // Asked last: a lease that holds now has held when the streams were looked up.
        let revision = |unit| ring.revisions.get(unit).copied().unwrap_or_default();
        let units = (self.serves)().iter().map(|(unit, epoch)| (*unit, *epoch, revision(unit))).collect();
        (News { session, seq, is_lost, has_more, units, changes }, is_new)
    }

    /// Some of the streams of a unit.
    pub fn page_of(&self, request: &PageRequest) -> Result<Page, String> {
        let away = || format!("unit {} is not served here", request.unit);
        let PageRequest { unit, at, interest } = request;
        let owned = || (self.serves)().iter().find(|(served, _)| served == unit).map(|(_, epoch)| *epoch);
        let epoch = owned().ok_or_else(away)?;
        let mut page = Page { epoch, next: PageRequest::END, ..Page::default() };
        if interest.names.len() > ASKED_MAX {
            return Err(format!("a question has at most {ASKED_MAX} names"));
        }
        for name in &interest.names {
            if let Visible::To(end) = self.streams.visible_in(*unit, name).ok_or_else(away)? {
                page.streams.push(Change { unit: *unit, name: name.as_str().into(), end: Some(end) });
            }
        }
        if *at != PageRequest::END {
            // An event loop makes the page.
            let count = (COMPARED_MAX / interest.patterns.len().max(1)).clamp(64, SWEPT_MAX);
            let next = self.streams.sweep_unit(*unit, SweepCursor::of_number(*at), count, &mut |name, end| {
                if interest.fits_pattern(name) {
                    page.streams.push(Change { unit: *unit, name: name.into(), end: Some(end) });
                }
            });
            page.next = next.ok_or_else(away)?.map_or(PageRequest::END, SweepCursor::to_number);
        }
        let (end, durable) = self.streams.ends_of_unit(*unit).ok_or_else(away)?;
        (page.end, page.durable) = (end.0, durable.0);
        // The place of the next page holds only as long as the unit is not taken again.
        if owned() == Some(epoch) { Ok(page) } else { Err(away()) }
    }
}

/// The own desk of a node.
impl Source for Desk {
    fn news(&self, request: &NewsRequest) -> Result<Option<News>, String> {
        let until = Instant::now() + Duration::from_millis(request.wait_ms);
        let mut before: Option<Vec<(u64, u64, u64)>> = None;
        loop {
            let count = self.rung();
            let (news, is_new) = self.answer(request);
            let has_moved = before.as_ref().is_some_and(|before| *before != news.units);
            if is_new || has_moved || Instant::now() >= until {
                return Ok(Some(news));
            }
            before = Some(news.units);
            let look_at = until.min(Instant::now() + LOOK_EVERY);
            let mut state = self.bell.state.lock();
            while state.count == count && !state.is_interrupted {
                if self.bell.rung.wait_until(&mut state, look_at).timed_out() {
                    break;
                }
            }
            if std::mem::take(&mut state.is_interrupted) {
                return Ok(None);
            }
        }
    }

    fn page(&self, request: &PageRequest) -> Result<Page, String> {
        self.page_of(request)
    }

    fn interrupt(&self) {
        self.bell.state.lock().is_interrupted = true;
        self.bell.rung.notify_all();
    }
}

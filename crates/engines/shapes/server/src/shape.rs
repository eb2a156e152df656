//! One shape while the server runs: where its snapshot and its changes are, and the requests that wait for them.

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use thalweg_base::{LogId, Lsn};
use thalweg_http::Waker;
use thalweg_shapes_core::route::ids::RouteId;
use thalweg_shapes_core::state::bases::{Base, Bases};
use thalweg_shapes_core::state::entries::{Entries, Entry};
use thalweg_shapes_core::state::pending_entries::PendingEntries;
use thalweg_shapes_model::definition::{Condition, Definition, Identity, LogMode};
use thalweg_shapes_model::failure::Failure;
use thalweg_shapes_model::family::Family;
use thalweg_shapes_model::handle::Handle;
use thalweg_shapes_model::lazy_box::LazyBox;
use thalweg_shapes_model::name::Name;
use thalweg_shapes_model::offset::ShapeOffset;
use thalweg_shapes_model::snapshot::PgSnapshot;

#[derive(Debug, Default)]
pub(crate) enum Phase {
    /// Only the definition is known yet.
    #[default]
    Preparing,
    /// Rows are being copied; changes are recorded.
    Snapshotting,
    /// All rows are there.
    Live,
    Failed(Arc<Failure>),
    /// Clients must refetch.
    Gone,
}

const UNKNOWN: u32 = u32::MAX;

/// The state of a shape that changes while it lives. A server may have a million idle shapes: fields that these do not
/// need are in a part of their own.
pub(crate) struct State {
    pub(crate) phase: Phase,
    /// The log of its snapshot in the kernel unit, once it is made.
    pub(crate) log: Option<LogId>,
    /// Its place in the router, while it has one.
    pub(crate) route_id: Option<RouteId>,
    pub(crate) entries: LazyBox<Entries>,
    /// The snapshot that its rows were read in; many shapes share one.
    pub(crate) snapshot: Option<Arc<PgSnapshot>>,
    /// Transactions may still come that must not be applied, because the rows have them.
    contained: bool,
    /// Rows that were copied when it was made, if this server did that; [`UNKNOWN`] otherwise.
    rows: u32,
    /// Ends of snapshot chunks that may be shown.
    pub(crate) chunks: Chunks,
    /// Bases after the snapshot, of a shape that has any.
    pub(crate) bases: Option<Box<Bases>>,
    /// A client began with the newest base.
    pub(crate) joined: bool,
    passing: Option<Box<Passing>>,
}

/// Ends of chunks, ascending. Most snapshots have one, so there is no room for more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chunks(Box<[u64]>);

impl Chunks {
    pub(crate) fn push(&mut self, end: u64) {
        let mut all = std::mem::take(&mut self.0).into_vec();
        all.reserve_exact(1);
        all.push(end);
        self.0 = all.into();
    }
}

impl From<Vec<u64>> for Chunks {
    fn from(ends: Vec<u64>) -> Self {
        Self(ends.into())
    }
}

impl Deref for Chunks {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        &self.0
    }
}

/// State that a shape has only while it is made or read.
#[derive(Default)]
struct Passing {
    /// Entries whose transactions may be in the snapshot: it was not taken yet when they came.
    early: Vec<(u32, Entry)>,
    /// The rows and bytes of the snapshot that were copied so far.
    copied: Option<Copied>,
    waiters: Vec<(u64, Waker)>,
    /// Of a shape that depends on other tables' rows: the entries that are not published yet.
    pending_entries: Option<Box<PendingEntries>>,
    /// The last live answer, which others may ask for too: what it follows, where it ends, its body.
    shared: Option<(ShapeOffset, ShapeOffset, Bytes)>,
}

impl Passing {
    fn is_over(&self) -> bool {
        self.early.is_empty()
            && self.copied.is_none()
            && self.waiters.is_empty()
            && self.pending_entries.is_none()
            && self.shared.is_none()
    }
}

/// Rows that a client begins with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows<'a> {
    pub(crate) log: Option<LogId>,
    pub(crate) chunks: &'a [u64],
    pub(crate) snapshot: Option<&'a PgSnapshot>,
    /// The changes after this one follow.
    pub(crate) end: ShapeOffset,
}

/// How far a snapshot is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Copied {
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
}

impl Default for State {
    fn default() -> Self {
        Self {
            phase: Phase::default(),
            log: None,
            route_id: None,
            entries: LazyBox::default(),
            snapshot: None,
            contained: false,
            rows: UNKNOWN,
            chunks: Chunks::default(),
            bases: None,
            joined: false,
            passing: None,
        }
    }
}

impl State {
    fn passing(&mut self) -> &mut Passing {
        self.passing.get_or_insert_default()
    }

    /// Frees the part if it is empty.
    fn pass(&mut self) {
        if self.passing.as_ref().is_some_and(|passing| passing.is_over()) {
            self.passing = None;
        }
    }

    /// Gives up state that was kept for other requests. The transaction at `applied` may still come, those before it do
    /// not come again.
    pub(crate) fn rest(&mut self, applied: u64) {
        if self.contained && self.snapshot.as_ref().is_some_and(|snapshot| snapshot.lsn < applied) {
            self.contained = false;
        }
        if let Some(passing) = &mut self.passing {
            passing.shared = None;
            if matches!(self.phase, Phase::Live)
                && let Some(copied) = passing.copied.take()
            {
                self.rows = u32::try_from(copied.rows).unwrap_or(UNKNOWN);
            }
        }
        self.pass();
    }

    /// A live answer that was made already.
    #[must_use]
    pub(crate) fn shared(&self, from: ShapeOffset, end: ShapeOffset, live: bool) -> Option<Bytes> {
        let (known, known_end, body) = self.passing.as_ref()?.shared.as_ref()?;
        (live && *known == from && *known_end == end).then(|| body.clone())
    }

    /// Keeps a live answer for others.
    pub(crate) fn share(&mut self, from: ShapeOffset, end: ShapeOffset, body: Bytes) {
        self.passing().shared = Some((from, end, body));
    }

    /// The rows and bytes of the snapshot that were copied so far; `None`: an earlier run copied them, and their count
    /// is unknown.
    pub(crate) fn copied(&self) -> Option<Copied> {
        let whole = || Copied { rows: self.rows.into(), bytes: self.chunks.last().copied().unwrap_or(0) };
        self.passing.as_ref().and_then(|passing| passing.copied).or_else(|| (self.rows != UNKNOWN).then(whole))
    }

    pub(crate) fn set_copied(&mut self, copied: Copied) {
        self.passing().copied = Some(copied);
    }

    /// Records changes of one transaction.
    pub(crate) fn push(&mut self, xid: u32, entry: Entry, chunk_bytes: u64) {
        if self.snapshot.is_none() {
            self.passing().early.push((xid, entry));
            return;
        }
        if let Some(pending_entries) = self.pending_entries_mut().filter(|pending_entries| pending_entries.is_holding())
        {
            pending_entries.push(xid, entry);
            return;
        }
        self.add(xid, entry, chunk_bytes);
    }

    fn add(&mut self, xid: u32, entry: Entry, chunk_bytes: u64) {
        let Some(snapshot) = &self.snapshot else { return };
        if self.contained {
            if snapshot.is_past(entry.lsn) {
                self.contained = false;
            } else if snapshot.contains(xid, entry.lsn) {
                return;
            }
        }
        // An entry that every base contains is not needed as a change.
        if let Some(bases) = &mut self.bases {
            if entry.offset() <= bases.start() {
                return;
            }
            if entry.offset() <= bases.newest().end {
                bases.merged += u64::from(entry.len);
            }
        }
        self.entries.push(entry, chunk_bytes);
    }

    fn pending_entries(&self) -> Option<&PendingEntries> {
        self.passing.as_ref()?.pending_entries.as_deref()
    }

    fn pending_entries_mut(&mut self) -> Option<&mut PendingEntries> {
        self.passing.as_mut()?.pending_entries.as_deref_mut()
    }

    /// Rows belong before all that comes from now on.
    pub(crate) fn hold(&mut self, pending: u64) {
        self.passing().pending_entries.get_or_insert_default().barrier(pending);
    }

    /// Later entries are not published before the journal is durable up to `end`.
    pub(crate) fn hold_until(&mut self, end: Lsn) {
        self.passing().pending_entries.get_or_insert_default().durable(end);
    }

    /// The entries that wait for rows, up to the next barrier.
    #[must_use]
    pub(crate) fn held_behind(&self, pending: u64) -> Vec<(u32, Entry)> {
        self.pending_entries().map(|pending_entries| pending_entries.behind(pending)).unwrap_or_default()
    }

    /// The rows are here, and durable when the journal is up to `end`.
    pub(crate) fn open_barrier(&mut self, pending: u64, rows: &[(u32, Entry)], end: Lsn) {
        if let Some(pending_entries) = self.pending_entries_mut() {
            pending_entries.open(pending, rows, end);
        }
    }

    /// Publishes the entries that can be. Returns whether others still wait.
    pub(crate) fn release(&mut self, durable: Lsn, chunk_bytes: u64) -> bool {
        let Some(mut pending_entries) = self.passing.as_mut().and_then(|passing| passing.pending_entries.take()) else {
            return false;
        };
        for (xid, entry) in pending_entries.take(durable) {
            self.add(xid, entry, chunk_bytes);
        }
        let is_holding = pending_entries.is_holding();
        if !pending_entries.is_idle() {
            self.passing().pending_entries = Some(pending_entries);
        }
        self.pass();
        is_holding
    }

    /// Nothing after `lsn` is complete.
    pub(crate) fn cap(&mut self, lsn: u64) {
        self.passing().pending_entries.get_or_insert_default().lower_cap(lsn);
    }

    /// No change after `lsn` is complete; `None`: all are.
    pub(crate) fn set_cap(&mut self, lsn: Option<u64>) {
        if lsn.is_some() || self.pending_entries().is_some() {
            self.passing().pending_entries.get_or_insert_default().set_cap(lsn);
        }
    }

    /// Up to where its log is complete, if everything up to `lsn` was applied.
    #[must_use]
    pub(crate) fn complete(&self, lsn: u64) -> u64 {
        self.pending_entries().map_or(lsn, |pending_entries| pending_entries.complete(lsn))
    }

    /// Clients that begin from now on get this base.
    pub(crate) fn show(&mut self, base: Base) {
        assert_eq!(base.number, self.newest() + 1, "invariant 7: a base's number is used again, or left out");
        assert!(base.end >= self.start(), "invariant 8: a base ends before the shape's first position");
        let merged = self.entries.bytes_before(base.end);
        let bases = match self.bases.take() {
            None => Box::new(Bases::new(base, false)),
            Some(mut bases) => {
                bases.push(base);
                bases
            }
        };
        self.bases.insert(bases).merged = merged;
        self.joined = false;
    }

    /// Forgets the changes that no base needs.
    pub(crate) fn cut(&mut self) {
        let (start, before) = (self.start(), self.entries.bytes());
        if let Some(bases) = &mut self.bases
            && bases.first_is_gone()
        {
            self.entries.cut(start);
            bases.merged = bases.merged.saturating_sub(before - self.entries.bytes());
        }
    }

    /// Bytes of changes since the newest base.
    #[must_use]
    pub(crate) fn since(&self) -> u64 {
        let merged = self.bases.as_ref().map_or(0, |bases| bases.merged);
        self.entries.bytes().saturating_sub(merged)
    }

    /// Where the oldest body lies that the newest base does not have, in the change log.
    #[must_use]
    pub(crate) fn oldest_needed(&self) -> Option<u64> {
        let end = self.bases.as_ref().map_or(ShapeOffset::SNAPSHOT_END, |bases| bases.newest().end);
        self.early().into_iter().chain(self.entries.oldest_after(end)).chain(self.held()).min()
    }

    fn early(&self) -> Option<u64> {
        self.passing.as_ref()?.early.first().map(|(_, entry)| entry.at)
    }

    fn held(&self) -> Option<u64> {
        self.pending_entries().and_then(PendingEntries::oldest)
    }

    /// The start of the known part of the log: a read from an earlier position cannot be answered.
    #[must_use]
    pub(crate) fn start(&self) -> ShapeOffset {
        self.bases.as_ref().map_or(ShapeOffset::SNAPSHOT_END, |bases| bases.start())
    }

    /// The base that answers clients that begin.
    #[must_use]
    pub(crate) fn newest(&self) -> u32 {
        self.bases.as_ref().map_or(0, |bases| bases.newest().number)
    }

    /// The rows of a base; `None`: they are gone, or never were.
    #[must_use]
    pub(crate) fn rows(&self, base: u32) -> Option<Rows<'_>> {
        if base > 0 {
            let Base { log, chunks, snapshot, end, .. } = self.bases.as_ref()?.get(base)?;
            return Some(Rows { log: Some(*log), chunks, snapshot: Some(&**snapshot), end: *end });
        }
        if self.bases.as_ref().is_some_and(|bases| bases.first_is_gone()) {
            return None;
        }
        let (chunks, snapshot) = (&self.chunks[..], self.snapshot.as_deref());
        Some(Rows { log: self.log, chunks, snapshot, end: ShapeOffset::SNAPSHOT_END })
    }

    /// The snapshot was taken: the transactions that it contains are not applied.
    pub(crate) fn snapshot_taken(&mut self, snapshot: Arc<PgSnapshot>, chunk_bytes: u64) {
        self.snapshot = Some(snapshot);
        self.contained = true;
        let early = self.passing.as_mut().map(|passing| std::mem::take(&mut passing.early)).unwrap_or_default();
        for (xid, entry) in early {
            self.push(xid, entry, chunk_bytes);
        }
        self.pass();
    }

    /// The shape begins without rows, or with changes only: no transaction before `lsn` belongs to it.
    #[must_use]
    pub(crate) fn contained(&self) -> Option<&PgSnapshot> {
        self.snapshot.as_deref().filter(|_| self.contained)
    }

    #[must_use]
    pub(crate) fn is_live(&self) -> bool {
        matches!(self.phase, Phase::Live)
    }

    /// Where the oldest body lies that the shape needs, in the change log.
    #[must_use]
    pub(crate) fn oldest_body(&self) -> Option<u64> {
        self.early().into_iter().chain(self.entries.oldest()).chain(self.held()).min()
    }

    /// The position after the newest entry.
    #[must_use]
    pub(crate) fn tail(&self) -> ShapeOffset {
        if self.entries.is_empty() { self.start() } else { self.entries.tail() }
    }

    /// Takes out the wakers of all requests that wait for a change.
    #[must_use]
    pub(crate) fn take_waiters(&mut self) -> Vec<(u64, Waker)> {
        let waiters = self.passing.as_mut().map(|passing| std::mem::take(&mut passing.waiters)).unwrap_or_default();
        self.pass();
        waiters
    }

    #[must_use]
    pub(crate) fn has_waiters(&self) -> bool {
        self.waiting() > 0
    }

    #[must_use]
    pub(crate) fn waiting(&self) -> usize {
        self.passing.as_ref().map_or(0, |passing| passing.waiters.len())
    }
}

/// A shape. Its state has no entries that clients must not see before they are durable.
pub(crate) struct Shape {
    /// The number by which references name it.
    pub(crate) number: u64,
    /// The common beginning of its clients' handles.
    pub(crate) handle: Name,
    pub(crate) family: Arc<Family>,
    pub(crate) condition: Condition,
    pub(crate) identity: Identity,
    state: Mutex<State>,
    used_ms: AtomicU64,
}

/// The key of a waiter is unique among all shapes: a shape keeps no count.
static NEXT_KEY: AtomicU64 = AtomicU64::new(0);

impl Shape {
    pub(crate) fn new(
        number: u64,
        handle: Name,
        family: Arc<Family>,
        condition: Condition,
        identity: Identity,
        state: State,
    ) -> Self {
        Self { number, handle, family, condition, identity, state: Mutex::new(state), used_ms: AtomicU64::new(0) }
    }

    /// The definition that it was made from.
    pub(crate) fn definition(&self) -> Definition {
        self.family.with(&self.condition)
    }

    /// The handle of clients that began with a base.
    pub(crate) fn handle_of(&self, base: u32) -> String {
        Handle::new(&self.handle.to_string(), base).to_string()
    }

    /// The handle of clients that begin now.
    pub(crate) fn newest_handle(&self) -> String {
        self.handle_of(self.lock().newest())
    }

    /// It exists for other shapes, and no client sees it.
    pub(crate) fn is_inner(&self) -> bool {
        self.family.log == LogMode::Inner
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Changes the state and wakes the requests that wait.
    pub(crate) fn change<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let (result, waiters) = {
            let mut state = self.state.lock();
            let result = f(&mut state);
            (result, state.take_waiters())
        };
        waiters.iter().for_each(|(_, waker)| waker.wake());
        result
    }

    /// Wakes `waker` once at the next change; the key takes it out again.
    pub(crate) fn wait(&self, state: &mut State, waker: Waker) -> u64 {
        let key = NEXT_KEY.fetch_add(1, Ordering::Relaxed);
        state.passing().waiters.push((key, waker));
        key
    }

    pub(crate) fn forget(&self, key: u64) {
        let mut state = self.state.lock();
        if let Some(passing) = &mut state.passing {
            passing.waiters.retain(|(k, _)| *k != key);
        }
        state.pass();
    }

    /// Notes a request for it.
    pub(crate) fn used(&self, now_ms: u64) {
        self.used_ms.store(now_ms, Ordering::Relaxed);
    }

    pub(crate) fn used_ms(&self) -> u64 {
        self.used_ms.load(Ordering::Relaxed)
    }

    /// The time of the last known request: a restart forgets it, but the name has the time at which the shape was made.
    pub(crate) fn wanted_ms(&self) -> u64 {
        self.used_ms().max(self.handle.micros / 1000)
    }
}

/// One for tests.
#[cfg(test)]
pub(crate) fn sample(number: u64, state: State) -> Shape {
    sample_of(number, &Definition::of_table("public", "t"), state)
}

/// One for tests, its handle `<number>-<number>`.
#[cfg(test)]
pub(crate) fn sample_of(number: u64, definition: &Definition, state: State) -> Shape {
    let identity = Identity::of(format!("{definition:?}").as_bytes());
    let family = Arc::new(Family::of(definition, 1, String::new()));
    let handle = Name { sum: number as u32, micros: number };
    Shape::new(number, handle, family, Condition::of(definition), identity, state)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A million of them are to fit; with its counts an `Arc` of it takes 192 bytes.
    #[test]
    fn a_shape_is_small() {
        assert!(size_of::<Shape>() <= 176, "{} bytes", size_of::<Shape>());
    }

    #[test]
    fn what_was_kept_for_a_while_is_given_back() {
        let mut state = State { phase: Phase::Live, ..State::default() };
        state.snapshot_taken(Arc::new(PgSnapshot { lsn: 200, ..("8:8:".parse().unwrap()) }), 1000);
        state.share(ShapeOffset::SNAPSHOT_END, ShapeOffset::SNAPSHOT_END, Bytes::from_static(b"[]"));
        state.set_copied(Copied { rows: 3, bytes: 70 });
        state.chunks.push(70);
        state.rest(199);
        assert_eq!(state.copied(), Some(Copied { rows: 3, bytes: 70 }), "operators see it");
        assert!(state.passing.is_none() && state.contained);
        state.push(7, entry(150), 1000);
        assert!(state.entries.is_empty(), "the snapshot has it");
        state.rest(200);
        assert!(state.contained);
        state.rest(201);
        assert!(!state.contained);
    }

    fn entry(lsn: u64) -> Entry {
        Entry { lsn, at: 0, op: 0, len: 1 }
    }

    fn lsns(state: &State) -> Vec<u64> {
        state.entries.iter().map(|entry| entry.lsn).collect()
    }

    #[test]
    fn what_the_snapshot_contains_is_not_applied_whenever_it_comes() {
        let mut state = State::default();
        // 7 had committed when the snapshot was taken, 8 was in progress; both come before the snapshot is known.
        state.push(7, entry(100), 1000);
        state.push(8, entry(110), 1000);
        assert_eq!(lsns(&state), [0_u64; 0]);
        let snapshot = PgSnapshot { lsn: 200, ..("8:12:8,10".parse().unwrap()) };
        state.snapshot_taken(Arc::new(snapshot), 1000);
        assert_eq!(lsns(&state), [110]);
        assert!(state.passing.is_none() && state.contained);
        // 9 had committed too, 10 had not; they come later.
        state.push(9, entry(150), 1000);
        state.push(10, entry(160), 1000);
        assert_eq!(lsns(&state), [110, 160]);
        // A transaction that committed after the snapshot, although its number is below.
        state.push(11, entry(201), 1000);
        assert_eq!(lsns(&state), [110, 160, 201]);
        assert!(!state.contained);
    }

    #[test]
    fn a_change_wakes_each_waiter_once() {
        let woken = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&woken);
        let waker = Waker::from_fn(move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        let shape = sample(1, State::default());
        let kept = shape.wait(&mut shape.lock(), waker.clone());
        let gone = shape.wait(&mut shape.lock(), waker);
        assert_ne!(kept, gone);
        shape.forget(gone);
        shape.change(|state| state.push(1, entry(1), 10));
        shape.change(|state| state.push(1, entry(2), 10));
        assert_eq!(woken.load(Ordering::Relaxed), 1);
    }
}

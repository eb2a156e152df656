//! One shape while the server runs: where its snapshot and its changes are, and who waits for them.

use crate::definition::Definition;
use crate::format::handle::Handle;
use crate::format::offset::ShapeOffset;
use crate::serve::invalid::Invalid;
use crate::state::bases::{Base, Bases};
use crate::state::entries::{Entries, Entry};
use crate::state::snapshot::PgSnapshot;
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use thalweg_base::LogId;
use thalweg_wire::http::Waker;

/// Why a shape could not be made, in words for its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// 400: the request can never succeed as it is.
    Invalid(Invalid),
    /// 503: it may succeed later.
    Unavailable { code: &'static str, message: String, retry_after_s: u32 },
    /// 409: the table changed meanwhile.
    Rotated,
}

impl Failure {
    pub(crate) fn unavailable(code: &'static str, message: impl ToString, retry_after_s: u32) -> Self {
        Failure::Unavailable { code, message: message.to_string(), retry_after_s }
    }
}

#[derive(Debug, Default)]
pub(crate) enum Phase {
    /// Nothing is known yet but the definition.
    #[default]
    Preparing,
    /// Rows are being copied; changes are recorded.
    Snapshotting,
    /// Everything is there.
    Live,
    Failed(Arc<Failure>),
    /// Clients must refetch.
    Gone,
}

/// What changes while a shape lives.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) phase: Phase,
    /// The log of its snapshot in the kernel unit, once it is there.
    pub(crate) log: Option<LogId>,
    /// Its place in the router, while it has one.
    pub(crate) slot: Option<u32>,
    pub(crate) entries: Entries,
    /// Transactions that must not be applied, because the rows have them; `None` when no such can come any more.
    contained: Option<Box<PgSnapshot>>,
    /// Entries whose transactions may be in the snapshot: it was not taken yet when they came.
    early: Vec<(u32, Entry)>,
    snapshot_known: bool,
    /// Ends of snapshot chunks that may be shown.
    pub(crate) chunks: Vec<u64>,
    /// Words about the snapshot for its last chunk: xmin, xmax, xip.
    pub(crate) snapshot: Option<Box<PgSnapshot>>,
    /// What was copied of the snapshot so far; `None`: a server did that which is gone.
    pub(crate) copied: Option<Copied>,
    /// Bases after the snapshot, of a shape that has any.
    pub(crate) bases: Option<Box<Bases>>,
    /// Somebody began with the newest base.
    pub(crate) joined: bool,
    waiters: Vec<(u64, Waker)>,
    /// The last live answer, which others may ask for too: what it follows, where it ends, its body.
    shared: Option<Box<(ShapeOffset, ShapeOffset, Bytes)>>,
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

impl State {
    /// A live answer that was made already.
    #[must_use]
    pub(crate) fn shared(&self, from: ShapeOffset, end: ShapeOffset, live: bool) -> Option<Bytes> {
        let (known, known_end, body) = self.shared.as_deref()?;
        (live && *known == from && *known_end == end).then(|| body.clone())
    }

    /// Keeps a live answer for others.
    pub(crate) fn share(&mut self, from: ShapeOffset, end: ShapeOffset, body: Bytes) {
        self.shared = Some(Box::new((from, end, body)));
    }

    /// Records changes of one transaction.
    pub(crate) fn push(&mut self, xid: u32, entry: Entry, chunk_bytes: u64) {
        if !self.snapshot_known {
            self.early.push((xid, entry));
            return;
        }
        if let Some(contained) = &self.contained {
            if contained.is_past(entry.lsn) {
                self.contained = None;
            } else if contained.contains(xid, entry.lsn) {
                return;
            }
        }
        // What every base has is not a change any more.
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

    /// From now on who begins gets this base.
    pub(crate) fn show(&mut self, base: Base) {
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

    /// Forgets the changes that no base needs any more.
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
        self.early.first().map(|(_, entry)| entry).or(self.entries.first_after(end)).map(|entry| entry.at)
    }

    /// Where what is known of the log begins: no position before it can be answered.
    #[must_use]
    pub(crate) fn start(&self) -> ShapeOffset {
        self.bases.as_ref().map_or(ShapeOffset::SNAPSHOT_END, |bases| bases.start())
    }

    /// The base that answers who begins.
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

    /// The snapshot was taken: what it contains is not applied.
    pub(crate) fn snapshot_taken(&mut self, snapshot: PgSnapshot, chunk_bytes: u64) {
        self.snapshot_known = true;
        self.contained = Some(Box::new(snapshot.clone()));
        self.snapshot = Some(Box::new(snapshot));
        for (xid, entry) in std::mem::take(&mut self.early) {
            self.push(xid, entry, chunk_bytes);
        }
    }

    /// The shape begins with nothing, or with changes only: no transaction before `lsn` belongs to it.
    #[must_use]
    pub(crate) fn is_live(&self) -> bool {
        matches!(self.phase, Phase::Live)
    }

    /// Where the oldest body lies that the shape needs, in the change log.
    #[must_use]
    pub(crate) fn oldest_body(&self) -> Option<u64> {
        self.early.first().map(|(_, entry)| entry).or(self.entries.first()).map(|entry| entry.at)
    }

    /// The position after everything that there is so far.
    #[must_use]
    pub(crate) fn tail(&self) -> ShapeOffset {
        if self.entries.is_empty() { self.start() } else { self.entries.tail() }
    }

    /// Who waits for news, and does not any more.
    #[must_use]
    pub(crate) fn take_waiters(&mut self) -> Vec<(u64, Waker)> {
        std::mem::take(&mut self.waiters)
    }

    #[must_use]
    pub(crate) fn has_waiters(&self) -> bool {
        !self.waiters.is_empty()
    }

    #[must_use]
    pub(crate) fn waiting(&self) -> usize {
        self.waiters.len()
    }
}

/// A shape. What clients must not see before it is durable is not in here before it is.
pub(crate) struct Shape {
    /// What references name it by.
    pub(crate) number: u64,
    pub(crate) handle: Box<str>,
    pub(crate) definition: Definition,
    pub(crate) identity: Box<str>,
    /// The table's oid.
    pub(crate) table: u32,
    /// The `electric-schema` header, shared by all shapes with these columns of this table.
    pub(crate) schema: Arc<str>,
    state: Mutex<State>,
    used_ms: AtomicU64,
    next_key: AtomicU64,
}

impl Shape {
    pub(crate) fn new(
        number: u64,
        handle: &str,
        definition: Definition,
        identity: &str,
        table: u32,
        schema: Arc<str>,
        state: State,
    ) -> Self {
        Self {
            number,
            handle: handle.into(),
            definition,
            identity: identity.into(),
            table,
            schema,
            state: Mutex::new(state),
            used_ms: AtomicU64::new(0),
            next_key: AtomicU64::new(0),
        }
    }

    /// The handle of those who began with a base.
    pub(crate) fn handle_of(&self, base: u32) -> String {
        Handle::new(&self.handle, base).to_string()
    }

    /// The handle of those who begin now.
    pub(crate) fn newest_handle(&self) -> String {
        self.handle_of(self.lock().newest())
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Changes the state and wakes who waits.
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
        let key = self.next_key.fetch_add(1, Ordering::Relaxed);
        state.waiters.push((key, waker));
        key
    }

    pub(crate) fn forget(&self, key: u64) {
        let mut state = self.state.lock();
        if let Some(at) = state.waiters.iter().position(|(k, _)| *k == key) {
            state.waiters.swap_remove(at);
        }
    }

    /// Somebody asked for it.
    pub(crate) fn used(&self, now_ms: u64) {
        self.used_ms.store(now_ms, Ordering::Relaxed);
    }

    pub(crate) fn used_ms(&self) -> u64 {
        self.used_ms.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        state.snapshot_taken(snapshot, 1000);
        assert_eq!(lsns(&state), [110]);
        // 9 had committed too, 10 had not; they come later.
        state.push(9, entry(150), 1000);
        state.push(10, entry(160), 1000);
        assert_eq!(lsns(&state), [110, 160]);
        // A transaction that committed after the snapshot, although its number is below.
        state.push(11, entry(201), 1000);
        assert_eq!(lsns(&state), [110, 160, 201]);
        assert!(state.contained.is_none());
    }

    #[test]
    fn a_change_wakes_each_waiter_once() {
        let woken = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&woken);
        let waker = Waker::from_fn(move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        let shape = Shape::new(1, "h", Definition::of_table("public", "t"), "", 1, "".into(), State::default());
        let kept = shape.wait(&mut shape.lock(), waker.clone());
        let gone = shape.wait(&mut shape.lock(), waker);
        assert_ne!(kept, gone);
        shape.forget(gone);
        shape.change(|state| state.push(1, entry(1), 10));
        shape.change(|state| state.push(1, entry(2), 10));
        assert_eq!(woken.load(Ordering::Relaxed), 1);
    }
}

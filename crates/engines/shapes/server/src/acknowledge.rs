//! The position that Postgres may be told: the changes before it are durable here.

use crate::server::ShapesServer;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use thalweg_base::Lsn;
use thalweg_pg::PgLsn;

/// The interval between notes of the confirmed position; in between, Postgres keeps a little more of its WAL.
const NOTE_EVERY: Duration = Duration::from_millis(200);

/// Transactions that are noted beside a position: of so many that commit at the same time it is remembered, over a
/// restart, that the stream has brought them before any snapshot shows them.
pub(crate) const NOTED_MAX: usize = 64;

/// Positions of one replication stream that wait until the journal is durable up to them.
pub(crate) struct Acknowledge {
    /// Ends of transactions, each with the end of the journal's frame that must be durable before it is passed.
    waiting: VecDeque<(Lsn, PgLsn)>,
    /// Everything before it is durable.
    passed: PgLsn,
    /// A position, and the frame that notes it.
    noting: Option<(PgLsn, Lsn)>,
    noted: Instant,
    /// Postgres waits for an answer.
    urgent: bool,
    /// The position that Postgres may be told.
    confirmed: PgLsn,
}

impl Acknowledge {
    /// `from`: where the stream starts.
    pub(crate) fn new(from: PgLsn, noted: Instant) -> Self {
        Self { waiting: VecDeque::new(), passed: from, noting: None, noted, urgent: false, confirmed: from }
    }

    /// All changes before `position` are applied; the frames up to `frame` hold their effects.
    pub(crate) fn reached(&mut self, frame: Lsn, position: PgLsn) {
        let before = self.waiting.back().map_or((Lsn::ZERO, self.passed), |last| *last);
        debug_assert!(before.0 <= frame && before.1 <= position, "positions rise with the frames that hold them");
        match self.waiting.back_mut() {
            Some((last, end)) if *last == frame => *end = position,
            _ => self.waiting.push_back((frame, position)),
        }
    }

    /// Has the next position noted without waiting for the interval.
    pub(crate) fn hurry(&mut self) {
        self.urgent = true;
    }

    /// Whether the journal has yet to make a position, or the note of one, durable.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty() || self.noting.is_some()
    }

    /// The position that Postgres may be told: all changes before it are durable, and so is the note of it.
    pub(crate) fn confirmed(&mut self, server: &ShapesServer) -> PgLsn {
        let ShapesServer { lifetime, feed, changes, source, watermarks, .. } = server;
        let (store, clock) = (&changes.store, &*lifetime.clock);
        let durable = store.durable();
        while let Some((_, end)) = self.waiting.pop_front_if(|(frame, _)| *frame <= durable) {
            self.passed = end;
        }
        if let Some((position, _)) = self.noting.take_if(|(_, frame)| *frame <= durable) {
            assert!(self.confirmed <= position && position <= self.passed, "invariant 4: {position} is not durable");
            self.confirmed = position;
        }
        let is_time = self.urgent || clock.since(self.noted) >= NOTE_EVERY;
        if self.passed > self.confirmed && self.noting.is_none() && is_time {
            (self.noted, self.urgent) = (clock.now(), false);
            let recent = feed.lock().recent.last(NOTED_MAX);
            match source.bookmark.acknowledge(store, self.passed, watermarks.anchor(), recent) {
                Ok(frame) => {
                    self.noting = Some((self.passed, frame));
                    store.kick();
                }
                // There will be space again; until then Postgres keeps its log.
                Err(error) => tracing::debug!(%error, "a position cannot be noted"),
            }
        }
        self.confirmed
    }
}

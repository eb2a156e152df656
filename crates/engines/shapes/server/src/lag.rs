//! How far the changes that were applied are behind Postgres's log.
//!
//! The replication stream does not give the end of Postgres's log: its positions are those of sent messages. So a
//! thread queries Postgres at intervals, on a connection of its own, which also detects a server whose queue for
//! queries is full.

use crate::lifetime::Lifetime;
use crate::watermarks::Watermarks;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use thalweg_pg::PgLsn;
use thalweg_shapes_source::error::SourceError;
use thalweg_shapes_source::session::{Endpoint, Session};

/// Between two questions.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// Before a connection that failed is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// How long an answer may take; also how long a stop may have to wait for one.
const PATIENCE: Duration = Duration::from_secs(5);
/// Ends of the log that are remembered with their times; beyond that every second one is forgotten.
const MARKS_MAX: usize = 1024;

/// The part of Postgres's log that is not applied yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Behind {
    /// Of the log as it was when Postgres was asked last.
    pub(crate) bytes: u64,
    /// Since when the oldest part is known that is not applied.
    pub(crate) age: Duration,
    /// Bytes of the log that Postgres keeps for the replication slot.
    pub(crate) kept_bytes: u64,
}

#[derive(Default)]
pub(crate) struct Lag(Mutex<Marks>);

#[derive(Default)]
struct Marks {
    /// Ends of the log that were not applied when they were heard of, oldest first.
    open: VecDeque<(PgLsn, Instant)>,
    end: PgLsn,
    kept_bytes: u64,
}

impl Lag {
    /// Another history begins.
    pub(crate) fn forget(&self) {
        *self.0.lock() = Marks::default();
    }

    /// The log ended at `end`.
    fn heard(&self, end: PgLsn, kept_bytes: u64, processed: PgLsn, now: Instant) {
        let mut marks = self.0.lock();
        (marks.end, marks.kept_bytes) = (end, kept_bytes);
        if end > processed.next() && marks.open.back().is_none_or(|(last, _)| *last < end) {
            if marks.open.len() >= MARKS_MAX {
                let mut odd = false;
                marks.open.retain(|_| {
                    odd = !odd;
                    odd
                });
            }
            marks.open.push_back((end, now));
        }
    }

    /// `processed`: every transaction that commits at or before it was applied.
    pub(crate) fn behind(&self, processed: PgLsn, now: Instant) -> Behind {
        let mut marks = self.0.lock();
        while marks.open.pop_front_if(|(end, _)| *end <= processed.next()).is_some() {}
        Behind {
            // No stream was followed yet: the lag is zero.
            bytes: if processed == PgLsn::ZERO { 0 } else { marks.end.0.saturating_sub(processed.next().0) },
            age: marks.open.front().map_or(Duration::ZERO, |(_, since)| now.saturating_duration_since(*since)),
            kept_bytes: marks.kept_bytes,
        }
    }
}

/// Asks until the server stops. `slot`: the replication slot. `is_following`: whether the stream of changes is open.
pub(crate) fn run(
    lifetime: &Lifetime,
    lag: &Lag,
    watermarks: &Watermarks,
    queries: &Endpoint,
    slot: &str,
    is_following: impl Fn() -> bool,
) {
    let mut session = None;
    while !lifetime.stopping() {
        // The follower tries a database that cannot be reached, at its own pace.
        let answer = if is_following() { ask(queries, slot, &mut session) } else { Err(AskError::NotFollowing) };
        let pause = match answer {
            Ok((end, kept)) => {
                lag.heard(end, kept, watermarks.processed_lsn(), lifetime.clock.now());
                ASK_EVERY
            }
            Err(error) => {
                // The follower warns of a Postgres that is not there.
                tracing::debug!(%error, "Postgres does not say where its log ends");
                session = None;
                RETRY_AFTER
            }
        };
        lifetime.pause(pause);
    }
}

#[derive(Debug, thiserror::Error)]
enum AskError {
    #[error("no changes are followed yet")]
    NotFollowing,
    #[error(transparent)]
    Postgres(#[from] SourceError),
}

/// The end of Postgres's log, and the bytes of it that are kept for the slot.
fn ask(queries: &Endpoint, slot: &str, session: &mut Option<Session>) -> Result<(PgLsn, u64), AskError> {
    let session = match session {
        Some(session) => session,
        None => {
            let connected = queries.patient(PATIENCE).connect();
            session.insert(connected.map_err(SourceError::from)?)
        }
    };
    let (end, kept) = session.wal_end(slot)?;
    Ok((PgLsn(end), kept))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lag_is_the_age_of_the_oldest_part_that_is_not_applied() {
        let (lag, start) = (Lag::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        lag.heard(PgLsn(100), 7, PgLsn(99), at(0));
        assert_eq!(lag.behind(PgLsn(99), at(1)), Behind { bytes: 0, age: Duration::ZERO, kept_bytes: 7 });
        lag.heard(PgLsn(200), 107, PgLsn(99), at(2));
        lag.heard(PgLsn(300), 207, PgLsn(99), at(3));
        assert_eq!(lag.behind(PgLsn(99), at(5)), Behind { bytes: 200, age: Duration::from_secs(3), kept_bytes: 207 });
        assert_eq!(lag.behind(PgLsn(250), at(5)), Behind { bytes: 49, age: Duration::from_secs(2), kept_bytes: 207 });
        assert_eq!(lag.behind(PgLsn(299), at(9)).age, Duration::ZERO);
    }

    #[test]
    fn a_long_standstill_is_remembered_from_its_beginning() {
        let (lag, start) = (Lag::default(), Instant::now());
        for n in 0..10 * MARKS_MAX as u64 {
            lag.heard(PgLsn(100 + n), 0, PgLsn(50), start + Duration::from_secs(n));
        }
        let marks = lag.0.lock().open.len();
        assert!(marks <= MARKS_MAX, "{marks}");
        let seconds = 10 * MARKS_MAX as u64;
        assert_eq!(lag.behind(PgLsn(50), start + Duration::from_secs(seconds)).age, Duration::from_secs(seconds));
    }
}

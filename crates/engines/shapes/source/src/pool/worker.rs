//! One thread with its connection.

use super::{Queued, Shared, State};
use crate::error::SourceError;
use crate::session::Session;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The idle time after which a connection may be lost silently: it is checked before a job gets it. A connection that
/// the server has closed is noticed at once.
const DOUBT_AFTER: Duration = Duration::from_millis(500);
/// The lifetime of a connection: its server process caches every table that it has seen, and a new one begins small.
const LIFETIME: Duration = Duration::from_secs(30 * 60);
/// How long an attempt to connect may take, unless `connect_timeout` is set.
const PATIENCE: Duration = Duration::from_secs(30);

struct Held {
    session: Session,
    made: Instant,
    used: Instant,
}

/// The reason why a job gets no connection.
enum Without {
    /// Other threads have connections, and the server refuses another one.
    Refused,
    Failed(SourceError),
}

/// Runs jobs until the queue was empty for a while.
pub(super) fn work(shared: &Shared) {
    let clock = &*shared.options.endpoint.clock;
    let mut held: Option<Held> = None;
    while let Some(queued) = next(shared) {
        if queued.cancel.is_cancelled() {
            (queued.job)(Err(SourceError::Cancelled));
            continue;
        }
        if held.as_mut().is_some_and(|held| !is_good(held)) {
            drop(held.take());
            shared.state.lock().connected -= 1;
        }
        let mut now = match held.take() {
            Some(held) => held,
            None => match connect(shared) {
                Ok(session) => Held { session, made: clock.now(), used: clock.now() },
                Err(Without::Failed(error)) => {
                    (queued.job)(Err(error));
                    continue;
                }
                Err(Without::Refused) => {
                    let mut state = shared.state.lock();
                    state.workers -= 1;
                    state.jobs.push_front(queued);
                    drop(state);
                    shared.filled.notify_one();
                    return;
                }
            },
        };
        if run(shared, &mut now.session, queued) && clock.since(now.made) < LIFETIME {
            now.used = clock.now();
            held = Some(now);
        } else {
            drop(now);
            shared.state.lock().connected -= 1;
        }
    }
    let had = held.take().is_some();
    let mut state = shared.state.lock();
    state.connected -= usize::from(had);
}

/// The next job; `None`: this thread is to end, and is no longer counted.
fn next(shared: &Shared) -> Option<Queued> {
    let mut state = shared.state.lock();
    loop {
        if let Some(queued) = state.jobs.pop_front() {
            return Some(queued);
        }
        if state.stopping {
            return leave(&mut state);
        }
        state.waiting += 1;
        let timed_out = shared.filled.wait_for(&mut state, shared.options.idle).timed_out();
        state.waiting -= 1;
        if timed_out && state.jobs.is_empty() && state.waiting >= shared.options.kept {
            return leave(&mut state);
        }
    }
}

fn leave(state: &mut State) -> Option<Queued> {
    state.workers -= 1;
    None
}

fn is_good(held: &mut Held) -> bool {
    let is_doubtful = |held: &Held| held.session.has_unread() || held.session.clock.since(held.used) >= DOUBT_AFTER;
    held.session.is_usable() && (!is_doubtful(held) || held.session.is_alive())
}

/// Runs a job. Whether the connection can be used again.
fn run(shared: &Shared, session: &mut Session, queued: Queued) -> bool {
    let Queued { job, cancel } = queued;
    session.cancel = cancel;
    let wanted = session.cancel.begin(session.cancel_token());
    {
        let mut state = shared.state.lock();
        if !wanted || state.stopping {
            drop(state);
            job(Err(SourceError::Cancelled));
            return true;
        }
        state.running.push(Arc::clone(&session.cancel));
    }
    job(Ok(session));
    shared.state.lock().running.retain(|cancel| !Arc::ptr_eq(cancel, &session.cancel));
    // A cancellation may still be under way to the server.
    session.cancel.end() && session.is_usable()
}

fn connect(shared: &Shared) -> Result<Session, Without> {
    let endpoint = &shared.options.endpoint;
    let patience = endpoint.config.connect_timeout.unwrap_or(PATIENCE);
    shared
        .state
        .lock()
        .attempts
        .may_try(endpoint.clock.now(), patience)
        .map_err(|why| Without::Failed(SourceError::Unreachable(why)))?;
    let connected = endpoint.connect();
    let mut state = shared.state.lock();
    match connected {
        Ok(session) => {
            state.attempts.connected();
            state.connected += 1;
            Ok(session)
        }
        Err(error) if error.is_full() && state.connected > 0 => {
            let has = state.connected;
            state.attempts.refused(has, endpoint.clock.now());
            tracing::warn!("Postgres gives no more than {has} connections: {error}");
            Err(Without::Refused)
        }
        Err(error) => {
            let error = error.to_string();
            if state.attempts.health() != (super::Health::Down { error: error.clone() }) {
                tracing::warn!("Postgres cannot be reached: {error}");
            }
            state.attempts.failed(error.clone(), endpoint.clock.now());
            Err(Without::Failed(SourceError::Unreachable(error)))
        }
    }
}

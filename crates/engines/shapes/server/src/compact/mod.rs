//! Keeps shapes' logs short: makes new bases in the background, and gives up changes that only old bases need.
//!
//! A base is published when it is durable; from then on new clients read it. Older bases stay for a while, for clients
//! that began with them or have been away. Then they go in this order: no request is answered from them (409), their
//! logs are deleted, the shape forgets the changes, and the change log is cut where no shape needs it. A restart after
//! a crash between these steps finds at most state that may be deleted.

mod make;
mod pace;
#[cfg(test)]
mod tests;
mod write;

#[cfg(test)]
pub(crate) use thalweg_shapes_core::compact::delta::merged;

use crate::catalog::Catalog;
use crate::change_store::ChangeStore;
use crate::config::ShapesConfig;
use crate::lifetime::Lifetime;
use crate::shape::{Shape, State};
use crate::watermarks::Watermarks;
use make::{Made, MakeError};
use pace::Pace;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use thalweg_shapes_core::compact::body::BodyError;
use thalweg_shapes_core::compact::plan::{Facts, Limits, Urgency};
use thalweg_shapes_model::name::Name;

/// The interval between checks of the queue.
const TICK: Duration = Duration::from_millis(100);
/// Bases that wait together until they are durable.
const TOGETHER: usize = 64;
/// A shape whose base could not be made is left alone for this long.
const REST_MS: u64 = 60_000;
/// The queue's bound; the next search finds the less urgent shapes again.
const QUEUE_MAX: usize = 10_000;
/// Bases of one shape during the time that they are kept, at most about this many.
const BASES_MAX: u64 = 32;

/// The queue of shapes that need a new base, and the parts of the server that a merge needs.
pub(crate) struct Compactor {
    /// The most urgent comes last.
    queue: Mutex<Vec<(Urgency, Arc<Shape>)>>,
    /// Shapes that are left alone, and until when.
    resting: Mutex<HashMap<Name, u64>>,
    /// Changes of a shape are merged into its rows if they are more than this.
    bytes_min: u64,
    /// How long a base is kept after a newer one is shown.
    keep_ms: u64,
    chunk_bytes: u64,
    lifetime: Arc<Lifetime>,
    changes: Arc<ChangeStore>,
    catalog: Arc<Catalog>,
    watermarks: Arc<Watermarks>,
}

/// The part of the change log that a shape holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Where the oldest body lies that is still held.
    pub(crate) held: Option<u64>,
    /// The same, if only the newest base is kept.
    pub(crate) needed: Option<u64>,
    /// There are bases that may go.
    pub(crate) may_leave: bool,
}

impl Compactor {
    pub(crate) fn new(
        config: &ShapesConfig,
        lifetime: Arc<Lifetime>,
        changes: Arc<ChangeStore>,
        catalog: Arc<Catalog>,
        watermarks: Arc<Watermarks>,
    ) -> Self {
        Self {
            queue: Mutex::default(),
            resting: Mutex::default(),
            bytes_min: config.compact_bytes,
            keep_ms: config.log_keep_ms,
            chunk_bytes: config.http.chunk_bytes,
            lifetime,
            changes,
            catalog,
            watermarks,
        }
    }

    /// Notes the merge that a shape needs. Returns the part of the change log that it holds.
    pub(crate) fn consider(
        &self,
        shape: &Arc<Shape>,
        limits: &Limits,
        found: &mut Vec<(Urgency, Arc<Shape>)>,
    ) -> Standing {
        let (standing, facts) = {
            let state = shape.lock();
            (self.standing(&state, limits.now_ms), state.is_live().then(|| facts(&state)))
        };
        if let Some(urgency) = facts.and_then(|facts| limits.urgency(&facts))
            && self.resting.lock().get(&shape.handle).is_none_or(|until| limits.now_ms >= *until)
        {
            found.push((urgency, Arc::clone(shape)));
        }
        standing
    }

    fn standing(&self, state: &State, now_ms: u64) -> Standing {
        let keep_before = now_ms.checked_sub(self.keep_ms);
        Standing {
            held: state.oldest_body(),
            needed: state.oldest_needed(),
            may_leave: match (&state.bases, keep_before) {
                (Some(bases), Some(before)) => bases.may_leave(before),
                _ => false,
            },
        }
    }

    /// The limits that decide which merges are worth doing now. `pressed_before`: shapes that need changes before this
    /// place get a new base.
    pub(crate) fn limits(&self, pressed_before: u64) -> Limits {
        Limits {
            bytes_min: self.bytes_min,
            pressed_before,
            every_ms: self.keep_ms / BASES_MAX,
            now_ms: self.lifetime.now_ms(),
        }
    }

    /// Replaces the queue by the shapes of the last search.
    pub(crate) fn want(&self, mut found: Vec<(Urgency, Arc<Shape>)>) {
        found.sort_unstable_by_key(|(urgency, _)| *urgency);
        if found.len() > QUEUE_MAX {
            found.drain(..found.len() - QUEUE_MAX);
        }
        *self.queue.lock() = found;
    }
}

fn facts(state: &State) -> Facts {
    let newest = state.newest();
    let rows = state.rows(newest).and_then(|rows| rows.chunks.last().copied()).unwrap_or(0);
    Facts {
        rows,
        since: state.since(),
        oldest: state.oldest_needed(),
        joined: state.joined,
        shown_ms: state.bases.as_ref().map(|bases| bases.newest().shown_ms),
    }
}

/// Runs until the server stops.
pub(crate) fn run(compactor: &Compactor) {
    let mut pace = Pace::new(Arc::clone(&compactor.lifetime.clock));
    let mut made: Vec<Made> = Vec::new();
    while !compactor.lifetime.stopping() {
        if !step(compactor, &mut pace, &mut made) {
            compactor.lifetime.clock.sleep(TICK);
        }
    }
}

/// Does the most urgent; whether there was anything to do.
fn step(compactor: &Compactor, pace: &mut Pace, made: &mut Vec<Made>) -> bool {
    let next = compactor.queue.lock().pop();
    let Some((urgency, shape)) = next else {
        show_all(compactor, made);
        return false;
    };
    pace.pressed(matches!(urgency, Urgency::Pressed(_)));
    // It may have been done since it was noted.
    if !made.iter().any(|made| made.shape.number == shape.number) {
        match make::make(compactor, &shape, pace, make::delta_max()) {
            Ok(one) => made.extend(one),
            Err(MakeError::Stopping) => {}
            Err(error) => rest(compactor, &shape, &error),
        }
    }
    if made.len() >= TOGETHER {
        show_all(compactor, made);
    }
    true
}

/// Waits until bases are durable, and shows them.
fn show_all(compactor: &Compactor, made: &mut Vec<Made>) {
    let Some(durable) = made.iter().map(|made| made.durable).max() else { return };
    match compactor.changes.store.wait(durable) {
        Ok(()) => made.drain(..).for_each(|made| make::show(compactor, made)),
        // The journal has failed; the next start reads the stored state.
        Err(error) => {
            tracing::error!(%error, "new bases cannot be made durable");
            made.clear();
        }
    }
}

fn rest(compactor: &Compactor, shape: &Shape, error: &MakeError) {
    let until = if error.is_final() { u64::MAX } else { compactor.lifetime.now_ms() + REST_MS };
    let mut resting = compactor.resting.lock();
    let known = compactor.catalog.registry.read();
    if known.by_name(shape.handle).is_none() {
        return;
    }
    resting.retain(|name, _| known.by_name(*name).is_some());
    let new = resting.insert(shape.handle, until).is_none();
    if !matches!(error, MakeError::Body(BodyError::NotRows)) && new {
        tracing::warn!(handle = %shape.handle, %error, "a shape's log cannot be merged");
    }
}

//! The owners' models at one moment. Each owner answers between two of its steps.

use crate::content::Message;
use crate::model::{Model, Piece, Truth};
use crate::world::World;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Of one owner.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) streams: Vec<Model>,
    /// Paths that were deleted since the snapshot before this one: they may have been made and deleted several times.
    pub(crate) gone: Vec<String>,
}

#[derive(Default)]
pub(crate) struct Snapshots {
    asked: AtomicU64,
    given: Mutex<BTreeMap<u32, (u64, Snapshot)>>,
}

impl Snapshots {
    /// The number of the last question.
    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Acquire)
    }

    pub(crate) fn give(&self, owner: u32, question: u64, snapshot: Snapshot) {
        self.given.lock().unwrap_or_else(PoisonError::into_inner).insert(owner, (question, snapshot));
    }

    /// Asks all owners and waits for their answers; none if the run is over before.
    pub(super) fn take(&self, world: &World, owners: u32) -> Option<Vec<Snapshot>> {
        let question = self.asked.fetch_add(1, Ordering::AcqRel) + 1;
        loop {
            let given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
            if given.values().filter(|(answered, _)| *answered == question).count() == owners as usize {
                return Some(given.values().map(|(_, snapshot)| snapshot.clone()).collect());
            }
            drop(given);
            if world.over() {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Adds an append that never happened to a stream's models, before and after.
pub(super) fn invent(before: &mut [Snapshot], after: &mut [Snapshot]) {
    for (before, after) in before.iter_mut().zip(after) {
        for known in &mut before.streams {
            let Some(later) = after.streams.iter_mut().find(|later| later.path == known.path) else { continue };
            if after.gone.contains(&known.path) || !known.settled() {
                continue;
            }
            let piece = Piece {
                messages: vec![Message { seed: 77, len: 60 }],
                there: Truth::Yes,
                closes: false,
                end: None,
                sent_by: None,
            };
            later.pieces.insert(known.pieces.len(), piece.clone());
            known.pieces.push(piece);
            return;
        }
    }
}

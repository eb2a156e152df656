//! Answers of a remote sink, from the thread that completes an append to the one that takes the writer's steps.

use crate::sink::{Kept, SinkError};
use parking_lot::{Condvar, Mutex};
use thalweg_base::Lsn;

/// The position of an appended batch, and the sink's answer.
pub(crate) type Answer = (Lsn, Result<Kept, SinkError>);

#[derive(Default)]
pub(crate) struct Answers {
    /// Bounded by the appends in flight.
    arrived: Mutex<Vec<Answer>>,
    changed: Condvar,
}

impl Answers {
    pub(crate) fn push(&self, answer: Answer) {
        self.arrived.lock().push(answer);
        self.changed.notify_all();
    }

    pub(crate) fn take(&self) -> Vec<Answer> {
        std::mem::take(&mut *self.arrived.lock())
    }

    /// Waits until an answer is there. For a caller that has appends in flight and drives the journal itself.
    pub(crate) fn wait(&self) {
        let mut arrived = self.arrived.lock();
        while arrived.is_empty() {
            self.changed.wait(&mut arrived);
        }
    }
}

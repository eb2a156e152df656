//! A read as a state machine: attempts at a goal, each from a new snapshot, until content holds still.

use super::asks::{Asks, Mode, Waiting};
use super::stop::Stop;
use crate::attachment::Attachment;
use crate::error::ReadError;
use crate::logs::Logs;
use thalweg_base::{LogId, Offset, Step, Ticket};

/// A reader's place was gone this often in a row. Content moves a few times in its life, not during one read.
const TRIES: u32 = 16;

/// The goal of a read. It holds the read's place and the data so far.
pub(super) trait Goal {
    type Found;

    /// Goes as far as it can with the data that the read has. After [`Stop::Pending`] it is called again, and goes on.
    fn advance<A: Attachment>(&mut self, logs: &Logs<A>, asks: &mut Asks) -> Result<Self::Found, Stop>;

    /// Forgets all that it has found, for another attempt.
    fn start_over(&mut self);

    /// The log and the position that errors name.
    fn place(&self) -> (LogId, Offset);
}

pub(super) struct Attempts<G> {
    goal: G,
    asks: Asks,
    tries: u32,
}

enum Next<T> {
    Done(Result<T, ReadError>),
    WouldWait,
    /// Content moved away again and again.
    Restless,
    Wants(Ticket<()>),
}

impl<G: Goal> Attempts<G> {
    pub(super) fn new(goal: G, mode: Mode) -> Self {
        Self { goal, asks: Asks::new(mode), tries: 0 }
    }

    /// How many maps of objects it holds. For tests.
    #[cfg(feature = "faults")]
    pub(super) fn maps(&self) -> usize {
        self.asks.known.maps()
    }

    /// `None`: it would have to wait.
    pub(super) fn try_once<A: Attachment>(mut self, logs: &Logs<A>) -> Option<Result<G::Found, ReadError>> {
        match self.next(logs) {
            Next::Done(read) => Some(read),
            Next::WouldWait | Next::Restless | Next::Wants(_) => None,
        }
    }

    pub(super) fn block<A: Attachment>(mut self, logs: &Logs<A>) -> Result<G::Found, ReadError> {
        loop {
            match self.step(logs) {
                Step::Done(read) => return read,
                Step::Wants(ticket) => ticket.wait(),
            }
        }
    }

    pub(super) fn step<A: Attachment>(&mut self, logs: &Logs<A>) -> Step<Result<G::Found, ReadError>> {
        match self.next(logs) {
            Next::Done(read) => Step::Done(read),
            Next::Wants(ticket) => Step::Wants(ticket),
            Next::WouldWait | Next::Restless => {
                let (log, offset) = self.goal.place();
                let cause = format!("content moved away {TRIES} times while it was read");
                Step::Done(Err(ReadError::Io { log, offset, cause }))
            }
        }
    }

    fn bug(&self) -> ReadError {
        let (log, offset) = self.goal.place();
        debug_assert!(false, "the read of log {log} at {offset} waits for nothing");
        ReadError::Bug { log, offset, what: "waits for nothing that was asked for" }
    }

    fn next<A: Attachment>(&mut self, logs: &Logs<A>) -> Next<G::Found> {
        loop {
            self.asks.receive(logs);
            let absent = match self.goal.advance(logs, &mut self.asks) {
                Ok(found) => return Next::Done(Ok(found)),
                Err(Stop::Failed(error)) => return Next::Done(Err(error)),
                Err(Stop::WouldWait) => return Next::WouldWait,
                Err(Stop::Pending) => match self.asks.waiting() {
                    Waiting::For(ticket) => return Next::Wants(ticket),
                    Waiting::Arrived => continue,
                    // Cannot be. If it is, the read ends with an error, and does not hang.
                    Waiting::ForNothing => return Next::Done(Err(self.bug())),
                },
                Err(Stop::Moved) => None,
                Err(Stop::Absent(error)) => Some(error),
            };
            self.tries += 1;
            if self.tries == TRIES {
                return absent.map_or(Next::Restless, |error| Next::Done(Err(error)));
            }
            self.goal.start_over();
            self.asks.start_over();
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crate::{LogsOptions, Loss};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use thalweg_journal::{MemoryJournal, Options};
    use thalweg_manifest::MemoryManifest;
    use thalweg_storage::MemoryStorage;

    /// A bug: the read waits, and has requested nothing.
    struct Idle(Arc<AtomicU32>);

    impl Goal for Idle {
        type Found = ();

        fn advance<A: Attachment>(&mut self, _: &Logs<A>, _: &mut Asks) -> Result<(), Stop> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Err(Stop::Pending)
        }

        fn start_over(&mut self) {}

        fn place(&self) -> (LogId, Offset) {
            (LogId(7), Offset(9))
        }
    }

    #[test]
    fn a_read_that_waits_for_nothing_is_a_bug_and_is_not_tried_again() {
        let opening = Logs::<()>::begin(
            LogsOptions::default(),
            Arc::new(MemoryStorage::new()),
            Arc::new(MemoryManifest::default()),
            Loss::Nothing,
        );
        let logs = opening.unwrap().finish(Arc::new(MemoryJournal::new(Options::default()))).unwrap();
        let tried = Arc::new(AtomicU32::new(0));
        let mut read = Attempts::new(Idle(Arc::clone(&tried)), Mode::Ask);
        // A build with assertions stops at once, and any other tells the caller.
        let bug = |step| matches!(step, Step::Done(Err(ReadError::Bug { log: LogId(7), offset: Offset(9), .. })));
        let told = catch_unwind(AssertUnwindSafe(|| bug(read.step(&logs))));
        assert_eq!((told.unwrap_or(cfg!(debug_assertions)), tried.load(Ordering::Relaxed)), (true, 1));
    }
}

//! The requests of one read to the storage and the journal, and their answers.
//!
//! A ticket that is resolved already, as a local storage gives, is taken on the spot. The answer of any other ticket
//! goes to an inbox that the storage's threads share with the read, and wakes the read if it waits. Answers that come
//! after the read was dropped are dropped, too.

use super::arrivals::Arrival;
use super::stop::Miss;
use crate::attachment::Attachment;
use crate::held_bytes::Expected;
use crate::logs::Logs;
use crate::run::{Known, Lack, Pages, RunError};
use bytes::Bytes;
use std::sync::Arc;
use thalweg_base::{Completer, Lsn, Ticket};
use thalweg_journal::{FrameRef, Poisoned, ReadError as JournalError, WaitError};
use thalweg_storage::StorageError;
use thalweg_unit::sync::Mutex;

/// How many parts of indexes are asked for before it is known that the read comes to them.
pub(super) const AHEAD_MAX: usize = 32;

/// The ways in which a read may get data that is not in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Nothing: it gives up. For reactors.
    NoWait,
    /// Ask for it, and go on when it is there. For I/O threads.
    Ask,
    /// Ask for it, and block the thread until it is there.
    Block,
}

/// Names an answer that has not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked(u64);

pub(super) enum Answer {
    Object(Result<Bytes, StorageError>),
    Frames(Result<Vec<Bytes>, JournalError>),
    Written(Result<(), WaitError>),
}

/// An answer, or the name of one that will come.
pub(super) type Given = Result<Answer, Asked>;

pub(super) enum Waiting {
    For(Ticket<()>),
    Arrived,
    ForNothing,
}

pub(super) struct Asks {
    mode: Mode,
    pub(super) known: Known,
    next: u64,
    /// Parts of indexes that were asked for.
    lacks: Vec<(Asked, Lack)>,
    /// Requests that failed. A lookup that needs one of them fails; other lookups go on.
    failed: Vec<(Lack, RunError)>,
    /// Answers that came and were not taken.
    answers: Vec<(Asked, Answer)>,
    inbox: Option<Arc<Inbox>>,
}

#[derive(Default)]
struct Inbox(Mutex<Arrived>);

#[derive(Default)]
struct Arrived {
    answers: Vec<(Asked, Answer)>,
    flying: usize,
    wake: Option<Completer<()>>,
}

impl Inbox {
    fn put(&self, asked: Asked, answer: Answer) {
        let wake = {
            let mut arrived = self.0.lock();
            arrived.flying -= 1;
            arrived.answers.push((asked, answer));
            arrived.wake.take()
        };
        if let Some(wake) = wake {
            wake.complete(());
        }
    }
}

impl Asks {
    pub(super) fn new(mode: Mode) -> Self {
        let (lacks, failed, answers) = (Vec::new(), Vec::new(), Vec::new());
        Self { mode, known: Known::default(), next: 0, lacks, failed, answers, inbox: None }
    }

    /// Forgets all requests: their answers are ignored from here on.
    pub(super) fn start_over(&mut self) {
        *self = Self::new(self.mode);
    }

    /// Gets a part of an index that a lookup lacks. After `Ok` the lookup has it.
    pub(super) fn index<A: Attachment>(&mut self, logs: &Logs<A>, lack: Lack) -> Result<(), Miss> {
        if self.mode == Mode::NoWait {
            // A map takes longer than a reactor has.
            let read =
                if lack.has_map() { None } else { logs.sealed.storage.try_read(lack.object, lack.range.clone()) };
            let read = read.ok_or(Miss::WouldWait)?;
            return logs.sealed.reader.take(&mut self.known, &lack, read).map_err(Miss::Failed);
        }
        if let Some(at) = self.failed.iter().position(|(failed, _)| *failed == lack) {
            return Err(Miss::Failed(self.failed.swap_remove(at).1));
        }
        if self.is_asked(&lack) {
            return Err(Miss::Pending);
        }
        self.ask_index(logs, lack).map_or(Err(Miss::Pending), |(_, taken)| taken.map_err(Miss::Failed))
    }

    /// Asks for a part of an index that a lookup may come to.
    pub(super) fn index_ahead<A: Attachment>(&mut self, logs: &Logs<A>, lack: Lack) {
        let is_failed = self.failed.iter().any(|(failed, _)| *failed == lack);
        if is_failed || self.is_far_ahead() || self.is_asked(&lack) {
            return;
        }
        if let Some((lack, Err(error))) = self.ask_index(logs, lack) {
            self.failed.push((lack, error));
        }
    }

    /// Whether the bound on requests ahead is reached: none more until an answer comes.
    pub(super) fn is_far_ahead(&self) -> bool {
        self.lacks.len() >= AHEAD_MAX
    }

    fn is_asked(&self, lack: &Lack) -> bool {
        self.lacks.iter().any(|(_, asked)| asked == lack)
    }

    fn ask_index<A: Attachment>(&mut self, logs: &Logs<A>, lack: Lack) -> Option<(Lack, Result<(), RunError>)> {
        match logs.sealed.storage.read(lack.object, lack.range.clone()).take() {
            Ok(read) => {
                let taken = logs.sealed.reader.take(&mut self.known, &lack, read);
                Some((lack, taken))
            }
            Err(ticket) => {
                let asked = self.send(ticket, None, Answer::Object);
                self.lacks.push((asked, lack));
                None
            }
        }
    }

    /// Pages of data. Memory for those that come later is counted from here on.
    pub(super) fn data<A: Attachment>(&mut self, logs: &Logs<A>, pages: &Pages) -> Result<Given, Miss> {
        let storage = &logs.sealed.storage;
        if self.mode == Mode::NoWait {
            let read = storage.try_read(pages.object(), pages.range.clone()).ok_or(Miss::WouldWait)?;
            return Ok(Ok(Answer::Object(read)));
        }
        Ok(match storage.read(pages.object(), pages.range.clone()).take() {
            Ok(read) => Ok(Answer::Object(read)),
            Err(ticket) => {
                let expected = logs.chunk_cache.held_bytes.expect(pages.range.end - pages.range.start);
                Err(self.send(ticket, Some(expected), Answer::Object))
            }
        })
    }

    pub(super) fn frames<A: Attachment>(&mut self, logs: &Logs<A>, frames: &[FrameRef]) -> Result<Given, Miss> {
        if self.mode == Mode::NoWait {
            let read = logs.journal.try_read(frames).ok_or(Miss::WouldWait)?;
            return Ok(Ok(Answer::Frames(read)));
        }
        Ok(match logs.journal.read(frames).take() {
            Ok(read) => Ok(Answer::Frames(read)),
            Err(ticket) => Err(self.send(ticket, None, Answer::Frames)),
        })
    }

    /// Asks when the journal is written up to there.
    pub(super) fn written<A: Attachment>(&mut self, logs: &Logs<A>, upto: Lsn) -> Result<Given, Miss> {
        match self.mode {
            Mode::NoWait => Err(Miss::WouldWait),
            Mode::Block => Ok(Ok(Answer::Written(logs.journal.wait_unless_full(upto)))),
            Mode::Ask => {
                let wrap = |arrival: Arrival| Answer::Written(arrival.map_err(|error: Poisoned| error.into()));
                Ok(Err(self.send(logs.arrivals.written(logs.journal.as_ref(), upto), None, wrap)))
            }
        }
    }

    fn send<T: Send + 'static>(
        &mut self,
        ticket: Ticket<T>,
        expected: Option<Expected>,
        wrap: impl FnOnce(T) -> Answer + Send + 'static,
    ) -> Asked {
        let asked = Asked(self.next);
        self.next += 1;
        let inbox = Arc::clone(self.inbox.get_or_insert_with(Arc::default));
        inbox.0.lock().flying += 1;
        ticket.then(move |value| {
            inbox.put(asked, wrap(value));
            drop(expected);
        });
        asked
    }

    /// Takes the answers that have come.
    pub(super) fn receive<A: Attachment>(&mut self, logs: &Logs<A>) {
        let Some(inbox) = &self.inbox else { return };
        let arrived = std::mem::take(&mut inbox.0.lock().answers);
        for (asked, answer) in arrived {
            let lack = self.lacks.iter().position(|(of, _)| *of == asked).map(|at| self.lacks.swap_remove(at).1);
            match (lack, answer) {
                (Some(lack), Answer::Object(read)) => {
                    if let Err(error) = logs.sealed.reader.take(&mut self.known, &lack, read) {
                        self.failed.push((lack, error));
                    }
                }
                (_, answer) => self.answers.push((asked, answer)),
            }
        }
    }

    /// An answer that has come.
    pub(super) fn answer(&mut self, asked: Asked) -> Given {
        let at = self.answers.iter().position(|(of, _)| *of == asked).ok_or(asked)?;
        Ok(self.answers.swap_remove(at).1)
    }

    /// The requests that the read waits for now.
    pub(super) fn waiting(&self) -> Waiting {
        let Some(inbox) = &self.inbox else { return Waiting::ForNothing };
        let mut arrived = inbox.0.lock();
        if !arrived.answers.is_empty() {
            return Waiting::Arrived;
        }
        if arrived.flying == 0 {
            return Waiting::ForNothing;
        }
        let (ticket, completer) = Ticket::pending();
        arrived.wake = Some(completer);
        Waiting::For(ticket)
    }
}

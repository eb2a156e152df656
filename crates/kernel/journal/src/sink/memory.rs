//! A remote sink in memory, for tests and simulations: shared by its owners, with a network between them that is late,
//! unordered and lossy.
//!
//! Every append is a *message*. A message that arrives is judged by the store, and its answer goes back; both ways may
//! lose it. With [`Network::Held`] the seed decides the fate of each message when [`MemorySink::deliver`] is called,
//! and nothing else happens: no thread and no clock. With [`Network::After`] a thread delivers each message after a
//! time, and loses none.

use crate::Faults;
use crate::sink::{Fenced, Kept, Piece, Sink, SinkBatch, SinkError, Term};
use bytes::Bytes;
use oorandom::Rand64;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thalweg_base::{Completer, Lsn, Ticket};

/// How messages travel.
#[derive(Clone, Copy, Debug)]
pub enum Network {
    /// One at a time, chosen by the seed, when a test says so. Of 100 messages `lost` are, `unanswered` arrive and lose
    /// their answer, and `repeated` arrive a second time, at any time later.
    Held { lost: u64, unanswered: u64, repeated: u64 },
    /// Each after `delay`, or up to `spread` later: then they overtake each other.
    After { delay: Duration, spread: Duration },
}

/// One owner's view of a store that several may share: a clone is the view of another.
#[derive(Clone)]
pub struct MemorySink {
    shared: Arc<Shared>,
    in_flight_max: usize,
    _timer: Option<Arc<Timer>>,
}

struct Shared {
    network: Network,
    faults: Faults,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    batches: BTreeMap<Lsn, (Term, Bytes)>,
    /// The term that fenced it last.
    fenced: Option<Term>,
    messages: Vec<Message>,
    random: Rand64,
    stopped: bool,
}

type Answer = Result<Kept, SinkError>;

struct Message {
    due: Option<Instant>,
    batch: SinkBatch,
    /// `None` for one that arrives a second time.
    answer: Option<Completer<Answer>>,
}

/// Ends the delivering thread with the last view.
struct Timer {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl MemorySink {
    /// An empty store. A view keeps `in_flight_max` appends in flight at most.
    ///
    /// # Panics
    ///
    /// If the delivering thread cannot be started.
    #[must_use]
    pub fn new(network: Network, in_flight_max: usize, seed: u64, faults: Faults) -> Self {
        let state = State {
            batches: BTreeMap::new(),
            fenced: None,
            messages: Vec::new(),
            random: Rand64::new(u128::from(seed)),
            stopped: false,
        };
        let shared = Arc::new(Shared { network, faults, state: Mutex::new(state), changed: Condvar::new() });
        let timer = matches!(network, Network::After { .. }).then(|| {
            let run = Arc::clone(&shared);
            let thread = std::thread::Builder::new().name("memory-sink".into()).spawn(move || run.run_timer());
            let thread = thread.unwrap_or_else(|error| panic!("the timer of a sink in memory: {error}"));
            Arc::new(Timer { shared: Arc::clone(&shared), thread: Mutex::new(Some(thread)) })
        });
        Self { shared, in_flight_max, _timer: timer }
    }

    /// Delivers, repeats or loses one message in flight, or its answer, as the seed decides; whether there was one.
    pub fn deliver(&self) -> bool {
        let mut state = self.shared.state.lock();
        let Network::Held { lost, unanswered, repeated } = self.shared.network else { return false };
        let waiting = state.messages.len() as u64;
        if waiting == 0 {
            return false;
        }
        let chosen = state.random.rand_range(0..waiting) as usize;
        let Message { batch, answer, .. } = state.messages.swap_remove(chosen);
        let fate = state.random.rand_range(0..100);
        let unknown = || Err(SinkError::Unknown { cause: "no answer in time".to_owned() });
        let outcome = if answer.is_some() && fate < lost {
            unknown()
        } else {
            let kept = state.keep(&batch, self.shared.faults);
            if answer.is_some() && fate < lost + unanswered { unknown() } else { kept }
        };
        if answer.is_some() && state.random.rand_range(0..100) < repeated {
            state.messages.push(Message { due: None, batch, answer: None });
        }
        drop(state);
        if let Some(answer) = answer {
            answer.complete(outcome);
        }
        true
    }

    /// The number of messages in flight, those of dead owners included.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.shared.state.lock().messages.len()
    }

    /// Every batch that is kept: its position, its length, and its owner's term.
    #[must_use]
    pub fn kept(&self) -> Vec<(Lsn, usize, u64)> {
        let state = self.shared.state.lock();
        state.batches.iter().map(|(at, (term, bytes))| (*at, bytes.len(), term.number)).collect()
    }
}

impl State {
    fn end_of(&self, at: Lsn) -> Option<Lsn> {
        self.batches.get(&at).map(|(_, bytes)| at.plus(bytes.len() as u64))
    }

    fn keep(&mut self, batch: &SinkBatch, faults: Faults) -> Answer {
        if let Some(by) = self.fenced.filter(|by| by.number > batch.term.number)
            && !faults.stale_term_accepted()
        {
            return Err(Fenced { term: batch.term.number, by: by.number }.into());
        }
        if let Some((term, bytes)) = self.batches.get(&batch.at)
            && (term, bytes) == (&batch.term, &batch.bytes)
        {
            return Ok(Kept::Durable);
        }
        let before = self.batches.range(..batch.end()).next_back().map(|(at, _)| *at);
        if let Some(end) = before.and_then(|at| self.end_of(at))
            && end > batch.at
        {
            return Err(SinkError::failed("append", format!("the place of the batch at {} is taken", batch.at)));
        }
        self.batches.insert(batch.at, (batch.term, batch.bytes.clone()));
        Ok(Kept::Durable)
    }

    fn is_owner(&self, term: Term) -> Result<(), Fenced> {
        match self.fenced {
            Some(by) if by != term => Err(Fenced { term: term.number, by: by.number }),
            _ => Ok(()),
        }
    }

    /// Whole batches from the one that holds the first position.
    fn pieces(&self, range: &Range<Lsn>) -> Result<Vec<Piece>, SinkError> {
        let first = self.batches.range(..=range.start).next_back().map(|(at, _)| *at);
        let mut at = first.filter(|at| self.end_of(*at) > Some(range.start)).ok_or(SinkError::Missing(range.start))?;
        let mut pieces = Vec::new();
        while let Some((term, bytes)) = self.batches.get(&at)
            && at < range.end
        {
            // A copy: an answer owns its bytes.
            pieces.push(Piece::new(at, *term, Bytes::copy_from_slice(bytes)));
            at = at.plus(bytes.len() as u64);
        }
        Ok(pieces)
    }
}

impl Shared {
    /// Delivers the answers that are due, until the last view is dropped.
    fn run_timer(&self) {
        let mut state = self.state.lock();
        while !state.stopped {
            let first = (0..state.messages.len()).min_by_key(|at| state.messages[*at].due);
            let now = Instant::now();
            match first.map(|at| (at, state.messages[at].due.unwrap_or(now))) {
                Some((at, due)) if due <= now => {
                    let Message { batch, answer, .. } = state.messages.swap_remove(at);
                    let kept = state.keep(&batch, self.faults);
                    drop(state);
                    if let Some(answer) = answer {
                        answer.complete(kept);
                    }
                    state = self.state.lock();
                }
                Some((_, due)) => {
                    self.changed.wait_until(&mut state, due);
                }
                None => self.changed.wait(&mut state),
            }
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.shared.state.lock().stopped = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.lock().take()
            // The last view may be dropped by an answer, on that very thread.
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

impl Sink for MemorySink {
    const LOCAL: bool = false;

    fn in_flight_max(&self) -> usize {
        self.in_flight_max
    }

    fn append(&self, batch: SinkBatch) -> Ticket<Answer> {
        let (ticket, answer) = Ticket::pending();
        let mut state = self.shared.state.lock();
        let due = match self.shared.network {
            Network::Held { .. } => None,
            Network::After { delay, spread } => {
                let late = spread.mul_f64(state.random.rand_float());
                Some(Instant::now() + delay + late)
            }
        };
        state.messages.push(Message { due, batch, answer: Some(answer) });
        self.shared.changed.notify_all();
        ticket
    }

    fn fence(&self, term: Term) -> Ticket<Result<(), SinkError>> {
        let mut state = self.shared.state.lock();
        let kept = state.batches.values().map(|(term, _)| term.number).max();
        let before = state.fenced.map(|before| before.number).max(kept);
        if state.fenced != Some(term)
            && let Some(by) = before.filter(|before| *before >= term.number)
        {
            return Ticket::ready(Err(Fenced { term: term.number, by }.into()));
        }
        state.fenced = Some(term);
        Ticket::ready(Ok(()))
    }

    fn read(&self, range: Range<Lsn>) -> Ticket<Result<Vec<Piece>, SinkError>> {
        Ticket::ready(self.shared.state.lock().pieces(&range))
    }

    fn trim(&self, upto: Lsn, synced: Lsn) {
        let mut state = self.shared.state.lock();
        // The last batch stays: it says where the journal goes on.
        while let Some(first) = state.batches.first_key_value().map(|(at, _)| *at)
            && state.end_of(first).is_some_and(|end| end <= upto && end < synced)
        {
            state.batches.pop_first();
        }
    }

    fn truncate(&self, from: Lsn, term: Term) -> Ticket<Result<(), SinkError>> {
        let mut state = self.shared.state.lock();
        if let Err(fenced) = state.is_owner(term) {
            return Ticket::ready(Err(fenced.into()));
        }
        state.batches.split_off(&from);
        Ticket::ready(Ok(()))
    }
}

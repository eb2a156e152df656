//! The simulation of owners that follow each other on one remote sink: several batches in flight, answers in any order,
//! messages that are lost, repeated or late, and owners that die or go on without knowing that they are deposed. For the
//! tests of every remote sink.

use crate::{
    AppendError, Bounds, Class, Fenced, FrameRef, Journal, MemorySink, Options, Poisoned, ReadError, Sequencer, Sink,
    TakeOverError,
};
use oorandom::Rand64;
use std::collections::BTreeMap;
use thalweg_base::{Durability, Lsn};

/// A place for batches that several owners share, with messages to it that a test delivers.
pub trait SimulatedStore {
    /// One owner's view.
    type View: Sink;

    /// The view of another owner.
    fn view(&self) -> Self::View;

    /// Delivers one message, or lets time pass; whether there was one.
    fn deliver(&self) -> bool;

    /// Messages on their way.
    fn in_flight(&self) -> usize;

    /// Whether a batch at `end` or behind it would be read.
    fn is_kept_behind(&self, end: Lsn) -> bool;

    /// Lets days pass, if the store has a clock that counts; what happened then.
    fn pass(&self, _days: u64) -> Option<&'static str> {
        None
    }

    /// Whether days are to pass now and then.
    const HAS_DAYS: bool = false;
}

impl SimulatedStore for MemorySink {
    type View = Self;

    fn view(&self) -> Self {
        self.clone()
    }

    fn deliver(&self) -> bool {
        Self::deliver(self)
    }

    fn in_flight(&self) -> usize {
        Self::in_flight(self)
    }

    fn is_kept_behind(&self, end: Lsn) -> bool {
        self.kept().iter().any(|(at, ..)| *at >= end)
    }
}

#[derive(Clone, PartialEq, Debug)]
struct Frame {
    frame: FrameRef,
    payload: Vec<u8>,
}

/// One opening, alive or deposed without knowing it.
struct Opening<S: Sink> {
    journal: Sequencer<S>,
    /// The frames that this owner accepted, in order.
    accepted: Vec<Frame>,
    /// How many of these it has acknowledged.
    acknowledged: usize,
}

/// How often each event came in a history.
#[derive(Debug, Default)]
pub struct Tally(pub BTreeMap<&'static str, u64>);

impl Tally {
    fn note(&mut self, event: &'static str) {
        *self.0.entry(event).or_default() += 1;
    }
}

struct World<'a, S: SimulatedStore> {
    rng: Rand64,
    store: &'a S,
    options: Options,
    is_planted: bool,
    owners: Vec<Opening<S::View>>,
    /// The frames that any owner acknowledged, from the floor on.
    truth: BTreeMap<Lsn, Frame>,
    /// The frames of the last take-over and those that its owner has accepted since: the only history.
    history: Vec<Frame>,
    floor: Lsn,
    term: u64,
    /// The term of the last owner that opened the journal.
    claimed: u64,
    counter: u64,
    tally: Tally,
}

type Check = Result<(), String>;

/// Options that a seed chooses: small and large batches, bounds and windows.
#[must_use]
pub fn options_of(seed: u64) -> Options {
    let mut rng = Rand64::new(u128::from(seed) << 1 | 1);
    let mut pick = |n: u64| rng.rand_range(0..n) as usize;
    Options {
        max_payload: 300,
        batch_bytes: [1, 200, 4000][pick(3)],
        bound_bytes: [2000, 100_000][pick(2)],
        window_bytes: [0, 500, 1 << 20][pick(3)],
        ..Options::default()
    }
}

/// Plays one history. `is_planted`: a fault is planted, which may leave batches behind the end.
pub fn play<S: SimulatedStore>(store: &S, seed: u64, options: Options, is_planted: bool) -> Result<Tally, String> {
    let mut rng = Rand64::new(u128::from(seed) << 2 | 3);
    let steps = 40 + rng.rand_range(0..160);
    let mut world = World {
        store,
        rng,
        options,
        is_planted,
        owners: Vec::new(),
        truth: BTreeMap::new(),
        history: Vec::new(),
        floor: Lsn::ZERO,
        term: 0,
        claimed: 0,
        counter: 0,
        tally: Tally::default(),
    };
    world.take_over()?;
    for step in 0..steps {
        world.step().map_err(|why| format!("step {step}: {why}"))?;
        world.acknowledge().map_err(|why| format!("step {step}: {why}"))?;
    }
    world.take_over().map_err(|why| format!("at the end: {why}"))?;
    Ok(world.tally)
}

impl<S: SimulatedStore> World<'_, S> {
    fn pick(&mut self, n: u64) -> u64 {
        self.rng.rand_range(0..n)
    }

    /// One of the owners: mostly the newest, which is the only one that may get anywhere.
    fn any_owner(&mut self) -> usize {
        let last = self.owners.len() - 1;
        if self.pick(4) == 0 { self.pick(last as u64 + 1) as usize } else { last }
    }

    fn step(&mut self) -> Check {
        if S::HAS_DAYS && self.pick(25) == 0 {
            let days = [1, 3, 7, 8][self.pick(4) as usize];
            if let Some(event) = self.store.pass(days) {
                self.tally.note(event);
            }
            if self.pick(2) == 0 {
                return self.wake();
            }
        }
        match self.pick(100) {
            0..30 => {
                let owner = self.any_owner();
                self.append(owner)
            }
            30..55 => {
                let owner = self.any_owner();
                self.drive(owner)
            }
            55..85 => {
                self.store.deliver();
                Ok(())
            }
            85..92 => self.read(),
            92..95 => {
                self.trim();
                Ok(())
            }
            95..97 => {
                // An owner dies; its messages are still delivered.
                let dead = self.any_owner();
                if self.owners.len() > 1 && dead + 1 < self.owners.len() {
                    self.owners.remove(dead);
                    self.tally.note("a deposed owner died");
                }
                Ok(())
            }
            _ => self.take_over(),
        }
    }

    /// The owner that was idle writes, and may be deposed while it does; its successor gets on, and trims.
    fn wake(&mut self) -> Check {
        for deliveries in [12, 40] {
            let owner = self.owners.len() - 1;
            for _ in 0..1 + self.pick(6) {
                self.append(owner)?;
                self.drive(owner)?;
            }
            for _ in 0..self.pick(deliveries) {
                self.store.deliver();
            }
            self.drive(owner)?;
            self.acknowledge()?;
            self.trim();
            self.take_over()?;
        }
        Ok(())
    }

    fn is_newest(&self, owner: usize) -> bool {
        owner + 1 == self.owners.len()
    }

    /// Only a deposed owner may be stopped, and only by its successor.
    fn check_stopped(&mut self, owner: usize, poisoned: &Poisoned) -> Check {
        if self.is_newest(owner) {
            return Err(format!("the owner itself was stopped: {poisoned}"));
        }
        match poisoned.fenced {
            Some(Fenced { term, by }) if term == self.owners[owner].journal.term() && by <= self.term => {
                self.tally.note("a deposed owner was stopped");
                Ok(())
            }
            _ => Err(format!("a deposed owner was stopped by something else: {poisoned}")),
        }
    }

    fn append(&mut self, owner: usize) -> Check {
        for _ in 0..1 + self.pick(4) {
            self.counter += 1;
            let len = [0, 8, 40, 40, 300][self.pick(5) as usize];
            let mark = [self.owners[owner].journal.term(), self.counter].map(u64::to_le_bytes).concat();
            let payload: Vec<u8> = mark.into_iter().cycle().take(len).collect();
            let durability = if self.pick(4) == 0 { Durability::Buffered } else { Durability::Durable };
            match self.owners[owner].journal.append_as(durability, Class::User, &[&payload]) {
                Ok(appended) => {
                    let frame = Frame { frame: appended.frame, payload };
                    if self.is_newest(owner) {
                        self.history.push(frame.clone());
                    }
                    self.owners[owner].accepted.push(frame);
                }
                Err(AppendError::Full { .. }) => self.tally.note("full"),
                Err(AppendError::Poisoned(poisoned)) => return self.check_stopped(owner, &poisoned),
                Err(error) => return Err(format!("append: {error}")),
            }
        }
        Ok(())
    }

    fn drive(&mut self, owner: usize) -> Check {
        match self.owners[owner].journal.step() {
            Ok(_) => Ok(()),
            Err(poisoned) => self.check_stopped(owner, &poisoned),
        }
    }

    /// Durable frames are acknowledged, and must survive from here on.
    fn acknowledge(&mut self) -> Check {
        if self.store.in_flight() > 1 {
            self.tally.note("several in flight");
        }
        let (floor, owners) = (self.floor, self.owners.len());
        for owner in 0..owners {
            let Opening { journal, accepted, acknowledged } = &mut self.owners[owner];
            let durable = journal.durable();
            assert!(durable <= journal.written() && journal.written() <= journal.end());
            while let Some(frame) = accepted.get(*acknowledged).filter(|frame| frame.frame.end() <= durable) {
                *acknowledged += 1;
                if frame.frame.lsn >= floor {
                    if let Some(other) = self.truth.insert(frame.frame.lsn, frame.clone())
                        && other != *frame
                    {
                        return Err(format!("two owners have acknowledged different frames at {}", frame.frame.lsn));
                    }
                    if owner + 1 < owners && !self.history.contains(frame) {
                        return Err(format!("a deposed owner has acknowledged {:?}, which is gone", frame.frame));
                    }
                }
            }
        }
        Ok(())
    }

    fn read(&mut self) -> Check {
        let owner = self.owners.len() - 1;
        let Some(at) = self.history.len().checked_sub(1) else { return Ok(()) };
        let at = self.pick(at as u64 + 1) as usize;
        let chosen: Vec<Frame> = self.history[at..].iter().take(3).cloned().collect();
        let journal = &self.owners[owner].journal;
        let frames: Vec<FrameRef> = chosen.iter().map(|frame| frame.frame).collect();
        match journal.read(&frames).wait() {
            Ok(payloads) if payloads.iter().eq(chosen.iter().map(|frame| &frame.payload)) => Ok(()),
            Err(ReadError::NotWritten(_)) if frames.iter().any(|f| f.end() > journal.written()) => Ok(()),
            Err(ReadError::Trimmed(at)) if at < journal.start() => Ok(()),
            other => Err(format!("{frames:?} were read as {other:?}")),
        }
    }

    fn trim(&mut self) {
        let journal = &self.owners[self.owners.len() - 1].journal;
        let durable = journal.durable();
        let done: Vec<Lsn> = self.history.iter().map(|frame| frame.frame.end()).filter(|end| *end <= durable).collect();
        if done.is_empty() {
            return;
        }
        let floor = done[self.rng.rand_range(0..done.len() as u64) as usize];
        self.floor = self.floor.max(floor);
        journal.trim(self.floor);
        let floor = self.floor;
        self.truth.retain(|lsn, _| *lsn >= floor);
        self.history.retain(|frame| frame.frame.lsn >= floor);
    }

    /// Another owner opens the journal, whatever the one before is doing.
    fn take_over(&mut self) -> Check {
        if self.pick(5) == 0 && self.term > 0 {
            self.refused_take_over()?;
        }
        self.term += 1 + self.pick(3);
        self.options.salt = self.rng.rand_u64();
        let known_durable = if self.pick(2) == 0 { self.newest_truth() } else { Lsn::ZERO };
        let bounds = Bounds { floor: self.floor, known_durable, term: self.claimed };
        let mut found = Vec::new();
        let refuse = if self.pick(10) == 0 { 1 + self.pick(3) as usize } else { usize::MAX };
        let journal =
            Sequencer::take_over(self.store.view(), self.options, bounds, self.term, &mut |frame, payload| {
                found.push(Frame { frame, payload: payload.to_vec() });
                if found.len() == refuse { Err("it dies while it replays") } else { Ok(()) }
            });
        let journal = match journal {
            Ok(journal) => journal,
            // It has fenced the sink already: the next one goes on from there.
            Err(TakeOverError::Replay { .. }) => {
                self.tally.note("died while taking over");
                return self.take_over();
            }
            Err(error) => return Err(format!("taking over: {error}")),
        };
        self.compare(&found, journal.opened().end)?;
        if self.owners.len() > 1 {
            self.tally.note("several deposed owners");
        }
        (self.history, self.claimed) = (found, self.term);
        self.owners.push(Opening { journal, accepted: Vec::new(), acknowledged: 0 });
        if self.pick(2) == 0 && self.owners.len() > 1 {
            // The owner before died, and that is why.
            self.owners.remove(self.owners.len() - 2);
        }
        Ok(())
    }

    fn newest_truth(&self) -> Lsn {
        self.truth.last_key_value().map_or(Lsn::ZERO, |(_, frame)| frame.frame.end())
    }

    /// A term that was used already opens nothing, and changes nothing.
    fn refused_take_over(&mut self) -> Check {
        let term = 1 + self.pick(self.term);
        let options = Options { salt: self.rng.rand_u64(), ..self.options };
        let bounds = Bounds { floor: self.floor, ..Bounds::default() };
        match Sequencer::take_over(self.store.view(), options, bounds, term, &mut |_, _| Ok::<(), String>(())) {
            Err(TakeOverError::Fenced(Fenced { term: refused, .. })) if refused == term => {
                self.tally.note("an old term was refused");
                Ok(())
            }
            Ok(_) => Err(format!("term {term} was accepted after term {}", self.term)),
            Err(error) => Err(format!("an old term: {error}")),
        }
    }

    /// Every acknowledged frame is found, and every found frame was accepted, once, in order.
    fn compare(&mut self, found: &[Frame], end: Lsn) -> Check {
        for pair in found.windows(2) {
            if pair[1].frame.lsn < pair[0].frame.end() {
                return Err(format!("{:?} and {:?} overlap", pair[0].frame, pair[1].frame));
            }
        }
        for (known, read) in self.history.iter().zip(found) {
            if known != read {
                return Err(format!("{:?} was replayed in place of {:?}", read.frame, known.frame));
            }
        }
        if let Some(invented) = found.get(self.history.len()) {
            return Err(format!("{:?} was replayed and never accepted by the last owner", invented.frame));
        }
        let replayed: BTreeMap<Lsn, &Frame> = found.iter().map(|frame| (frame.frame.lsn, frame)).collect();
        if let Some((lsn, _)) = self.truth.iter().find(|(lsn, frame)| replayed.get(lsn) != Some(frame)) {
            return Err(format!("the frame at {lsn} was acknowledged and is gone; the journal ends at {end}"));
        }
        if self.history.len() > found.len() {
            self.tally.note("an unacknowledged tail was lost");
        }
        if !self.is_planted && self.store.is_kept_behind(end) {
            return Err(format!("a batch is kept behind the end {end}"));
        }
        Ok(())
    }
}

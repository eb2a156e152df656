//! A journal's batches in a bucket: one object each, under numbers that rise by one.
//!
//! *Who may write.* A number is free until an object has it, and the bucket lets one writer have it. A take-over writes
//! a *fence* under the first free number. The owner before cannot write that number any more, and it acknowledges a
//! batch only when every object with a lower number of its own is written: so it acknowledges nothing from the fence on,
//! whenever its requests arrive, and however long it was stopped. Terms are in the bytes, never in the keys. An owner
//! that lives and writes may have the first free number before each attempt: it runs into a second fence, further on.
//!
//! *What counts.* Objects are read in order of their numbers. One whose term is below that of an object before it is
//! *void*: a deposed owner's, that came late. An owner that meets one under its next number takes the number after it.
//! A *cut* says that batches from a position on, in objects before it, are not part of the journal: those behind the
//! first hole that a take-over found.
//!
//! *What goes.* Every object names the *floor*: no object with a lower number is needed. Objects below it are removed
//! when an object that names it is written, but never the last one. Fences stay, and so does what a take-over finds void,
//! until all owners that could write their numbers were deposed [`SinkOptions::stay`] ago: a number that was freed could be
//! written by an owner that has slept since, and all that it wrote behind it would be acknowledged. Where owners follow
//! each other and write little, a take-over *carries* the batches over the fences: it writes them again under its own
//! numbers, and names those as floor.

mod reach;
pub(crate) mod record;
#[cfg(test)]
mod tests;

use crate::bucket::{Bucket, Listed, Part, PutNew};
use crate::error::BucketError;
use crate::faults::Faults;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use reach::Reach;
use record::{HEAD_BYTES, Head, Record, What, key, number_of};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use thalweg_base::{Completer, Lsn, Ticket, crc};
use thalweg_journal::{Fenced, Kept, Piece, Sink, SinkBatch, SinkError, Survey, Term, known_durable};
use tokio::time::Instant;

pub use record::fuzz_record;

/// No process wakes up so long after it was deposed and still has a request under way.
const STAY: Duration = Duration::from_secs(7 * 24 * 3600);

/// How many batches behind a hole are read for what was durable when they were sent: more than an owner has under way.
const GAP_READS: usize = 16;

/// Objects that are read at the same time.
const READS_AT_ONCE: usize = 16;

/// The pause before an append is answered that the credentials do not permit.
const DENIED_PAUSE: Duration = Duration::from_secs(1);

/// About how many bytes one read gives.
const READ_BYTES: u64 = 8 << 20;

/// More batches, or more bytes of them, are not carried: their unit is not idle, and its floor will rise.
const CARRIED_BATCHES: usize = 16;
const CARRIED_BYTES: u64 = 4 << 20;

/// How a sink writes.
#[derive(Clone, Copy, Debug)]
pub struct SinkOptions {
    /// Batches that are under way at the same time. At least 1.
    pub in_flight_max: usize,
    /// An append whose object is not written within this time is answered as unknown. The journal repeats it.
    pub answer_within: Duration,
    /// A take-over that finds more fences above the floor carries the batches over them.
    pub fences_max: usize,
    /// How long after it was deposed, by the bucket's clock, an owner may still complete a write.
    pub stay: Duration,
    /// Faults to plant.
    #[cfg(feature = "faults")]
    pub faults: Faults,
}

impl Default for SinkOptions {
    fn default() -> Self {
        Self {
            in_flight_max: 8,
            answer_within: Duration::from_secs(10),
            fences_max: 16,
            stay: STAY,
            #[cfg(feature = "faults")]
            faults: Faults::default(),
        }
    }
}

impl SinkOptions {
    fn faults(self) -> Faults {
        #[cfg(feature = "faults")]
        return self.faults;
        #[cfg(not(feature = "faults"))]
        Faults
    }
}

type Answer = Result<Kept, SinkError>;

/// The objects `j/<unit>/<number, 20 digits>` of a bucket.
#[derive(Clone)]
pub struct ObjectSink(Arc<Inner>);

struct Inner {
    bucket: Bucket,
    folder: String,
    options: SinkOptions,
    state: Mutex<State>,
    /// What the last look has found that was not followed by a fence.
    seen: Mutex<Found>,
}

#[derive(Default)]
struct State {
    /// The opening that may append.
    term: Option<Term>,
    /// A later owner, once one was met.
    fenced: Option<Fenced>,
    /// The number of the next object.
    next: u64,
    /// No object with a lower number is needed.
    floor: u64,
    /// The highest floor that a written object names.
    named_floor: u64,
    batches: BTreeMap<Lsn, Batch>,
    /// The numbers of the objects that are in the bucket, without fences.
    stored: BTreeSet<u64>,
    /// Objects of this opening that are not written, or follow one that is not.
    flights: BTreeMap<u64, Flight>,
}

/// A batch that is kept.
#[derive(Clone, Copy, Debug)]
struct Batch {
    /// Of its object.
    number: u64,
    /// The opening that wrote the object.
    term: Term,
    len: u64,
    /// The checksum of the object's body.
    sum: u32,
}

struct Flight {
    record: Record,
    bytes: Bytes,
    is_written: bool,
    /// `None`: the outcome is unknown, and was said to be.
    answer: Option<Completer<Answer>>,
}

impl State {
    fn end_of(&self, at: Lsn) -> Option<Lsn> {
        self.batches.get(&at).map(|batch| at.plus(batch.len))
    }

    /// Gives a record the next number, and a place among the flights.
    fn launch(&mut self, term: Term, what: What, body: Bytes, answer: Option<Completer<Answer>>) -> u64 {
        let number = self.next;
        self.next += 1;
        let record = Record::new(number, self.floor.min(number), term, what, body);
        let bytes = record.encode();
        self.flights.insert(number, Flight { record, bytes, is_written: false, answer });
        number
    }

    /// The flight of this number, if `term` began it.
    fn flight(&mut self, number: u64, term: Term) -> Option<&mut Flight> {
        self.flights.get_mut(&number).filter(|flight| flight.record.head.term == term)
    }

    /// An object of the journal, in order of their numbers.
    fn take(&mut self, head: &Head) {
        let Head { number, floor, term, what, sum, .. } = *head;
        self.named_floor = self.named_floor.max(floor);
        if what != What::Fence {
            self.stored.insert(number);
        }
        if let What::Cut(from) = what {
            self.batches.split_off(&from);
        }
        if let Some((at, len)) = head.batch() {
            self.batches.insert(at, Batch { number, term, len, sum });
        }
    }

    /// Objects that are not needed and may go.
    fn unneeded(&mut self) -> Vec<u64> {
        let needed = self.stored.split_off(&self.named_floor);
        std::mem::replace(&mut self.stored, needed).into_iter().collect()
    }

    /// Why a batch cannot be kept, or whether it is kept already.
    fn judge(&self, batch: &SinkBatch) -> Result<bool, SinkError> {
        if let Some(fenced) = &self.fenced {
            return Err(Fenced { term: batch.term.number, by: fenced.by }.into());
        }
        match self.term {
            Some(term) if term == batch.term => {}
            Some(term) => return Err(Fenced { term: batch.term.number, by: term.number }.into()),
            None => return Err(failed("append", "the journal was not fenced for its owner")),
        }
        if let Some(kept) = self.batches.get(&batch.at) {
            let same = (kept.term, kept.len, kept.sum) == (batch.term, batch.bytes.len() as u64, crc(&batch.bytes));
            return if same { Ok(true) } else { Err(taken(batch.at)) };
        }
        let before = self.batches.range(..batch.end()).next_back().map(|(at, _)| *at);
        match before.and_then(|at| self.end_of(at)) {
            Some(end) if end > batch.at => Err(taken(batch.at)),
            _ => Ok(false),
        }
    }
}

fn failed(operation: &'static str, cause: impl ToString) -> SinkError {
    SinkError::Failed { operation, cause: cause.to_string() }
}

fn taken(at: Lsn) -> SinkError {
    failed("append", format!("the place of the batch at {at} is taken"))
}

impl Inner {
    fn key(&self, number: u64, term: Term) -> String {
        let by = if self.options.faults().key_with_term() { format!("{:04}-", term.number) } else { String::new() };
        format!("{}{by}{}", self.folder, key(number))
    }

    /// Writes the object of a flight, under its number or a later one.
    async fn fly(self: Arc<Self>, mut number: u64, term: Term) {
        loop {
            let Some(bytes) = self.state.lock().flight(number, term).map(|flight| flight.bytes.clone()) else { return };
            match self.bucket.put_new_within(&self.key(number, term), bytes, self.options.answer_within).await {
                Ok(PutNew::Written) => return self.written(number, term),
                Ok(PutNew::Taken(found)) => match Head::decode(&found) {
                    Ok(other) if other.term.number > term.number => {
                        let fenced = Fenced { term: term.number, by: other.term.number };
                        self.state.lock().fenced = Some(fenced);
                        return self.answer(number, term, Err(fenced.into()));
                    }
                    // A deposed owner's, that came late: void where it stands. Or a fence of this term that stopped it
                    // further on, or that an owner before had meant for another one.
                    Ok(other) if other.term.number < term.number || (other.what, other.term) == (What::Fence, term) => {
                        let mut state = self.state.lock();
                        if state.flight(number, term).is_none() {
                            return;
                        }
                        if other.what != What::Fence {
                            state.stored.insert(number);
                        }
                        let Some(flight) = state.flights.remove(&number) else { return };
                        let Record { head, body } = flight.record;
                        number = state.launch(term, head.what, body, flight.answer);
                    }
                    Ok(_) => {
                        return self.answer(
                            number,
                            term,
                            Err(failed("append", "an owner of the same term has written")),
                        );
                    }
                    Err(why) => {
                        let cause = format!("the journal's object {} is damaged: {why}", self.key(number, term));
                        return self.answer(number, term, Err(failed("append", cause)));
                    }
                },
                Err(error @ BucketError::Refused { .. }) => {
                    return self.answer(number, term, Err(failed("append", error)));
                }
                Err(error) => {
                    // The journal appends again at once. A refusal came without a wait.
                    if matches!(error, BucketError::Denied { .. }) {
                        tokio::time::sleep(DENIED_PAUSE).await;
                    }
                    return self.answer(number, term, Err(SinkError::Unknown { cause: error.to_string() }));
                }
            }
        }
    }

    fn answer(&self, number: u64, term: Term, answer: Answer) {
        let waiting = self.state.lock().flight(number, term).and_then(|flight| flight.answer.take());
        if let Some(waiting) = waiting {
            waiting.complete(answer);
        }
    }

    /// An object was written: it is kept when every one of this opening with a lower number is, too.
    fn written(self: &Arc<Self>, number: u64, term: Term) {
        let mut kept = Vec::new();
        let unneeded = {
            let mut state = self.state.lock();
            let Some(flight) = state.flight(number, term) else { return };
            flight.is_written = true;
            let is_any_order = self.options.faults().acknowledged_before_lower();
            loop {
                let next = state.flights.iter().find(|(_, flight)| flight.is_written || !is_any_order);
                let Some((number, true)) = next.map(|(number, flight)| (*number, flight.is_written)) else { break };
                let Some(flight) = state.flights.remove(&number) else { break };
                state.take(&flight.record.head);
                kept.extend(flight.answer);
            }
            state.unneeded()
        };
        kept.into_iter().for_each(|answer| answer.complete(Ok(Kept::Durable)));
        self.remove(unneeded);
    }

    /// Removes objects in the background. Those that stay are removed by a take-over, days later.
    fn remove(self: &Arc<Self>, numbers: Vec<u64>) {
        if numbers.is_empty() {
            return;
        }
        let term = self.state.lock().term.unwrap_or(Term { number: 0, salt: 0 });
        let keys = numbers.into_iter().map(|number| self.key(number, term)).collect();
        let inner = Arc::clone(self);
        self.bucket.start(async move {
            if let Err(error) = inner.bucket.delete(keys).await {
                tracing::warn!(%error, "objects of a journal that are not needed stay; a take-over removes them, days later");
            }
        });
    }

    /// Begins to write a record, or goes on with one whose outcome was unknown.
    fn launch(self: &Arc<Self>, term: Term, what: What, body: &Bytes, answer: Completer<Answer>) {
        let number = {
            let mut state = self.state.lock();
            let known = state.flights.iter_mut().find(|(_, flight)| flight.record.head.what == what);
            match known {
                Some((_, flight)) if flight.record.body != *body => {
                    let refused = failed("append", "other bytes are on their way to the place");
                    drop(state);
                    return answer.complete(Err(refused));
                }
                Some((number, flight)) => {
                    flight.answer = Some(answer);
                    *number
                }
                None => state.launch(term, what, body.clone(), Some(answer)),
            }
        };
        let inner = Arc::clone(self);
        self.bucket.start(inner.fly(number, term));
    }

    /// Reads the head of a journal's object, or what is wrong with it. `None`: it is missing.
    async fn head(&self, listed: String) -> Result<Option<Result<Head, DamagedObject>>, SinkError> {
        let key = format!("{}{listed}", self.folder);
        let head = match self.bucket.get_range(&key, 0..HEAD_BYTES as u64).await {
            Err(error) => return Err(failed("reading", error)),
            Ok(Part::Missing) => return Ok(None),
            Ok(Part::Bytes(bytes)) => Head::decode(&bytes),
            Ok(Part::Outside(len)) => Err(format!("it has {len} bytes")),
        };
        let of_key = |head: &Head| self.options.faults().key_with_term() || number_of(&listed) == Some(head.number);
        let head = head.and_then(|head| match of_key(&head) {
            true => Ok(head),
            false => Err(format!("it has the number {}", head.number)),
        });
        Ok(Some(head.map_err(|why| DamagedObject { key, why })))
    }

    async fn fence(self: Arc<Self>, term: Term) -> Result<(), SinkError> {
        let mut journal = std::mem::take(&mut *self.seen.lock());
        let mut reach = Reach::default();
        let mut suspect = None;
        loop {
            self.look_as_owner(&mut journal, term).await?;
            if let Some(gap) = self.gap(&journal).await? {
                let now = Some((journal.first_free(), journal.floor()));
                if std::mem::replace(&mut suspect, now) == now {
                    return Err(failed("reading", format!("the journal's object {} is damaged: {}", gap.key, gap.why)));
                }
                continue;
            }
            let (floor, number) = (journal.floor(), journal.first_free());
            let last = journal.heads.get(&number.wrapping_sub(1));
            if last.is_some_and(|last| last.term == term) {
                break;
            }
            if self.options.faults().cleaned_before_fence() {
                let behind = journal.heads.split_off(&number).into_keys();
                let keys = behind.map(|number| self.key(number, term)).collect();
                self.bucket.delete(keys).await.map_err(|error| failed("fencing", error))?;
            }
            // The owner before may write and remove all the time: whether the fence stands where it must is seen by
            // looking once more.
            let put = async |number| {
                let fence = Record::new(number, floor, term, What::Fence, Bytes::new());
                let put = self.bucket.put_new(&self.key(number, term), fence.encode()).await;
                put.map_err(|error| failed("fencing", error))
            };
            if matches!(put(number).await?, PutNew::Taken(_)) {
                put(reach.next(number)).await?;
            }
        }
        let mut state = self.state.lock();
        let deposed = std::mem::take(&mut state.flights);
        *state = journal.state(Some(term));
        drop(state);
        *self.seen.lock() = journal;
        for flight in deposed.into_values() {
            let fenced = Fenced { term: flight.record.head.term.number, by: term.number };
            flight.answer.into_iter().for_each(|answer| answer.complete(Err(fenced.into())));
        }
        Ok(())
    }

    /// Looks once more, for the owner of `term`.
    async fn look_as_owner(&self, journal: &mut Found, term: Term) -> Result<(), SinkError> {
        self.look(journal, Depth::FromFloor).await?;
        if let Some(DamagedObject { key, why }) = journal.damaged.first() {
            return Err(failed("reading", format!("the journal's object {key} is damaged: {why}")));
        }
        match journal.later(term) {
            Some(by) => Err(Fenced { term: term.number, by }.into()),
            None => Ok(()),
        }
    }

    /// See [`Sink::accept`]. Batches are carried only now: objects that a person puts back into a journal that was refused must
    /// stand where they stood.
    async fn accept(self: Arc<Self>, term: Term) -> Result<(), SinkError> {
        let mut journal = std::mem::take(&mut *self.seen.lock());
        let mut carried = BTreeSet::new();
        if journal.fences() > self.options.fences_max {
            // With what its owner has cut off since.
            self.look_as_owner(&mut journal, term).await?;
            carried = journal.state(None).stored;
            self.carry(&journal, term).await?;
            self.look_as_owner(&mut journal, term).await?;
            *self.state.lock() = journal.state(Some(term));
        }
        if self.options.faults().void_trimmed() {
            let mut state = self.state.lock();
            let others = journal.heads.values().filter(|head| head.what != What::Fence);
            state.stored.extend(others.map(|head| head.number));
            carried.extend(state.unneeded());
        }
        let floor = journal.floor();
        self.remove(carried.into_iter().filter(|number| *number < floor).collect());
        let inner = Arc::clone(&self);
        self.bucket.start(async move { inner.remove_old(&journal, term).await });
        Ok(())
    }

    /// Writes the batches of the journal under its next numbers, and names the first of these as floor. Does nothing if
    /// there are many, and stops where a number is taken: whether all are written is seen by looking once more.
    async fn carry(&self, journal: &Found, term: Term) -> Result<(), SinkError> {
        let batches = journal.state(None).batches;
        if batches.len() > CARRIED_BATCHES || batches.values().map(|batch| batch.len).sum::<u64>() > CARRIED_BYTES {
            return Ok(());
        }
        let (first, floor) = (journal.first_free(), journal.floor());
        let mut records = Vec::new();
        for (number, (at, batch)) in (first..).zip(&batches) {
            let (origin, bytes) = match self.batch(*at, *batch).await {
                Ok(found) => found,
                // Recovery says so, if it needs the batch.
                Err(error) => {
                    tracing::debug!(%error, "the batches of an idle unit stay where they are");
                    return Ok(());
                }
            };
            records.push(Record::carried(number, floor, term, *at, origin, &bytes));
        }
        // Without a batch there is nothing to cut off: the object only has the floor.
        let mut last =
            records.pop().unwrap_or_else(|| Record::new(first, floor, term, What::Cut(Lsn::ZERO), Bytes::new()));
        // Only when all others are written, nothing below the first of them is needed.
        last.head.floor = first;
        if self.options.faults().floor_before_carried() {
            records.insert(0, last.clone());
        }
        for record in records.iter().chain([&last]) {
            let key = self.key(record.head.number, term);
            let put = self.bucket.put_new(&key, record.encode()).await;
            if matches!(put.map_err(|error| failed("fencing", error))?, PutNew::Taken(_)) {
                break;
            }
        }
        Ok(())
    }

    /// Takes what is in the bucket for the journal, and writes nothing: reads are possible then, and appends are not.
    async fn see(self: Arc<Self>) -> Result<SeenJournal, SinkError> {
        let mut journal = Found::default();
        self.look(&mut journal, Depth::All).await?;
        let mut gap = self.gap(&journal).await?;
        if gap.is_some() {
            let before = (journal.first_free(), journal.floor());
            self.look(&mut journal, Depth::All).await?;
            gap = self.gap(&journal).await?.filter(|_| (journal.first_free(), journal.floor()) == before);
        }
        let mut damaged = journal.damaged.clone();
        damaged.extend(gap);
        let state = journal.state(None);
        let batches = state.batches.len() as u64;
        *self.state.lock() = state;
        *self.seen.lock() = journal;
        Ok(SeenJournal { batches, damaged })
    }

    /// Reads what is in the bucket and not known yet, until nothing that is needed goes away meanwhile. The highest numbers
    /// come first: they name the floor.
    async fn look(&self, journal: &mut Found, depth: Depth) -> Result<(), SinkError> {
        let is_by_term = self.options.faults().key_with_term();
        'again: loop {
            let listed = self.bucket.list(&self.folder).await.map_err(|error| failed("listing", error))?;
            journal.modified_ms.clear();
            journal.damaged.clear();
            let mut unknown = Vec::new();
            for Listed { key, modified_ms, .. } in listed {
                let name = if is_by_term { key.split('-').next_back().unwrap_or_default() } else { &key };
                let Some(number) = number_of(name) else { continue };
                journal.modified_ms.insert(number, modified_ms);
                if is_by_term || !journal.heads.contains_key(&number) {
                    unknown.push((number, key));
                }
            }
            journal.heads.retain(|number, _| journal.modified_ms.contains_key(number));
            unknown.sort_by_key(|(number, _)| Reverse(*number));
            let reads = unknown.into_iter().map(async |(number, key)| (number, self.head(key).await));
            let mut reads = std::pin::pin!(stream::iter(reads).buffered(READS_AT_ONCE));
            let mut floor = journal.floor();
            while let Some((number, head)) = reads.next().await {
                if depth == Depth::FromFloor && !is_by_term && number < floor {
                    break;
                }
                match head? {
                    Some(Ok(head)) => {
                        floor = floor.max(head.floor);
                        journal.heads.insert(head.number, head);
                    }
                    Some(Err(damaged)) => journal.damaged.push(damaged),
                    None => continue 'again,
                }
            }
            return Ok(());
        }
    }

    /// Removes what is old, below the floor, and under a number that no owner can still write. When an object was written
    /// says nothing of that: an owner may come to a number long after, and be deposed just now. But who has written
    /// anything beside fences had stopped every owner before it by then; and it, and every later one, writes only behind
    /// its own fences, of which the first stays until a later owner's objects are so old.
    async fn remove_old(&self, journal: &Found, term: Term) {
        let stay = if self.options.faults().fence_trimmed() { 0 } else { self.options.stay.as_millis() };
        // The bucket's clock, when this owner wrote.
        let own = journal.heads.values().filter(|head| head.term == term).map(|head| head.number).max();
        let Some(now) = own.and_then(|number| journal.modified_ms.get(&number)).copied() else { return };
        let is_old = |number: &u64| {
            let age = journal.modified_ms.get(number).map(|modified| now.saturating_sub(*modified));
            age.and_then(|age| u128::try_from(age).ok()).is_some_and(|age| age >= stay)
        };
        let below: Vec<u64> = journal.modified_ms.range(..journal.floor()).map(|(number, _)| *number).collect();
        if !below.iter().any(is_old) {
            return;
        }
        let mut heads = journal.heads.clone();
        let unknown: Vec<u64> = below.iter().copied().filter(|number| !heads.contains_key(number)).collect();
        let mut reads =
            std::pin::pin!(stream::iter(unknown).map(|number| self.head(key(number))).buffered(READS_AT_ONCE));
        while let Some(read) = reads.next().await {
            match read {
                Ok(Some(Ok(head))) => drop(heads.insert(head.number, head)),
                Ok(None) => {}
                // It could be the fence that counts.
                Ok(Some(Err(_))) | Err(_) => return,
            }
        }
        let writers = heads.values().filter(|head| head.what != What::Fence && is_old(&head.number));
        let Some(writer) = writers.map(|head| head.term.number).max() else { return };
        let fences = heads.values().filter(|head| head.what == What::Fence && head.term.number >= writer);
        let Some(mut began) = fences.map(|head| head.number).min() else { return };
        if self.options.faults().old_by_itself() {
            began = journal.floor();
        }
        let gone = below.iter().filter(|number| **number < began && is_old(number));
        let keys: Vec<String> =
            gone.filter_map(|number| heads.get(number)).map(|head| self.key(head.number, head.term)).collect();
        if let Err(error) = self.bucket.delete(keys).await {
            tracing::debug!(%error, "old objects of a journal stay");
        }
    }

    /// What shows that the journal is not whole. A batch behind the first free number was under way together with one that
    /// is not there; so everything that was durable when it was sent stands before both. An owner that lives may have raised
    /// the floor meanwhile: only what a second look finds, too, is proved.
    async fn gap(&self, journal: &Found) -> Result<Option<DamagedObject>, SinkError> {
        let free = journal.first_free();
        let behind = journal.heads.range(free..).map(|(_, head)| *head).filter(|head| head.batch().is_some());
        let mut behind: Vec<Head> = behind.collect();
        if behind.is_empty() {
            return Ok(None);
        }
        let batches = journal.state(None).batches;
        let end = batches.last_key_value().map_or(Lsn::ZERO, |(at, batch)| at.plus(batch.len));
        // The last ones of the last owner know most. Deposed owners know less, and may have written further on.
        behind.sort_by_key(|head| Reverse((head.term.number, head.number)));
        let last = behind.into_iter().take(GAP_READS);
        let reads = last.map(async |head| (head, self.bucket.get(&self.key(head.number, head.term)).await));
        let mut reads = std::pin::pin!(stream::iter(reads).buffered(GAP_READS));
        while let Some((head, found)) = reads.next().await {
            let Some(found) = found.map_err(|error| failed("reading", error))? else { continue };
            let Some((_, _, bytes)) = Record::decode(&found.bytes).ok().and_then(Record::into_batch) else { continue };
            if let Some(known) = known_durable(&bytes).filter(|known| *known > end) {
                let key = self.key(free, head.term);
                // The list may have been older than the objects behind it.
                if self.bucket.get(&key).await.map_err(|error| failed("reading", error))?.is_some() {
                    return Ok(None);
                }
                let why = format!(
                    "it is missing: object {} says that everything below {known} was durable, and the journal ends at {end}",
                    head.number
                );
                return Ok(Some(DamagedObject { key, why }));
            }
        }
        Ok(None)
    }

    /// See [`Sink::newest_term`].
    async fn newest_term(self: Arc<Self>) -> Result<Option<u64>, SinkError> {
        let mut journal = std::mem::take(&mut *self.seen.lock());
        if journal.heads.is_empty() {
            self.look(&mut journal, Depth::FromFloor).await?;
        }
        let newest = journal.heads.values().map(|head| head.term.number).max().unwrap_or_default();
        // A head that cannot be read may be the newest one's; the fence, or the check, reports the damage.
        let is_known = journal.damaged.is_empty();
        *self.seen.lock() = journal;
        Ok(is_known.then_some(newest))
    }

    /// See [`Sink::survey`]. A batch behind the end stands behind one that never came, or that is missing.
    async fn survey(self: Arc<Self>, end: Lsn) -> Result<Option<Survey>, SinkError> {
        let (first, last, behind) = {
            let state = self.state.lock();
            let first = state.batches.first_key_value().map(|(at, _)| *at);
            let last = state.batches.last_key_value().map(|(at, batch)| at.plus(batch.len));
            let mut behind: Vec<(Lsn, Batch)> = state.batches.range(end..).map(|(at, batch)| (*at, *batch)).collect();
            behind.sort_by_key(|(_, batch)| Reverse((batch.term.number, batch.number)));
            (first, last, behind)
        };
        let reads = behind.into_iter().take(GAP_READS).map(async |(at, batch)| self.batch(at, batch).await);
        let mut reads = std::pin::pin!(stream::iter(reads).buffered(READS_AT_ONCE));
        let mut known = Lsn::ZERO;
        while let Some(read) = reads.next().await {
            known = known.max(known_durable(&read?.1).unwrap_or_default());
        }
        Ok(Some(Survey { first, end: last.unwrap_or_default(), known }))
    }

    /// Whole batches from the one that holds the first position.
    fn wanted(&self, range: &Range<Lsn>) -> Result<Vec<(Lsn, Batch)>, SinkError> {
        let state = self.state.lock();
        let first = state.batches.range(..=range.start).next_back().map(|(at, _)| *at);
        let mut at = first.filter(|at| state.end_of(*at) > Some(range.start)).ok_or(SinkError::Missing(range.start))?;
        let (mut wanted, mut bytes) = (Vec::new(), 0);
        while let Some(batch) = state.batches.get(&at)
            && at < range.end
            && bytes < READ_BYTES
        {
            wanted.push((at, *batch));
            bytes += batch.len;
            at = at.plus(batch.len);
        }
        Ok(wanted)
    }

    async fn piece(&self, at: Lsn, batch: Batch) -> Result<Piece, SinkError> {
        let (origin, bytes) = self.batch(at, batch).await?;
        Ok(Piece::new(at, origin, bytes))
    }

    /// Reads a batch, and the term that has sealed it.
    async fn batch(&self, at: Lsn, batch: Batch) -> Result<(Term, Bytes), SinkError> {
        let key = self.key(batch.number, batch.term);
        let damaged = |cause: String| SinkError::Damaged { at, cause: format!("object {key}: {cause}") };
        // A bucket that does not answer says nothing of the bytes.
        let found = self.bucket.get(&key).await.map_err(|error| failed("reading", error))?;
        let record = Record::decode(&found.ok_or(SinkError::Missing(at))?.bytes).map_err(damaged)?;
        let is_same = (record.head.term, record.head.sum) == (batch.term, batch.sum);
        match record.into_batch() {
            Some((found, origin, bytes)) if is_same && found == at => Ok((origin, bytes)),
            _ => Err(damaged("it is another one than was written".to_owned())),
        }
    }
}

/// The objects of a journal that a reader has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenJournal {
    /// Batches that are part of the journal.
    pub batches: u64,
    /// Objects whose heads cannot be read, or that are missing.
    pub damaged: Vec<DamagedObject>,
}

/// An object of a journal that is missing, or whose head cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedObject {
    /// Its key, behind the bucket's prefix.
    pub key: String,
    /// What is wrong with it.
    pub why: String,
}

/// How much a look reads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    /// What is not below the floor, and little else.
    FromFloor,
    /// The heads of all objects.
    All,
}

/// The objects of a journal that a look has found.
#[derive(Default)]
struct Found {
    /// Of those that were read.
    heads: BTreeMap<u64, Head>,
    /// Those that say nothing.
    damaged: Vec<DamagedObject>,
    /// When each of all that there are was written, by the bucket's clock.
    modified_ms: BTreeMap<u64, i64>,
}

impl Found {
    /// The term of a later owner than `term`, or of another one with the same number.
    fn later(&self, term: Term) -> Option<u64> {
        let terms = self.heads.values().map(|head| head.term);
        terms.filter(|other| other.number >= term.number && *other != term).map(|other| other.number).max()
    }

    /// The highest floor. Deposed owners name none above the fence that stopped them: a number that they could not
    /// write holds their floor.
    fn floor(&self) -> u64 {
        self.heads.values().map(|head| head.floor).max().unwrap_or_default()
    }

    fn first_free(&self) -> u64 {
        let mut free = self.floor();
        while self.heads.contains_key(&free) {
            free += 1;
        }
        free
    }

    /// How many fences there are above the floor and before the first free number.
    fn fences(&self) -> usize {
        self.heads.range(self.floor()..self.first_free()).filter(|(_, head)| head.what == What::Fence).count()
    }

    /// What a sink knows that has found this, and nothing else.
    fn state(&self, term: Option<Term>) -> State {
        let mut state = State { term, next: self.first_free(), floor: self.floor(), ..State::default() };
        self.each_valid(|head| state.take(head));
        state
    }

    /// Passes the objects of the journal on, in order: without void ones, and those behind the first free number.
    fn each_valid(&self, mut f: impl FnMut(&Head)) {
        let mut term = 0;
        for (_, head) in self.heads.range(self.floor()..self.first_free()) {
            if head.term.number >= term {
                term = head.term.number;
                f(head);
            }
        }
    }
}

impl ObjectSink {
    /// The journal of `unit`. Sends nothing yet.
    #[must_use]
    pub fn new(bucket: Bucket, unit: &str, options: SinkOptions) -> Self {
        let folder = format!("j/{unit}/");
        Self(Arc::new(Inner { bucket, folder, options, state: Mutex::default(), seen: Mutex::default() }))
    }

    /// Reads the heads of all objects, and writes nothing. Then the sink can be read; an append to it is refused.
    pub fn see(&self) -> Result<SeenJournal, SinkError> {
        self.0.bucket.run(Arc::clone(&self.0).see()).wait()
    }

    /// The key of the object that has the batch at this position, behind the bucket's prefix.
    #[must_use]
    pub fn key_of(&self, at: Lsn) -> Option<String> {
        let state = self.0.state.lock();
        let (from, batch) = state.batches.range(..=at).next_back()?;
        (at < from.plus(batch.len)).then(|| self.0.key(batch.number, batch.term))
    }

    /// Whether a batch at `end` or behind it would be read.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn keeps_behind(&self, end: Lsn) -> bool {
        self.0.state.lock().batches.range(end..).next().is_some()
    }
}

impl Sink for ObjectSink {
    const LOCAL: bool = false;

    fn in_flight_max(&self) -> usize {
        self.0.options.in_flight_max
    }

    fn append(&self, batch: SinkBatch) -> Ticket<Answer> {
        match self.0.state.lock().judge(&batch) {
            Ok(false) => {}
            Ok(true) => return Ticket::ready(Ok(Kept::Durable)),
            Err(error) => return Ticket::ready(Err(error)),
        }
        let (ticket, answer) = Ticket::pending();
        self.0.launch(batch.term, What::Batch(batch.at), &batch.bytes, answer);
        if self.0.options.faults().acknowledged_before_put() {
            return Ticket::ready(Ok(Kept::Durable));
        }
        ticket
    }

    fn newest_term(&self) -> Ticket<Result<Option<u64>, SinkError>> {
        self.0.bucket.run(Arc::clone(&self.0).newest_term())
    }

    fn fence(&self, term: Term) -> Ticket<Result<(), SinkError>> {
        if self.0.state.lock().term == Some(term) {
            return Ticket::ready(Ok(()));
        }
        self.0.bucket.run(Arc::clone(&self.0).fence(term))
    }

    fn accept(&self, term: Term) -> Ticket<Result<(), SinkError>> {
        self.0.bucket.run(Arc::clone(&self.0).accept(term))
    }

    fn read(&self, range: Range<Lsn>) -> Ticket<Result<Vec<Piece>, SinkError>> {
        let wanted = match self.0.wanted(&range) {
            Ok(wanted) => wanted,
            Err(error) => return Ticket::ready(Err(error)),
        };
        let inner = Arc::clone(&self.0);
        self.0.bucket.run(async move {
            let reads = wanted.into_iter().map(|(at, batch)| inner.piece(at, batch));
            let pieces: Vec<_> = stream::iter(reads).buffered(READS_AT_ONCE).collect().await;
            pieces.into_iter().collect()
        })
    }

    fn survey(&self, end: Lsn) -> Ticket<Result<Option<Survey>, SinkError>> {
        self.0.bucket.run(Arc::clone(&self.0).survey(end))
    }

    fn trim(&self, upto: Lsn, synced: Lsn) {
        let unneeded = {
            let mut state = self.0.state.lock();
            // The last batch stays: it says where the journal goes on.
            while state.batches.len() > 1
                && let Some(first) = state.batches.first_key_value().map(|(at, _)| *at)
                && state.end_of(first).is_some_and(|end| end <= upto && end < synced)
            {
                state.batches.pop_first();
            }
            // The floor is always the number of a batch that is kept: what stands there is never void.
            if let Some(needed) = state.batches.values().map(|batch| batch.number).min() {
                state.floor = state.floor.max(needed);
            }
            state.unneeded()
        };
        self.0.remove(unneeded);
    }

    fn truncate(&self, from: Lsn, term: Term) -> Ticket<Result<(), SinkError>> {
        {
            let state = self.0.state.lock();
            if let Some(by) =
                state.fenced.map(|fenced| fenced.by).or(state.term.filter(|by| *by != term).map(|by| by.number))
            {
                return Ticket::ready(Err(Fenced { term: term.number, by }.into()));
            }
            if state.batches.range(from..).next().is_none() {
                return Ticket::ready(Ok(()));
            }
        }
        let inner = Arc::clone(&self.0);
        self.0.bucket.run(async move {
            let began = Instant::now();
            loop {
                let (cut, answer) = Ticket::pending();
                inner.launch(term, What::Cut(from), &Bytes::new(), answer);
                let (sent, done) = tokio::sync::oneshot::channel();
                cut.then(move |cut| drop(sent.send(cut)));
                match done.await {
                    Ok(Err(SinkError::Unknown { .. })) if began.elapsed() < inner.bucket.deadline() => {}
                    Ok(cut) => return cut.map(|_| ()),
                    Err(_) => return Err(failed("truncate", "the bucket's client has ended")),
                }
            }
        })
    }
}

//! Giving batches to the sink and publishing how far it keeps them, in steps that one thread at a time takes.
//!
//! With a local sink `begin` writes the oldest batch, `finish` syncs if a durable frame waits for it, and publishes. In
//! between appends fill the next batch. No batch is written after one with durable frames until that is synced, except
//! for batches with buffered frames, which threads that call `kick` may write.
//!
//! With a remote sink `begin` takes the answers that have come and sends the oldest batch if not too many are in
//! flight. The published position is the end of the last batch before which all batches are kept: a batch that is kept
//! before an earlier one waits for it.
//!
//! A batch's header says how far the journal was durable when the batch was sealed. A new extent is opened only when
//! everything before it is synced, and so proves that.

use crate::Poisoned;
use crate::format::{BATCH_HEADER, BatchHeader};
use crate::sequencer::fill::Batch;
use crate::sequencer::{Counters, Sequencer};
use crate::sink::{Sink, SinkBatch, SinkError};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use thalweg_base::Lsn;

/// How many batches are written in one kick.
const THROUGH_MAX: usize = 4;

pub(crate) struct Writer {
    /// The number of the extent that was opened last.
    extent: u64,
    pub(crate) written: Lsn,
    pub(crate) synced: Lsn,
    /// Just after the last frame that is written, and the last durable one.
    frames: Lsn,
    urgent: Lsn,
    /// The last thing written says that everything before it is durable.
    marked: bool,
    /// The oldest batch waits for space for its extent.
    full: bool,
    /// Batches of a remote sink that are not published, in the order of their positions.
    flights: VecDeque<Flight>,
}

/// A batch that was sent to a remote sink.
struct Flight {
    batch: SinkBatch,
    state: FlightState,
}

#[derive(Clone, Copy, PartialEq)]
enum FlightState {
    /// An answer will come.
    Asked,
    /// The outcome is unknown: it is sent again.
    Again,
    Kept,
}

/// The outcome of an attempt to open an extent.
#[derive(Clone, Copy, PartialEq)]
enum Opening {
    Opened,
    /// Batches of the extent before are in flight: their answers will come.
    TooEarly,
    NoSpace,
}

impl Writer {
    pub(crate) fn new(at: Lsn) -> Self {
        Self {
            extent: 0,
            written: at,
            synced: at,
            frames: at,
            urgent: Lsn::ZERO,
            marked: true,
            full: false,
            flights: VecDeque::new(),
        }
    }

    /// A durable frame is written that `finish` has to sync.
    fn is_waited_for(&self) -> bool {
        self.urgent > self.synced
    }

    fn is_dirty(&self) -> bool {
        self.frames > self.synced
    }
}

impl<S: Sink> Sequencer<S> {
    /// Takes the oldest batch and gives it to the sink. `false` if there is none, if a durable one is not finished, if
    /// too many are in flight, or if there is no space for its extent: then it waits for a trim or for the sink to find
    /// space.
    pub fn begin(&self) -> Result<bool, Poisoned> {
        let (worked, sent) = self.begin_if(true)?;
        Ok(worked || sent)
    }

    /// Takes answers, and sends the oldest batch if `may_send`. Returns whether there were answers, and whether a batch
    /// was sent.
    pub(crate) fn begin_if(&self, may_send: bool) -> Result<(bool, bool), Poisoned> {
        let _one = self.driving.lock();
        let (worked, sent, told) = {
            let mut writer = self.writer.lock();
            self.published.sound()?;
            let before = self.published.durable();
            let worked = self.take_answers(&mut writer)? | self.send_again(&mut writer)?;
            let (sent, news) = if may_send { self.begin_oldest(&mut writer)? } else { (false, false) };
            (worked, sent, news || self.published.durable() > before)
        };
        if told {
            self.published.notify();
        }
        Ok((worked, sent))
    }

    /// Sends the oldest batch. Returns whether a batch was sent, and whether to notify subscribers: of a written
    /// buffered frame, or that space ran out. They are notified of that once, not at every attempt, since their
    /// reaction causes the next attempt.
    fn begin_oldest(&self, writer: &mut Writer) -> Result<(bool, bool), Poisoned> {
        if writer.is_waited_for() || writer.flights.len() >= self.in_flight_max() {
            return Ok((false, false));
        }
        let Some(batch) = self.fill.lock().take() else { return Ok((false, false)) };
        if batch.extent != writer.extent {
            let opening = self.open_extent(writer, &batch)?;
            let was_full = std::mem::replace(&mut writer.full, opening == Opening::NoSpace);
            if opening != Opening::Opened {
                self.fill.lock().put_back(batch);
                if opening == Opening::NoSpace {
                    self.published.note_full();
                }
                return Ok((false, opening == Opening::NoSpace && !was_full));
            }
        }
        let early = batch.early;
        self.send(writer, batch)?;
        if S::LOCAL && self.options.faults().acknowledged_before_sync() {
            self.published.set_durable(writer.written);
        }
        Ok((true, early && S::LOCAL))
    }

    fn in_flight_max(&self) -> usize {
        self.sink.in_flight_max().max(1)
    }

    /// Writes the waiting batches on the caller's thread, if that needs neither a new extent nor waiting for another
    /// thread; whether the writer's thread has something to see to. A write to allocated blocks goes to the page cache;
    /// it is not held up by the device while little is waiting to be synced, which is seen to.
    pub(crate) fn write_through(&self) -> bool {
        if !S::LOCAL {
            return true;
        }
        let (wrote, wanted) = {
            let Some(mut writer) = self.writer.try_lock() else { return true };
            let was_dirty = writer.is_dirty();
            let mut wrote = 0;
            let left = loop {
                if wrote == THROUGH_MAX {
                    break true;
                }
                let Some(batch) = self.fill.lock().take() else { break false };
                let waits = batch.extent != writer.extent
                    || writer.written.since(writer.synced) > 2 * self.options.sync_bytes
                    || self.published.poisoned().is_some();
                if waits {
                    self.fill.lock().put_back(batch);
                    break true;
                }
                if self.send(&mut writer, batch).is_err() {
                    break true;
                }
                wrote += 1;
            };
            let wanted = left
                || writer.is_waited_for()
                || (writer.is_dirty() && !was_dirty)
                || writer.written.since(writer.synced) > self.options.sync_bytes;
            (wrote > 0, wanted)
        };
        if wrote {
            self.published.notify();
        }
        wanted
    }

    /// Syncs the batches that `begin` wrote, and publishes them, if a durable frame is among it or enough has gathered.
    /// `false` if there was nothing to do.
    pub fn finish(&self) -> Result<bool, Poisoned> {
        let bytes = self.options.sync_bytes;
        self.sync_if(|writer| writer.is_waited_for() || writer.written.since(writer.synced) > bytes)
    }

    /// Syncs the written batches, if a sync is `due`. Other threads may write during the sync.
    pub(crate) fn sync_if(&self, due: impl FnOnce(&Writer) -> bool) -> Result<bool, Poisoned> {
        let _one = self.driving.lock();
        let written = {
            let writer = self.writer.lock();
            self.published.sound()?;
            if !due(&writer) {
                return Ok(false);
            }
            writer.written
        };
        // `driving` is held, so no other extent is opened: only the last one has batches that are not synced.
        self.sync_sink()?;
        self.note_synced(&mut self.writer.lock(), written);
        self.published.notify();
        Ok(true)
    }

    /// `begin`, then `finish`. `false` if nothing was there to be written.
    pub fn step(&self) -> Result<bool, Poisoned> {
        let began = self.begin()?;
        let finished = self.finish()?;
        Ok(began || finished)
    }

    /// Takes steps until there is nothing to do, and waits for the answers to batches in flight. Accepted frames
    /// without space stay accepted.
    pub(crate) fn step_all(&self, is_enough: impl Fn() -> bool) -> Result<(), Poisoned> {
        while !is_enough() {
            if self.step()? {
                continue;
            }
            if !self.is_asked() {
                break;
            }
            self.answers.wait();
        }
        Ok(())
    }

    /// An answer of the sink will come.
    fn is_asked(&self) -> bool {
        self.writer.lock().flights.iter().any(|flight| flight.state == FlightState::Asked)
    }

    /// Writes and syncs all that was accepted; the position that now survives loss of power.
    pub fn sync(&self) -> Result<Lsn, Poisoned> {
        self.step_all(|| false)?;
        self.sync_if(|writer| writer.written > writer.synced)?;
        Ok(self.published.synced())
    }

    /// Syncs the written batches that are not synced.
    pub(crate) fn sync_dirty(&self) -> Result<bool, Poisoned> {
        self.sync_if(Writer::is_dirty)
    }

    /// Frames are written that are not synced.
    pub(crate) fn is_dirty(&self) -> bool {
        self.writer.lock().is_dirty()
    }

    /// Writes a mark, once per pause, which says that everything before it is durable: so that damage of the last batch
    /// differs from a torn tail. The mark is not synced. Called when there is nothing to do; for local sinks only.
    pub fn mark(&self) -> Result<bool, Poisoned> {
        let _one = self.driving.lock();
        let mut writer = self.writer.lock();
        self.published.sound()?;
        if !S::LOCAL || writer.marked || writer.written > writer.synced {
            return Ok(false);
        }
        let Some(lsn) = self.fill.lock().mark(writer.extent) else { return Ok(false) };
        let header = BatchHeader { frames: 0, bytes: BATCH_HEADER as u32, known_durable: lsn };
        self.write(lsn, Bytes::copy_from_slice(&header.encode(self.seal, lsn)))?;
        writer.written = lsn.plus(BATCH_HEADER as u64);
        writer.marked = true;
        self.published.set_written(writer.written);
        Ok(true)
    }

    fn send(&self, writer: &mut Writer, batch: Batch) -> Result<(), Poisoned> {
        let (at, end, frames) = (batch.lsn, batch.end(), u64::from(batch.frames));
        let urgent = batch.urgent;
        let bytes = self.pinned.count(batch.sealed(self.seal, writer.synced));
        if S::LOCAL {
            self.write(at, bytes.clone())?;
            (writer.written, writer.frames) = (end, end);
            writer.urgent = writer.urgent.max(urgent);
            writer.marked = false;
        } else {
            let batch = SinkBatch { at, term: self.term, bytes: bytes.clone() };
            writer.flights.push_back(Flight { batch: batch.clone(), state: FlightState::Asked });
            self.ask(batch);
        }
        self.window.lock().push(at, bytes);
        if S::LOCAL {
            self.published.set_written(end);
        } else {
            self.take_answers(writer)?;
        }
        Counters::add(&self.counters.batches, 1);
        Counters::add(&self.counters.written_frames, frames);
        Ok(())
    }

    /// Appends to a local sink, which answers at once.
    fn write(&self, at: Lsn, bytes: Bytes) -> Result<(), Poisoned> {
        let len = bytes.len() as u64;
        match self.sink.append(SinkBatch { at, term: self.term, bytes }).take() {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(self.stop("write", error)),
            Err(_) => {
                return Err(self.published.poison(Poisoned::new("write", "a local sink has not answered at once")));
            }
        }
        Counters::add(&self.counters.written_bytes, len);
        Ok(())
    }

    /// Appends to a remote sink.
    fn ask(&self, batch: SinkBatch) {
        let (at, answers, shell) = (batch.at, Arc::clone(&self.answers), Arc::clone(&self.shell));
        Counters::add(&self.counters.written_bytes, batch.bytes.len() as u64);
        self.sink.append(batch).then(move |answer| {
            answers.push((at, answer));
            shell.wake();
        });
    }

    /// Takes the answers that have come, and publishes as far as all batches are kept. Whether there were any.
    fn take_answers(&self, writer: &mut Writer) -> Result<bool, Poisoned> {
        if S::LOCAL {
            return Ok(false);
        }
        let answers = self.answers.take();
        let came = !answers.is_empty();
        for (at, answer) in answers {
            let Some(flight) = writer.flights.iter_mut().find(|flight| flight.batch.at == at) else {
                return Err(self.published.poison(Poisoned::new("append", format!("an answer for no batch, at {at}"))));
            };
            flight.state = match answer {
                Ok(_) => FlightState::Kept,
                Err(SinkError::Unknown { .. }) => FlightState::Again,
                Err(error) => return Err(self.stop("append", error)),
            };
            if self.options.faults().acknowledged_before_earlier() && flight.state == FlightState::Kept {
                self.published.set_written(flight.batch.end());
                self.published.set_durable(flight.batch.end());
            }
        }
        while let Some(flight) = writer.flights.pop_front_if(|flight| flight.state == FlightState::Kept) {
            let end = flight.batch.end();
            assert!(flight.batch.at >= writer.written, "batches are published in the order of their positions");
            (writer.written, writer.frames) = (end, end);
            self.published.set_written(end);
            self.note_synced(writer, end);
        }
        Ok(came)
    }

    /// Sends the batches again whose outcome is unknown.
    fn send_again(&self, writer: &mut Writer) -> Result<bool, Poisoned> {
        let again = |flight: &&mut Flight| flight.state == FlightState::Again;
        let mut sent = false;
        for flight in writer.flights.iter_mut().filter(again) {
            flight.state = FlightState::Asked;
            self.ask(flight.batch.clone());
            sent = true;
        }
        Ok(sent)
    }

    fn sync_sink(&self) -> Result<(), Poisoned> {
        if !self.options.faults().sync_skipped() {
            self.sink.sync().map_err(|error| self.stop("sync", error))?;
        }
        Counters::add(&self.counters.syncs, 1);
        Ok(())
    }

    fn note_synced(&self, writer: &mut Writer, upto: Lsn) {
        writer.synced = writer.synced.max(upto);
        self.published.set_synced(writer.synced);
    }

    /// Stops the journal for good, because the sink failed.
    fn stop(&self, operation: &'static str, error: SinkError) -> Poisoned {
        let cause = error.to_string();
        self.published.poison(match error {
            SinkError::Failed { operation, cause } => Poisoned::new(operation, cause),
            SinkError::Fenced(fenced) => Poisoned { operation, cause, fenced: Some(fenced) },
            _ => Poisoned::new(operation, cause),
        })
    }

    /// Opens the batch's extent. That proves that everything below its base is durable, so that has to be true first.
    fn open_extent(&self, writer: &mut Writer, batch: &Batch) -> Result<Opening, Poisoned> {
        if !S::LOCAL && !writer.flights.is_empty() {
            return Ok(Opening::TooEarly);
        }
        if writer.written > writer.synced {
            self.sync_sink()?;
            let written = writer.written;
            self.note_synced(writer, written);
        }
        match self.sink.open_extent(batch.lsn) {
            Ok(()) => {}
            Err(SinkError::NoSpace) => return Ok(Opening::NoSpace),
            Err(error) => return Err(self.stop("opening of a segment", error)),
        }
        writer.extent = batch.extent;
        Ok(Opening::Opened)
    }

    /// Writes and syncs all that was accepted, says so in a last batch, and stops. A closed journal accepts nothing. If
    /// frames are left for which the disk has no space, it may be called again.
    pub fn close(&self) -> Result<(), Poisoned> {
        self.shell.stop();
        self.fill.lock().closed = true;
        self.sync()?;
        if !self.fill.lock().is_empty() {
            return Err(Poisoned::new("close", "accepted frames still wait for space on the disk"));
        }
        self.mark()?;
        self.sync()?;
        Ok(())
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use crate::{Class, Faults, Journal, MemorySink, Network, Opened, Options, Sequencer, Term};
    use thalweg_base::Lsn;

    #[test]
    fn an_extent_that_waits_for_answers_is_not_an_extent_without_space() {
        let sink = MemorySink::new(Network::Held { lost: 0, unanswered: 0, repeated: 0 }, 4, 1, Faults::default());
        let opened = Opened { term: 1, end: Lsn::ZERO, segments: 0, discarded: None };
        let seal = Term { number: 1, salt: 0 }.seal();
        // Room for one frame; the next one opens an extent.
        let journal = Sequencer::new(sink.clone(), Options::default(), opened, seal, Lsn::ZERO, 100);
        for _ in 0..2 {
            journal.append(Class::User, &[&[7; 50]]).unwrap();
        }
        assert!(journal.begin().unwrap());
        assert!(!journal.begin().unwrap(), "the first batch is in flight");
        assert_eq!(journal.published.times_full(), 0);
        while sink.deliver() || journal.step().unwrap() {}
        assert_eq!(journal.durable(), journal.end());
    }
}

//! Reads under way: a request for a chunk that is being read for another request waits for that read.
//!
//! When many clients start from one place at once, the last of them asks before the first read has ended. Without this
//! table each client would have the chunk gathered separately. The table's lock is a leaf: no lock is taken, and no
//! waiter is woken, under it.

use super::chunk::{Content, Reading};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use thalweg_base::{LogId, Offset};
use thalweg_http::{Fetch, Promise};
use thalweg_log::{ReadError, ReadFrom};

type Outcome = Result<Content, ReadError>;

/// Determines the result of a read: its log, its begin, and its end or the place that its chunk ends at or after.
type Key = (LogId, Offset, Offset);

/// One entry per read that waits in the pool or runs there; the pool bounds their number, connections bound the
/// waiters.
#[derive(Default)]
pub(crate) struct Flights {
    waiters: Mutex<HashMap<Key, Vec<Promise<Outcome>>>>,
    /// How many bytes all of them will hold.
    bytes: AtomicU64,
}

/// The duty to end a read: every waiter gets the outcome, or an error if this is dropped without one.
pub(crate) struct Flight {
    flights: Arc<Flights>,
    key: Key,
    want: ReadFrom,
    bytes: u64,
    /// The read has ended: the table may hold a new one of the same chunk.
    landed: bool,
}

/// The outcome of a finished read, and the requests that wait for it.
#[must_use]
pub(crate) struct Landing {
    waiters: Vec<Promise<Outcome>>,
    outcome: Outcome,
}

impl Landing {
    /// Gives every waiter the outcome.
    pub(crate) fn deliver(self) {
        self.waiters.into_iter().for_each(|waiter| waiter.keep(self.outcome.clone()));
    }
}

/// A request's way to its chunk.
pub(crate) enum Boarded {
    /// Another request has begun the read.
    Joined(Reading),
    /// The caller is to do the read.
    First(Flight, Reading),
}

impl Flights {
    pub(crate) fn are_under_way(&self, want: ReadFrom, target: Offset) -> bool {
        self.waiters.lock().contains_key(&key(want, target))
    }

    /// Waits for the read of a chunk, if one is under way.
    pub(crate) fn join(&self, want: ReadFrom, target: Offset) -> Option<Reading> {
        let mut flights = self.waiters.lock();
        let waiters = flights.get_mut(&key(want, target))?;
        let (promise, reading) = Fetch::promise();
        waiters.push(promise);
        Some(reading)
    }

    /// Bytes of all reads under way, including reads in the queue.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Waits for the read of a chunk of about `bytes`, which the first caller must start: others rely on it from here
    /// on, so nothing may keep that caller from the read. Chunks end by content: every tail from `target` on, a message
    /// boundary itself, has the first boundary from there on before it, so all these tails give the same chunk.
    pub(crate) fn board(self: &Arc<Self>, want: ReadFrom, target: Offset, bytes: u64) -> Boarded {
        let key = key(want, target);
        let (promise, reading) = Fetch::promise();
        match self.waiters.lock().entry(key) {
            Entry::Occupied(mut entry) => {
                entry.get_mut().push(promise);
                Boarded::Joined(reading)
            }
            Entry::Vacant(entry) => {
                entry.insert(vec![promise]);
                self.bytes.fetch_add(bytes, Ordering::Relaxed);
                Boarded::First(Flight { flights: Arc::clone(self), key, want, bytes, landed: false }, reading)
            }
        }
    }
}

fn key(want: ReadFrom, target: Offset) -> Key {
    (want.log, want.from, want.upto.min(target))
}

impl Flight {
    /// Whether more than one request waits for it.
    pub(crate) fn is_shared(&self) -> bool {
        self.flights.waiters.lock().get(&self.key).is_some_and(|waiters| waiters.len() > 1)
    }

    /// Ends the read if every waiting request is gone.
    pub(crate) fn ends_unawaited(&mut self) -> bool {
        if let Entry::Occupied(entry) = self.flights.waiters.lock().entry(self.key)
            && !entry.get().iter().any(Promise::is_awaited)
        {
            entry.remove();
            self.landed = true;
        }
        self.landed
    }

    /// Ends the read; a request that comes after this begins a new one. `None` if it has ended before.
    pub(crate) fn landing(&mut self, outcome: Outcome) -> Option<Landing> {
        if std::mem::replace(&mut self.landed, true) {
            return None;
        }
        let waiters = self.flights.waiters.lock().remove(&self.key).unwrap_or_default();
        Some(Landing { waiters, outcome })
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let (log, offset) = (self.want.log, self.want.from);
        let given_up = self.landing(Err(ReadError::Io { log, offset, cause: "the read was given up".into() }));
        given_up.into_iter().for_each(Landing::deliver);
        self.flights.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_http::Waker;
    use thalweg_log::Chunk;

    const LOG: LogId = LogId(64);
    const TARGET: Offset = Offset(4_096);

    fn want(upto: u64) -> ReadFrom {
        ReadFrom { log: LOG, from: Offset(10), upto: Offset(upto) }
    }

    fn first(flights: &Arc<Flights>, upto: u64) -> (Flight, Reading) {
        match flights.board(want(upto), TARGET, 10) {
            Boarded::First(flight, reading) => (flight, reading),
            Boarded::Joined(_) => panic!("a read is under way"),
        }
    }

    fn joined(flights: &Arc<Flights>, upto: u64) -> Reading {
        match flights.board(want(upto), TARGET, 10) {
            Boarded::Joined(reading) => reading,
            Boarded::First(..) => panic!("no read is under way"),
        }
    }

    fn content(end: u64) -> Outcome {
        Ok(Content { from: Offset(10), chunk: Chunk { parts: Vec::new(), end: Offset(end) } })
    }

    fn land(flight: &mut Flight, end: u64) {
        flight.landing(content(end)).unwrap().deliver();
    }

    fn end_of(reading: &Reading) -> Option<Result<Offset, ReadError>> {
        let outcome = reading.take(|| Waker::from_fn(|| ()))?;
        Some(outcome.map(|content| content.chunk.end))
    }

    #[test]
    fn who_asks_for_a_chunk_under_way_gets_it_with_the_first() {
        let flights = Arc::new(Flights::default());
        let (mut flight, one) = first(&flights, 5_000);
        assert!(!flight.is_shared());
        let wakes = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&wakes);
        // Every tail from the target on gives the same chunk.
        let (two, three) = (joined(&flights, 5_000), joined(&flights, 1 << 40));
        let waker = Waker::from_fn(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        assert!(two.take(|| waker).is_none() && flight.is_shared());
        land(&mut flight, 4_100);
        assert_eq!(wakes.load(Ordering::Relaxed), 1);
        for reading in [one, two, three] {
            assert_eq!(end_of(&reading), Some(Ok(Offset(4_100))));
        }
        assert_eq!(flights.waiters.lock().len(), 0);
    }

    #[test]
    fn only_a_read_under_way_is_joined() {
        let flights = Arc::new(Flights::default());
        assert!(flights.join(want(5_000), TARGET).is_none());
        let (mut flight, _one) = first(&flights, 5_000);
        let two = flights.join(want(1 << 40), TARGET).unwrap();
        land(&mut flight, 4_100);
        assert_eq!(end_of(&two), Some(Ok(Offset(4_100))));
        assert!(flights.join(want(5_000), TARGET).is_none());
    }

    #[test]
    fn a_chunk_that_ends_at_the_tail_is_for_those_who_see_that_tail() {
        let flights = Arc::new(Flights::default());
        let (mut shorter, one) = first(&flights, 100);
        let (mut longer, two) = first(&flights, 200);
        land(&mut shorter, 100);
        land(&mut longer, 200);
        assert_eq!((end_of(&one), end_of(&two)), (Some(Ok(Offset(100))), Some(Ok(Offset(200)))));
    }

    #[test]
    fn a_read_that_has_ended_does_not_end_the_next_one() {
        let flights = Arc::new(Flights::default());
        let (flight, one) = first(&flights, 100);
        drop(flight);
        assert!(matches!(end_of(&one), Some(Err(ReadError::Io { .. }))), "it was given up");
        let (mut flight, _) = first(&flights, 100);
        land(&mut flight, 100);
        let (_next, waiting) = first(&flights, 100);
        assert_eq!(end_of(&waiting), None);
    }

    #[test]
    fn a_read_for_which_nobody_waits_ends_and_the_next_request_begins_another() {
        let flights = Arc::new(Flights::default());
        let (mut flight, one) = first(&flights, 100);
        let two = joined(&flights, 100);
        drop(one);
        assert!(!flight.ends_unawaited(), "one of two still waits");
        drop(two);
        assert!(flight.ends_unawaited());
        let (mut next, three) = first(&flights, 100);
        drop(flight);
        land(&mut next, 100);
        assert_eq!(end_of(&three), Some(Ok(Offset(100))));
    }
}

//! A read through the cache: it takes local blocks, joins flights of blocks under way, and asks the remote storage for
//! the rest.

use super::flights::Joined;
use super::format::BlockKey;
use super::gather::{Assembly, Gather};
use super::index::Place;
use super::index::Use;
use super::shared::{Shared, State};
use super::stats::add;
use crate::StorageError;
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;
use thalweg_base::{ObjectId, Ticket};

pub(crate) type Answer = Result<Bytes, StorageError>;

/// Why a read has nothing to do with blocks.
enum Instead {
    Refuse(StorageError),
    Empty,
    /// The cache can or must not help: the remote storage is asked for the range as it is.
    Bypass,
}

/// The blocks of a read by state, as found under the lock.
struct Blocks {
    gather: Arc<Gather>,
    ticket: Ticket<Answer>,
    object_len: Option<u64>,
    local: Vec<(BlockKey, Place)>,
    memory: Vec<(BlockKey, Bytes)>,
    /// Flights that begin with this read: neighbours in one range.
    ask: Vec<Range<u32>>,
}

impl Shared {
    pub(crate) fn read(self: &Arc<Self>, object: ObjectId, range: Range<u64>) -> Ticket<Answer> {
        match self.plan(object, &range) {
            Err(Instead::Refuse(error)) => Ticket::ready(Err(error)),
            Err(Instead::Empty) => Ticket::ready(Ok(Bytes::new())),
            Err(Instead::Bypass) => {
                add(&self.counters.bypassed, 1);
                add(&self.counters.remote_requests, 1);
                let (ticket, completer) = Ticket::pending();
                self.request(object, range, |answer| completer.complete(answer));
                ticket
            }
            Ok(blocks) => self.gather(object, blocks),
        }
    }

    fn plan(&self, object: ObjectId, range: &Range<u64>) -> Result<Blocks, Instead> {
        let state = &mut *self.state.lock();
        let object_len = state.index.len(object);
        let numbers = self.blocks_of(state, object, range)?;
        let (gather, ticket) = Gather::new(
            Assembly::new(object, range.clone(), self.bounds.block_bytes),
            (numbers.end - numbers.start) as usize,
        );
        let uses = state.index.note_read(object, range, self.bounds.block_bytes);
        let (local, memory, ask) = (Vec::new(), Vec::new(), Vec::new());
        let mut blocks = Blocks { gather: Arc::new(gather), ticket, object_len, local, memory, ask };
        for number in numbers {
            let key = BlockKey { object, block: number };
            match state.index.find(key, uses.of(number)) {
                Some(place) => blocks.local.push((key, place)),
                None => match state.flights.join(key, &blocks.gather) {
                    Joined::First => blocks.ask(number, self.bounds.request_blocks),
                    Joined::Waiting => add(&self.counters.coalesced_waits, 1),
                    Joined::Bytes(bytes) => blocks.memory.push((key, bytes)),
                },
            }
        }
        Ok(blocks)
    }

    /// The numbers of the blocks that a range touches, if the cache serves it.
    fn blocks_of(&self, state: &State, object: ObjectId, range: &Range<u64>) -> Result<Range<u32>, Instead> {
        if state.off {
            return Err(Instead::Bypass);
        }
        match state.index.len(object) {
            Some(len) => crate::check_range(object, range, len).map_err(Instead::Refuse)?,
            // The remote storage judges a range that has no bound here.
            None if range.start >= range.end => return Err(Instead::Bypass),
            None if range.end - range.start > self.bounds.unknown_read_max() => return Err(Instead::Bypass),
            None => {}
        }
        if range.is_empty() {
            return Err(Instead::Empty);
        }
        let number = |at: u64| u32::try_from(at / self.bounds.block_bytes).map_err(|_| Instead::Bypass);
        let numbers = number(range.start)?..number(range.end - 1)?.checked_add(1).ok_or(Instead::Bypass)?;
        // A read that begins after the removal must learn of it from the remote storage, and not join flights of
        // earlier reads.
        if numbers.clone().any(|block| state.flights.is_removed(BlockKey { object, block })) {
            return Err(Instead::Bypass);
        }
        Ok(numbers)
    }

    fn gather(self: &Arc<Self>, object: ObjectId, blocks: Blocks) -> Ticket<Answer> {
        for numbers in blocks.ask {
            add(&self.counters.misses, u64::from(numbers.end - numbers.start));
            self.ask(object, numbers, blocks.object_len);
        }
        for (key, bytes) in blocks.memory {
            self.count_hit(&bytes);
            blocks.gather.deliver(key, &bytes);
        }
        for (key, place) in blocks.local {
            self.read_local(key, place, &blocks.gather);
        }
        blocks.ticket
    }

    /// The bytes if all blocks are in memory: ours or the system's.
    pub(crate) fn try_read(&self, object: ObjectId, range: &Range<u64>) -> Option<Answer> {
        let (mut local, mut memory) = (Vec::new(), Vec::new());
        {
            let state = &mut *self.state.lock();
            let numbers = match self.blocks_of(state, object, range) {
                Ok(numbers) => numbers,
                Err(Instead::Refuse(error)) => return Some(Err(error)),
                Err(Instead::Empty) => return Some(Ok(Bytes::new())),
                Err(_) => return None,
            };
            for key in numbers.map(|block| BlockKey { object, block }) {
                match (state.index.find(key, Use::Continued), state.flights.filling(key)) {
                    (Some(place), _) => local.push((key, place)),
                    (None, Some(bytes)) => memory.push((key, bytes.clone())),
                    (None, None) => return None,
                }
            }
        }
        let mut assembly = Assembly::new(object, range.clone(), self.bounds.block_bytes);
        for (key, place) in &local {
            match self.folder.as_ref()?.try_read(*key, *place) {
                Ok(bytes) => memory.push((*key, Bytes::from(bytes?))),
                Err(_) => {
                    self.drop_damaged(*key, *place);
                    return None;
                }
            }
        }
        for (key, bytes) in &memory {
            if let Err(error) = assembly.put(key.block, bytes) {
                return Some(Err(error));
            }
        }
        memory.iter().for_each(|(_, bytes)| self.count_hit(bytes));
        self.note_use(object, range, &local);
        Some(Ok(assembly.finish()))
    }

    /// A read without waiting counts only when it succeeded: else the read that waits comes after it.
    fn note_use(&self, object: ObjectId, range: &Range<u64>, local: &[(BlockKey, Place)]) {
        let state = &mut *self.state.lock();
        let uses = state.index.note_read(object, range, self.bounds.block_bytes);
        for (key, _) in local {
            state.index.find(*key, uses.of(key.block));
        }
    }
}

impl Blocks {
    /// Adds a block to the last request if it is its neighbour and the request has room, else begins another one.
    fn ask(&mut self, block: u32, request_blocks: u32) {
        match self.ask.last_mut() {
            Some(last) if last.end == block && last.end - last.start < request_blocks => last.end += 1,
            _ => self.ask.push(block..block + 1),
        }
    }
}

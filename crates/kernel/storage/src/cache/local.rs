//! The work of the local disk's threads: reading blocks, and filling slots.

use super::format::BlockKey;
use super::gather::Gather;
use super::index::Place;
use super::queue::{Fill, Job, LocalRead};
use super::shared::Shared;
use super::stats::add;
use std::sync::Arc;

impl Shared {
    /// Takes a block from the system's memory if it is there, else leaves it to the threads of the local disk.
    pub(crate) fn read_local(self: &Arc<Self>, key: BlockKey, place: Place, gather: &Arc<Gather>) {
        let Some(folder) = &self.folder else { return self.fetch(key, gather) };
        match folder.try_read(key, place) {
            Ok(Some(bytes)) => {
                self.count_hit(&bytes);
                gather.deliver(key, &bytes);
            }
            Ok(None) => match self.queue.push_read(LocalRead { key, place, gather: Arc::clone(gather) }) {
                Ok(()) => self.work_inline(),
                Err(_) => {
                    add(&self.counters.reads_refused, 1);
                    self.fetch(key, gather);
                }
            },
            Err(_) => self.replace(key, place, gather),
        }
    }

    pub(crate) fn count_hit(&self, bytes: &[u8]) {
        add(&self.counters.hits, 1);
        add(&self.counters.hit_bytes, bytes.len() as u64);
    }

    /// Drops a slot at `place` whose bytes are not the block's, and fetches the block again.
    fn replace(self: &Arc<Self>, key: BlockKey, place: Place, gather: &Arc<Gather>) {
        self.drop_damaged(key, place);
        self.fetch(key, gather);
    }

    /// No damage if the block was evicted while it was read: then its slot holds another one.
    pub(crate) fn drop_damaged(&self, key: BlockKey, place: Place) {
        if self.state.lock().index.forget(key, Some(place)) {
            add(&self.counters.damaged, 1);
        }
    }

    pub(crate) fn queue_fill(self: &Arc<Self>, fill: Fill) {
        match self.queue.push_fill(fill) {
            Ok(()) => self.work_inline(),
            Err(fill) => {
                let mut state = self.state.lock();
                for (key, _) in fill.blocks(self.bounds.block_bytes) {
                    add(&self.counters.fills_refused, u64::from(state.flights.filled(key)));
                }
            }
        }
    }

    fn work_inline(self: &Arc<Self>) {
        while self.bounds.inline
            && let Some(job) = self.queue.try_next()
        {
            self.perform(job);
        }
    }

    /// Does one job of the queue. For threads that may wait for the local disk.
    pub(crate) fn perform(self: &Arc<Self>, job: Job) {
        let filled = match job {
            Job::Read(LocalRead { key, place, gather }) => {
                match self.folder.as_ref().and_then(|folder| folder.read(key, place)) {
                    Some(bytes) => {
                        self.count_hit(&bytes);
                        gather.deliver(key, &bytes);
                    }
                    None => self.replace(key, place, &gather),
                }
                0
            }
            Job::Fill(fill) => {
                for (key, bytes) in fill.blocks(self.bounds.block_bytes) {
                    self.fill(key, fill.object_len, &bytes);
                }
                fill.bytes.len()
            }
        };
        self.queue.done(filled);
    }

    /// Writes one block into a slot, and makes it resident if its flight still stands.
    fn fill(&self, key: BlockKey, object_len: Option<u64>, bytes: &[u8]) {
        let Some(slot) = ({
            let state = &mut *self.state.lock();
            match state.flights.filling(key) {
                Some(_) => state.index.hold(),
                None => return,
            }
        }) else {
            self.state.lock().flights.filled(key);
            return;
        };
        let Some(folder) = &self.folder else { return };
        let place = match folder.write(slot, key, object_len, bytes) {
            Ok(place) => place,
            Err(error) => return self.turn_off("writing", &error),
        };
        let state = &mut *self.state.lock();
        if state.flights.filled(key) && !state.off {
            add(&self.counters.evictions, state.index.insert(key, place));
            add(&self.counters.filled, 1);
        } else {
            state.index.release(slot);
        }
    }
}

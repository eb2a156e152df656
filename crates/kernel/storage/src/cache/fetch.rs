//! Requests to the remote storage, and the handling of its answers.

use super::flights::{Joined, Waiters};
use super::format::BlockKey;
use super::gather::Gather;
use super::queue::Fill;
use super::read::Answer;
use super::shared::Shared;
use super::stats::add;
use crate::StorageError;
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;
use thalweg_base::ObjectId;

impl Shared {
    /// Asks the remote storage for one block that cannot be had locally, unless that is under way.
    pub(crate) fn fetch(self: &Arc<Self>, key: BlockKey, gather: &Arc<Gather>) {
        let (joined, object_len) = {
            let mut state = self.state.lock();
            (state.flights.join(key, gather), state.index.len(key.object))
        };
        match joined {
            Joined::First => {
                add(&self.counters.misses, 1);
                self.ask(key.object, key.block..key.block + 1, object_len);
            }
            Joined::Waiting => add(&self.counters.coalesced_waits, 1),
            Joined::Bytes(bytes) => {
                self.count_hit(&bytes);
                gather.deliver(key, &bytes);
            }
        }
    }

    /// Asks the remote storage for neighbouring blocks whose flights have begun.
    pub(crate) fn ask(self: &Arc<Self>, object: ObjectId, blocks: Range<u32>, object_len: Option<u64>) {
        let from = u64::from(blocks.start) * self.bounds.block_bytes;
        let to = (u64::from(blocks.end) * self.bounds.block_bytes).min(object_len.unwrap_or(u64::MAX));
        add(&self.counters.remote_requests, 1);
        let shared = Arc::clone(self);
        self.request(object, from..to, move |answer| shared.answered(object, blocks, from..to, object_len, answer));
    }

    /// Asks the remote storage for a range when there is room for one more request.
    pub(crate) fn request(
        self: &Arc<Self>,
        object: ObjectId,
        range: Range<u64>,
        then: impl FnOnce(Answer) + Send + 'static,
    ) {
        let shared = Arc::clone(self);
        self.requests.send(move || {
            let answered = Arc::clone(&shared);
            shared.remote.read(object, range).then(move |answer| {
                then(answer);
                answered.requests.answered();
            });
        });
    }

    fn answered(
        self: &Arc<Self>,
        object: ObjectId,
        blocks: Range<u32>,
        asked: Range<u64>,
        object_len: Option<u64>,
        answer: Answer,
    ) {
        match answer {
            Ok(bytes) if bytes.len() as u64 == asked.end - asked.start => {
                add(&self.counters.remote_bytes, bytes.len() as u64);
                self.keep(Fill { object, first: blocks.start, bytes, object_len });
            }
            Ok(bytes) => {
                let cause = format!("the storage answered with {} of {} bytes", bytes.len(), asked.end - asked.start);
                self.fail(object, blocks, StorageError::Unreadable { object, at: asked.start, cause });
            }
            // Whole blocks were asked for without knowing the length; now it is known, and the last one is shorter.
            Err(StorageError::Range { len, .. }) if object_len.is_none() && len < asked.end => {
                self.ask_within(object, blocks, len);
            }
            Err(error) => self.fail(object, blocks, error),
        }
    }

    /// Asks again for those blocks that the object has, and refuses the reads that want others.
    fn ask_within(self: &Arc<Self>, object: ObjectId, blocks: Range<u32>, len: u64) {
        let end =
            u32::try_from(len.div_ceil(self.bounds.block_bytes)).unwrap_or(u32::MAX).clamp(blocks.start, blocks.end);
        let outside = {
            let state = &mut *self.state.lock();
            let removed = blocks.clone().any(|block| state.flights.is_removed(BlockKey { object, block }));
            if !removed {
                let removals = state.index.removals();
                state.index.learn(object, len, removals);
            }
            state.flights.fail(object, end..blocks.end)
        };
        if end > blocks.start {
            self.ask(object, blocks.start..end, Some(len));
        }
        each(outside, |gather| gather.fail_outside(len));
    }

    fn fail(&self, object: ObjectId, blocks: Range<u32>, error: StorageError) {
        add(&self.counters.remote_errors, 1);
        let waiters = self.state.lock().flights.fail(object, blocks);
        each(waiters, |gather| gather.fail(error.clone()));
    }

    /// Gives fetched blocks to the reads that wait for them, and to the local disk.
    fn keep(self: &Arc<Self>, fill: Fill) {
        let (mut waiting, mut kept) = (Vec::new(), false);
        {
            let state = &mut *self.state.lock();
            for (key, bytes) in fill.blocks(self.bounds.block_bytes) {
                // A block that was fetched because its local reader would have waited too long is there already.
                let fill = !state.off && !state.index.contains(key);
                let (waiters, filling) = state.flights.answered(key, bytes.clone(), fill);
                kept |= filling;
                waiting.push((key, bytes, waiters));
            }
        }
        if kept {
            self.queue_fill(fill);
        }
        for (key, bytes, waiters) in waiting {
            waiters.iter().for_each(|gather| gather.deliver(key, &bytes));
        }
    }

    /// An object was written through: `kept` is all of it, if it was small enough to be remembered.
    pub(crate) fn written(self: &Arc<Self>, object: ObjectId, len: u64, kept: Option<Vec<u8>>, removals: u64) {
        let kept = kept.filter(|kept| kept.len() as u64 == len && len > 0 && len <= self.bounds.unknown_read_max());
        let fill = kept.map(|kept| Fill { object, first: 0, bytes: Bytes::from(kept), object_len: Some(len) });
        {
            let state = &mut *self.state.lock();
            // A storage that was restored from a backup reuses ids: cached blocks of an earlier object with this id
            // must go.
            state.index.make_way(object, len, self.bounds.block_bytes);
            state.flights.remove(object);
            state.index.learn(object, len, removals);
            if state.off || state.index.removals() != removals {
                return;
            }
            for (key, bytes) in fill.iter().flat_map(|fill| fill.blocks(self.bounds.block_bytes)) {
                state.flights.fill(key, bytes);
            }
        }
        if let Some(fill) = fill {
            self.queue_fill(fill);
        }
    }
}

fn each(waiters: Waiters, act: impl Fn(&Gather)) {
    for (_, gathers) in waiters {
        gathers.iter().for_each(|gather| act(gather));
    }
}

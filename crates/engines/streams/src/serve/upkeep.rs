//! Background work: removes expired streams, trims streams beyond their retention, and records uses that have moved far
//! enough. Each call does a bounded amount of work in frames of many streams, so that a million streams that expire at
//! once do not block requests.

use super::engine::Engine;
use super::remove::{Plan, Planned, Why};
use super::stats::add;
use crate::error::Refused;
use crate::format::note::Note;
use parking_lot::Mutex;

use thalweg_base::{LogId, Millis};
use thalweg_journal::Class;
use thalweg_log::{Op, SweepCursor};

/// How many streams share a frame. Their shards are locked for as long as that frame takes.
const FRAME_STREAMS: usize = 256;
/// How many streams may wait to have a use recorded; more are recorded by a later use.
const TOUCHES_MAX: usize = 1 << 20;

#[derive(Default)]
pub(crate) struct Upkeep {
    touches: Mutex<Vec<LogId>>,
    sweep: Mutex<SweepCursor>,
}

impl Upkeep {
    /// Returns whether the queue had room.
    pub(crate) fn queue_touch(&self, log: LogId) -> bool {
        let mut touches = self.touches.lock();
        let room = touches.len() < TOUCHES_MAX;
        if room {
            touches.push(log);
        }
        room
    }
}

impl Engine {
    pub(crate) fn tick(&self, now: Millis) {
        self.population.counted(self.logs.len());
        let recorded = self.record_touches();
        let expired = self.sweep(now);
        for result in [&recorded, &expired] {
            if let Err(refused) = result {
                tracing::warn!(error = %refused.refusal, "upkeep of streams failed and is retried");
            }
        }
        // A frame of ours must not wait for the next request.
        if !matches!((recorded, expired), (Ok(0), Ok(0))) {
            self.logs.journal().kick();
        }
    }

    /// Records queued uses, as far as the budget of one call goes.
    fn record_touches(&self) -> Result<usize, Refused> {
        let queued = {
            let mut touches = self.upkeep.touches.lock();
            let keep = touches.len().saturating_sub(self.config.expire_per_tick);
            touches.split_off(keep)
        };
        for batch in queued.chunks(FRAME_STREAMS) {
            let mut guard = self.logs.lock_logs(batch, &[]);
            let mut notes = Vec::new();
            for log in batch {
                let Some(state) = guard.attachment_mut(*log) else { continue };
                state.touch_queued = false;
                if state.touch_is_due() {
                    let mut note = Vec::with_capacity(8);
                    Note::Touched(state.seen).encode(&mut note);
                    notes.push((*log, note));
                }
            }
            let ops: Vec<Op<'_>> =
                notes.iter().map(|(log, note)| Op::Write { log: *log, note, append: None }).collect();
            if !ops.is_empty() {
                guard.commit(Class::Upkeep, &ops).map_err(crate::error::Refusal::from)?;
            }
        }
        Ok(queued.len())
    }

    /// Checks some streams, removes expired ones and trims those beyond their retention.
    fn sweep(&self, now: Millis) -> Result<usize, Refused> {
        let mut due: Vec<(LogId, Box<str>)> = Vec::new();
        let mut long: Vec<LogId> = Vec::new();
        let most = self.config.expire_per_tick.max(1);
        {
            let mut cursor = self.upkeep.sweep.lock();
            let mut left = self.config.sweep_per_tick;
            // Sweeps in small steps, so that no shard is locked for long, and the cursor stops where the budget ends.
            while left > 0 && due.len() < most && long.len() < self.config.trim_per_tick.max(1) {
                let step = left.min(FRAME_STREAMS);
                left -= step;
                let next = self.logs.sweep_all(*cursor, step, &mut |seen| {
                    if self.expired(seen.attachment, now) {
                        due.push((seen.id, seen.name.into()));
                    } else if self.retains_too_much(&seen, now) {
                        long.push(seen.id);
                    }
                });
                *cursor = next.unwrap_or_default();
                if next.is_none() {
                    break;
                }
            }
        }
        for batch in due.chunks(FRAME_STREAMS) {
            self.expire_batch(batch, now)?;
        }
        self.retain(&long, now)?;
        Ok(due.len() + long.len())
    }

    fn expire_batch(&self, batch: &[(LogId, Box<str>)], now: Millis) -> Result<(), Refused> {
        let names: Vec<&str> = batch.iter().map(|(_, name)| &**name).collect();
        let mut later = Vec::new();
        let mut plan = Plan::default();
        let mut guard = self.logs.lock(&names);
        let mut removed = 0;
        for (log, name) in batch {
            // A fork changes its source: one at a time, so that plans do not meet.
            let alone = guard.view(*log).is_some_and(|view| view.attachment.fork.is_some()) || plan.concerns(*log);
            if alone {
                later.push(name);
            } else if let Planned::Removed =
                plan.add(&mut guard, *log, &[], Why::Expired, |state| self.expired(state, now))?
            {
                removed += 1;
            }
        }
        let end = if plan.deeds.is_empty() { None } else { Some(plan.commit(&mut guard)?) };
        drop(guard);
        if let Some(end) = end {
            add(&self.counters.expired, removed);
            self.announce_all(&plan, end);
        }
        for name in later {
            self.expire(name, now)?;
        }
        Ok(())
    }
}

//! Retention in the background: old content is trimmed from the front of streams, at message boundaries.

use super::engine::Engine;
use super::name::is_private;
use super::stats::add;
use crate::error::{Refusal, Refused};
use crate::format::note::Note;
use crate::state::StreamState;
use crate::state::retention::{Keep, Mark, Retention};
use thalweg_base::{LogId, Millis, Offset};
use thalweg_journal::Class;
use thalweg_log::{LogView, Op, Seen};

/// How many streams share a frame.
const FRAME_STREAMS: usize = 64;

/// A change to one stream's retained content, with its boundary.
#[derive(Clone, Copy)]
enum Change {
    Mark(Mark),
    Trim(Offset),
}

impl Engine {
    /// The retention in force: the stream's own, else the server's.
    pub(crate) fn retention(&self, state: &StreamState) -> Retention {
        state.retention.or(self.config.retention)
    }

    /// Whether upkeep must trim or mark the stream.
    pub(super) fn retains_too_much(&self, seen: &Seen<'_, StreamState>, now: Millis) -> bool {
        let state = seen.attachment;
        let retention = self.retention(state);
        !retention.is_unlimited()
            && !state.soft_deleted
            && !is_private(seen.name)
            && retention.judge(&state.marks, seen.start, seen.published, now).is_some()
    }

    fn judge(&self, view: &LogView<'_, StreamState>, now: Millis) -> Option<Keep> {
        let state = view.attachment;
        if state.soft_deleted || is_private(view.name) {
            return None;
        }
        self.retention(state).judge(&state.marks, view.start, view.published, now)
    }

    /// Trims and marks these streams. May wait for a device.
    pub(super) fn retain(&self, logs: &[LogId], now: Millis) -> Result<(), Refused> {
        for batch in logs.chunks(FRAME_STREAMS) {
            let changes: Vec<(LogId, Change)> =
                batch.iter().filter_map(|log| Some((*log, self.change(*log, now)?))).collect();
            self.commit_retained(&changes)?;
        }
        Ok(())
    }

    /// One complete pass over all streams, for tests.
    #[cfg(test)]
    pub(crate) fn retain_all(&self, now: Millis) -> Result<(), Refused> {
        let mut logs = Vec::new();
        self.logs.sweep_all(thalweg_log::SweepCursor::default(), usize::MAX, &mut |seen| logs.push(seen.id));
        self.retain(&logs, now)
    }

    /// The change that a stream needs; its content is read without a lock.
    fn change(&self, log: LogId, now: Millis) -> Option<Change> {
        let (keep, start, published) = {
            let mut guard = self.logs.lock_logs(&[log], &[]);
            let view = guard.view(log)?;
            (self.judge(&view, now)?, view.start, view.published)
        };
        match keep {
            Keep::Mark(mark) => Some(Change::Mark(mark)),
            Keep::From(at) => Some(Change::Trim(at)),
            Keep::About(at) => match self.logs.boundary(log, at, published) {
                Ok(at) => (at > start).then_some(Change::Trim(at)),
                Err(error) => {
                    tracing::warn!(%log, %error, "content past its retention cannot be trimmed yet");
                    None
                }
            },
        }
    }

    fn commit_retained(&self, changes: &[(LogId, Change)]) -> Result<(), Refused> {
        let logs: Vec<LogId> = changes.iter().map(|(log, _)| *log).collect();
        let mut guard = self.logs.lock_logs(&logs, &[]);
        let mut notes = Vec::with_capacity(changes.len());
        let (mut trims, mut bytes) = (0, 0);
        for (log, change) in changes {
            let Some(view) = guard.view(*log) else { continue };
            let mut note = Vec::with_capacity(16);
            let trim = match *change {
                Change::Mark(mark) => {
                    Note::Mark(mark).encode(&mut note);
                    None
                }
                Change::Trim(at) if at <= view.start => continue,
                Change::Trim(at) => {
                    Note::Trimmed(at).encode(&mut note);
                    trims += 1;
                    bytes += at.since(view.start);
                    Some(at)
                }
            };
            notes.push((*log, note, trim));
        }
        let ops: Vec<Op<'_>> = notes
            .iter()
            .flat_map(|(log, note, trim)| {
                let write = Op::Write { log: *log, note, append: None };
                [Some(write), trim.map(|start| Op::Trim { log: *log, start })].into_iter().flatten()
            })
            .collect();
        if !ops.is_empty() {
            guard.commit(Class::Upkeep, &ops).map_err(Refusal::from)?;
            add(&self.counters.trims, trims);
            add(&self.counters.trimmed_bytes, bytes);
        }
        Ok(())
    }
}

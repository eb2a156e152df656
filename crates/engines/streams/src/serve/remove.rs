//! The end of streams: DELETE, expiry, and the cascade along forks (protocol sections 4.2 and 5.4).
//!
//! A stream with live forks is only marked: its name stays reserved and its content stays for them. When the last fork
//! of such a stream is removed, the stream is removed too, and so on up the chain, all in one frame. So a crash never
//! leaves half of a cascade.

use super::engine::{Engine, TRIES};
use super::head::Head;
use super::stats::add;
use super::turn::Answer;
use crate::error::{Refusal, Refused};
use crate::format::note::Note;
use crate::state::StreamState;
use thalweg_base::{LogId, Lsn, Millis, Offset, Until};
use thalweg_http::{Body, Request};
use thalweg_journal::Class;
use thalweg_log::{Guard, Op};

/// Why a stream goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    Request,
    Expired,
}

/// Effect of a removal on one log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogRemoval {
    Delete {
        log: LogId,
    },
    /// Marked as deleted; content below `tail` stays only as far as forks need it.
    Mark {
        log: LogId,
        tail: Offset,
    },
    /// A fork of the log was removed; `last`: no fork is left.
    Release {
        log: LogId,
        last: bool,
    },
}

impl LogRemoval {
    fn log(self) -> LogId {
        match self {
            Self::Delete { log } | Self::Mark { log, .. } | Self::Release { log, .. } => log,
        }
    }
}

/// The steps of a removal.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) deeds: Vec<LogRemoval>,
    /// The watched ones of these logs.
    watched: Vec<LogId>,
}

pub(crate) enum Planned {
    Removed,
    /// The stream was used after the check, or is marked already.
    Alive,
    /// More of its chain must be locked: up to this name.
    Lock(Box<str>),
}

impl Engine {
    pub(crate) fn delete(&self, request: &Request<'_>, now: Millis) -> Result<Answer, Refused> {
        let name = self.name(request)?;
        drop(self.find_live(&name, self.hop(request.headers), now)?);
        let end = self.remove(&name, Why::Request, now)?;
        add(&self.counters.deletes, 1);
        Ok(Answer::Response(Until::Durable(end), Head::new(204).finish(Body::Empty)))
    }

    /// Removes a stream that is past its time, if it still is.
    pub(crate) fn expire(&self, name: &str, now: Millis) -> Result<Lsn, Refused> {
        self.remove(name, Why::Expired, now)
    }

    /// Removes a stream; when this is durable, it is gone.
    pub(super) fn remove(&self, name: &str, why: Why, now: Millis) -> Result<Lsn, Refused> {
        let mut chain: Vec<Box<str>> = vec![name.into()];
        for _ in 0..TRIES * 8 {
            let names: Vec<&str> = chain.iter().map(|name| &**name).collect();
            let mut guard = self.logs.lock(&names);
            let Some(log) = guard.find(name) else {
                return Err(Refusal::NotFound.after(guard.absent_since(name)));
            };
            let mut plan = Plan::default();
            match plan.add(&mut guard, log, &names, why, |state| self.expired(state, now))? {
                Planned::Removed => {
                    let end = plan.commit(&mut guard)?;
                    drop(guard);
                    if why == Why::Expired {
                        add(&self.counters.expired, 1);
                    }
                    self.observed.note_gone(Until::Durable(end), log, name);
                    self.announce_all(&plan, end);
                    return Ok(end);
                }
                Planned::Alive => return Ok(Lsn::ZERO),
                Planned::Lock(more) => {
                    drop(guard);
                    chain.push(more);
                }
            }
        }
        Err(Refusal::Contended.into())
    }

    pub(crate) fn announce_all(&self, plan: &Plan, end: Lsn) {
        let until = Until::Durable(end);
        plan.watched.iter().for_each(|log| self.announce(until, *log));
        plan.deeds
            .iter()
            .filter(|deed| !matches!(deed, LogRemoval::Release { .. }))
            .for_each(|deed| self.changed(until, deed.log()));
    }
}

impl Plan {
    /// Plans the removal of one stream. `locked` are the names whose shards the guard holds.
    pub(crate) fn add(
        &mut self,
        guard: &mut Guard<'_, StreamState>,
        log: LogId,
        locked: &[&str],
        why: Why,
        expired: impl Fn(&StreamState) -> bool,
    ) -> Result<Planned, Refused> {
        let Some(view) = guard.view(log) else { return Ok(Planned::Alive) };
        let state = view.attachment;
        match why {
            Why::Request if state.soft_deleted => return Err(Refusal::Gone.after(state.configured)),
            Why::Expired if !expired(state) => return Ok(Planned::Alive),
            _ => {}
        }
        let mut deeds = Vec::new();
        let mut watched = Vec::new();
        if state.watched {
            watched.push(log);
        }
        if state.forks > 0 {
            deeds.push(LogRemoval::Mark { log, tail: view.tail });
        } else {
            deeds.push(LogRemoval::Delete { log });
            let mut source: Option<Box<str>> = state.fork.as_ref().map(|fork| fork.source.clone());
            while let Some(name) = source.take() {
                if !locked.contains(&&*name) {
                    return Ok(Planned::Lock(name));
                }
                let Some(view) = guard.find(&name).and_then(|log| guard.view(log)) else {
                    return Err(Refusal::Internal(format!("the source of a fork, {name}, is not there")).into());
                };
                let state = view.attachment;
                let last = state.forks <= 1;
                if last && state.soft_deleted {
                    deeds.push(LogRemoval::Delete { log: view.id });
                    source = state.fork.as_ref().map(|fork| fork.source.clone());
                } else {
                    deeds.push(LogRemoval::Release { log: view.id, last });
                }
            }
        }
        self.deeds.append(&mut deeds);
        self.watched.append(&mut watched);
        Ok(Planned::Removed)
    }

    /// Whether a removal is planned that concerns this log.
    pub(crate) fn concerns(&self, log: LogId) -> bool {
        self.deeds.iter().any(|deed| deed.log() == log)
    }

    /// Commits the plan as one durable frame.
    pub(crate) fn commit(&self, guard: &mut Guard<'_, StreamState>) -> Result<Lsn, Refused> {
        let (mut marked, mut released) = (Vec::new(), Vec::new());
        Note::SoftDeleted.encode(&mut marked);
        Note::Released.encode(&mut released);
        let mut ops = Vec::with_capacity(self.deeds.len() * 2);
        for deed in &self.deeds {
            match *deed {
                LogRemoval::Delete { log } => ops.push(Op::Delete { log }),
                LogRemoval::Mark { log, tail } => {
                    ops.push(Op::Write { log, note: &marked, append: None });
                    ops.push(Op::Trim { log, start: tail });
                }
                LogRemoval::Release { log, last } => {
                    ops.push(Op::Write { log, note: &released, append: None });
                    if last {
                        ops.push(Op::Unpin { log });
                    }
                }
            }
        }
        let committed = guard.commit_durably(Class::Upkeep, &ops).map_err(Refusal::from)?;
        Ok(committed.end)
    }
}

//! Forks: where they begin, and which properties they inherit from their source (protocol section 4.2).

use super::create::Put;
use super::engine::{Engine, position};
use super::home::Hop;
use super::name::of_path;
use super::turn::{Answer, Task, Turn};
use crate::error::{Refusal, Refused};
use crate::format::content_type::{ContentType, Kind};
use crate::format::offset::{OffsetParam, Position};
use crate::state::create::{CreateRequest, ForkRequest};
use crate::state::lifetime::Lifetime;
use crate::state::retention::Retention;
use crate::state::{Fork, StreamState};
use bytes::Bytes;
use std::sync::Arc;
use thalweg_base::{Level, LogId, Millis, Offset};
use thalweg_http::Fetch;
use thalweg_log::{Guard, LogView, Origin, Seek, SeekError, SeekRead};

/// A distance past a message boundary of a source, and its result. Content never changes, so the result stays valid
/// while the source exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) source: LogId,
    pub(super) anchor: Offset,
    pub(super) upto: Offset,
    pub(super) by: Seek,
}

/// Properties that a fork inherits from its source.
pub(super) struct Inheritance {
    pub(super) origin: Origin,
    pub(super) content_type: ContentType,
    pub(super) lifetime: Lifetime,
    pub(super) durability: Option<Level>,
    pub(super) fork: Fork,
}

pub(super) enum InheritLater {
    /// The source is past its time.
    Expire,
    Walk(Step),
}

impl Engine {
    pub(super) fn source_name(&self, path: &[u8]) -> Result<String, Refusal> {
        let prefix = &self.config.prefix;
        let wrong = |why| Refusal::ForkedFrom { prefix: prefix.as_str().into(), why };
        let path = std::str::from_utf8(path).map_err(|_| wrong("it is not UTF-8"))?;
        match of_path(path, prefix) {
            Ok(name) => Ok(name.into_owned()),
            Err(Refusal::Name(why)) => Err(wrong(why)),
            Err(_) => Err(wrong("it is another path")),
        }
    }

    pub(super) fn inherit(
        &self,
        guard: &mut Guard<'_, StreamState>,
        requested: ForkRequest<'_>,
        put: &Put<'_>,
        walked: Option<(Step, Offset)>,
        now: Millis,
    ) -> Result<Result<Inheritance, InheritLater>, Refused> {
        let Some(view) = guard.find(requested.source).and_then(|log| guard.view(log)) else {
            return Err(Refusal::SourceNotFound.after(guard.absent_since(requested.source)));
        };
        let state = view.attachment;
        if state.soft_deleted {
            return Err(Refusal::SourceGone.after(state.configured));
        }
        if self.expired(state, now) {
            return Ok(Err(InheritLater::Expire));
        }
        if put.requested.content_type.is_some_and(|given| !state.content_type.matches(given)) {
            return Err(Refusal::ContentType(state.content_type.as_str().into()).after(view.when(view.changed)));
        }
        if put.requested.durability.is_some() && put.requested.durability != state.durability {
            let durability = state.durability.map_or("the server's", Level::word);
            return Err(Refusal::ForkDurability(durability).after(view.when(view.changed)));
        }
        let anchor = anchor(&view, requested.at)?;
        let by = match (requested.sub_offset, state.content_type.kind()) {
            // Any byte past the anchor: it only has to be a boundary.
            (0, _) if requested.at.is_some() && anchor > view.start && anchor < view.published => Some(Seek::Bytes(1)),
            (0, _) => None,
            (n, Kind::Json) => Some(Seek::Messages(n)),
            (n, _) => Some(Seek::Bytes(n)),
        };
        let at = match (by, walked) {
            (None, _) => anchor,
            (Some(by), Some((step, to))) if step.source == view.id && step.anchor == anchor && step.by == by => {
                if requested.sub_offset == 0 {
                    anchor
                } else {
                    to
                }
            }
            (Some(by), _) => {
                let step = Step { source: view.id, anchor, upto: view.published, by };
                return Ok(Err(InheritLater::Walk(step)));
            }
        };
        let fork = Fork {
            source: requested.source.into(),
            // The source's start may move, but the fork records the requested "from its start".
            at: if requested.at == Some(OffsetParam::Start) { Position::default() } else { position(&view, anchor) },
            sub_offset: requested.sub_offset,
            inherited_lifetime: put.requested.lifetime.is_none(),
        };
        Ok(Ok(Inheritance {
            origin: Origin { source: view.id, at },
            content_type: state.content_type.clone(),
            lifetime: state.lifetime,
            durability: state.durability,
            fork,
        }))
    }

    /// Finds the fork point on threads that may wait for a device, then continues.
    pub(super) fn walk_elsewhere(self: &Arc<Self>, put: &Put<'_>, step: Step) -> Result<Answer, Refused> {
        if self.is_memory_short() {
            return Err(Refusal::Unsent.into());
        }
        let logs = Arc::clone(&self.logs);
        let Step { source, anchor, upto, by } = step;
        let mut seek = SeekRead::new(source, anchor, upto, by);
        let walk = self.pool.steps(move || seek.step(&logs)).ok_or(Refusal::Busy)?;
        let fork = put.requested.fork.map(|fork| (Box::from(fork.source), fork.at, fork.sub_offset));
        Ok(Answer::Later(Box::new(LatePut {
            engine: Arc::clone(self),
            name: put.name.into(),
            content_type: put.requested.content_type.map(Into::into),
            lifetime: put.requested.lifetime,
            closed: put.requested.closed,
            retention: put.requested.retention,
            durability: put.requested.durability,
            fresh: put.requested.fresh,
            fork,
            body: self.logs.hold(Bytes::copy_from_slice(put.body)),
            location: put.location.into(),
            hop: put.hop,
            step,
            walk,
        })))
    }
}

/// The boundary that a fork point is counted from.
fn anchor(view: &LogView<'_, StreamState>, at: Option<OffsetParam>) -> Result<Offset, Refused> {
    let at = match at {
        None | Some(OffsetParam::Tail) => return Ok(view.tail),
        Some(OffsetParam::Start) => return Ok(view.start),
        Some(OffsetParam::At(at)) => at,
    };
    let refusal = if at.offset > view.published {
        Refusal::OffsetBeyond { tail: position(view, view.published) }
    } else if at.incarnation != view.incarnation(at.offset) {
        Refusal::OffsetStale
    } else if at.offset < view.start {
        Refusal::ForkOffset
    } else {
        return Ok(at.offset);
    };
    Err(refusal.after(view.when(view.created)))
}

/// The refusal for a failed search for the fork point in `source`.
pub(super) fn walk_failed(error: &SeekError, source: &str) -> Refused {
    match error {
        SeekError::Overshoot => Refusal::SubOffsetOvershoot.into(),
        SeekError::Read(error) => Refusal::of_read(error, source, |offset| Position { incarnation: 0, offset }).into(),
    }
}

/// A PUT that waits until its fork point is found.
struct LatePut {
    engine: Arc<Engine>,
    name: Box<str>,
    content_type: Option<Box<[u8]>>,
    lifetime: Option<Lifetime>,
    closed: bool,
    retention: Retention,
    durability: Option<Level>,
    fresh: bool,
    fork: Option<(Box<str>, Option<OffsetParam>, u64)>,
    body: Bytes,
    location: Box<[u8]>,
    hop: Hop,
    step: Step,
    walk: Fetch<Result<Offset, SeekError>>,
}

impl Task for LatePut {
    fn step(&mut self, turn: &mut Turn<'_>) -> Option<Answer> {
        let to = match self.walk.take(|| turn.waker())? {
            Ok(to) => to,
            Err(error) => {
                let source = self.fork.as_ref().map_or("", |(source, _, _)| &**source);
                return Some(self.engine.refuse(&walk_failed(&error, source)));
            }
        };
        let fork =
            self.fork.as_ref().map(|(source, at, sub_offset)| ForkRequest { source, at: *at, sub_offset: *sub_offset });
        let content_type = self.content_type.as_deref();
        let put = Put {
            name: &self.name,
            requested: CreateRequest {
                content_type,
                lifetime: self.lifetime,
                closed: self.closed,
                retention: self.retention,
                durability: self.durability,
                fork,
                fresh: self.fresh,
            },
            content_type: content_type.and_then(ContentType::parse),
            body: &self.body,
            location: &self.location,
            hop: self.hop,
        };
        let answer = self.engine.put(&put, Some((self.step, to)), turn.now);
        match answer.unwrap_or_else(|refused| self.engine.refuse(&refused)) {
            // The source was replaced during the walk: the walk starts over.
            Answer::Later(mut task) => {
                let answer = task.step(turn);
                if answer.is_none() {
                    return Some(Answer::Later(task));
                }
                answer
            }
            answer => Some(answer),
        }
    }
}

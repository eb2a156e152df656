//! PUT: creates, forks, and makes sure that a stream is there as wished (protocol sections 4.2 and 5.1).

use super::append::Content;
use super::engine::{Engine, TRIES, position};
use super::fields::Fields;
use super::head::Head;
use super::name::of_path;
use super::pool::Fetch;
use super::stats::add;
use super::turn::{Answer, Task, Turn};
use crate::error::{Refusal, Refused};
use crate::format::content_type::{ContentType, Kind};
use crate::format::note::{Note, encode_config};
use crate::format::offset::{Given, Position};
use crate::state::create::{ForkWish, Wish, difference};
use crate::state::lifetime::Lifetime;
use crate::state::{Config, Fork, StreamState};
use std::sync::Arc;
use thalweg_base::{LogId, Millis, Offset};
use thalweg_journal::Class;
use thalweg_log::{Guard, LogView, Op, Origin, Seek, SeekError};
use thalweg_wire::http::{Body, Request};

/// A PUT as read from the request.
struct Put<'a> {
    name: &'a str,
    wish: Wish<'a>,
    content_type: Option<ContentType>,
    body: &'a [u8],
    location: &'a [u8],
}

/// A distance past a message boundary of a source, and where it leads. Content never changes, so this stays true as long as the
/// source is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    source: LogId,
    anchor: Offset,
    upto: Offset,
    by: Seek,
}

/// What a fork takes from its source.
struct Inheritance {
    origin: Origin,
    content_type: ContentType,
    lifetime: Lifetime,
    fork: Fork,
}

/// What one look at the streams gave.
enum Looked {
    Done(Answer),
    /// Look again: a stream has expired, or the body was split.
    Again,
    /// Walk first, without a lock.
    Walk(Step),
}

impl Engine {
    pub(crate) fn create(self: &Arc<Self>, request: &Request<'_>, now: Millis) -> Result<Answer, Refused> {
        let name = self.name(request)?;
        let fields = Fields::find(request.headers)?;
        let content_type = match fields.content_type {
            Some(given) => Some(ContentType::parse(given).ok_or(Refusal::BadContentType)?),
            None => None,
        };
        let (at, sub_offset) = fields.fork_place()?;
        let source = fields.forked_from.map(|path| self.source_name(path)).transpose()?;
        let fork = source.as_deref().map(|source| ForkWish { source, at, sub_offset });
        let wish =
            Wish { content_type: fields.content_type, lifetime: fields.lifetime()?, closed: fields.closes(), fork };
        let location = location(&fields, request.path);
        let put = Put { name: &name, wish, content_type, body: request.body, location: &location };
        self.put(&put, None, now)
    }

    fn source_name(&self, path: &[u8]) -> Result<String, Refusal> {
        let prefix = &self.config.prefix;
        let wrong = |why| Refusal::ForkedFrom { prefix: prefix.as_str().into(), why };
        let path = std::str::from_utf8(path).map_err(|_| wrong("it is not UTF-8"))?;
        match of_path(path, prefix) {
            Ok(name) => Ok(name.into_owned()),
            Err(Refusal::Name(why)) => Err(wrong(why)),
            Err(_) => Err(wrong("it is another path")),
        }
    }

    /// Creates, or says what is there. `walked`: a step that was taken before, and where it led.
    fn put(
        self: &Arc<Self>,
        put: &Put<'_>,
        mut walked: Option<(Step, Offset)>,
        now: Millis,
    ) -> Result<Answer, Refused> {
        // What is known before the source is looked at.
        let mut content = match (&put.content_type, put.wish.fork) {
            (Some(given), _) => Some((given.kind(), Content::new(given.kind(), put.body))),
            (None, None) => Some((Kind::Binary, Content::new(Kind::Binary, put.body))),
            (None, Some(_)) => None,
        };
        for _ in 0..TRIES {
            match self.look(put, walked, &mut content, now)? {
                Looked::Done(answer) => return Ok(answer),
                Looked::Again => {}
                Looked::Walk(step) => {
                    let Step { source, anchor, upto, by } = step;
                    match self.logs.try_seek(source, anchor, upto, by) {
                        Some(found) => walked = Some((step, found.map_err(|error| walk_failed(&error))?)),
                        None => return self.walk_elsewhere(put, step),
                    }
                }
            }
        }
        Err(Refusal::Contended.into())
    }

    fn look<'a>(
        &self,
        put: &Put<'a>,
        walked: Option<(Step, Offset)>,
        content: &mut Option<(Kind, Content<'a>)>,
        now: Millis,
    ) -> Result<Looked, Refused> {
        let mut guard = match put.wish.fork {
            Some(fork) => self.logs.lock(&[put.name, fork.source]),
            None => self.logs.lock(&[put.name]),
        };
        if let Some(log) = guard.find(put.name)
            && let Some(view) = guard.view(log)
        {
            if self.expired(view.attachment, now) {
                drop(guard);
                self.expire(put.name, now)?;
                return Ok(Looked::Again);
            }
            return existing(&view, &put.wish).map(Looked::Done);
        }
        let inheritance = match put.wish.fork {
            None => None,
            Some(fork) => match self.inherit(&mut guard, fork, put, walked, now)? {
                Ok(inheritance) => Some(inheritance),
                Err(InheritLater::Expire) => {
                    drop(guard);
                    self.expire(fork.source, now)?;
                    return Ok(Looked::Again);
                }
                Err(InheritLater::Walk(step)) => return Ok(Looked::Walk(step)),
            },
        };
        let content_type = match (&inheritance, &put.content_type) {
            (_, Some(given)) => given.clone(),
            (Some(inherited), None) => inherited.content_type.clone(),
            (None, None) => ContentType::OCTET_STREAM,
        };
        match content {
            Some((split_as, content)) if *split_as == content_type.kind() => {
                self.commit_create(&mut guard, put, inheritance, content_type, content, now).map(Looked::Done)
            }
            _ => {
                drop(guard);
                *content = Some((content_type.kind(), Content::new(content_type.kind(), put.body)));
                Ok(Looked::Again)
            }
        }
    }

    fn inherit(
        &self,
        guard: &mut Guard<'_, StreamState>,
        wish: ForkWish<'_>,
        put: &Put<'_>,
        walked: Option<(Step, Offset)>,
        now: Millis,
    ) -> Result<Result<Inheritance, InheritLater>, Refused> {
        let Some(view) = guard.find(wish.source).and_then(|log| guard.view(log)) else {
            return Err(Refusal::SourceNotFound.after(guard.absent_since(wish.source)));
        };
        let state = view.attachment;
        if state.soft_deleted {
            return Err(Refusal::SourceGone.after(state.configured));
        }
        if self.expired(state, now) {
            return Ok(Err(InheritLater::Expire));
        }
        if put.wish.content_type.is_some_and(|given| !state.content_type.matches(given)) {
            return Err(Refusal::ContentType(state.content_type.as_str().into()).after(view.changed));
        }
        let anchor = anchor(&view, wish.at)?;
        let by = match (wish.sub_offset, state.content_type.kind()) {
            // Any byte past the anchor: it only has to be a boundary.
            (0, _) if wish.at.is_some() && anchor > view.start && anchor < view.published => Some(Seek::Bytes(1)),
            (0, _) => None,
            (n, Kind::Json) => Some(Seek::Messages(n)),
            (n, _) => Some(Seek::Bytes(n)),
        };
        let at = match (by, walked) {
            (None, _) => anchor,
            (Some(by), Some((step, to))) if step.source == view.id && step.anchor == anchor && step.by == by => {
                if wish.sub_offset == 0 { anchor } else { to }
            }
            (Some(by), _) => {
                let step = Step { source: view.id, anchor, upto: view.published, by };
                return Ok(Err(InheritLater::Walk(step)));
            }
        };
        let fork = Fork {
            source: wish.source.into(),
            at: position(&view, anchor),
            sub_offset: wish.sub_offset,
            inherited_lifetime: put.wish.lifetime.is_none(),
        };
        Ok(Ok(Inheritance {
            origin: Origin { source: view.id, at },
            content_type: state.content_type.clone(),
            lifetime: state.lifetime,
            fork,
        }))
    }

    fn commit_create(
        &self,
        guard: &mut Guard<'_, StreamState>,
        put: &Put<'_>,
        inheritance: Option<Inheritance>,
        content_type: ContentType,
        content: &Content<'_>,
        now: Millis,
    ) -> Result<Answer, Refused> {
        let origin = inheritance.as_ref().map(|inherited| inherited.origin);
        let inherited_lifetime = inheritance.as_ref().map(|inherited| inherited.lifetime);
        let config = Config {
            content_type,
            lifetime: put.wish.lifetime.or(inherited_lifetime).unwrap_or_default(),
            created: now,
            closed: put.wish.closed,
            fork: inheritance.map(|inherited| Box::new(inherited.fork)),
        };
        let mut note = Vec::with_capacity(64);
        encode_config(&config, &mut note);
        let mut forked = Vec::new();
        Note::Forked.encode(&mut forked);
        let (committed, added) = content.with(|append| {
            let added = append.as_ref().map_or(0, |append| append.lengths().bytes());
            let create = Op::Create { name: put.name, note: &note, origin, append };
            let committed = match origin {
                Some(Origin { source, .. }) => {
                    guard.commit(Class::User, &[create, Op::Write { log: source, note: &forked, append: None }])
                }
                None => guard.commit(Class::User, &[create]),
            };
            (committed, added)
        })?;
        let committed = committed.map_err(Refusal::from)?;
        let missing = || Refusal::Internal("a stream just created is not there".into());
        let view = committed.created.and_then(|log| guard.view(log)).ok_or_else(missing)?;
        let head = Head::new(201)
            .line(b"Location: ", put.location)
            .next_offset(position(&view, view.tail))
            .closed(config.closed)
            .no_store()
            .content_type(config.content_type.as_str());
        add(&self.counters.creates, 1);
        if added > 0 {
            add(&self.counters.appends, 1);
            add(&self.counters.append_bytes, added);
        }
        Ok(Answer::Response(committed.end, head.finish(Body::Empty)))
    }

    /// Finds the fork point on a thread that may wait for a device, then goes on.
    fn walk_elsewhere(self: &Arc<Self>, put: &Put<'_>, step: Step) -> Result<Answer, Refused> {
        let logs = Arc::clone(&self.logs);
        let Step { source, anchor, upto, by } = step;
        let walk = self.pool.run(move || logs.seek(source, anchor, upto, by)).ok_or(Refusal::Busy)?;
        let fork = put.wish.fork.map(|fork| (Box::from(fork.source), fork.at, fork.sub_offset));
        Ok(Answer::Later(Box::new(LatePut {
            engine: Arc::clone(self),
            name: put.name.into(),
            content_type: put.wish.content_type.map(Into::into),
            lifetime: put.wish.lifetime,
            closed: put.wish.closed,
            fork,
            body: put.body.into(),
            location: put.location.into(),
            step,
            walk,
        })))
    }
}

enum InheritLater {
    /// The source is past its time.
    Expire,
    Walk(Step),
}

/// The boundary that a fork point is counted from.
fn anchor(view: &LogView<'_, StreamState>, at: Option<Given>) -> Result<Offset, Refused> {
    let at = match at {
        None | Some(Given::Tail) => return Ok(view.tail),
        Some(Given::Start) => return Ok(view.start),
        Some(Given::At(at)) => at,
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
    Err(refusal.after(view.created))
}

fn walk_failed(error: &SeekError) -> Refused {
    match error {
        SeekError::Overshoot => Refusal::SubOffsetOvershoot.into(),
        SeekError::Read(error) => Refusal::of_read(error, |offset| Position { incarnation: 0, offset }).into(),
    }
}

/// The answer to a PUT of a stream that is there.
fn existing(view: &LogView<'_, StreamState>, wish: &Wish<'_>) -> Result<Answer, Refused> {
    let state = view.attachment;
    if state.soft_deleted {
        return Err(Refusal::NameKept.after(state.configured));
    }
    if let Some(what) = difference(state, wish) {
        return Err(Refusal::Exists(what).after(view.changed));
    }
    let head = Head::new(200)
        .next_offset(position(view, view.tail))
        .closed(state.closed.is_some())
        .no_store()
        .content_type(state.content_type.as_str());
    Ok(Answer::Response(view.changed, head.finish(Body::Empty)))
}

/// The stream's URL as the client knows it; only its path if the request does not say where it was sent.
fn location(fields: &Fields<'_>, path: &str) -> Vec<u8> {
    let mut url = Vec::with_capacity(path.len() + 64);
    if let Some(host) = fields.host.filter(|host| !host.is_empty() && host.iter().all(u8::is_ascii_graphic)) {
        let https = fields.forwarded_proto.is_some_and(|proto| proto.eq_ignore_ascii_case(b"https"));
        url.extend_from_slice(if https { b"https://" } else { b"http://" });
        url.extend_from_slice(host);
    }
    url.extend_from_slice(path.as_bytes());
    url
}

/// A PUT that waits until its fork point is found.
struct LatePut {
    engine: Arc<Engine>,
    name: Box<str>,
    content_type: Option<Box<[u8]>>,
    lifetime: Option<Lifetime>,
    closed: bool,
    fork: Option<(Box<str>, Option<Given>, u64)>,
    body: Box<[u8]>,
    location: Box<[u8]>,
    step: Step,
    walk: Fetch<Result<Offset, SeekError>>,
}

impl Task for LatePut {
    fn step(&mut self, turn: &mut Turn<'_>) -> Option<Answer> {
        let to = match self.walk.take(|| turn.waker())? {
            Ok(to) => to,
            Err(error) => return Some(self.engine.refuse(&walk_failed(&error))),
        };
        let fork =
            self.fork.as_ref().map(|(source, at, sub_offset)| ForkWish { source, at: *at, sub_offset: *sub_offset });
        let content_type = self.content_type.as_deref();
        let put = Put {
            name: &self.name,
            wish: Wish { content_type, lifetime: self.lifetime, closed: self.closed, fork },
            content_type: content_type.and_then(ContentType::parse),
            body: &self.body,
            location: &self.location,
        };
        let answer = self.engine.put(&put, Some((self.step, to)), turn.now);
        match answer.unwrap_or_else(|refused| self.engine.refuse(&refused)) {
            // The source was replaced meanwhile: the walk begins anew.
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

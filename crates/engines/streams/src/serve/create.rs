//! PUT: creates, forks, and confirms that a stream exists with the requested configuration (protocol sections 4.2 and
//! 5.1).

use super::append::Content;
use super::engine::{Engine, TRIES, position};
use super::fields::Fields;
use super::fork::{InheritLater, Inheritance, Step, walk_failed};
use super::head::Head;
use super::home::{Change, Hop, record_name};
use super::stats::add;
use super::turn::Answer;
use crate::error::{Refusal, Refused};
use crate::format::content_type::{ContentType, Kind};
use crate::format::note::{Note, encode_config};
use crate::state::create::{CreateRequest, ForkRequest, difference};
use crate::state::{Config, StreamState};
use std::sync::Arc;
use thalweg_base::{Level, Millis, Offset};
use thalweg_http::{Body, Request};
use thalweg_journal::Class;
use thalweg_log::{Guard, LogView, Op, Origin};

/// A PUT as read from the request.
pub(super) struct Put<'a> {
    pub(super) name: &'a str,
    pub(super) requested: CreateRequest<'a>,
    pub(super) content_type: Option<ContentType>,
    pub(super) body: &'a [u8],
    pub(super) location: &'a [u8],
    pub(super) hop: Hop,
}

/// Result of one attempt under the lock.
enum Attempted {
    Done(Answer),
    /// Try again: a stream has expired, or the body was split.
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
        let fork = source.as_deref().map(|source| ForkRequest { source, at, sub_offset });
        let requested = CreateRequest {
            content_type: fields.content_type,
            lifetime: fields.lifetime()?,
            closed: fields.closes(),
            retention: fields.retention()?,
            durability: fields.durability()?,
            fork,
            fresh: fields.if_none_match == Some(b"*"),
        };
        let location = location(&fields, request.path, self.config.https);
        let put = Put {
            name: &name,
            requested,
            content_type,
            body: request.body,
            location: &location,
            hop: self.hop(request.headers),
        };
        self.put(&put, None, now)
    }

    /// Creates the stream, or answers for an existing one. `walked`: an earlier step, and its result.
    pub(super) fn put(
        self: &Arc<Self>,
        put: &Put<'_>,
        mut walked: Option<(Step, Offset)>,
        now: Millis,
    ) -> Result<Answer, Refused> {
        // Parsed before the source is read.
        let mut content = match (&put.content_type, put.requested.fork) {
            (Some(given), _) => Some((given.kind(), Content::new(given.kind(), put.body))),
            (None, None) => Some((Kind::Binary, Content::new(Kind::Binary, put.body))),
            (None, Some(_)) => None,
        };
        for _ in 0..TRIES {
            match self.attempt(put, walked, &mut content, now)? {
                Attempted::Done(answer) => return Ok(answer),
                Attempted::Again => {}
                Attempted::Walk(step) => {
                    let Step { source, anchor, upto, by } = step;
                    match self.logs.try_seek(source, anchor, upto, by) {
                        Some(found) => {
                            walked = Some((
                                step,
                                found.map_err(|error| {
                                    walk_failed(&error, put.requested.fork.map_or("", |fork| fork.source))
                                })?,
                            ))
                        }
                        None => return self.walk_elsewhere(put, step),
                    }
                }
            }
        }
        Err(Refusal::Contended.into())
    }

    fn attempt<'a>(
        &self,
        put: &Put<'a>,
        walked: Option<(Step, Offset)>,
        content: &mut Option<(Kind, Content<'a>)>,
        now: Millis,
    ) -> Result<Attempted, Refused> {
        let units = self.units.upgrade().ok_or_else(|| Refusal::Internal("the server has ended".into()))?;
        // The other unit is asked before any shard of this one is locked: its requests may ask here.
        let (_creating, is_free) = units.reserve(self, put.name);
        let record = if self.unit.is_some() { record_name(put.name) } else { String::new() };
        let names = [put.name, put.requested.fork.map_or(put.name, |fork| fork.source), &*record];
        let mut guard = self.logs.lock(if self.unit.is_some() { &names } else { &names[..2] });
        if let Some(log) = guard.find(put.name)
            && let Some(view) = guard.view(log)
        {
            if self.expired(view.attachment, now) {
                drop(guard);
                self.expire(put.name, now)?;
                return Ok(Attempted::Again);
            }
            let durability = self.level_of(view.attachment.durability);
            return existing(&view, &put.requested, durability).map(Attempted::Done);
        }
        is_free?;
        let record = if self.unit.is_some() { self.record(&mut guard, &record) } else { None };
        let grant = self.check_home(record, put.name, put.hop)?;
        if put.requested.fork.is_some() {
            self.move_home(&mut guard, record, put.name, (put.hop, grant), now)?;
        }
        let granted = self.note_grant(record, put.name, grant, now);
        let inheritance = match put.requested.fork {
            None => {
                units.check_level(self, put.requested.durability)?;
                None
            }
            Some(fork) => match self.inherit(&mut guard, fork, put, walked, now)? {
                Ok(inheritance) => Some(inheritance),
                Err(InheritLater::Expire) => {
                    drop(guard);
                    self.expire(fork.source, now)?;
                    return Ok(Attempted::Again);
                }
                Err(InheritLater::Walk(step)) => return Ok(Attempted::Walk(step)),
            },
        };
        let content_type = match (&inheritance, &put.content_type) {
            (_, Some(given)) => given.clone(),
            (Some(inherited), None) => inherited.content_type.clone(),
            (None, None) => ContentType::OCTET_STREAM,
        };
        match content {
            Some((split_as, content)) if *split_as == content_type.kind() => {
                if units.population() >= self.config.streams_max {
                    return Err(Refusal::TooManyStreams(self.config.streams_max).into());
                }
                self.commit_create(&mut guard, put, (inheritance, granted), content_type, content, now)
                    .map(Attempted::Done)
            }
            _ => {
                drop(guard);
                *content = Some((content_type.kind(), Content::new(content_type.kind(), put.body)));
                Ok(Attempted::Again)
            }
        }
    }

    fn commit_create(
        &self,
        guard: &mut Guard<'_, StreamState>,
        put: &Put<'_>,
        (inheritance, granted): (Option<Inheritance>, Option<Change>),
        content_type: ContentType,
        content: &Content<'_>,
        now: Millis,
    ) -> Result<Answer, Refused> {
        let origin = inheritance.as_ref().map(|inherited| inherited.origin);
        let durability = inheritance.as_ref().map_or(put.requested.durability, |inherited| inherited.durability);
        let inherited_lifetime = inheritance.as_ref().map(|inherited| inherited.lifetime);
        let config = Config {
            content_type,
            lifetime: put.requested.lifetime.or(inherited_lifetime).unwrap_or_default(),
            created: now,
            closed: put.requested.closed,
            fork: inheritance.map(|inherited| Box::new(inherited.fork)),
            retention: put.requested.retention,
            durability,
            home: None,
        };
        let mut note = Vec::with_capacity(64);
        encode_config(&config, &mut note);
        let mut forked = Vec::new();
        Note::Forked.encode(&mut forked);
        let (committed, added) = content.with(|append| {
            let added = append.as_ref().map_or(0, |append| append.lengths().bytes());
            let create = Op::Create { name: put.name, note: &note, origin, append };
            let forked = origin.map(|Origin { source, .. }| Op::Write { log: source, note: &forked, append: None });
            let granted = granted.as_ref().map(Change::op);
            let ops: Vec<_> = [granted, Some(create), forked].into_iter().flatten().collect();
            let committed = match config.closed {
                true => guard.commit_durably(Class::User, &ops),
                false => guard.commit(Class::User, &ops),
            };
            (committed, added)
        })?;
        let committed = committed.map_err(Refusal::from)?;
        let missing = || Refusal::Internal("a stream just created is not there".into());
        let view = committed.created.and_then(|log| guard.view(log)).ok_or_else(missing)?;
        let made = view.id;
        let head = Head::new(201)
            .line(b"Location: ", put.location)
            .next_offset(position(&view, view.tail))
            .closed(config.closed)
            .no_store()
            .durability(self.level_of(config.durability))
            .content_type(config.content_type.as_str());
        self.changed(committed.until, made);
        self.population.one_more();
        add(&self.counters.creates, 1);
        if added > 0 {
            add(&self.counters.appends, 1);
            add(&self.counters.append_bytes, added);
        }
        Ok(Answer::Response(committed.until, head.finish(Body::Empty)))
    }
}

/// The answer to a PUT of an existing stream.
fn existing(
    view: &LogView<'_, StreamState>,
    requested: &CreateRequest<'_>,
    durability: Level,
) -> Result<Answer, Refused> {
    let state = view.attachment;
    if state.soft_deleted {
        return Err(Refusal::NameKept.after(state.configured));
    }
    if requested.fresh {
        return Err(Refusal::ExistsAlready { tail: position(view, view.tail) }.after(view.when(view.changed)));
    }
    if let Some(what) = difference(state, requested) {
        return Err(Refusal::Exists(what).after(view.when(view.changed)));
    }
    let head = Head::new(200)
        .next_offset(position(view, view.tail))
        .closed(state.closed.is_some())
        .no_store()
        .durability(durability)
        .content_type(state.content_type.as_str());
    Ok(Answer::Response(view.when(view.changed), head.finish(Body::Empty)))
}

/// The stream's URL as the client knows it; only its path if the request does not name its host.
fn location(fields: &Fields<'_>, path: &str, https: bool) -> Vec<u8> {
    let mut url = Vec::with_capacity(path.len() + 64);
    if let Some(host) = fields.host.filter(|host| !host.is_empty() && host.iter().all(u8::is_ascii_graphic)) {
        let https = https || fields.forwarded_proto.is_some_and(|proto| proto.eq_ignore_ascii_case(b"https"));
        url.extend_from_slice(if https { b"https://" } else { b"http://" });
        url.extend_from_slice(host);
    }
    url.extend_from_slice(path.as_bytes());
    url
}

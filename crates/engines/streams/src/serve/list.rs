//! The list of streams: `GET {prefix}__ds/streams?prefix=&after=&limit=`, in the order of names.
//!
//! The table of streams is not sorted: a page is one pass over all names that keeps the smallest ones after `after`, in
//! short steps on a thread of the pool. That costs time in proportion to the number of streams, not memory per stream,
//! and no reactor waits.

use super::engine::Engine;
use super::gate::{Wait, Waited};
use super::head::{self, Head};
use super::name::{is_private, normal};
use super::query::{decoded, once};
use super::turn::{Answer, Task, Turn};
use crate::error::{Refusal, Refused};
use crate::format::offset::Position;
use crate::format::timestamp;
use crate::state::StreamState;
use crate::state::lifetime::Lifetime;
use serde_json::{Value, json};
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use thalweg_base::{Level, Millis, Offset, Until};
use thalweg_http::Fetch;
use thalweg_http::{Body, Method, Request};
use thalweg_log::{Seen, SweepCursor};

/// Path of the list, after the prefix of all streams.
pub(super) const PATH: &str = "__ds/streams";
/// Default number of names on one page.
const LIMIT: usize = 1_000;
pub(crate) const LIMIT_MAX: usize = 10_000;
/// Names checked under one lock.
const STEP: usize = 256;

/// Parameters of a list request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) prefix: String,
    after: String,
    limit: usize,
}

impl Page {
    pub(crate) fn parse(query: &str) -> Result<Self, Refusal> {
        let (mut prefix, mut after, mut limit) = (None, None, None);
        for pair in query.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "prefix" => once("prefix", &mut prefix, value)?,
                "after" => once("after", &mut after, value)?,
                "limit" => once("limit", &mut limit, value)?,
                _ => {}
            }
        }
        let name = |text: Option<&str>| -> Result<String, Refusal> {
            let text = decoded(text.unwrap_or_default());
            let text = std::str::from_utf8(&text).map_err(|_| Refusal::Name("it is not UTF-8"))?;
            Ok(normal(text)?.into_owned())
        };
        let limit = match limit.map(str::parse) {
            None => LIMIT,
            Some(Ok(limit)) if (1..=LIMIT_MAX).contains(&limit) => limit,
            Some(_) => return Err(Refusal::Limit),
        };
        Ok(Self { prefix: name(prefix)?, after: name(after)?, limit })
    }
}

/// The prefix that a request for the list is bound to; `None` for other requests. An empty prefix is all streams.
/// `root` is the path above all streams.
#[must_use]
pub fn listed_prefix(path: &str, query: Option<&str>, root: &str) -> Option<String> {
    let listing = path.strip_prefix(root).is_some_and(|rest| rest == PATH);
    listing.then(|| Page::parse(query.unwrap_or_default()).map_or_else(|_| String::new(), |page| page.prefix))
}

/// How many lists are made now.
#[derive(Default)]
pub(crate) struct Lists(AtomicUsize);

struct Permit(Arc<Engine>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.lists.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Engine {
    /// Whether the request is for the list, which this answers then.
    pub(crate) fn is_list(&self, request: &Request<'_>) -> bool {
        matches!(request.method, Method::Get)
            && request.path.strip_prefix(&*self.config.prefix).is_some_and(|rest| rest == PATH)
    }

    pub(crate) fn list(self: &Arc<Self>, request: &Request<'_>, now: Millis) -> Result<Answer, Refused> {
        if self.is_memory_short() {
            return Err(Refusal::Unsent.into());
        }
        let page = Page::parse(request.query.unwrap_or_default())?;
        // Lists take at most half of the threads that reads wait for.
        let at_once_max = (self.config.io_threads / 2).max(1);
        self.lists.0.fetch_add(1, Ordering::Relaxed);
        let permit = Permit(Arc::clone(self));
        if self.lists.0.load(Ordering::Relaxed) > at_once_max {
            return Err(Refusal::Busy.into());
        }
        let listing = self.pool.run(move || permit.0.page(&page, now)).ok_or(Refusal::Busy)?;
        Ok(Answer::Later(Box::new(Listing { engine: Arc::clone(self), making: listing, made: None })))
    }

    /// The page of the streams of all units, and the waits until it may be sent: for the own journal, and for others.
    fn page(self: &Arc<Self>, page: &Page, now: Millis) -> (Until, Vec<Wait>, String) {
        let engines = self.units.upgrade().map(|units| units.all()).unwrap_or_default();
        let (mut names, mut more) = (Vec::new(), false);
        for engine in &engines {
            let (found, is_cut) = engine.names(page);
            names.extend(found.into_iter().map(|name| (name, engine)));
            more |= is_cut;
        }
        if engines.len() > 1 {
            names.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
            more |= names.len() > page.limit;
            names.truncate(page.limit);
        }
        let mut streams = Vec::with_capacity(names.len());
        for (name, engine) in &names {
            engine.logs.peek(name, &mut |seen| {
                if !seen.attachment.soft_deleted && !engine.expired(seen.attachment, now) {
                    streams.push(engine.entry(&seen));
                }
            });
        }
        // A stream may be missing because of a delete, or listed because of a create: the page waits for all changes so
        // far.
        let others = engines.iter().filter(|engine| !engine.is_gated);
        let waits = others.map(|engine| Wait::new(engine, engine.logs.when_all())).collect();
        let next = names.last().filter(|_| more).map(|(name, _)| name);
        (self.logs.when_all(), waits, json!({ "streams": streams, "next": next }).to_string())
    }

    /// The smallest matching names, in order, and whether more follow.
    fn names(&self, page: &Page) -> (Vec<Box<str>>, bool) {
        let mut smallest: BinaryHeap<Box<str>> = BinaryHeap::new();
        let mut more = false;
        let mut cursor = Some(SweepCursor::default());
        while let Some(at) = cursor {
            cursor = self.logs.sweep_names(at, STEP, &mut |name| {
                if name <= &*page.after || is_private(name) || !name.starts_with(&*page.prefix) {
                    return;
                }
                if smallest.len() >= page.limit {
                    more = true;
                    if smallest.peek().is_some_and(|largest| name >= &**largest) {
                        return;
                    }
                    smallest.pop();
                }
                smallest.push(name.into());
            });
        }
        (smallest.into_sorted_vec(), more)
    }
}

impl Engine {
    fn entry(&self, seen: &Seen<'_, StreamState>) -> Value {
        let text = |offset| {
            let position = Position { incarnation: seen.incarnation, offset };
            String::from_utf8_lossy(&position.to_text()).into_owned()
        };
        let state = seen.attachment;
        let mut entry = json!({
            "name": seen.name,
            "contentType": state.content_type.as_str(),
            "nextOffset": text(seen.published),
            "bytes": seen.published.since(seen.start),
            "closed": state.closed.is_some(),
        });
        let mut put = |key: &str, value: Value| entry[key] = value;
        match state.lifetime {
            Lifetime::Unlimited => {}
            Lifetime::Idle { secs } => put("ttl", secs.into()),
            Lifetime::Until(at) => put("expiresAt", timestamp::text(at).into()),
        }
        if let Some(bytes) = state.retention.bytes {
            put("retentionBytes", bytes.into());
        }
        if let Some(secs) = state.retention.secs {
            put("retentionSeconds", secs.into());
        }
        if let Some(level) = state.durability.or(Some(Level::Replicated).filter(|_| !self.is_gated)) {
            put("durability", level.word().into());
        }
        if seen.start > Offset::ZERO {
            put("retained", seen.published.since(seen.start).into());
        }
        if let Some(fork) = &state.fork {
            put("forkedFrom", (*fork.source).into());
        }
        if state.forks > 0 {
            put("forks", state.forks.into());
        }
        entry
    }
}

/// A page in the making.
struct Listing {
    engine: Arc<Engine>,
    making: Fetch<(Until, Vec<Wait>, String)>,
    /// Made, and waiting for other journals than the engine's.
    made: Option<(Until, Vec<Wait>, String)>,
}

impl Task for Listing {
    fn step(&mut self, turn: &mut Turn<'_>) -> Option<Answer> {
        if self.made.is_none() {
            self.made = Some(self.making.take(|| turn.waker())?);
        }
        for wait in self.made.iter_mut().flat_map(|(_, waits, _)| waits) {
            match wait.ask(|| turn.waker()) {
                Waited::Yes => {}
                Waited::NotYet => return None,
                Waited::Never => return Some(Answer::Response(Until::NOW, head::unconfirmed())),
            }
        }
        let (after, _, text) = self.made.take()?;
        let head = Head::new(200).no_store().content_type("application/json");
        Some(Answer::Response(after, head.finish(Body::Bytes(self.engine.logs.hold(text.into())))))
    }
}

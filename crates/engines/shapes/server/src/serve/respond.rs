//! Answers: their heads, which caches may keep them, and for how long. This module reads no clock and makes no random
//! numbers.

use super::access::Denied;
use super::refusal::Refusal;
use super::route::Route;
use super::settings::Settings;
use std::fmt::Write as _;
use thalweg_http::{Body, Headers, Method, Request, Response};
use thalweg_shapes_model::offset::{From, ShapeOffset};

/// 2024-10-09T00:00:00Z, from which cursors count, in seconds of Unix time.
const CURSOR_EPOCH_S: u64 = 1_728_432_000;

const EXPOSED: &str = "electric-cursor,electric-handle,electric-has-data,electric-offset,electric-schema,electric-up-to-date,\
electric-internal-known-error,retry-after";

const PRIVATE: &str = "private, no-cache";

const JSON: &str = "application/json; charset=utf-8";

/// The parts of a request that every answer needs.
#[derive(Clone, Debug)]
pub(crate) struct RequestContext {
    request_id: Box<str>,
    /// It was a GET, a HEAD or an OPTIONS: caches may keep the answer.
    cacheable: bool,
    on_shape: bool,
    /// The answer depends on the request's token: no shared cache may keep it, and the client's own cache revalidates
    /// it each time, so that the token allows each use.
    private: bool,
}

/// The time and the random numbers of an answer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RequestClock {
    /// Unix time.
    pub(crate) now_s: u64,
    pub(crate) random: u32,
    /// Never the same twice: no cache may take two empty answers for one.
    pub(crate) unique: u64,
}

/// How a log is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode<'a> {
    /// A read of the present messages, without a wait. Its answer has the schema, as JSON.
    CatchUp {
        schema: &'a str,
    },
    /// A read that waits for a change. The client's own cursor, if it has one.
    LongPoll {
        cursor: Option<&'a str>,
    },
    Events {
        cursor: Option<&'a str>,
    },
}

/// An answer with a part of a shape's log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page<'a> {
    pub(crate) handle: &'a str,
    pub(crate) asked: From,
    /// Where the answer ends.
    pub(crate) offset: ShapeOffset,
    pub(crate) mode: Mode<'a>,
    pub(crate) up_to_date: bool,
    /// It holds changes or rows, not just a word about being up to date.
    pub(crate) has_data: bool,
}

/// The state that `/v1/health` reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Active,
    /// Another server holds the lock.
    Waiting,
    Starting,
}

/// Makes answers.
#[derive(Clone, Debug)]
pub(crate) struct Responder {
    settings: Settings,
    /// `electric-server: …`, with the line's end.
    server: Box<[u8]>,
}

impl RequestContext {
    /// `random` names the request, unless it has a name.
    pub(crate) fn new(request: &Request<'_>, route: Route, random: u128) -> Self {
        // Like others do: a name must be long enough to be one, and short enough to be logged.
        let given = request.headers.get("x-request-id").and_then(|id| std::str::from_utf8(id).ok());
        let given = given.filter(|id| (20..=200).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic()));
        Self {
            request_id: given.map_or_else(|| format!("{random:032x}").into(), Into::into),
            cacheable: matches!(request.method, Method::Get | Method::Head | Method::Options),
            on_shape: route == Route::Shape,
            private: false,
        }
    }

    #[must_use]
    pub(crate) fn is_private(&self) -> bool {
        self.private
    }

    pub(crate) fn private(self, private: bool) -> Self {
        Self { private, ..self }
    }

    #[cfg(test)]
    pub(crate) fn request_id(&self) -> &str {
        &self.request_id
    }
}

impl Page<'_> {
    /// The entity tag of this answer among all of the shape's, without quotes.
    #[must_use]
    pub(crate) fn tag(&self) -> String {
        let mut tag = String::with_capacity(self.handle.len() + 48);
        let _ = write!(tag, "{}:{}:{}", self.handle, self.asked, self.offset);
        tag
    }

    /// Whether the client has this answer already: one of the names in its If-None-Match headers is the answer's.
    #[must_use]
    pub(crate) fn is_known(&self, headers: Headers<'_>) -> bool {
        let mut fields = headers.0.iter().filter(|(name, _)| name.eq_ignore_ascii_case("if-none-match")).peekable();
        if fields.peek().is_none() {
            return false;
        }
        let tag = self.tag();
        fields.flat_map(|(_, value)| value.split(|b| *b == b',')).any(|name| {
            let name = name.trim_ascii();
            let name = name.strip_prefix(b"\"").unwrap_or(name);
            name.strip_suffix(b"\"").unwrap_or(name) == tag.as_bytes()
        })
    }
}

impl Responder {
    pub(crate) fn new(settings: Settings, version: &str) -> Self {
        Self { settings, server: format!("electric-server: Thalweg/{version}\r\n").into_bytes().into() }
    }

    #[must_use]
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// 200 with a part of a log.
    pub(crate) fn page(&self, context: &RequestContext, page: &Page<'_>, moment: RequestClock, body: Body) -> Response {
        let response = self.page_head(200, context, page, moment);
        let content_type = if matches!(page.mode, Mode::Events { .. }) { "text/event-stream" } else { JSON };
        Response { body, ..response.header("content-type", content_type) }
    }

    /// 304: the client has it already ([`Page::is_known`]).
    pub(crate) fn not_modified(&self, context: &RequestContext, page: &Page<'_>, moment: RequestClock) -> Response {
        self.page_head(304, context, page, moment)
    }

    fn page_head(&self, status: u16, context: &RequestContext, page: &Page<'_>, moment: RequestClock) -> Response {
        let mut response = self.begin(status, context).header("cache-control", self.cache_control(context, page));
        if let Mode::LongPoll { cursor } | Mode::Events { cursor } = page.mode {
            response = response.header("electric-cursor", number(self.cursor(cursor, moment)));
        }
        let mut tag = page.tag();
        // An answer without messages has a tag of its own each time; messages after a position of the log are the same
        // for all clients.
        let fleeting = page.asked == From::Now || matches!(page.mode, Mode::LongPoll { .. } | Mode::Events { .. });
        if !page.has_data && fleeting {
            let _ = write!(tag, ":{}", moment.unique);
        }
        response = response.header("etag", format!("\"{tag}\"")).header("electric-handle", page.handle);
        if let (Mode::CatchUp { schema }, 200) = (page.mode, status) {
            response = response.header("electric-schema", schema);
        }
        if page.up_to_date {
            response = response.header("electric-up-to-date", "");
        }
        response
            .header("electric-has-data", if page.has_data { "true" } else { "false" })
            .header("electric-offset", page.offset.to_string())
    }

    /// 200 with rows as they are now; `schema` as JSON.
    pub(crate) fn subset(
        &self,
        context: &RequestContext,
        handle: &str,
        offset: ShapeOffset,
        schema: &str,
        body: Body,
    ) -> Response {
        let response = self
            .begin(200, context)
            .header("cache-control", if context.private { PRIVATE } else { "no-cache" })
            .header("electric-snapshot", "true")
            .header("electric-handle", handle)
            .header("electric-schema", schema)
            .header("electric-offset", offset.to_string())
            .header("content-type", JSON);
        Response { body, ..response }
    }

    pub(crate) fn refuse(&self, context: &RequestContext, refusal: &Refusal, moment: RequestClock) -> Response {
        let mut response = self.begin(refusal.status(), context).header("content-type", refusal.content_type());
        response = match refusal {
            _ if !context.cacheable => response.header("cache-control", "no-cache"),
            Refusal::MustRefetch(_) if context.private => response.header("cache-control", PRIVATE),
            // Many clients at a time are sent away when a shape goes: caches may help with that.
            Refusal::MustRefetch(Some(_)) => response.header("cache-control", "public, max-age=60, must-revalidate"),
            // Without a handle to go on with, the client repeats its URL at once: a cache would give it the same
            // refusal.
            _ => response.header("cache-control", "no-store").header("surrogate-control", "no-store"),
        };
        if let Refusal::MustRefetch(Some(handle)) = refusal {
            response = response.header("electric-handle", handle);
        }
        if let Refusal::Denied(Denied { status: 401 | 403, .. }) = refusal {
            response = response.header("www-authenticate", "Bearer realm=\"thalweg\"");
        }
        if refusal.is_known() {
            response = response.header("electric-internal-known-error", "true");
        }
        if let Some(seconds) = refusal.retry_after_s(moment.random) {
            response = response.header("retry-after", number(u64::from(seconds)));
        }
        response.body(refusal.body())
    }

    /// 202: the shape is gone.
    pub(crate) fn deleted(&self, context: &RequestContext) -> Response {
        self.begin(202, context).header("cache-control", "no-cache").header("content-type", JSON)
    }

    pub(crate) fn health(&self, context: &RequestContext, health: Health) -> Response {
        let (status, word) = match health {
            Health::Active => (200, "active"),
            Health::Waiting => (202, "waiting"),
            Health::Starting => (202, "starting"),
        };
        self.begin(status, context)
            .header("cache-control", "no-cache, no-store, must-revalidate")
            .header("content-type", JSON)
            .body(format!("{{\"status\":\"{word}\"}}"))
    }

    /// OPTIONS of a shape.
    pub(crate) fn preflight(&self, context: &RequestContext, headers: Headers<'_>) -> Response {
        let response = self.begin(204, context).header("access-control-max-age", "86400");
        let wanted = headers.get("access-control-request-headers").unwrap_or_default();
        // A POST with a JSON body has to name its type.
        let allowed = wanted
            .split(|b| *b == b',')
            .map(<[u8]>::trim_ascii)
            .filter(|name| {
                ["if-none-match", "traceparent", "content-type", "authorization"]
                    .iter()
                    .any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
            })
            .collect::<Vec<_>>();
        if allowed.is_empty() {
            response
        } else {
            response.header("access-control-allow-headers", allowed.join(&b","[..]))
        }
    }

    /// The headers of every answer.
    fn begin(&self, status: u16, context: &RequestContext) -> Response {
        let mut response = Response::new(status);
        response.head.reserve(512);
        response.head.extend_from_slice(&self.server);
        if context.private {
            response = response.header("vary", "authorization, cookie");
        }
        response
            .header("x-request-id", &*context.request_id)
            // Never the page's own origin: a cache would give the answer to pages of other origins too, whose browsers
            // would refuse it.
            .header("access-control-allow-origin", "*")
            .header("cross-origin-resource-policy", "cross-origin")
            .header("access-control-expose-headers", EXPOSED)
            .header(
                "access-control-allow-methods",
                if context.on_shape { "GET, POST, HEAD, DELETE, OPTIONS" } else { "GET, HEAD" },
            )
    }

    fn cache_control(&self, context: &RequestContext, page: &Page<'_>) -> String {
        let settings = &self.settings;
        match page.mode {
            _ if !context.cacheable => "no-cache".to_owned(),
            _ if context.private => PRIVATE.to_owned(),
            // Clients may begin with an old snapshot, but the caches that many share should have a new one now and
            // then.
            _ if page.asked == From::Start => {
                let shared = settings.first_shared_age_s;
                format!("public, max-age=604800, s-maxage={shared}, stale-while-revalidate=2629746")
            }
            // Almost as long as the stream lasts, so that all clients that ask within that time share one answer.
            Mode::Events { .. } => {
                format!("public, max-age={}", (settings.sse_timeout_ms / 1000).saturating_sub(1).max(1))
            }
            Mode::LongPoll { .. } => "public, max-age=5, stale-while-revalidate=5".to_owned(),
            Mode::CatchUp { .. } => {
                format!("public, max-age={}, stale-while-revalidate={}", settings.max_age_s, settings.stale_age_s)
            }
        }
    }

    /// The cursor of a live client's next request: the same for all clients that ask at about the same time, so that a
    /// cache can send one request for all of them, and never the cursor of this request, so that the client gets no old
    /// answer.
    fn cursor(&self, given: Option<&str>, moment: RequestClock) -> u64 {
        let interval_s = self.settings.long_poll_ms / 1000;
        if interval_s == 0 {
            return 0;
        }
        let next = moment.now_s.saturating_sub(CURSOR_EPOCH_S).div_ceil(interval_s).saturating_mul(interval_s);
        let given = given.and_then(|text| text.parse().ok()).unwrap_or(0);
        if next > given { next } else { given.saturating_add(1 + u64::from(moment.random % 3600)) }
    }
}

fn number(n: u64) -> String {
    n.to_string()
}

#[cfg(test)]
#[path = "respond_tests.rs"]
mod tests;

//! Response heads: the common lines of all answers, and the lines of the protocol.

use crate::error::Refusal;
use crate::format::offset::Position;
use crate::format::timestamp;
use crate::state::lifetime::Lifetime;
use crate::state::retention::Retention;
use thalweg_base::{Level, Offset};
use thalweg_http::{Body, Response};

/// Lines of every answer: pages of every origin may read it, headers of the protocol included.
const COMMON: &[u8] = b"Cross-Origin-Resource-Policy: cross-origin\r\n\
Access-Control-Allow-Origin: *\r\n\
Access-Control-Expose-Headers: *\r\n";

const PREFLIGHT: &[u8] = b"Access-Control-Allow-Methods: GET, HEAD, PUT, POST, DELETE, OPTIONS\r\n\
Access-Control-Allow-Headers: Authorization, Content-Type, If-Match, If-None-Match, Cache-Control, Last-Event-ID, Stream-Seq, \
Stream-TTL, Stream-Expires-At, Stream-Retention-Bytes, Stream-Retention-Seconds, Stream-Durability, Stream-Closed, Stream-Cursor, \
Stream-Forked-From, Stream-Fork-Offset, Stream-Fork-Sub-Offset, Producer-Id, Producer-Epoch, Producer-Seq\r\n\
Access-Control-Max-Age: 86400\r\n";

/// A response head under construction.
pub(crate) struct Head(Response);

impl Head {
    pub(crate) fn new(status: u16) -> Self {
        let mut head = Vec::with_capacity(COMMON.len() + 256);
        head.extend_from_slice(COMMON);
        Self(Response { status, head, body: Body::Empty, close: false, page: false })
    }

    /// Adds a line: `name` ends with a colon and a space. `value` must hold no line breaks: ours never do, and the
    /// parser cuts those of requests at line breaks; line breaks are dropped all the same.
    pub(crate) fn line(mut self, name: &'static [u8], value: &[u8]) -> Self {
        self.put(name, value);
        self
    }

    pub(crate) fn put(&mut self, name: &'static [u8], value: &[u8]) {
        let head = &mut self.0.head;
        head.extend_from_slice(name);
        if memchr::memchr2(b'\r', b'\n', value).is_none() {
            head.extend_from_slice(value);
        }
        head.extend_from_slice(b"\r\n");
    }

    pub(crate) fn number(self, name: &'static [u8], value: u64) -> Self {
        self.line(name, itoa::Buffer::new().format(value).as_bytes())
    }

    pub(crate) fn next_offset(self, next: Position) -> Self {
        self.line(b"Stream-Next-Offset: ", &next.to_text())
    }

    pub(crate) fn closed(self, closed: bool) -> Self {
        if closed { self.line(b"Stream-Closed: ", b"true") } else { self }
    }

    pub(crate) fn up_to_date(self, up_to_date: bool) -> Self {
        if up_to_date { self.line(b"Stream-Up-To-Date: ", b"true") } else { self }
    }

    pub(crate) fn content_type(self, content_type: &str) -> Self {
        self.line(b"Content-Type: ", content_type.as_bytes())
    }

    /// Tells caches that other clients may get the same content compressed.
    pub(crate) fn varies(self, compressible: bool) -> Self {
        if compressible { self.line(b"Vary: ", b"Accept-Encoding") } else { self }
    }

    pub(crate) fn no_store(self) -> Self {
        self.line(b"Cache-Control: ", b"no-store")
    }

    pub(crate) fn lifetime(self, lifetime: Lifetime) -> Self {
        match lifetime {
            Lifetime::Unlimited => self,
            Lifetime::Idle { secs } => self.number(b"Stream-TTL: ", secs),
            Lifetime::Until(at) => self.line(b"Stream-Expires-At: ", timestamp::text(at).as_bytes()),
        }
    }

    pub(crate) fn retention(mut self, retention: Retention) -> Self {
        if let Some(bytes) = retention.bytes {
            self = self.number(b"Stream-Retention-Bytes: ", bytes);
        }
        match retention.secs {
            Some(secs) => self.number(b"Stream-Retention-Seconds: ", secs),
            None => self,
        }
    }

    pub(crate) fn durability(self, durability: Level) -> Self {
        self.line(b"Stream-Durability: ", durability.word().as_bytes())
    }

    /// The earliest retained position, if it is not the beginning.
    pub(crate) fn earliest(self, start: Position) -> Self {
        if start.offset == Offset::ZERO { self } else { self.line(b"Stream-Earliest-Offset: ", &start.to_text()) }
    }

    pub(crate) fn finish(self, body: Body) -> Response {
        Response { body, ..self.0 }
    }
}

pub(crate) fn preflight() -> Response {
    let mut head = Head::new(204);
    head.0.head.extend_from_slice(PREFLIGHT);
    head.finish(Body::Empty)
}

/// The answer to a request whose change may have become durable or not.
pub(crate) fn unconfirmed() -> Response {
    let head = Head::new(503).line(b"Retry-After: ", b"1");
    let text = "the journal stopped before this could be confirmed: it may or may not have happened; ask again after a restart";
    explained(head, "unconfirmed", text)
}

pub(crate) fn refusal(refusal: &Refusal) -> Response {
    let mut head = Head::new(refusal.status());
    refusal.headers(|name, value| head.put(name, value));
    explained(head, refusal.code(), &refusal.to_string())
}

/// `{"error":{"code":…,"message":…}}`, never to be cached.
pub(crate) fn explained(head: Head, code: &str, message: &str) -> Response {
    let body = serde_json::json!({ "error": { "code": code, "message": message } });
    head.no_store().content_type("application/json").finish(Body::Bytes(body.to_string().into()))
}

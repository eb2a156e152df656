//! Checks that every request must pass before a route sees it: its host, the page that sent it, its token, and the
//! encoding of its body.
//!
//! `origins` is for servers without tokens: a browser on this machine can reach them on behalf of any web page.
//! [`Auth`] is for the others. Both judge the head of a request, so that no client sends a body in vain.

mod origins;

use crate::Guard;
use crate::auth::Auth;
use crate::config::Config;
use crate::metrics;
use crate::nodes::{self, Proofs};
use crate::response::plain;
use origins::Origins;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use thalweg_http::{Method, Request, Response};

/// Why a request was refused, other than by its token. `docs/protocol/refusals.md` lists the codes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Refused {
    #[error(
        "the host `{0}` is not one of this server's: it asks for no token, so it answers to 127.0.0.1, localhost and [::1] with its own \
         port only; start it with --allow-host {0}, or with --tokens FILE"
    )]
    Host(String),
    #[error(
        "a page of `{0}` may not use this server: it asks for no token, so only pages of this machine may; start it with \
         --allow-origin {0}, or with --tokens FILE"
    )]
    Origin(String),
    #[error(
        "a page of another site may only link to this server: to embed its answers, the page must ask with its origin (the attribute \
         crossorigin), and the server must be started with --allow-origin"
    )]
    Embedded,
    #[error("Content-Encoding `{0}` is not taken: send the content as it is")]
    Encoding(String),
}

const CODES: [&str; 3] = ["host_not_allowed", "origin_not_allowed", "content_encoding"];

impl Refused {
    const fn code(&self) -> usize {
        match self {
            Self::Host(_) => 0,
            Self::Origin(_) | Self::Embedded => 1,
            Self::Encoding(_) => 2,
        }
    }

    fn response(&self) -> Response {
        let body = serde_json::json!({ "error": { "code": CODES[self.code()], "message": self.to_string() } });
        match self {
            // Accepted content codings (RFC 9110, section 12.5.3): none.
            Self::Encoding(_) => plain(415, "application/json").header("accept-encoding", "identity"),
            // The refusal is not for the page that asked: no access-control headers.
            _ => Response::new(403)
                .header("content-type", "application/json")
                .header("cache-control", "no-store")
                .header("cross-origin-resource-policy", "same-origin"),
        }
        .body(body.to_string())
    }
}

/// Refusals by code, since the start.
pub(crate) type RefusedCounts = [(&'static str, u64); CODES.len()];

/// The checks in front of all routes.
pub struct Door {
    origins: Origins,
    auth: Option<Arc<Auth>>,
    refused: [AtomicU64; CODES.len()],
    /// The address that the server listens on.
    port: u16,
    /// By this other nodes show themselves: what they send on has passed their doors.
    proofs: Option<Arc<Proofs>>,
}

impl Door {
    /// `auth`: tokens, if there are any. `port`: where the server listens.
    pub fn new(config: &Config, auth: Option<Arc<Auth>>, port: u16) -> Self {
        Self {
            origins: Origins::of(config, auth.as_ref().is_some_and(|auth| auth.is_everywhere())),
            auth,
            refused: Default::default(),
            port,
            proofs: None,
        }
    }

    /// The door of a node: requests that another one sends on were checked for host and origin there.
    #[must_use]
    pub fn of_node(self, proofs: Arc<Proofs>) -> Self {
        Self { proofs: Some(proofs), ..self }
    }

    fn is_from_node(&self, request: &Request<'_>) -> bool {
        let given = self.proofs.as_ref().zip(request.headers.get(nodes::SECRET));
        given.is_some_and(|(proofs, given)| proofs.is_shown(given))
    }

    /// Whether a request says that a node has sent it, and does not show this process's proof: most likely it is for the
    /// process that had this address before.
    fn is_for_another_process(&self, request: &Request<'_>) -> bool {
        self.proofs.is_some() && request.headers.get(nodes::SECRET).is_some() && !self.is_from_node(request)
    }

    /// The refusal of a request to a route with this guard. `None` passes the request. With `whole` the body is
    /// complete.
    pub fn judge(&self, request: &Request<'_>, guard: Guard, now_ms: u64, whole: bool) -> Option<Response> {
        if self.is_for_another_process(request) {
            return Some(nodes::not_a_node());
        }
        if let Some(refused) = self.origin_of(request, guard) {
            return Some(self.refuse(&refused));
        }
        if let (Some(auth), Guard::Token(needs)) = (&self.auth, guard) {
            let answer = if whole { auth.answer(request, needs, now_ms) } else { auth.on_head(request, needs, now_ms) };
            if answer.is_some() {
                return answer;
            }
        }
        encoded(request).map(|refused| self.refuse(&refused))
    }

    fn origin_of(&self, request: &Request<'_>, guard: Guard) -> Option<Refused> {
        if self.is_from_node(request) || matches!(guard, Guard::Own { asks: true }) && !self.origins.are_named() {
            return None;
        }
        self.origins.refuse(request, self.port)
    }

    fn refuse(&self, refused: &Refused) -> Response {
        let count = self.refused[refused.code()].fetch_add(1, Ordering::Relaxed);
        // A refused page learns only that it was refused; its developer reads this log. Only once, since any page can
        // trigger the line.
        if count == 0 {
            tracing::warn!(code = CODES[refused.code()], "a request was refused, the first of its kind: {refused}");
        }
        refused.response()
    }

    /// Counters of refusals, for metrics.
    pub fn stats(&self) -> metrics::Door {
        metrics::Door { refused: std::array::from_fn(|at| (CODES[at], self.refused[at].load(Ordering::Relaxed))) }
    }
}

/// Content is stored as it is sent, so an encoding of the message would become part of the content.
fn encoded(request: &Request<'_>) -> Option<Refused> {
    if matches!(request.method, Method::Get | Method::Head | Method::Options) {
        return None;
    }
    let fields = request.headers.0.iter().filter(|(name, _)| name.eq_ignore_ascii_case("content-encoding"));
    let mut codings = fields.flat_map(|(_, value)| value.split(|b| *b == b',')).map(<[u8]>::trim_ascii);
    let coding = codings.find(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity"))?;
    Some(Refused::Encoding(origins::shown(coding)))
}

#[cfg(test)]
mod tests;

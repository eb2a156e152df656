//! Refusals of authentication and authorization. `docs/protocol/auth.md` is the table of this file.

use super::scope::Scope;
use crate::response::plain;
use std::sync::atomic::{AtomicU64, Ordering};
use thalweg_http::Response;
use thiserror::Error;

const MESSAGE_CHARS_MAX: usize = 600;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum Denied {
    #[error("a token is needed: send `Authorization: Bearer TOKEN`, or, to read, a signed one as `?access_token=`")]
    Nobody,
    #[error("Authorization must be `Bearer` and a token")]
    Scheme,
    #[error("the token is unknown")]
    Unknown,
    #[error("the token has expired, or the token that issued it was revoked")]
    Expired,
    #[error("a token in the query or in a cookie is for GET and HEAD only; send `Authorization: Bearer TOKEN`")]
    OnlyForReads,
    #[error("a token in the query or in a cookie must be a signed one, which POST /v1/token gives")]
    OnlySigned,
    #[error(
        "a token in the query is for requests of a page, not for an address that a browser opens: it would stay in the history, and a \
         link in what is opened could pass it on; ask with fetch, EventSource or an <img>"
    )]
    Opened,
    #[error("the request has `{0}` more than once; send it once")]
    Repeated(&'static str),
    #[error("the token does not allow to {verb} {1}", verb = verb(*.0))]
    Scope(Scope, String),
    #[error("the token does not allow to read shapes")]
    Shapes,
    #[error("{0}")]
    Beyond(thalweg_shapes::Beyond),
    #[error("only a token of the file can ask for a signed one")]
    Resigned,
    #[error("{0}")]
    TokenRequest(String),
    #[error("signed tokens are asked for with POST")]
    Method,
}

const fn verb(scope: Scope) -> &'static str {
    match scope {
        Scope::Read => "read",
        Scope::Write => "write to",
        Scope::Admin => "administer",
    }
}

/// Refusals by code, since the start.
pub type DeniedCounts = [(&'static str, u64); CODES.len()];

const CODES: [&str; 12] = [
    "token_required",
    "bad_authorization",
    "unknown_token",
    "expired_token",
    "token_for_reads_only",
    "token_not_signed",
    "token_in_address",
    "repeated_token",
    "scope_missing",
    "token_cannot_sign",
    "bad_token_request",
    "method_not_allowed",
];

/// Counters of refusals, by code.
#[derive(Debug, Default)]
pub(super) struct Denials([AtomicU64; CODES.len()]);

impl Denials {
    pub(super) fn response(&self, denied: &Denied) -> Response {
        self.count(denied);
        denied.response()
    }

    /// The refusal for the shapes engine, which has its own form of errors.
    pub(super) fn to_shapes(&self, denied: &Denied) -> thalweg_shapes::Denied {
        self.count(denied);
        let (status, code, _) = denied.mapping();
        thalweg_shapes::Denied { status, code, message: denied.message() }
    }

    fn count(&self, denied: &Denied) {
        let code = denied.mapping().1;
        if let Some(at) = CODES.iter().position(|known| *known == code) {
            self.0[at].fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn counts(&self) -> DeniedCounts {
        std::array::from_fn(|at| (CODES[at], self.0[at].load(Ordering::Relaxed)))
    }
}

impl Denied {
    /// HTTP status, error code, and the error name of RFC 6750.
    pub(super) const fn mapping(&self) -> (u16, &'static str, &'static str) {
        match self {
            Self::Nobody => (401, "token_required", ""),
            Self::Scheme => (401, "bad_authorization", ", error=\"invalid_request\""),
            Self::Unknown => (401, "unknown_token", ", error=\"invalid_token\""),
            Self::Expired => (401, "expired_token", ", error=\"invalid_token\""),
            Self::OnlyForReads => (401, "token_for_reads_only", ", error=\"invalid_request\""),
            Self::OnlySigned => (401, "token_not_signed", ", error=\"invalid_request\""),
            Self::Opened => (401, "token_in_address", ", error=\"invalid_request\""),
            Self::Repeated(_) => (400, "repeated_token", ", error=\"invalid_request\""),
            Self::Scope(..) => (403, "scope_missing", ", error=\"insufficient_scope\""),
            Self::Shapes => (403, "scope_missing", ", error=\"insufficient_scope\""),
            Self::Beyond(_) => (403, "scope_missing", ", error=\"insufficient_scope\""),
            Self::Resigned => (403, "token_cannot_sign", ", error=\"insufficient_scope\""),
            Self::TokenRequest(_) => (400, "bad_token_request", ""),
            Self::Method => (405, "method_not_allowed", ""),
        }
    }

    /// Repeats at most a part of the request, never a secret.
    fn message(&self) -> String {
        self.to_string().chars().take(MESSAGE_CHARS_MAX).collect()
    }

    fn response(&self) -> Response {
        let (status, code, error) = self.mapping();
        let body = serde_json::json!({ "error": { "code": code, "message": self.message() } });
        let response = plain(status, "application/json").body(body.to_string());
        match status {
            401 | 403 => response.header("www-authenticate", format!("Bearer realm=\"thalweg\"{error}")),
            405 => response.header("allow", "POST, OPTIONS"),
            _ => response,
        }
    }
}

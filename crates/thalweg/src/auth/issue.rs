//! `POST /v1/token`: whoever has a token gets a signed one of at most its rights.

use super::denied::Denied;
use super::scope::{Prefix, Scope};
use super::signed::{self, Claim};
use super::{Bearer, Known};
use crate::config::Span;
use crate::http::plain;
use thalweg_wire::http::{Method, Request, Response};

/// What is asked for.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    prefix: String,
    #[serde(default)]
    scope: Option<String>,
    #[serde(default)]
    ttl: Option<String>,
}

/// What a browser asks before it sends a token from a page of another origin.
pub(super) fn preflight() -> Response {
    plain(204, "text/plain")
        .header("access-control-allow-methods", "POST, OPTIONS")
        .header("access-control-allow-headers", "Authorization, Content-Type")
        .header("access-control-max-age", "86400")
}

pub(super) fn answer(
    known: &Known,
    bearer: &Bearer<'_>,
    request: &Request<'_>,
    now_ms: u64,
) -> Result<Response, Denied> {
    if request.method != Method::Post {
        return Err(Denied::Method);
    }
    let id = bearer.id.as_ref().ok_or(Denied::Resigned)?;
    let wish: Wish = serde_json::from_slice(request.body).map_err(|error| {
        Denied::Wish(format!(
            "the body must be such as {{\"prefix\":\"chat/\",\"scope\":\"read\",\"ttl\":\"10m\"}}: {error}"
        ))
    })?;
    let prefix: Prefix = wish.prefix.parse().map_err(Denied::Wish)?;
    let scope = wish.scope.map_or(Ok(Scope::Read), |scope| scope.parse()).map_err(Denied::Wish)?;
    let ttl = wish.ttl.map_or(Ok(Span(signed::TTL_DEFAULT)), |ttl| ttl.parse::<Span>()).map_err(Denied::Wish)?.0;
    signed::check_ttl(ttl).map_err(|error| Denied::Wish(error.to_string()))?;
    if !bearer.rights.allow_all(scope, &prefix) {
        return Err(Denied::Scope(scope, format!("everything under `{prefix}`")));
    }
    let expires = now_ms.saturating_add(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
    let expires = bearer.expires.map_or(expires, |end| end.min(expires));
    let token = known.key.sign(&Claim { scope, prefix: prefix.clone(), expires, parent: Some(id.clone()) });
    let body = serde_json::json!({
        "access_token": token,
        "token_type": "Bearer",
        "expires_in": (expires - now_ms) / 1_000,
        "scope": scope.name(),
        "prefix": prefix.to_string(),
    });
    Ok(plain(200, "application/json").body(body.to_string()))
}

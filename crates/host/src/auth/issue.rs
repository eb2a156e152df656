//! `POST /v1/token`: a client with a token gets a signed token of at most the same rights.

use super::denied::Denied;
use super::scope::{Prefix, Scope};
use super::signed::{self, Claim};
use super::{Bearer, Known};
use crate::response::plain;
use thalweg_base::Span;
use thalweg_http::{Method, Request, Response};
use thalweg_shapes::Grants;

/// Request body.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenRequest {
    #[serde(default)]
    prefix: Option<String>,
    #[serde(default)]
    scope: Option<String>,
    #[serde(default)]
    shape: Grants,
    #[serde(default)]
    ttl: Option<String>,
}

/// Answer to the preflight request that a browser sends before a page of another origin may send a token.
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
    let requested: TokenRequest = serde_json::from_slice(request.body).map_err(|error| {
        Denied::TokenRequest(format!(
            "the body must be such as {{\"prefix\":\"chat/\",\"scope\":\"read\",\"ttl\":\"10m\"}} or {{\"shape\":[{{\"table\":\"items\",\
             \"where\":\"owner = $1\",\"params\":[\"7\"]}}]}}: {error}"
        ))
    })?;
    let prefix: Option<Prefix> = requested.prefix.map(|text| text.parse()).transpose().map_err(Denied::TokenRequest)?;
    let scope = requested.scope.map_or(Ok(Scope::Read), |scope| scope.parse()).map_err(Denied::TokenRequest)?;
    let ttl =
        requested.ttl.map_or(Ok(Span(signed::TTL_DEFAULT)), |ttl| ttl.parse::<Span>()).map_err(Denied::TokenRequest)?.0;
    signed::check_ttl(ttl).map_err(|error| Denied::TokenRequest(error.to_string()))?;
    if prefix.is_none() && requested.shape.is_empty() {
        return Err(Denied::TokenRequest(
            "a token is for streams, by `prefix`, for tables, by `shape`, or for both".to_owned(),
        ));
    }
    if let Some(prefix) = prefix.as_ref().filter(|prefix| !bearer.rights.allow_all(scope, prefix)) {
        return Err(Denied::Scope(scope, format!("everything under `{prefix}`")));
    }
    // This check reports the error early. Enforcement uses the rights of the issuing token at the time of use.
    requested.shape.under(&bearer.rights.shapes).map_err(Denied::Beyond)?;
    let expires = now_ms.saturating_add(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
    let expires = bearer.expires.map_or(expires, |end| end.min(expires));
    let mut body = serde_json::json!({ "token_type": "Bearer", "expires_in": (expires - now_ms) / 1_000 });
    if let Some(prefix) = &prefix {
        body["scope"] = scope.name().into();
        body["prefix"] = prefix.to_string().into();
    }
    if !requested.shape.is_empty() {
        body["shape"] = serde_json::json!(requested.shape);
    }
    let streams = prefix.map(|prefix| (scope, prefix));
    let token = known.key.sign(&Claim { streams, shapes: requested.shape, expires, parent: Some(id.clone()) });
    if token.len() > signed::TOKEN_BYTES_MAX {
        let max = signed::TOKEN_BYTES_MAX;
        return Err(Denied::TokenRequest(format!(
            "the token would have {} bytes, and {max} fit into a request's head",
            token.len()
        )));
    }
    body["access_token"] = token.into();
    Ok(plain(200, "application/json").body(body.to_string()))
}

//! The places of a request that may carry a token.

use super::denied::Denied;
use std::borrow::Cow;
use thalweg_http::Request;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CredentialSource {
    Header,
    /// `?access_token=`: `EventSource` can send no headers. Addresses end up in logs and histories, so only short-lived
    /// tokens go there.
    Query,
    /// Browsers send cookies with requests from any page, so a request by cookie must not change anything.
    Cookie,
}

pub(super) struct Credential<'a> {
    pub(super) token: Cow<'a, str>,
    pub(super) source: CredentialSource,
}

const COOKIE: &str = "thalweg_token";
pub(super) const PARAMETER: &str = "access_token";

/// The token of a request: from the header, else the query, else a cookie. A wrong one is not made up for by another.
pub(super) fn find<'a>(request: &Request<'a>) -> Result<Credential<'a>, Denied> {
    if let Some(value) = request.headers.get("authorization") {
        if request.headers.count("authorization") > 1 {
            return Err(Denied::Repeated("Authorization"));
        }
        let value = std::str::from_utf8(value).map_err(|_| Denied::Scheme)?;
        let (scheme, token) = value.trim().split_once(' ').ok_or(Denied::Scheme)?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(Denied::Scheme);
        }
        return Ok(Credential { token: token.trim().into(), source: CredentialSource::Header });
    }
    let mut pairs = request.query.unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    let mut in_query = pairs.by_ref().filter(|(name, _)| *name == PARAMETER);
    if let Some((_, token)) = in_query.next() {
        if in_query.next().is_some() {
            return Err(Denied::Repeated(PARAMETER));
        }
        return Ok(Credential { token: token.into(), source: CredentialSource::Query });
    }
    let cookies = request.headers.0.iter().filter(|(name, _)| name.eq_ignore_ascii_case("cookie"));
    for (_, cookies) in cookies {
        for cookie in cookies.split(|b| *b == b';') {
            let cookie = std::str::from_utf8(cookie.trim_ascii()).unwrap_or_default();
            if let Some((COOKIE, token)) = cookie.split_once('=') {
                return Ok(Credential { token: token.trim_matches('"').into(), source: CredentialSource::Cookie });
            }
        }
    }
    Err(Denied::Nobody)
}

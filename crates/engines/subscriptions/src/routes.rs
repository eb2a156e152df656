//! Requests under `__ds`: paths, bodies and headers into a [`Control`], and answers into responses.

use crate::config::SubscriptionsConfig;
use crate::core::{Answer, refused};
use crate::error::Refusal;
use crate::state::{Config, Kind};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use thalweg_http::{Method, Request, Response};

/// The largest body of a control request.
pub(crate) const BODY_BYTES_MAX: usize = 1 << 20;
/// The longest id of a subscription, in bytes.
pub(crate) const ID_BYTES_MAX: usize = 256;
/// The longest pattern, description and worker's name, in bytes.
const TEXT_BYTES_MAX: usize = 1_024;
const LEASE_MS: std::ops::RangeInclusive<u64> = 1_000..=600_000;
const LEASE_MS_DEFAULT: u64 = 30_000;

/// One request, independent of the buffer that it was read from.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Control {
    pub(crate) id: String,
    /// The unit that has the subscription.
    pub(crate) unit: u64,
    pub(crate) command: Command,
    /// How the client reaches this server, with the streams' prefix.
    pub(crate) base: String,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Create(Box<Config>),
    Get,
    Delete,
    Link(Vec<String>),
    Unlink(String),
    Claim(String),
    Callback(String, Body),
    Ack(String, Body),
    Release(String, Body),
}

/// A worker's request about its wake.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Body {
    pub(crate) wake_id: String,
    pub(crate) generation: u64,
    #[serde(default)]
    pub(crate) acks: Vec<Acks>,
    #[serde(default)]
    pub(crate) done: bool,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Acks {
    #[serde(alias = "path")]
    pub(crate) stream: String,
    pub(crate) offset: String,
}

#[derive(Deserialize)]
struct Create {
    #[serde(rename = "type")]
    kind: Kind,
    pattern: Option<String>,
    #[serde(default)]
    streams: Vec<String>,
    webhook: Option<Webhook>,
    wake_stream: Option<String>,
    lease_ttl_ms: Option<u64>,
    description: Option<String>,
}

#[derive(Deserialize)]
struct Webhook {
    url: String,
}

#[derive(Deserialize)]
struct Paths {
    streams: Vec<String>,
}

#[derive(Deserialize)]
struct Claim {
    worker: String,
}

/// A request below `__ds/`.
pub(crate) enum ControlRoute {
    Jwks,
    Preflight,
    Control(Control),
}

/// Reads a request whose path is `prefix`, `__ds/` and then `rest`.
pub(crate) fn read(
    request: &Request<'_>,
    rest: &str,
    unit: u64,
    config: &SubscriptionsConfig,
) -> Result<ControlRoute, Refusal> {
    if matches!(request.method, Method::Options) {
        return Ok(ControlRoute::Preflight);
    }
    if rest == "jwks.json" {
        return match request.method {
            Method::Get | Method::Head => Ok(ControlRoute::Jwks),
            _ => Err(Refusal::Method("GET, HEAD")),
        };
    }
    if request.body.len() > BODY_BYTES_MAX {
        return Err(Refusal::TooLarge(BODY_BYTES_MAX));
    }
    let rest = rest.strip_prefix("subscriptions/").ok_or(Refusal::NoRoute)?;
    let (id, action) = split_id(rest);
    let id = decoded(id).filter(|id| is_id(id)).ok_or_else(|| {
        Refusal::Invalid(format!(
            "a subscription's id has 1 to {ID_BYTES_MAX} bytes, without control characters or `/`"
        ))
    })?;
    let command = match (action, request.method) {
        (None, Method::Put) => Command::Create(Box::new(create(body(request)?)?)),
        (None, Method::Get | Method::Head) => Command::Get,
        (None, Method::Delete) => Command::Delete,
        (None, _) => return Err(Refusal::Method("PUT, GET, HEAD, DELETE")),
        (Some("streams"), Method::Post) => {
            let Paths { streams: paths } = body(request)?;
            Command::Link(sorted(paths.iter().map(|path| normal(path)).collect::<Result<_, _>>()?))
        }
        (Some(path), Method::Delete) if path.starts_with("streams/") => {
            let path =
                decoded(&path["streams/".len()..]).ok_or_else(|| Refusal::Invalid("a bad stream path".into()))?;
            Command::Unlink(normal(&path)?)
        }
        (Some("claim"), Method::Post) => {
            let Claim { worker } = body(request)?;
            if worker.is_empty() || worker.len() > TEXT_BYTES_MAX {
                return Err(Refusal::Invalid(format!("worker must have 1 to {TEXT_BYTES_MAX} bytes")));
            }
            Command::Claim(worker)
        }
        (Some("callback"), Method::Post) => Command::Callback(bearer(request)?, body(request)?),
        (Some("ack"), Method::Post) => Command::Ack(bearer(request)?, body(request)?),
        (Some("release"), Method::Post) => Command::Release(bearer(request)?, body(request)?),
        (Some("streams" | "claim" | "callback" | "ack" | "release"), _) => return Err(Refusal::Method("POST")),
        (Some(path), _) if path.starts_with("streams/") => return Err(Refusal::Method("DELETE")),
        (Some(_), _) => return Err(Refusal::NoRoute),
    };
    Ok(ControlRoute::Control(Control { id, unit, command, base: base(request, config) }))
}

/// The id of the subscription that a path names, behind `__ds/`.
pub(crate) fn id_of(rest: &str) -> Option<String> {
    let (id, _) = split_id(rest.strip_prefix("subscriptions/")?);
    decoded(id).filter(|id| is_id(id))
}

fn split_id(rest: &str) -> (&str, Option<&str>) {
    rest.split_once('/').map_or((rest, None), |(id, action)| (id, Some(action)))
}

fn body<T: DeserializeOwned>(request: &Request<'_>) -> Result<T, Refusal> {
    serde_json::from_slice(request.body)
        .map_err(|error| Refusal::Invalid(format!("the body is not as it should be: {error}")))
}

/// The name of a stream in a body: slashes around it do not matter.
fn normal(path: &str) -> Result<String, Refusal> {
    let name = thalweg_streams::normal_name(path.trim_matches('/'));
    name.ok_or_else(|| Refusal::Invalid("a stream's path is not valid: streams are named relative to the root".into()))
}

fn sorted(mut paths: Vec<String>) -> Vec<String> {
    paths.sort_unstable();
    paths.dedup();
    paths
}

fn create(asked: Create) -> Result<Config, Refusal> {
    let invalid = |text: &str| Refusal::Invalid(text.into());
    let short = |text: Option<String>, what: &str| match text {
        Some(text) if text.len() > TEXT_BYTES_MAX => {
            Err(Refusal::Invalid(format!("{what} must have at most {TEXT_BYTES_MAX} bytes")))
        }
        text => Ok(text),
    };
    let pattern =
        asked.pattern.map(|pattern| pattern.trim_matches('/').to_owned()).filter(|pattern| !pattern.is_empty());
    let pattern = short(pattern, "pattern")?;
    let streams = sorted(asked.streams.iter().map(|path| normal(path)).collect::<Result<_, _>>()?);
    if pattern.is_none() && streams.is_empty() {
        return Err(invalid("at least one of pattern and streams must be there"));
    }
    let lease_ttl_ms = asked.lease_ttl_ms.unwrap_or(LEASE_MS_DEFAULT);
    if !LEASE_MS.contains(&lease_ttl_ms) {
        return Err(invalid("lease_ttl_ms must be from 1000 to 600000"));
    }
    let (url, wake_stream) = match asked.kind {
        Kind::Webhook => {
            let webhook = asked.webhook.ok_or_else(|| invalid("a webhook subscription needs webhook.url"))?;
            (Some(webhook.url), None)
        }
        Kind::PullWake => {
            let stream = asked.wake_stream.ok_or_else(|| invalid("a pull-wake subscription needs wake_stream"))?;
            (None, Some(normal(&stream)?))
        }
    };
    let description = short(asked.description, "description")?;
    Ok(Config { kind: asked.kind, pattern, streams, url, wake_stream, lease_ttl_ms, description })
}

fn bearer(request: &Request<'_>) -> Result<String, Refusal> {
    let value = request.headers.get("authorization").and_then(|value| std::str::from_utf8(value).ok());
    let token = value.and_then(|value| value.split_once(' ')).filter(|(kind, _)| kind.eq_ignore_ascii_case("bearer"));
    token.map(|(_, token)| token.trim().to_owned()).ok_or(Refusal::Token)
}

fn base(request: &Request<'_>, config: &SubscriptionsConfig) -> String {
    let SubscriptionsConfig { prefix, public_url, https, .. } = config;
    if !public_url.is_empty() {
        return format!("{}{prefix}", public_url.trim_end_matches('/'));
    }
    let graphic = |host: &&[u8]| !host.is_empty() && host.len() <= 256 && host.iter().all(u8::is_ascii_graphic);
    let host = request.headers.get("host").filter(graphic).and_then(|host| std::str::from_utf8(host).ok());
    let https =
        *https || request.headers.get("x-forwarded-proto").is_some_and(|proto| proto.eq_ignore_ascii_case(b"https"));
    match host {
        Some(host) => format!("{}://{host}{prefix}", if https { "https" } else { "http" }),
        None => prefix.clone(),
    }
}

fn is_id(id: &str) -> bool {
    !id.is_empty() && id.len() <= ID_BYTES_MAX && !id.contains('/') && !id.chars().any(char::is_control)
}

/// Decodes percent-encoding.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let digits = [bytes.next()?, bytes.next()?];
            if !digits.iter().all(u8::is_ascii_hexdigit) {
                return None;
            }
            out.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok()
}

// ---- answers

/// The headers that every answer carries.
fn head(status: u16) -> Response {
    Response::new(status)
        .header("cross-origin-resource-policy", "cross-origin")
        .header("access-control-allow-origin", "*")
}

pub(crate) fn response(answer: Answer) -> Response {
    let head = head(answer.status).header("cache-control", "no-store");
    let head = match answer.status {
        401 => head.header("www-authenticate", "Bearer"),
        503 => head.header("retry-after", "1"),
        _ => head,
    };
    match answer.body {
        Some(body) => head.header("content-type", "application/json").body(body.to_string()),
        None => head,
    }
}

pub(crate) fn refusal(refusal: &Refusal) -> Response {
    let (status, body) = refused(refusal);
    let answer = response(Answer { after: thalweg_base::Lsn::ZERO, status, body: Some(body) });
    match refusal {
        Refusal::Method(allow) => answer.header("allow", allow),
        _ => answer,
    }
}

pub(crate) fn jwks(keys: &serde_json::Value) -> Response {
    head(200)
        .header("cache-control", "public, max-age=300")
        .header("content-type", "application/jwk-set+json")
        .body(keys.to_string())
}

pub(crate) fn preflight() -> Response {
    head(204)
        .header("access-control-allow-methods", "GET, HEAD, PUT, POST, DELETE, OPTIONS")
        .header("access-control-allow-headers", "Authorization, Content-Type")
        .header("access-control-max-age", "86400")
}

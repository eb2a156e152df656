//! The names that a server answers to, and the origins whose pages may use it.
//!
//! A server without tokens on a loopback address is for the programs of its machine. A web browser is one of them, and
//! runs the scripts of any site: a page can have requests sent to 127.0.0.1 (they carry `Origin`), and a site can let
//! its own name resolve to 127.0.0.1, so that its pages have the server's origin (they carry that name in `Host`: DNS
//! rebinding). Neither header can be changed by a page.

use super::Refused;
use crate::config::{Config, Names};
use std::net::IpAddr;
use thalweg_http::{Method, Request};

/// Bytes of a header that an answer or a log line repeats.
const SHOWN_BYTES_MAX: usize = 100;

/// Hosts and origins that the server answers: all, or the listed ones.
pub(super) struct Origins {
    hosts: Allowed,
    origins: Allowed,
    /// The port of a host or origin that names none: 80, or 443 with TLS.
    default_port: u16,
}

struct Allowed {
    all: bool,
    /// Whether the setting lists names.
    named: bool,
    names: Names,
}

impl Allowed {
    /// `open`: hosts that are not listed are allowed too.
    fn new(names: &Names, open: bool) -> Self {
        let named = !names.0.is_empty();
        Self { all: names.0.iter().any(|name| name == "*") || (!named && open), named, names: names.clone() }
    }

    fn lists(&self, name: &str) -> bool {
        self.names.0.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

impl Origins {
    /// `tokens`: requests must carry one.
    pub(super) fn of(config: &Config, tokens: bool) -> Self {
        let open = tokens || !config.is_local();
        Self {
            hosts: Allowed::new(&config.allow_host, open),
            origins: Allowed::new(&config.allow_origin, open),
            default_port: if config.speaks_tls() { 443 } else { 80 },
        }
    }

    /// Whether one of the two settings lists names.
    pub(super) fn are_named(&self) -> bool {
        self.hosts.named || self.origins.named
    }

    /// Why the request is not answered, if it is not. `port`: where the server listens.
    pub(super) fn refuse(&self, request: &Request<'_>, port: u16) -> Option<Refused> {
        let host = request.headers.get("host").unwrap_or_default();
        if !self.hosts.all && !self.is_ours(host, port) {
            return Some(Refused::Host(shown(host)));
        }
        if self.origins.all {
            return None;
        }
        let mut given = request.headers.0.iter().filter(|(name, _)| name.eq_ignore_ascii_case("origin")).peekable();
        if given.peek().is_none() {
            return is_embedded(request).then_some(Refused::Embedded);
        }
        given.find(|(_, origin)| !self.may_use(origin, host)).map(|(_, origin)| Refused::Origin(shown(origin)))
    }

    fn is_ours(&self, host: &[u8], port: u16) -> bool {
        let Ok(host) = std::str::from_utf8(host) else { return false };
        let Some((name, given)) = split(host) else { return false };
        self.hosts.lists(host)
            || self.hosts.lists(name)
            || (is_loopback(name) && given.unwrap_or(self.default_port) == port)
    }

    /// Whether pages of this origin may ask: origins of this machine, listed ones, and the server's own.
    fn may_use(&self, origin: &[u8], host: &[u8]) -> bool {
        let Ok(origin) = std::str::from_utf8(origin) else { return false };
        if self.origins.lists(origin) {
            return true;
        }
        let Some(("http" | "https", at)) = origin.split_once("://") else { return false };
        at.as_bytes().eq_ignore_ascii_case(host) || split(at).is_some_and(|(name, _)| is_loopback(name))
    }
}

/// A page of another site embeds the answer, without naming its origin (Fetch Metadata): an image, a script, a frame. A
/// followed link is no embedding: the browser opens the answer as a page of its own.
fn is_embedded(request: &Request<'_>) -> bool {
    let is = |name, value: &[u8]| request.headers.get(name) == Some(value);
    let follows_link =
        is("sec-fetch-mode", b"navigate") && is("sec-fetch-dest", b"document") && request.method == Method::Get;
    is("sec-fetch-site", b"cross-site") && !follows_link
}

/// `name`, `name:port`, `[::1]`, `[::1]:port`; an address of IPv6 keeps its brackets.
fn split(host: &str) -> Option<(&str, Option<u16>)> {
    let end_of_name = if host.starts_with('[') { host.find(']')? + 1 } else { host.find(':').unwrap_or(host.len()) };
    let (name, rest) = host.split_at(end_of_name);
    if rest.is_empty() {
        return Some((name, None));
    }
    let port = rest.strip_prefix(':').filter(|port| port.bytes().all(|b| b.is_ascii_digit()))?;
    Some((name, Some(port.parse().ok()?)))
}

fn is_loopback(name: &str) -> bool {
    let address = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost")
        || address.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

/// A header's value as it may be repeated: short, and nothing in it that a terminal or a log would take for more than
/// text.
pub(super) fn shown(value: &[u8]) -> String {
    let cut = &value[..value.len().min(SHOWN_BYTES_MAX)];
    let text: String = cut.iter().map(|b| if b.is_ascii_graphic() { char::from(*b) } else { '?' }).collect();
    if cut.len() < value.len() { text + "…" } else { text }
}

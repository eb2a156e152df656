//! Rights that a request needs, by the part of the server that its route belongs to. Each route names exactly one of
//! these functions.

use super::scope::Scope;
use std::borrow::Cow;
use thalweg_http::{Method, Request};
use thalweg_streams::{Place, listed_prefix, place_of_path};

/// The right that a request's sender must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need<'a> {
    /// Nothing: the route is public.
    Nothing,
    /// No right of ours: the route checks a token that the protocol itself defines.
    OwnToken,
    /// Any token: nothing is given away, it is only refused in more detail.
    AnyToken,
    /// The scope over all of these streams. A fork needs two.
    Streams(Scope, Cow<'a, str>, Vec<Cow<'a, str>>),
    /// The scope over all streams whose names begin with this text.
    Beginning(Scope, String),
    /// The scope over everything.
    Everything(Scope),
}

/// The kind of request that a rule applies to.
#[derive(Clone, Copy)]
enum Verb {
    Read,
    Post,
    Any,
}

#[derive(Clone, Copy)]
enum Demand {
    Nothing,
    OwnToken,
    List,
    Everything(Scope),
}

/// Routes under the protocol's reserved segment, `__ds/`; the first that fits counts. `*` is one segment, `**` any
/// rest.
///
/// A claim is how a client obtains the protocol's own token, so a claim itself needs a token of ours.
const CONTROL: &[(Verb, &str, Demand)] = &[
    (Verb::Read, "jwks.json", Demand::Nothing),
    (Verb::Post, "subscriptions/*/callback", Demand::OwnToken),
    (Verb::Post, "subscriptions/*/ack", Demand::OwnToken),
    (Verb::Post, "subscriptions/*/release", Demand::OwnToken),
    (Verb::Any, "subscriptions/**", Demand::Everything(Scope::Admin)),
    (Verb::Read, "streams", Demand::List),
    (Verb::Any, "**", Demand::Everything(Scope::Admin)),
];

/// The binary's own routes.
const OWN: &[(Verb, &str, Demand)] = &[
    (Verb::Any, "/", Demand::Nothing),
    (Verb::Any, "/health", Demand::Nothing),
    (Verb::Any, "/metrics", Demand::Everything(Scope::Read)),
];

const STREAMS: &str = "/v1/stream/";
/// Operators' pages, such as backups of everything.
const ADMIN: &str = "/v1/admin";

/// Need of a request for the binary's own pages, and for paths without a route.
pub(crate) fn need_of_host<'a>(request: &Request<'a>) -> Need<'a> {
    if request.method == Method::Options {
        return Need::Nothing;
    }
    if request.path.starts_with(ADMIN) {
        return need_of_admin(request);
    }
    let rule = OWN.iter().find(|(verb, path, _)| verb.is(request.method) && *path == request.path);
    rule.map_or(Need::AnyToken, |(_, _, demand)| demand.of(request))
}

/// Need of a request, by its path.
#[cfg(test)]
pub fn need<'a>(request: &Request<'a>) -> Need<'a> {
    let is_streams = request.path == "/v1/stream" || request.path.starts_with(STREAMS);
    if is_streams { need_of_streams(request) } else { need_of_host(request) }
}

/// Need of a request to an operators' page, of any engine.
pub fn need_of_admin<'a>(request: &Request<'a>) -> Need<'a> {
    match request.method {
        Method::Options => Need::Nothing,
        _ => Need::Everything(Scope::Admin),
    }
}

/// Need of a request for streams and their subscriptions.
pub fn need_of_streams<'a>(request: &Request<'a>) -> Need<'a> {
    if request.method == Method::Options {
        return Need::Nothing;
    }
    match place_of_path(request.path, STREAMS) {
        Ok(Place::Stream(name)) => stream(request, name),
        Ok(Place::Control(rest)) => control(request, &rest),
        // The streams' root has no page; any future page would concern all streams.
        Err(_) if matches!(request.path, "/v1/stream" | STREAMS) => Need::Everything(Scope::Admin),
        Err(_) => Need::AnyToken,
    }
}

fn stream<'a>(request: &Request<'a>, name: Cow<'a, str>) -> Need<'a> {
    let scope = match request.method {
        Method::Get | Method::Head => Scope::Read,
        Method::Put | Method::Post => Scope::Write,
        _ => Scope::Admin,
    };
    let mut sources = Vec::new();
    for (field, value) in request.headers.0 {
        if field.eq_ignore_ascii_case("stream-forked-from") {
            // The engine parses the path in the same way, and refuses paths that are not of a stream.
            if let Ok(Ok(Place::Stream(source))) = std::str::from_utf8(value).map(|path| place_of_path(path, STREAMS)) {
                sources.push(source);
            }
        }
    }
    Need::Streams(scope, name, sources)
}

fn control<'a>(request: &Request<'a>, rest: &str) -> Need<'a> {
    // Legitimate clients have no reason for other spellings; a strange spelling must not open a route.
    let plain = request.path.strip_prefix(STREAMS).and_then(|path| path.strip_prefix("__ds/")) == Some(rest);
    let rule = CONTROL.iter().find(|(verb, path, _)| plain && verb.is(request.method) && fits(path, rest));
    rule.map_or(Need::Everything(Scope::Admin), |(_, _, demand)| demand.of(request))
}

fn fits(pattern: &str, path: &str) -> bool {
    let (mut pattern, mut path) = (pattern.split('/'), path.split('/'));
    loop {
        match (pattern.next(), path.next()) {
            (Some("**"), _) | (None, None) => return true,
            (Some("*"), Some(segment)) if !segment.is_empty() => {}
            (Some(one), Some(other)) if one == other => {}
            _ => return false,
        }
    }
}

impl Verb {
    fn is(self, method: Method<'_>) -> bool {
        match self {
            Self::Read => matches!(method, Method::Get | Method::Head),
            Self::Post => method == Method::Post,
            Self::Any => true,
        }
    }
}

impl Demand {
    fn of<'a>(self, request: &Request<'a>) -> Need<'a> {
        match self {
            Self::Nothing => Need::Nothing,
            Self::OwnToken => Need::OwnToken,
            Self::Everything(scope) => Need::Everything(scope),
            // The engine's own parser reads the query. A query that the engine refuses needs a right to everything.
            Self::List => {
                let asked = listed_prefix(request.path, request.query, STREAMS);
                Need::Beginning(Scope::Read, asked.unwrap_or_default())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use thalweg_http::Headers;

    fn ask<'a>(
        method: Method<'a>,
        path: &'a str,
        query: Option<&'a str>,
        headers: &'a [(&'a str, &'a [u8])],
    ) -> Need<'a> {
        need(&Request { method, path, query, headers: Headers(headers), body: b"" })
    }

    fn streams<'a>(scope: Scope, name: &'a str) -> Need<'a> {
        Need::Streams(scope, name.into(), Vec::new())
    }

    #[test]
    fn methods_need_their_scopes() {
        let path = "/v1/stream/chat/a";
        let table = [
            (Method::Get, Scope::Read),
            (Method::Head, Scope::Read),
            (Method::Put, Scope::Write),
            (Method::Post, Scope::Write),
            (Method::Delete, Scope::Admin),
            (Method::Other("PATCH"), Scope::Admin),
        ];
        for (method, scope) in table {
            assert_eq!(ask(method, path, None, &[]), streams(scope, "chat/a"));
        }
        assert_eq!(ask(Method::Options, path, None, &[]), Need::Nothing);
    }

    #[test]
    fn what_is_for_operators_needs_admin_over_everything() {
        for path in ["/v1/admin", "/v1/admin/check", "/v1/admin/backup", "/v1/admin/backup/1/FORMAT", "/v1/adminx"] {
            for method in [Method::Get, Method::Post, Method::Delete] {
                assert_eq!(ask(method, path, None, &[]), Need::Everything(Scope::Admin), "{path}");
            }
        }
    }

    #[test]
    fn one_stream_has_one_name_however_it_is_written() {
        for path in ["/v1/stream/chat/a", "/v1/stream/%63hat/a", "/v1/stream/ch%61t/%61"] {
            assert_eq!(ask(Method::Get, path, None, &[]), streams(Scope::Read, "chat/a"), "{path}");
        }
        // These are other names, none of them under `chat/` except where noted.
        assert_eq!(ask(Method::Get, "/v1/stream/chat%2fa", None, &[]), streams(Scope::Read, "chat%2Fa"));
        assert_eq!(ask(Method::Get, "/v1/stream/chat;x/a", None, &[]), streams(Scope::Read, "chat;x/a"));
        assert_eq!(ask(Method::Get, "/v1/stream/chat\\a", None, &[]), streams(Scope::Read, "chat\\a"));
        assert_eq!(ask(Method::Get, "/v1/stream/chat%5ca", None, &[]), streams(Scope::Read, "chat%5Ca"));
        assert_eq!(ask(Method::Get, "/v1/stream/%c0%ae%c0%ae/a", None, &[]), streams(Scope::Read, "%C0%AE%C0%AE/a"));
        assert_eq!(ask(Method::Get, "/v1/stream/%252e%252e/a", None, &[]), streams(Scope::Read, "%252e%252e/a"));
        // The engine refuses these paths, so any token suffices.
        for path in ["//", "/a//b", "/../a", "/%2e%2e/a", "/a/.", "/a%00", "/%", "/%zz"] {
            assert_eq!(ask(Method::Get, &format!("/v1/stream{path}"), None, &[]), Need::AnyToken, "{path}");
        }
        assert_eq!(ask(Method::Get, "/v1/stream/", None, &[]), Need::Everything(Scope::Admin));
    }

    #[test]
    fn a_fork_names_its_source() {
        let headers: &[(&str, &[u8])] =
            &[("Stream-Forked-From", b"/v1/stream/%63hat/a"), ("STREAM-FORKED-FROM", b"/v1/stream/b")];
        let need = ask(Method::Put, "/v1/stream/c", None, headers);
        assert_eq!(need, Need::Streams(Scope::Write, "c".into(), vec!["chat/a".into(), "b".into()]));
    }

    #[test]
    fn control_routes_are_for_administrators_unless_the_table_says_more() {
        let admin = Need::Everything(Scope::Admin);
        let at = |method, path: &'static str| ask(method, path, None, &[]);
        assert_eq!(at(Method::Get, "/v1/stream/__ds/jwks.json"), Need::Nothing);
        assert_eq!(at(Method::Post, "/v1/stream/__ds/subscriptions/s/callback"), Need::OwnToken);
        assert_eq!(at(Method::Post, "/v1/stream/__ds/subscriptions/s/ack"), Need::OwnToken);
        assert_eq!(at(Method::Post, "/v1/stream/__ds/subscriptions/s/release"), Need::OwnToken);
        for (method, path) in [
            (Method::Post, "/v1/stream/__ds/subscriptions/s/claim"),
            (Method::Put, "/v1/stream/__ds/subscriptions/s"),
            (Method::Get, "/v1/stream/__ds/subscriptions/s/ack"),
            (Method::Post, "/v1/stream/__ds/subscriptions//ack"),
            (Method::Post, "/v1/stream/__ds/subscriptions/s/x/ack"),
            (Method::Post, "/v1/stream/__ds/subscriptions/s/%61ck"),
            (Method::Get, "/v1/stream/%5f_ds/jwks.json"),
            (Method::Post, "/v1/stream/__ds/jwks.json"),
            (Method::Get, "/v1/stream/__ds"),
            (Method::Get, "/v1/stream/__ds/"),
            (Method::Get, "/v1/stream/__ds/whatever/comes"),
        ] {
            assert_eq!(at(method, path), admin, "{path}");
        }
    }

    #[test]
    fn a_list_needs_what_it_asks_for() {
        let list = |query| match ask(Method::Get, "/v1/stream/__ds/streams", query, &[]) {
            Need::Beginning(Scope::Read, text) => text,
            other => panic!("{other:?}"),
        };
        assert_eq!(list(Some("limit=5&prefix=chat/a")), "chat/a");
        assert_eq!(list(Some("prefix=chat%2Fa")), "chat/a");
        assert_eq!(list(Some("prefix=%63h%61t%2F")), "chat/");
        assert_eq!(list(Some("prefix=caf%c3%a9")), "caf%C3%A9");
        // Queries that the engine refuses, or reads as all streams.
        for all in
            [None, Some(""), Some("prefix"), Some("prefix=a&prefix=b"), Some("prefix=a&limit=x"), Some("prefix=%00")]
        {
            assert_eq!(list(all), "", "{all:?}");
        }
    }

    #[test]
    fn the_binarys_own_routes() {
        assert_eq!(ask(Method::Get, "/health", None, &[]), Need::Nothing);
        assert_eq!(ask(Method::Get, "/metrics", None, &[]), Need::Everything(Scope::Read));
        assert_eq!(ask(Method::Get, "/v1/streams", None, &[]), Need::AnyToken);
        assert_eq!(ask(Method::Get, "/nonsense", None, &[]), Need::AnyToken);
    }

    proptest! {
        /// For every path that the engine takes for a stream, the need is over exactly that name; only paths of the
        /// table are open.
        #[test]
        fn the_need_is_over_the_engines_name(rest in "[a-c/%0-9._;\\\\~@:\u{e9}-]{0,16}") {
            let path = format!("/v1/stream/{rest}");
            let need = ask(Method::Get, &path, None, &[]);
            match place_of_path(&path, STREAMS) {
                Ok(Place::Stream(name)) => prop_assert_eq!(need, Need::Streams(Scope::Read, name, Vec::new())),
                _ => prop_assert!(!matches!(need, Need::Nothing | Need::OwnToken | Need::Streams(..))),
            }
        }
    }
}

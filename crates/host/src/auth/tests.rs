use super::signed::Claim;
use super::*;
use crate::config::{Settings, load};
use scope::Scope;
use thalweg_http::{Body, Headers};

const NOW: u64 = 1_000_000;

/// A guard with the tokens `reader` (chat/), `writer` (chat/), `admin` (*) and `old`, which has expired.
struct Stand {
    auth: Auth,
    tokens: Vec<(&'static str, String)>,
    folder: tempfile::TempDir,
}

fn stand() -> Stand {
    let folder = tempfile::tempdir().unwrap();
    let right = |scope, prefix: &str| Rights::one(scope, prefix.parse().unwrap());
    let table = [
        ("reader", right(Scope::Read, "chat/"), None),
        ("writer", right(Scope::Write, "chat/"), None),
        ("admin", right(Scope::Admin, "*"), None),
        ("old", right(Scope::Admin, "*"), Some(NOW)),
    ];
    let (mut tokens, mut file) = (Vec::new(), String::new());
    for (name, rights, expires) in table {
        let (token, lines) = super::tokens::make(name, &rights, expires).unwrap();
        tokens.push((name, token));
        file += &lines;
    }
    let path = folder.path().join("tokens.toml");
    std::fs::write(&path, file).unwrap();
    Stand {
        auth: Auth::open(GuardConfig { tokens: Some(&path), everywhere: true }, folder.path()).unwrap(),
        tokens,
        folder,
    }
}

impl Stand {
    fn token(&self, name: &str) -> String {
        self.tokens.iter().find(|(known, _)| *known == name).unwrap().1.clone()
    }

    /// Status and code of the refusal, or 0 if the request passes.
    fn ask(&self, method: Method<'_>, target: &str, headers: &[(&str, &str)], body: &str) -> (u16, String) {
        let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
        let request = Request { method, path, query, headers: Headers(&headers), body: body.as_bytes() };
        // The head alone is never refused where the whole is not.
        let early = self.auth.on_head(&Request { body: b"", ..request }, need, NOW).map(|response| response.status);
        let answer = self.auth.answer(&request, need, NOW);
        let status = answer.as_ref().map(|response| response.status);
        assert!(early.is_none() || early == status, "{early:?} {status:?}");
        assert!(early.is_some() || path == ISSUE_PATH || status.is_none(), "{status:?} by the whole only");
        match answer {
            None => (0, String::new()),
            Some(response) => {
                let Body::Bytes(body) = response.body else { return (response.status, String::new()) };
                let head = String::from_utf8(response.head).unwrap();
                assert!(head.contains("cache-control: no-store"));
                assert_eq!(head.contains("www-authenticate: Bearer"), matches!(response.status, 401 | 403));
                let json: serde_json::Value = serde_json::from_slice(&body).unwrap();
                let said = json["error"]["code"].as_str().or(json["access_token"].as_str()).unwrap().to_owned();
                (response.status, said)
            }
        }
    }

    fn with(&self, token: &str, method: Method<'_>, target: &str) -> (u16, String) {
        self.ask(method, target, &[("authorization", &format!("Bearer {token}"))], "")
    }

    fn issue(&self, name: &str, body: &str) -> (u16, String) {
        let value = format!("bearer {}", self.token(name));
        self.ask(Method::Post, ISSUE_PATH, &[("Authorization", &value)], body)
    }
}

fn refused(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

const PASS: (u16, String) = (0, String::new());

#[test]
fn a_token_does_what_its_scope_says_and_nothing_else() {
    let stand = stand();
    let table = [
        ("reader", Method::Get, "/v1/stream/chat/a", true),
        ("reader", Method::Head, "/v1/stream/chat/a", true),
        ("reader", Method::Post, "/v1/stream/chat/a", false),
        ("reader", Method::Get, "/v1/stream/chat", false),
        ("reader", Method::Get, "/v1/stream/chatter", false),
        ("reader", Method::Get, "/v1/stream/__ds/streams?prefix=chat/", true),
        ("reader", Method::Get, "/v1/stream/__ds/streams?prefix=chat", false),
        ("reader", Method::Get, "/metrics", false),
        ("writer", Method::Put, "/v1/stream/chat/a", true),
        ("writer", Method::Post, "/v1/stream/chat/a", true),
        ("writer", Method::Get, "/v1/stream/chat/a", false),
        ("writer", Method::Delete, "/v1/stream/chat/a", false),
        ("admin", Method::Delete, "/v1/stream/chat/a", true),
        ("admin", Method::Put, "/v1/stream/__ds/subscriptions/s", true),
        ("admin", Method::Get, "/metrics", true),
        ("writer", Method::Put, "/v1/stream/__ds/subscriptions/s", false),
    ];
    for (name, method, target, passes) in table {
        let expected = if passes { PASS } else { refused(403, "scope_missing") };
        assert_eq!(stand.with(&stand.token(name), method, target), expected, "{name} {method:?} {target}");
    }
}

#[test]
fn a_fork_needs_to_read_its_source() {
    let stand = stand();
    let writer = format!("Bearer {}", stand.token("writer"));
    let admin = format!("Bearer {}", stand.token("admin"));
    let fork = |token: &str, from: &str| {
        stand.ask(Method::Put, "/v1/stream/chat/b", &[("authorization", token), ("stream-forked-from", from)], "")
    };
    assert_eq!(fork(&writer, "/v1/stream/chat/a"), refused(403, "scope_missing"));
    assert_eq!(fork(&writer, "/v1/stream/%63hat/a"), refused(403, "scope_missing"));
    assert_eq!(fork(&admin, "/v1/stream/chat/a"), PASS);
}

#[test]
fn whoever_is_unknown_is_told_how_to_be_known() {
    let stand = stand();
    let get = |headers: &[(&str, &str)]| stand.ask(Method::Get, "/v1/stream/chat/a", headers, "");
    let reader = format!("Bearer {}", stand.token("reader"));
    assert_eq!(get(&[]), refused(401, "token_required"));
    assert_eq!(get(&[("authorization", "Basic YTpi")]), refused(401, "bad_authorization"));
    assert_eq!(get(&[("authorization", "Bearer")]), refused(401, "bad_authorization"));
    assert_eq!(get(&[("authorization", "Bearer tw1.reader.wrong")]), refused(401, "unknown_token"));
    assert_eq!(get(&[("authorization", &format!("Bearer {}", stand.token("old")))]), refused(401, "expired_token"));
    assert_eq!(get(&[("authorization", &reader), ("Authorization", &reader)]), refused(400, "repeated_token"));
    assert_eq!(get(&[("authorization", &reader)]), PASS);
}

#[test]
fn what_is_for_everybody_needs_no_token() {
    let stand = stand();
    assert_eq!(stand.ask(Method::Get, "/health", &[], ""), PASS);
    assert_eq!(stand.ask(Method::Get, "/", &[], ""), PASS);
    assert_eq!(stand.ask(Method::Options, "/v1/stream/chat/a", &[], ""), PASS);
    assert_eq!(stand.ask(Method::Get, "/v1/stream/__ds/jwks.json", &[], ""), PASS);
    assert_eq!(
        stand.ask(Method::Post, "/v1/stream/__ds/subscriptions/s/ack", &[("authorization", "Bearer theirs")], ""),
        PASS
    );
    assert_eq!(stand.ask(Method::Get, "/nonsense", &[], ""), refused(401, "token_required"));
}

#[test]
fn a_signed_token_reads_by_query_and_cookie() {
    let stand = stand();
    let (status, token) = stand.issue("reader", r#"{"prefix":"chat/room","ttl":"10m"}"#);
    assert_eq!(status, 200);
    let query =
        |method, name: &str| stand.ask(method, &format!("/v1/stream/{name}?offset=-1&access_token={token}"), &[], "");
    assert_eq!(query(Method::Get, "chat/room"), PASS);
    assert_eq!(query(Method::Head, "chat/room/7"), PASS);
    assert_eq!(query(Method::Get, "chat/roommate"), refused(403, "scope_missing"));
    assert_eq!(query(Method::Put, "chat/room"), refused(401, "token_for_reads_only"));
    assert_eq!(query(Method::Delete, "chat/room"), refused(401, "token_for_reads_only"));
    let cookie = |cookie: String, method| stand.ask(method, "/v1/stream/chat/room", &[("cookie", &cookie)], "");
    assert_eq!(cookie(format!("a=b; thalweg_token={token}"), Method::Get), PASS);
    assert_eq!(cookie(format!("thalweg_token={token}"), Method::Post), refused(401, "token_for_reads_only"));
    assert_eq!(cookie(format!("xthalweg_token={token}"), Method::Get), refused(401, "token_required"));
    // As a bearer it is a token like others, within its scope.
    assert_eq!(stand.with(&token, Method::Get, "/v1/stream/chat/room"), PASS);
    assert_eq!(stand.with(&token, Method::Post, "/v1/stream/chat/room"), refused(403, "scope_missing"));
    // A lasting secret does not belong into addresses.
    let lasting = format!("/v1/stream/chat/a?access_token={}", stand.token("reader"));
    assert_eq!(stand.ask(Method::Get, &lasting, &[], ""), refused(401, "token_not_signed"));
    let twice = format!("/v1/stream/chat/room?access_token={token}&access_token={token}");
    assert_eq!(stand.ask(Method::Get, &twice, &[], ""), refused(400, "repeated_token"));
}

#[test]
fn nobody_is_given_more_than_he_has() {
    let stand = stand();
    let table = [
        ("reader", r#"{"prefix":"chat/"}"#, 200, ""),
        ("reader", r#"{"prefix":"chat"}"#, 403, "scope_missing"),
        ("reader", r#"{"prefix":"*"}"#, 403, "scope_missing"),
        ("reader", r#"{"prefix":"chat/","scope":"write"}"#, 403, "scope_missing"),
        ("writer", r#"{"prefix":"chat/a","scope":"write"}"#, 200, ""),
        ("writer", r#"{"prefix":"chat/a"}"#, 403, "scope_missing"),
        ("admin", r#"{"prefix":"*","scope":"admin","ttl":"24h"}"#, 200, ""),
        ("admin", r#"{"prefix":"*","ttl":"25h"}"#, 400, "bad_token_request"),
        ("admin", r#"{"prefix":"*","ttl":"0"}"#, 400, "bad_token_request"),
        ("admin", r#"{"prefix":"","ttl":"1h"}"#, 400, "bad_token_request"),
        ("admin", r#"{"prefix":"*","more":1}"#, 400, "bad_token_request"),
        ("admin", "", 400, "bad_token_request"),
    ];
    for (name, body, status, code) in table {
        let (got, said) = stand.issue(name, body);
        assert_eq!(got, status, "{name} {body}: {said}");
        assert!(status == 200 || said == code, "{name} {body}: {said}");
    }
    let (_, signed) = stand.issue("admin", r#"{"prefix":"*","scope":"admin"}"#);
    let again =
        stand.ask(Method::Post, ISSUE_PATH, &[("authorization", &format!("Bearer {signed}"))], r#"{"prefix":"a"}"#);
    assert_eq!(again, refused(403, "token_cannot_sign"));
    assert_eq!(stand.ask(Method::Post, ISSUE_PATH, &[], r#"{"prefix":"a"}"#), refused(401, "token_required"));
    assert_eq!(stand.with(&stand.token("admin"), Method::Get, ISSUE_PATH), refused(405, "method_not_allowed"));
}

#[test]
fn a_signed_token_ends_with_its_time_and_with_its_parent() {
    let stand = stand();
    let sign = |expires, parent: Option<&str>, scope| {
        let claim = Claim {
            streams: Some((scope, "chat/".parse().unwrap())),
            shapes: thalweg_shapes::Grants::default(),
            expires,
            parent: parent.map(str::to_owned),
        };
        stand.auth.known.load().key.sign(&claim)
    };
    let get = |token: &str| stand.with(token, Method::Get, "/v1/stream/chat/a");
    assert_eq!(get(&sign(NOW + 1, None, Scope::Read)), PASS);
    assert_eq!(get(&sign(NOW, None, Scope::Read)), refused(401, "expired_token"));
    let child = sign(NOW + 1, Some("reader"), Scope::Read);
    assert_eq!(get(&child), PASS);
    assert_eq!(get(&sign(NOW + 1, Some("reader"), Scope::Admin)), refused(401, "expired_token"));
    assert_eq!(get(&sign(NOW + 1, Some("old"), Scope::Read)), refused(401, "expired_token"));
    assert_eq!(get(&sign(NOW + 1, Some("nobody"), Scope::Read)), refused(401, "unknown_token"));
    std::fs::write(stand.folder.path().join("tokens.toml"), "").unwrap();
    stand.auth.reload().unwrap();
    assert_eq!(get(&child), refused(401, "unknown_token"));
}

#[test]
fn a_broken_file_keeps_the_tokens_that_were_known() {
    let stand = stand();
    let get = || stand.with(&stand.token("reader"), Method::Get, "/v1/stream/chat/a");
    for broken in ["[[token]]\nid = 1", "not toml", "[[token]]\nid=\"x\"\nhash=\"\"\nread=[\"*\"]"] {
        std::fs::write(stand.folder.path().join("tokens.toml"), broken).unwrap();
        assert!(stand.auth.reload().is_err());
        assert_eq!(get(), PASS);
    }
    std::fs::remove_file(stand.folder.path().join("tokens.toml")).unwrap();
    assert!(stand.auth.reload().is_err());
    assert_eq!(get(), PASS);
}

#[test]
fn what_was_sent_is_repeated_in_part_only() {
    let stand = stand();
    let value = format!("bearer {}", stand.token("admin"));
    let long = "x".repeat(200_000);
    for body in [
        format!(r#"{{"prefix":"{long}"}}"#),
        format!(r#"{{"prefix":"a","scope":"{long}"}}"#),
        format!(r#"{{"prefix":"a","ttl":"{long}"}}"#),
        format!(r#"{{"{long}":1}}"#),
    ] {
        let headers: &[(&str, &[u8])] = &[("authorization", value.as_bytes())];
        let request = Request {
            method: Method::Post,
            path: ISSUE_PATH,
            query: None,
            headers: Headers(headers),
            body: body.as_bytes(),
        };
        let response = stand.auth.answer(&request, need, NOW).unwrap();
        let Body::Bytes(said) = response.body else { panic!() };
        assert!(response.status == 400 && said.len() < 1000, "{}: {} bytes", response.status, said.len());
    }
}

#[test]
fn a_token_in_the_query_opens_no_page() {
    let stand = stand();
    let (_, signed) = stand.issue("reader", r#"{"prefix":"chat/"}"#);
    let target = format!("/v1/stream/chat/a?access_token={signed}");
    let ask = |mode| stand.ask(Method::Get, &target, &[("sec-fetch-mode", mode)], "");
    assert_eq!(ask("navigate"), refused(401, "token_in_address"));
    for mode in ["cors", "no-cors", "same-origin"] {
        assert_eq!(ask(mode), PASS, "{mode}");
    }
    let by_cookie = format!("thalweg_token={signed}");
    let headers = [("sec-fetch-mode", "navigate"), ("cookie", by_cookie.as_str())];
    assert_eq!(stand.ask(Method::Get, "/v1/stream/chat/a", &headers, ""), PASS);
}

#[test]
fn every_refusal_is_in_the_documentation() {
    let page = include_str!("../../../../docs/protocol/auth.md");
    let mut rows: Vec<_> = page.lines().filter(|line| line.starts_with("| 4")).collect();
    let scope = || Denied::Scope(Scope::Read, String::new());
    for denied in [
        Denied::Nobody,
        Denied::Scheme,
        Denied::Unknown,
        Denied::Expired,
        Denied::OnlyForReads,
        Denied::OnlySigned,
        Denied::Opened,
        Denied::Repeated(""),
        scope(),
        Denied::Resigned,
        Denied::TokenRequest(String::new()),
        Denied::Method,
    ] {
        let (status, code, _) = denied.mapping();
        assert!(stand().auth.denied().iter().any(|(known, _)| *known == code), "{code} is not counted");
        let row = rows.iter().position(|row| row.starts_with(&format!("| {status} | `{code}` |")));
        rows.remove(row.unwrap_or_else(|| panic!("{status} {code} is missing")));
    }
    assert!(rows.is_empty(), "{rows:?}");
}

#[test]
fn streams_are_open_to_other_machines_only_if_that_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens.toml");
    std::fs::write(&tokens, "").unwrap();
    let of = |listen: &str, mode: &str, with: bool| {
        let settings = Settings {
            listen: Some(listen.parse().unwrap()),
            auth: Some(mode.parse().unwrap()),
            tokens: with.then(|| tokens.clone()),
            data: Some(folder.path().to_owned()),
            ..Settings::default()
        };
        Auth::of(&load(settings, None).unwrap()).map(|auth| auth.is_some()).map_err(|error| error.to_string())
    };
    assert_eq!(of("127.0.0.1:0", "auto", false), Ok(false));
    assert_eq!(of("[::1]:0", "auto", false), Ok(false));
    assert_eq!(of("127.0.0.1:0", "auto", true), Ok(true));
    assert_eq!(of("0.0.0.0:0", "auto", true), Ok(true));
    assert_eq!(of("0.0.0.0:0", "off", false), Ok(false));
    for open in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "[::ffff:192.0.2.1]:0"] {
        assert!(of(open, "auto", false).unwrap_err().contains("--auth off"), "{open}");
    }
    assert!(of("127.0.0.1:0", "on", false).unwrap_err().contains("--tokens"));
    assert!(of("127.0.0.1:0", "off", true).unwrap_err().contains("contradict"));
}

#[test]
fn a_server_of_shapes_without_tokens_keeps_all_else_closed() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings {
        listen: Some("0.0.0.0:0".parse().unwrap()),
        data: Some(folder.path().to_owned()),
        database_url: Some("postgres://h/d".into()),
        shape_secret: Some("s".into()),
        ..Settings::default()
    };
    let auth = Auth::of(&load(settings, None).unwrap()).unwrap().expect("a guard");
    let stand = Stand { auth, tokens: Vec::new(), folder };
    assert_eq!(stand.ask(Method::Get, "/health", &[], ""), PASS);
    for target in ["/v1/stream/a", "/metrics", "/v1/admin/shapes"] {
        assert_eq!(stand.ask(Method::Get, target, &[], ""), refused(401, "token_required"), "{target}");
    }
    stand.auth.reload().unwrap();
}

/// `cargo test --release -p thalweg what_a_check_costs -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn what_a_check_costs() {
    let stand = stand();
    let (_, signed) = stand.issue("reader", r#"{"prefix":"chat/"}"#);
    for (what, token) in [("a token of the file", stand.token("reader")), ("a signed token", signed)] {
        let value = format!("Bearer {token}");
        let headers: [(&str, &[u8]); 1] = [("authorization", value.as_bytes())];
        let request = Request {
            method: Method::Get,
            path: "/v1/stream/chat/a",
            query: None,
            headers: Headers(&headers),
            body: b"",
        };
        let start = std::time::Instant::now();
        for _ in 0..100_000 {
            assert!(stand.auth.answer(std::hint::black_box(&request), need, NOW).is_none());
        }
        println!("{what}: {} ns a request", start.elapsed().as_nanos() / 100_000);
    }
}

use super::*;
use crate::config::{Settings, load};
use thalweg_http::{Body, Headers};

const PORT: u16 = 4437;

fn door(settings: Settings, auth: Option<Arc<Auth>>) -> Door {
    Door::new(&load(settings, None).unwrap(), auth, PORT)
}

fn open(hosts: &str, origins: &str) -> Door {
    let list = |text: &str| Some(text.parse().unwrap());
    door(Settings { allow_host: list(hosts), allow_origin: list(origins), ..Settings::default() }, None)
}

/// The code of the refusal; nothing if the request passes.
fn ask(door: &Door, method: Method<'_>, path: &str, headers: &[(&str, &str)]) -> Option<String> {
    ask_at(door, Guard::Token(crate::auth::need), method, path, headers)
}

/// The same of a route with this guard.
fn ask_at(door: &Door, guard: Guard, method: Method<'_>, path: &str, headers: &[(&str, &str)]) -> Option<String> {
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
    let request = Request { method, path, query: None, headers: Headers(&headers), body: b"" };
    let response = door.judge(&request, guard, 0, true)?;
    let head = String::from_utf8(response.head).unwrap();
    let Body::Bytes(body) = response.body else { panic!("a refusal says nothing") };
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert!(body["error"]["message"].as_str().unwrap().len() < 600);
    assert_eq!(head.contains("access-control-allow-origin"), response.status == 415, "{head}");
    Some(body["error"]["code"].as_str().unwrap().to_owned())
}

fn get(door: &Door, headers: &[(&str, &str)]) -> Option<String> {
    ask(door, Method::Get, "/v1/stream/a", headers)
}

const HERE: (&str, &str) = ("host", "127.0.0.1:4437");

fn code(code: &str) -> Option<String> {
    Some(code.to_owned())
}

#[test]
fn a_server_without_tokens_answers_to_names_of_this_machine_only() {
    let door = open("", "");
    for host in ["127.0.0.1:4437", "localhost:4437", "LocalHost:4437", "[::1]:4437", "127.1.2.3:4437"] {
        assert_eq!(get(&door, &[("host", host)]), None, "{host}");
    }
    for host in [
        "",
        "evil.example",
        "evil.example:4437",
        "localhost",
        "localhost:80",
        "localhost:4438",
        "localhost.evil.example:4437",
        "127.0.0.1.evil.example:4437",
        "evil.example#localhost:4437",
        "evil.example@localhost:4437",
        "localhost:4437@evil.example",
        "localhost:4437:4437",
        "localhost:+4437",
        "localhost: 4437",
        "localhost:4437 ",
        "0.0.0.0:4437",
        "[::]:4437",
        "::1:4437",
        "[::1",
        "[::1]x:4437",
        "10.0.0.1:4437",
        "localhost.:4437",
        "\u{ff4c}ocalhost:4437",
    ] {
        assert_eq!(get(&door, &[("host", host)]), code("host_not_allowed"), "{host}");
    }
    assert_eq!(get(&door, &[]), code("host_not_allowed"));
}

#[test]
fn a_server_without_tokens_serves_pages_of_this_machine_only() {
    let door = open("", "");
    for origin in ["http://localhost:5173", "https://127.0.0.1", "http://[::1]:8080", "http://127.0.0.1:4437"] {
        assert_eq!(get(&door, &[HERE, ("origin", origin)]), None, "{origin}");
    }
    for origin in [
        "https://evil.example",
        "http://evil.example:4437",
        "http://localhost.evil.example",
        "http://127.0.0.1.nip.io",
        "null",
        "",
        "file://",
        "chrome-extension://localhost",
        "http://evil.example/http://localhost",
        "http://localhost@evil.example",
        "localhost:4437",
        "http://localhost:99999",
    ] {
        assert_eq!(get(&door, &[HERE, ("origin", origin)]), code("origin_not_allowed"), "{origin}");
    }
    let two = [HERE, ("origin", "http://localhost"), ("Origin", "http://evil.example")];
    assert_eq!(get(&door, &two), code("origin_not_allowed"));
}

#[test]
fn every_route_is_behind_the_same_door() {
    let door = open("", "");
    let evil = [HERE, ("origin", "https://evil.example")];
    let rebound = [("host", "evil.example:4437")];
    for path in
        ["/", "/health", "/metrics", "/v1/stream/a", "/v1/shape", "/v1/%73hape", "/v1/admin/backup", "/v1/token", "/x"]
    {
        for method in [Method::Get, Method::Head, Method::Put, Method::Post, Method::Delete, Method::Options] {
            assert_eq!(ask(&door, method, path, &evil), code("origin_not_allowed"), "{method:?} {path}");
            assert_eq!(ask(&door, method, path, &rebound), code("host_not_allowed"), "{method:?} {path}");
            let open = Guard::Own { asks: false };
            assert_eq!(ask_at(&door, open, method, path, &evil), code("origin_not_allowed"), "{method:?} {path}");
            assert_eq!(ask_at(&door, open, method, path, &rebound), code("host_not_allowed"), "{method:?} {path}");
        }
    }
}

#[test]
fn a_page_of_another_site_may_link_here_and_embed_nothing() {
    let door = open("", "");
    let site = ("sec-fetch-site", "cross-site");
    let (link, document) = (("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document"));
    assert_eq!(get(&door, &[HERE, site, link, document]), None);
    for (mode, to) in [("navigate", "iframe"), ("no-cors", "script"), ("no-cors", "image"), ("cors", "empty")] {
        let headers = [HERE, site, ("sec-fetch-mode", mode), ("sec-fetch-dest", to)];
        assert_eq!(get(&door, &headers), code("origin_not_allowed"), "{mode} {to}");
    }
    let form = ask(&door, Method::Post, "/v1/stream/a", &[HERE, site, link, document]);
    assert_eq!(form, code("origin_not_allowed"));
    assert_eq!(get(&door, &[HERE, ("sec-fetch-site", "same-origin"), ("sec-fetch-dest", "image")]), None);
}

#[test]
fn what_the_settings_list_is_allowed_too() {
    let door = open("streams.example.org, tunnel:9000", "https://app.example, null");
    for host in ["streams.example.org", "streams.example.org:8443", "tunnel:9000", "localhost:4437"] {
        assert_eq!(get(&door, &[("host", host)]), None, "{host}");
    }
    for host in ["tunnel", "tunnel:9001", "x.streams.example.org"] {
        assert_eq!(get(&door, &[("host", host)]), code("host_not_allowed"), "{host}");
    }
    let from = |origin| get(&door, &[("host", "streams.example.org"), ("origin", origin)]);
    for origin in ["https://app.example", "HTTPS://APP.example", "null", "https://streams.example.org"] {
        assert_eq!(from(origin), None, "{origin}");
    }
    for origin in ["http://app.example", "https://app.example:8443", "https://evil.example"] {
        assert_eq!(from(origin), code("origin_not_allowed"), "{origin}");
    }
    let all = open("*", "*");
    assert_eq!(get(&all, &[("host", "evil.example"), ("origin", "https://evil.example")]), None);
}

#[test]
fn a_server_that_asks_for_a_credential_is_open_to_pages() {
    let tokens = |line: &str| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tokens.toml");
        std::fs::write(&file, "").unwrap();
        let mut settings = Settings { data: Some(folder.path().into()), tokens: Some(file), ..Settings::default() };
        settings.allow_origin = Some(line.parse().unwrap());
        let auth = Auth::of(&load(settings.clone(), None).unwrap()).unwrap().map(Arc::new);
        door(settings, auth)
    };
    let from_page = [("host", "any.example"), ("origin", "https://app.example")];
    let preflight = |door: &Door| ask(door, Method::Options, "/v1/stream/a", &from_page);
    assert_eq!(preflight(&tokens("")), None);
    assert_eq!(preflight(&tokens("https://app.example")), None);
    assert_eq!(preflight(&tokens("https://other.example")), code("origin_not_allowed"));
    let no_tokens = door(Settings::default(), None);
    let asks = Guard::Own { asks: true };
    assert_eq!(ask_at(&no_tokens, asks, Method::Get, "/v1/shape", &from_page), None);
    assert_eq!(get(&no_tokens, &from_page), code("host_not_allowed"), "streams have no secret");
}

#[test]
fn an_encoded_body_is_refused_whatever_it_is_for() {
    let door = open("", "");
    for method in [Method::Put, Method::Post, Method::Delete, Method::Other("PATCH")] {
        for (coding, refused) in [
            ("gzip", true),
            ("GZip", true),
            ("identity", false),
            ("Identity", false),
            ("", false),
            ("identity, br", true),
            ("x-\u{7f}", true),
        ] {
            let said = ask(&door, method, "/v1/stream/a", &[HERE, ("Content-Encoding", coding)]);
            assert_eq!(said, refused.then(|| "content_encoding".to_owned()), "{method:?} {coding}");
        }
    }
    assert_eq!(get(&door, &[HERE, ("content-encoding", "gzip")]), None, "there is no body to decode");
    let twice = [HERE, ("content-encoding", "identity"), ("content-encoding", "gzip")];
    assert_eq!(ask(&door, Method::Post, "/v1/stream/a", &twice), code("content_encoding"));
    assert_eq!(door.stats().refused[2], ("content_encoding", 17));
}

#[test]
fn the_documentation_lists_every_code() {
    let page = include_str!("../../../../docs/protocol/refusals.md");
    for code in CODES {
        assert!(page.contains(&format!("`{code}`")), "docs/protocol/refusals.md does not mention `{code}`");
    }
}

//! A server without tokens, and its user's browser: raw requests as a page could send them.

use crate::rig::{Rig, token};
use std::io::{Read, Write};
use std::net::TcpStream;

/// The whole answer to a request that is sent as it is.
fn said(rig: &Rig, request: &str) -> String {
    let mut socket = TcpStream::connect(rig.address).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    let mut said = String::new();
    socket.read_to_string(&mut said).unwrap();
    said
}

fn with_host(method: &str, path: &str, host: &str, more: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{more}Connection: close\r\n\r\n")
}

const TARGETS: [(&str, &str); 8] = [
    ("GET", "/v1/stream/secret"),
    ("PUT", "/v1/stream/planted"),
    ("DELETE", "/v1/stream/secret"),
    ("OPTIONS", "/v1/stream/secret"),
    ("GET", "/v1/stream/__ds/streams"),
    ("POST", "/v1/admin/backup"),
    ("GET", "/metrics"),
    ("GET", "/"),
];

#[test]
fn a_page_that_lets_its_name_resolve_to_loopback_gets_nothing() {
    let rig = Rig::start(tempfile::tempdir().unwrap(), &[]);
    assert_eq!(rig.raw(b"PUT /v1/stream/secret", &["content-type: text/plain"], "SECRET").0, 201);
    let port = rig.address.port();
    for (method, path) in TARGETS {
        for host in
            [format!("evil.example:{port}"), "evil.example".to_owned(), format!("127.0.0.1.evil.example:{port}")]
        {
            let said = said(&rig, &with_host(method, path, &host, ""));
            assert!(said.starts_with("HTTP/1.1 403 "), "{method} {path} {host}: {said}");
            assert!(said.contains("host_not_allowed") && said.contains("--allow-host"), "{said}");
            assert!(!said.contains("SECRET") && !said.contains("access-control-allow"), "{said}");
        }
        // The target may name a host too (RFC 9112, section 3.2.2); only the field is beyond a page's control in
        // browsers.
        let absolute = with_host(method, &format!("http://127.0.0.1:{port}{path}"), "evil.example", "");
        assert!(!said(&rig, &absolute).contains("SECRET"), "{method} {path}");
    }
    assert_eq!(rig.raw(b"GET /v1/stream/planted", &[], "").0, 404);
    assert!(rig.raw(b"GET /v1/stream/secret", &[], "").1.ends_with("SECRET"));
    assert!(rig.log().contains("host_not_allowed"), "the log says why a page fails");
}

#[test]
fn a_page_of_another_origin_gets_nothing_and_may_not_ask_first() {
    let rig = Rig::start(tempfile::tempdir().unwrap(), &[]);
    assert_eq!(rig.raw(b"PUT /v1/stream/secret", &["content-type: text/plain"], "SECRET").0, 201);
    let host = rig.address.to_string();
    for (method, path) in TARGETS {
        for origin in ["https://evil.example", "null", "http://127.0.0.1.evil.example"] {
            let asks = format!("Origin: {origin}\r\nAccess-Control-Request-Method: PUT\r\n");
            let said = said(&rig, &with_host(method, path, &host, &asks));
            assert!(
                said.starts_with("HTTP/1.1 403 ") && said.contains("origin_not_allowed"),
                "{method} {path}: {said}"
            );
            assert!(!said.contains("SECRET") && !said.contains("access-control-allow"), "{said}");
        }
        let own = said(&rig, &with_host(method, path, &host, "Origin: http://localhost:5173\r\n"));
        assert!(!own.starts_with("HTTP/1.1 403 "), "{method} {path}: {own}");
    }
}

#[test]
fn with_tokens_pages_of_any_origin_ask_with_their_token() {
    let folder = tempfile::tempdir().unwrap();
    let admin = token(&folder.path().join("tokens.toml"), "admin", &["--admin", "*"]);
    let rig = Rig::start(folder, &["--tokens", "$/tokens.toml"]);
    assert_eq!(rig.ask(&admin, "PUT /v1/stream/a", "x"), 201);
    let more = format!("Origin: https://app.example\r\nAuthorization: Bearer {admin}\r\n");
    let said = said(&rig, &with_host("GET", "/v1/stream/a", "streams.example.org", &more));
    assert!(said.starts_with("HTTP/1.1 200 ") && said.contains("Access-Control-Allow-Origin: *"), "{said}");
}

#[test]
fn what_is_listed_opens_the_door_and_nothing_else_does() {
    let settings = ["--allow-host", "streams.example.org", "--allow-origin", "https://app.example,https://b.example"];
    let rig = Rig::start(tempfile::tempdir().unwrap(), &settings);
    let status = |host: &str, origin: &str| {
        let said = said(&rig, &with_host("OPTIONS", "/v1/stream/a", host, &format!("Origin: {origin}\r\n")));
        said[9..12].parse::<u16>().unwrap()
    };
    assert_eq!(status("streams.example.org", "https://app.example"), 204);
    assert_eq!(status("streams.example.org:8443", "https://b.example"), 204);
    assert_eq!(status("streams.example.org", "https://c.example"), 403);
    assert_eq!(status("other.example.org", "https://app.example"), 403);
}

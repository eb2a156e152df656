use crate::rig::{BINARY, Rig, text, thalweg, token};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

#[test]
fn what_is_for_one_is_kept_by_no_shared_cache() {
    let folder = tempfile::tempdir().unwrap();
    let admin = token(&folder.path().join("tokens.toml"), "admin", &["--admin", "*"]);
    let rig = Rig::start(folder, &["--tokens", "$/tokens.toml"]);
    let authorization = format!("Authorization: Bearer {admin}");
    assert_eq!(rig.ask(&admin, "PUT /v1/stream/a", "x"), 201);
    assert_eq!(rig.ask(&admin, "POST /v1/stream/a", "y"), 204);
    let ask = |line: &str| rig.raw(line.as_bytes(), &[&authorization], "").1.to_ascii_lowercase();
    for line in [
        "GET /v1/stream/a?offset=-1",
        "GET /v1/stream/a?offset=now",
        "GET /v1/stream/a?offset=-1&live=long-poll",
        "GET /v1/stream/a?offset=now&live=long-poll",
        "GET /v1/stream/missing",
        "HEAD /v1/stream/a",
        "GET /metrics",
    ] {
        let said = ask(line);
        let control = said.lines().find(|line| line.starts_with("cache-control:")).unwrap_or_default();
        assert!(!control.contains("public"), "{line}: {control}");
        assert!(control.contains("private") || control.contains("no-store"), "{line}: {control}");
        if control.contains("max-age") {
            assert!(said.contains("\r\nvary: authorization, cookie\r\n"), "{line}: {said}");
        }
    }
    assert!(ask("GET /v1/stream/a?offset=-1&live=long-poll").contains("private, max-age"));
}

#[test]
fn a_browser_can_ask_and_a_stranger_is_told_how() {
    let folder = tempfile::tempdir().unwrap();
    token(&folder.path().join("tokens.toml"), "admin", &["--admin", "*"]);
    let rig = Rig::start(folder, &["--tokens", "$/tokens.toml"]);
    let (status, said) =
        rig.raw(b"OPTIONS /v1/stream/a", &["Origin: http://x", "Access-Control-Request-Headers: authorization"], "");
    assert!(
        status == 204 && said.to_ascii_lowercase().contains("access-control-allow-headers: authorization,"),
        "{said}"
    );
    let (status, said) = rig.raw(b"OPTIONS /v1/token", &["Origin: http://x"], "");
    assert!(
        status == 204 && said.to_ascii_lowercase().contains("access-control-allow-headers: authorization,"),
        "{said}"
    );
    let (status, said) = rig.raw(b"GET /v1/stream/a", &["Origin: http://x"], "");
    assert_eq!(status, 401);
    for line in [
        "www-authenticate: Bearer realm=\"thalweg\"\r\n",
        "cache-control: no-store\r\n",
        "access-control-allow-origin: *\r\n",
    ] {
        assert!(said.contains(line), "{said}");
    }
    assert_eq!(rig.raw(b"GET /health", &[], "").0, 200);
    assert_eq!(rig.raw(b"GET /metrics", &[], "").0, 401);
}

#[test]
fn an_event_source_reads_by_a_signed_token_and_no_secret_is_logged() {
    let folder = tempfile::tempdir().unwrap();
    let app = token(&folder.path().join("tokens.toml"), "app", &["--read", "chat/", "--write", "chat/"]);
    let rig = Rig::start(folder, &["--tokens", "$/tokens.toml", "--sse-lifetime", "300ms"]);
    assert_eq!(rig.ask(&app, "PUT /v1/stream/chat/a", "hello"), 201);
    let (status, said) =
        rig.raw(b"POST /v1/token", &[&format!("Authorization: Bearer {app}")], r#"{"prefix":"chat/a","ttl":"1m"}"#);
    assert_eq!(status, 200, "{said}");
    let answer: serde_json::Value = serde_json::from_str(said.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    let issued = answer["access_token"].as_str().unwrap();
    let by_command =
        thalweg(&["token", "sign", "--data", rig.path("data").to_str().unwrap(), "--prefix", "chat/", "--ttl", "1m"]);
    let by_command = text(&by_command.stdout).trim().to_owned();
    for token in [issued, &by_command] {
        let (status, said) =
            rig.raw(format!("GET /v1/stream/chat/a?offset=-1&live=sse&access_token={token}").as_bytes(), &[], "");
        assert!(status == 200 && said.contains("data:hello"), "{said}");
        assert_eq!(rig.raw(b"GET /v1/stream/chat/a", &[&format!("Cookie: x=y; thalweg_token={token}")], "").0, 200);
        assert_eq!(
            rig.raw(
                format!("POST /v1/stream/chat/a?access_token={token}").as_bytes(),
                &["content-type: text/plain"],
                "x"
            )
            .0,
            401
        );
    }
    assert_eq!(rig.raw(format!("GET /v1/stream/other?access_token={issued}").as_bytes(), &[], "").0, 403);
    let log = rig.log();
    for secret in [&app, issued, &by_command] {
        assert!(!log.contains(secret.rsplit('.').next().unwrap()), "a secret is in the log");
    }
}

#[test]
fn a_token_that_is_made_wrongly_is_refused_by_the_command() {
    for args in [
        &["--name", "a"][..],
        &["--name", "a b", "--read", "x"],
        &["--name", "a", "--read", ""],
        &["--name", "a", "--read", "a//b"],
        &["--name", "a", "--read", "x", "--expires", "tomorrow"],
    ] {
        let refused = thalweg(&[&["token", "new"], args].concat());
        assert!(!refused.status.success() && refused.stdout.is_empty(), "{args:?}");
    }
    let nowhere =
        Command::new(BINARY).args(["token", "sign", "--data", "/nonexistent", "--prefix", "a"]).output().unwrap();
    assert!(text(&nowhere.stderr).contains("signing.key"));
}

#[test]
fn an_upload_that_is_not_allowed_is_refused_before_it_is_sent_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens.toml");
    let (admin, reader) = (token(&tokens, "admin", &["--admin", "*"]), token(&tokens, "reader", &["--read", "*"]));
    let rig = Rig::start(folder, &["--tokens", "$/tokens.toml", "--max-body", "2GiB"]);
    let begin = |authorization: &str, length: &str| {
        let mut socket = TcpStream::connect(rig.address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let head = format!("PUT /v1/stream/a HTTP/1.1\r\nHost: h\r\n{authorization}{length}\r\n\r\nthe first bytes");
        socket.write_all(head.as_bytes()).unwrap();
        let mut said = Vec::new();
        // Nothing more is sent, and still the answer comes and the connection ends.
        socket.read_to_end(&mut said).unwrap();
        text(&said)
    };
    for length in ["Content-Length: 1073741824", "Content-Length: 99999999999"] {
        let said = begin("", length);
        assert!(said.starts_with("HTTP/1.1 401 ") && said.contains("token_required"), "{said}");
        assert!(said.contains("\r\nconnection: close\r\n"), "{said}");
    }
    // The following bytes are no chunk, and the server does not parse them.
    let said = begin(&format!("Authorization: Bearer {reader}\r\n"), "Transfer-Encoding: chunked");
    assert!(said.starts_with("HTTP/1.1 403 ") && said.contains("scope_missing"), "{said}");
    let said = begin(&format!("Authorization: Bearer {admin}\r\n"), "Content-Length: 99999999999");
    assert!(said.starts_with("HTTP/1.1 413 "), "{said}");
    assert_eq!(rig.ask(&reader, "POST /v1/stream/a", "small"), 403);
    let metrics = rig.raw(b"GET /metrics", &[&format!("Authorization: Bearer {admin}")], "").1;
    for (code, count) in [("token_required", 2), ("scope_missing", 2), ("unknown_token", 0)] {
        let line = format!("thalweg_requests_denied_total{{code=\"{code}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
}

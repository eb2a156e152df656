use crate::rig::{Rig, token};

/// Ways to write the path of a stream that the token must not reach, or that is none. The server may answer anything
/// but its content.
const TRICKS: &[&str] = &[
    "/v1/stream/secret/a",
    "/v1/stream/secret%2Fa",
    "/v1/stream/%73ecret/a",
    "/v1/stream/%73%65%63%72%65%74/%61",
    "/v1/stream/%2573ecret/a",
    "//v1/stream/secret/a",
    "/v1//stream/secret/a",
    "/v1/stream//secret/a",
    "/v1/stream/secret//a",
    "/v1/stream/./secret/a",
    "/v1/stream/chat/../secret/a",
    "/v1/stream/chat/%2e%2e/secret/a",
    "/v1/stream/chat/%2E./secret/a",
    "/v1/stream/chat/..%2Fsecret/a",
    "/v1/stream/chat/..%2fsecret%2fa",
    "/v1/stream/chat%2F..%2Fsecret/a",
    "/v1/stream/chat/%252e%252e/secret/a",
    "/v1/stream/chat/..;/secret/a",
    "/v1/stream/chat;/../secret/a",
    "/v1/stream/chat\\..\\secret/a",
    "/v1/stream/chat/..\\secret/a",
    "/v1/stream/chat%5C..%5Csecret/a",
    "/v1/stream/chat/%c0%ae%c0%ae/secret/a",
    "/v1/stream/chat/%c0%af../secret/a",
    "/v1/stream/chat/%e0%80%af../secret/a",
    "/v1/stream/chat%00/../secret/a",
    "/v1/stream/secret/a%00",
    "/v1/stream/secret/a%00chat/",
    "/v1/stream/chat%00secret/a",
    "/v1/stream/chatter/a",
    "/v1/stream/chat",
    "/v1/stream/CHAT/a",
    "/v1/stream/chat%2Fa/../../secret/a",
    "/v1/stream/secret/a?/chat/a",
    "/v1/stream/secret/a?x=/v1/stream/chat/a",
    "/v1/stream/secret/a;chat/",
    "/v1/stream/secret/a%3F/chat/",
    "/v1/stream/secret/a%23chat/",
    "/v1/stream/secret/a#/chat/a",
    "http://h/v1/stream/secret/a",
    "https://h/v1/stream/secret/a",
    "HTTP://chat/v1/stream/secret/a",
    "http://chat/../v1/stream/secret/a",
    "http://h/v1/stream/chat/../secret/a",
    "http:///v1/stream/secret/a",
    "http://h@chat/v1/stream/%73ecret/a",
    "/V1/stream/secret/a",
    "/v1/Stream/secret/a",
    "/v1/%73tream/secret/a",
    "/v1%2fstream/secret/a",
    "/v1/stream%2fsecret/a",
    "/v1/stream;/secret/a",
    "/./v1/stream/secret/a",
    "/health/../v1/stream/secret/a",
    "/health/%2e%2e/v1/stream/secret/a",
    "/v1/stream/__ds/../secret/a",
    "/v1/stream/__ds/jwks.json/../../secret/a",
    "/v1/stream/__ds/streams",
    "/v1/stream/__ds/streams?prefix=secret",
    "/v1/stream/__ds/streams?prefix=",
    "/v1/stream/__ds/streams?prefix=chat/&prefix=secret/",
    "/v1/stream/__ds/streams?prefix=chat/../secret/&prefix=secret/",
    "/v1/stream/",
    "/v1/stream",
    "/v1/token",
    "/metrics",
    "/metrics/",
    "//metrics",
    "/%6detrics",
];

fn rig() -> (Rig, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens.toml");
    let admin = token(&file, "admin", &["--admin", "*"]);
    let reader = token(&file, "reader", &["--read", "chat/", "--write", "chat/"]);
    let rig = Rig::start(folder, &["--tokens", "$/tokens.toml"]);
    for (name, content) in [("chat/a", "for all"), ("secret/a", "SECRET"), ("chatter/a", "SECRET"), ("chat", "SECRET")]
    {
        assert_eq!(rig.ask(&admin, &format!("PUT /v1/stream/{name}"), content), 201);
    }
    (rig, admin, reader)
}

#[test]
fn no_spelling_of_a_path_reaches_a_stream_that_the_token_may_not_read() {
    let (rig, admin, reader) = rig();
    let authorization = format!("Authorization: Bearer {reader}");
    let good = rig.raw(b"GET /v1/stream/%63hat/a", &[&authorization], "");
    assert!(good.0 == 200 && good.1.ends_with("for all"));
    let list = rig.raw(b"GET /v1/stream/__ds/streams?prefix=chat/", &[&authorization], "");
    assert!(list.0 == 200 && list.1.contains("chat/a") && !list.1.contains("secret"), "{}", list.1);
    for target in TRICKS {
        for method in ["GET", "HEAD"] {
            let (status, said) = rig.raw(format!("{method} {target}").as_bytes(), &[&authorization], "");
            assert!(matches!(status, 400..=405), "{method} {target}: {said}");
            assert!(!said.contains("SECRET"), "{method} {target}");
        }
        // Nor does one without a token learn anything.
        let (status, _) = rig.raw(format!("GET {target}").as_bytes(), &[], "");
        assert!(matches!(status, 400 | 401), "{target}: {status}");
    }
    // Bytes that are no text at all.
    for target in
        [&b"GET /v1/stream/chat/\xc0\xae\xc0\xae/secret/a"[..], b"GET /v1/stream/secret/a\x00", b"GET /v1/stream/\xff"]
    {
        assert!(matches!(rig.raw(target, &[&authorization], "").0, 400 | 403));
    }
    // The administrator can read the stream, so it exists.
    assert!(
        rig.raw(b"GET /v1/stream/secret/a", &[&format!("authorization: bearer {admin}")], "").1.ends_with("SECRET")
    );
}

#[test]
fn no_spelling_of_a_path_writes_where_the_token_may_not() {
    let (rig, admin, writer) = rig();
    for target in TRICKS {
        for method in ["POST", "PUT", "DELETE"] {
            if *target == "/v1/token" {
                continue;
            }
            let status = rig.ask(&writer, &format!("{method} {target}"), "ours");
            // 201: names below `chat/` that only resemble others are the writer's own.
            let own = target.strip_prefix("/v1/stream/chat/").is_some_and(|rest| !rest.contains("/../"));
            assert!(matches!(status, 400..=405) || (own && status == 201), "{method} {target}: {status}");
        }
    }
    for name in ["secret/a", "chatter/a", "chat"] {
        let (_, said) =
            rig.raw(format!("GET /v1/stream/{name}").as_bytes(), &[&format!("authorization: Bearer {admin}")], "");
        assert!(said.ends_with("\r\n\r\nSECRET"), "{said}");
    }
}

#[test]
fn a_fork_gives_nothing_away_however_its_source_is_written() {
    let (rig, admin, writer) = rig();
    let sources = [
        "/v1/stream/secret/a",
        "/v1/stream/%73ecret/a",
        "/v1/stream/chat/../secret/a",
        "/v1/stream/chatter/a",
        "/v1/stream/chat",
    ];
    for (n, source) in sources.into_iter().enumerate() {
        let line = format!("PUT /v1/stream/chat/fork-{n}");
        let fork = |token: &str| {
            let headers = [format!("Authorization: Bearer {token}"), format!("Stream-Forked-From: {source}")];
            rig.raw(line.as_bytes(), &[&headers[0], &headers[1]], "").0
        };
        assert!(matches!(fork(&writer), 400 | 403), "{source}");
        assert_eq!(fork(&admin), if source.contains("..") { 400 } else { 201 }, "{source}");
    }
    let twice = [
        format!("Authorization: Bearer {writer}"),
        "Stream-Forked-From: /v1/stream/chat/a".into(),
        "Stream-Forked-From: /v1/stream/secret/a".into(),
    ];
    let headers: Vec<&str> = twice.iter().map(String::as_str).collect();
    assert!(matches!(rig.raw(b"PUT /v1/stream/chat/twice", &headers, "").0, 400 | 403));
    assert_eq!(rig.ask(&writer, "GET /v1/stream/chat/twice", ""), 404);
}

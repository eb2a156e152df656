//! Offsets, chunks, entity tags, headers.

use super::support::Rig;
use thalweg_wire::http::Method::{Get, Options, Post, Put};

#[test]
fn offsets_of_a_deleted_stream_are_refused_by_its_successor() {
    let rig = Rig::new();
    let old = rig.put("a", "text/plain", "old").next();
    let tag = rig.get("a").get("ETag").unwrap().to_owned();
    rig.delete("a");
    rig.put("a", "text/plain", "new");
    assert_eq!(rig.get(&format!("a?offset={old}")).code(), "stale_offset");
    let got = rig.send(Get, "a", &[("If-None-Match", &tag)], b"");
    assert_eq!((got.status, got.text()), (200, "new"));
}

#[test]
fn only_boundaries_of_messages_are_offsets() {
    let rig = Rig::new();
    let start = rig.put("a", "text/plain", "").next();
    let end = rig.post("a", "text/plain", "hello").next();
    let inside = format!("{}3", &end[..end.len() - 1]);
    assert_eq!(rig.get(&format!("a?offset={inside}")).code(), "offset_inside_message");
    assert_eq!(rig.get("a?offset=9999999999999999_9999999999999999").code(), "offset_beyond_tail");
    for offset in [start.as_str(), "-1", "0000000000000000_0000000000000000"] {
        assert_eq!(rig.get(&format!("a?offset={offset}")).text(), "hello");
    }
    let got = rig.get(&format!("a?offset={end}"));
    assert_eq!((got.text(), got.get("Stream-Up-To-Date"), got.next()), ("", Some("true"), end));
}

#[test]
fn a_long_stream_is_paged_as_whole_arrays() {
    let rig = Rig::new();
    rig.put("a", "application/json", "");
    let message = |n: usize| format!("{{\"n\":{n},\"pad\":\"{}\"}}", "x,".repeat(n % 50));
    for n in 0..200 {
        rig.post("a", "application/json", &message(n));
    }
    let (mut seen, mut at, mut pages) = (Vec::new(), "-1".to_owned(), 0);
    loop {
        let got = rig.get(&format!("a?offset={at}"));
        let page: Vec<serde_json::Value> = serde_json::from_slice(&got.body).unwrap();
        seen.extend(page.iter().map(|m| m["n"].as_u64().unwrap()));
        let again = rig.send(Get, &format!("a?offset={at}"), &[("If-None-Match", got.get("ETag").unwrap())], b"");
        assert_eq!((again.status, again.body.len(), again.next()), (304, 0, got.next()));
        at = got.next();
        pages += 1;
        if got.get("Stream-Up-To-Date").is_some() {
            assert_eq!(got.get("Cache-Control"), Some("no-cache"));
            break;
        }
        assert_eq!(got.get("Cache-Control"), Some("public, max-age=60, stale-while-revalidate=300"));
    }
    assert_eq!(seen, (0..200).collect::<Vec<u64>>());
    assert!(pages > 2);
}

#[test]
fn closure_changes_the_entity_tag() {
    let rig = Rig::new();
    rig.put("a", "text/plain", "x");
    let open = rig.get("a").get("ETag").unwrap().to_owned();
    rig.send(Post, "a", &[("Stream-Closed", "true")], b"");
    let got = rig.send(Get, "a", &[("If-None-Match", &open)], b"");
    assert_eq!((got.status, got.get("Stream-Closed")), (200, Some("true")));
    assert!(got.get("ETag").unwrap().ends_with(":c\""));
}

#[test]
fn every_answer_carries_the_browser_headers() {
    let rig = Rig::new();
    let answers = [
        rig.put("a", "text/plain", "x"),
        rig.post("a", "text/plain", "x"),
        rig.get("a"),
        rig.get("a?offset=now"),
        rig.head("a"),
        rig.get("none"),
        rig.send(Options, "a", &[], b""),
        rig.live("a?offset=-1&live=sse").got,
    ];
    for got in &answers {
        assert_eq!(got.get("Cross-Origin-Resource-Policy"), Some("cross-origin"));
        assert_eq!(got.get("Access-Control-Allow-Origin"), Some("*"));
        assert_eq!(got.get("Access-Control-Expose-Headers"), Some("*"));
    }
    assert!(answers[6].get("Access-Control-Allow-Headers").unwrap().contains("If-None-Match"));
    for uncacheable in [3, 4, 5] {
        assert_eq!(answers[uncacheable].get("Cache-Control"), Some("no-store"));
    }
}

#[test]
fn a_create_says_where_the_stream_is() {
    let rig = Rig::new();
    let got = rig.send(Put, "a/b", &[("Host", "h:1"), ("X-Forwarded-Proto", "https")], b"");
    assert_eq!(got.get("Location"), Some("https://h:1/v1/stream/a/b"));
    assert_eq!(got.get("Content-Type"), Some("application/octet-stream"));
    let got = rig.send(Put, "c", &[("Host", "h\u{a0}")], b"");
    assert_eq!(got.get("Location"), Some("/v1/stream/c"));
}

#[test]
fn one_name_has_one_stream_however_it_is_encoded() {
    let rig = Rig::new();
    rig.put("%61b", "text/plain", "x");
    assert_eq!(rig.get("ab").text(), "x");
}

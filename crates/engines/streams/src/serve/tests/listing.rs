//! The list of streams.

use super::support::Rig;
use crate::serve::listed_prefix;
use crate::serve::turn::Answer;
use serde_json::Value;
use thalweg_base::Millis;
use thalweg_http::Method::{Delete, Get, Put};
use thalweg_journal::Journal;
use thalweg_log::When;

fn list(rig: &Rig, query: &str) -> Value {
    let got = rig.get(&format!("__ds/streams?{query}"));
    assert_eq!((got.status, got.get("Content-Type")), (200, Some("application/json")));
    assert_eq!((got.get("Cache-Control"), got.get("Access-Control-Allow-Origin")), (Some("no-store"), Some("*")));
    serde_json::from_slice(&got.body).unwrap()
}

fn names(page: &Value) -> Vec<&str> {
    page["streams"].as_array().unwrap().iter().map(|stream| stream["name"].as_str().unwrap()).collect()
}

#[test]
fn pages_follow_each_other_in_the_order_of_names() {
    let rig = Rig::new();
    for n in 0..25 {
        rig.put(&format!("b/{n:02}"), "text/plain", "x");
    }
    rig.put("a", "text/plain", "");
    rig.put("c", "text/plain", "");
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page = list(&rig, &format!("limit=10&after={after}"));
        seen.extend(names(&page).iter().map(|name| (*name).to_owned()));
        match page["next"].as_str() {
            Some(next) => after = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(seen.len(), 27);
    assert!(seen.is_sorted() && seen[0] == "a" && seen[26] == "c");
    assert_eq!(names(&list(&rig, "prefix=b/1")).len(), 10);
    assert_eq!(names(&list(&rig, "prefix=b%2F1&after=b%2F17")), ["b/18", "b/19"]);
    assert_eq!(list(&rig, "prefix=nothing"), serde_json::json!({ "streams": [], "next": null }));
}

#[test]
fn a_stream_is_described() {
    let rig = Rig::new();
    let headers = [("Content-Type", "text/plain"), ("Stream-TTL", "60"), ("Stream-Retention-Bytes", "9")];
    rig.send(Put, "s", &headers, b"hello");
    let fork = [("Stream-Forked-From", "/v1/stream/s"), ("Stream-Expires-At", "2030-01-01T00:00:00Z")];
    rig.send(Put, "f", &fork, b"");
    rig.send(Put, "caf%C3%A9", &[("Stream-Closed", "true")], b"");
    // At rest as well as awake.
    for _ in 0..2 {
        let page = list(&rig, "");
        assert_eq!(names(&page), ["caf%C3%A9", "f", "s"]);
        let [closed, f, s] = [0, 1, 2].map(|n| &page["streams"][n]);
        assert_eq!((&closed["closed"], &closed["contentType"]), (&true.into(), &"application/octet-stream".into()));
        assert_eq!((&f["forkedFrom"], &f["expiresAt"]), (&"s".into(), &"2030-01-01T00:00:00Z".into()));
        assert_eq!((&s["ttl"], &s["forks"], &s["retentionBytes"]), (&60.into(), &1.into(), &9.into()));
        assert_eq!(s["nextOffset"].as_str().unwrap(), rig.head("s").next());
        assert_eq!(f["nextOffset"].as_str().unwrap(), rig.head("f").next());
        rig.logs.settle(Millis(rig.now.get()), When::Now).unwrap();
    }
    assert_eq!(names(&list(&rig, "prefix=caf%C3%A9")), ["caf%C3%A9"]);
}

#[test]
fn only_streams_that_live_are_listed() {
    let rig = Rig::new();
    rig.put("deleted", "text/plain", "");
    rig.put("soft", "text/plain", "");
    rig.send(Put, "fork", &[("Stream-Forked-From", "/v1/stream/soft")], b"");
    rig.send(Put, "expired", &[("Stream-Expires-At", "2020-01-01T00:00:00Z")], b"");
    rig.delete("deleted");
    rig.delete("soft");
    assert_eq!(names(&list(&rig, "")), ["fork"]);
}

#[test]
fn a_list_waits_until_what_it_says_is_durable() {
    let rig = Rig::new();
    rig.put("a", "text/plain", "");
    drop(rig.ask(Put, "b", &[], b""));
    drop(rig.ask(Delete, "a", &[], b""));
    let Answer::Later(task) = rig.ask(Get, "__ds/streams", &[], b"") else { panic!() };
    let (after, got) = rig.finish(task);
    assert!(!rig.logs.reached().covers(after));
    assert!(got.text().contains("\"b\"") && !got.text().contains("\"a\""));
    rig.journal.kick();
    assert!(rig.logs.reached().covers(after));
}

#[test]
fn other_reserved_paths_stay_reserved() {
    let rig = Rig::new();
    for path in ["__ds/streams/", "__ds/streams/x", "__ds/stream", "__ds"] {
        assert_eq!(rig.get(path).code(), "reserved", "{path}");
    }
    assert_eq!(rig.put("__ds/streams", "text/plain", "").code(), "reserved");
}

#[test]
fn who_checks_access_learns_the_prefix() {
    let of = |path, query| listed_prefix(path, query, "/v1/stream/");
    assert_eq!(of("/v1/stream/__ds/streams", Some("limit=5&prefix=a%2Fb")), Some("a/b".into()));
    assert_eq!(of("/v1/stream/__ds/streams", None), Some(String::new()));
    assert_eq!(of("/v1/stream/__ds/streams", Some("prefix=a&prefix=b")), Some(String::new()), "as if for all");
    assert_eq!(of("/v1/stream/a", None), None);
}

/// `cargo test --release -p thalweg-streams a_page_of_a_million -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn a_page_of_a_million_streams() {
    let rig = Rig::new();
    for n in 0..1_000_000u64 {
        drop(rig.ask(Put, &format!("tenant-{}/session-{n:09}", n % 97), &[], b""));
        if n % 10_000 == 0 {
            rig.journal.kick();
        }
    }
    rig.journal.kick();
    while rig.logs.settle(Millis(rig.now.get()), When::Now).unwrap() {}
    for query in ["limit=100", "limit=1000", "limit=10000", "limit=1000&after=tenant-50", "prefix=tenant-7/"] {
        let began = std::time::Instant::now();
        let page = list(&rig, query);
        eprintln!("{query}: {} streams in {:?}", names(&page).len(), began.elapsed());
    }
}

//! Offsets, chunks, entity tags, headers.

use super::support::Rig;
use crate::serve::StreamsConfig;
use crate::serve::turn::Answer;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thalweg_base::Millis;
use thalweg_http::Method::{Get, Options, Post, Put};
use thalweg_log::When;
use thalweg_storage::SlowStorage;

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
fn a_read_starts_at_its_offset_and_ends_at_the_next_one() {
    let rig = Rig::new();
    let start = rig.put("a", "text/plain", "").next();
    let end = rig.post("a", "text/plain", "hello").next();
    assert_eq!(rig.get("a?offset=9999999999999999_9999999999999999").code(), "offset_beyond_tail");
    for offset in [start.as_str(), "-1", "0000000000000000_0000000000000000"] {
        assert_eq!(rig.get(&format!("a?offset={offset}")).text(), "hello");
    }
    let got = rig.get(&format!("a?offset={end}"));
    assert_eq!((got.text(), got.get("Stream-Up-To-Date"), got.next()), ("", Some("true"), end));
}

/// The offset this many bytes behind another one.
pub(crate) fn behind(offset: &str, bytes: u64) -> String {
    let (incarnation, position) = offset.split_once('_').unwrap();
    format!("{incarnation}_{:016}", position.parse::<u64>().unwrap() + bytes)
}

#[test]
fn a_place_inside_a_message_is_read_from_the_messages_start() {
    let rig = Rig::new();
    let start = rig.put("a", "text/plain", "").next();
    let middle = rig.post("a", "text/plain", "hello").next();
    let end = rig.post("a", "text/plain", "world").next();
    for n in 0..10 {
        let (text, from) = if n < 5 { ("helloworld", &start) } else { ("world", &middle) };
        let at = behind(&start, n);
        let whole = rig.get(&format!("a?offset={from}"));
        for mode in ["", "&live=long-poll"] {
            let got = rig.get(&format!("a?offset={at}{mode}"));
            assert_eq!((got.status, got.text(), got.next()), (200, text, end.clone()), "{at}{mode}");
            assert_eq!(got.get("ETag"), whole.get("ETag"), "it is the same content");
        }
        let again = rig.send(Get, &format!("a?offset={at}"), &[("If-None-Match", whole.get("ETag").unwrap())], b"");
        assert_eq!((again.status, again.next()), (304, end.clone()));
        let mut live = rig.live(&format!("a?offset={at}&live=sse"));
        let said = rig.pull_something(&mut live);
        assert!(said.starts_with(&format!("event: data\ndata:{text}\n")), "{said}");
        assert!(said.contains(&end), "{said}");
    }
    // A read from that offset misses nothing, and repeats nothing.
    rig.post("a", "text/plain", "again");
    assert_eq!(rig.get(&format!("a?offset={end}")).text(), "again");
    assert_eq!(rig.get(&format!("a?offset={}", behind(&end, 1))).text(), "again");
}

#[test]
fn the_place_one_byte_behind_the_tail_is_inside_the_message_that_comes_next() {
    let rig = Rig::new();
    rig.put("a", "text/plain", "");
    let tail = rig.post("a", "text/plain", "hello").next();
    let place = behind(&tail, 1);
    let got = rig.get(&format!("a?offset={place}"));
    assert_eq!((got.status, got.text(), got.next()), (200, "", tail.clone()));
    assert_eq!(rig.get(&format!("a?offset={}", behind(&tail, 2))).code(), "offset_beyond_tail");
    let mut live = rig.live(&format!("a?offset={place}&live=sse"));
    assert!(rig.pull(&mut live).0.contains(&tail), "it says where the reader stands");
    let mut waiting = rig.wait(&format!("a?offset={place}&live=long-poll"));
    rig.post("a", "text/plain", "world");
    assert_eq!(rig.step(&mut waiting).unwrap().text(), "world");
    assert!(rig.pull_something(&mut live).contains("data:world"));
    assert_eq!(rig.get(&format!("a?offset={place}")).text(), "world");
    // Of an earlier history, or of a stream of JSON, it means nothing.
    rig.delete("a");
    rig.put("a", "text/plain", "hello");
    assert_eq!(rig.get(&format!("a?offset={place}")).code(), "offset_beyond_tail");
    let tail = rig.put("j", "application/json", "1").next();
    assert_eq!(rig.get(&format!("j?offset={}", behind(&tail, 1))).code(), "offset_beyond_tail");
}

#[test]
fn a_place_inside_a_forks_first_message_is_read_from_its_start_in_the_source() {
    let rig = Rig::new();
    let start = rig.put("s", "text/plain", "").next();
    rig.post("s", "text/plain", "hello");
    let fork =
        [("Stream-Forked-From", "/v1/stream/s"), ("Stream-Fork-Offset", &*start), ("Stream-Fork-Sub-Offset", "3")];
    let cut = rig.send(Put, "f", &fork, b"").next();
    let end = rig.post("f", "text/plain", "XY").next();
    for n in [1, 2] {
        let got = rig.get(&format!("f?offset={}", behind(&start, n)));
        assert_eq!((got.text(), got.next()), ("helXY", end.clone()));
    }
    assert_eq!(rig.get(&format!("f?offset={}", behind(&cut, 0))).text(), "XY");
    let (incarnation, _) = end.split_once('_').unwrap();
    assert_eq!(rig.get(&format!("f?offset={incarnation}_0000000000000004")).text(), "XY");
}

#[test]
fn a_place_inside_a_json_message_is_refused() {
    let rig = Rig::new();
    let start = rig.put("a", "application/json", "").next();
    rig.post("a", "application/json", "[{\"a\":1},{\"b\":2}]");
    for mode in ["", "&live=long-poll"] {
        assert_eq!(rig.get(&format!("a?offset={}{mode}", behind(&start, 2))).code(), "offset_inside_message");
    }
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

#[test]
fn reads_of_a_storage_that_is_far_away_wait_together() {
    const ROUND_TRIP: Duration = Duration::from_millis(50);
    let rig = Rig::with(StreamsConfig { io_threads: 4, ..StreamsConfig::default() });
    let name = |n: usize| format!("s{n}");
    for n in 0..1_000 {
        rig.put(&name(n), "text/plain", &format!("content of {n}"));
    }
    while rig.logs.settle(Millis(rig.now.get()), When::Now).unwrap() {}
    let rig = rig.reopen_over(|near| Arc::new(SlowStorage::after(near, ROUND_TRIP, Duration::ZERO, 1)));
    let began = Instant::now();
    let answers: Vec<Answer> = (0..1_000).map(|n| rig.ask(Get, &name(n), &[], b"")).collect();
    for (n, answer) in answers.into_iter().enumerate() {
        let Answer::Later(task) = answer else { panic!("nothing is near") };
        assert_eq!(rig.finish(task).1.text(), format!("content of {n}"));
    }
    // Four at a time would take 12.5 s for each of two trips.
    let took = began.elapsed();
    assert!(took < ROUND_TRIP * 1_000 / 4 / 2, "{took:?}");
}

#[test]
fn caches_may_keep_full_chunks_for_as_long_as_is_set_and_never_for_longer_than_they_live() {
    let year = 365 * 86_400;
    let rig =
        Rig::with(StreamsConfig { chunk_max_age: std::time::Duration::from_secs(year), ..StreamsConfig::default() });
    let full = |name: &str, ttl: &[(&str, &str)]| {
        rig.send(Put, name, &[&[("Content-Type", "text/plain")], ttl].concat(), b"");
        (0..40).for_each(|_| drop(rig.post(name, "text/plain", &"x".repeat(256 << 10))));
        // From the second chunk on: the first one begins where the stream does, which may move.
        let got = rig.get(&format!("{name}?offset={}", rig.get(name).next()));
        assert_eq!(got.get("Stream-Up-To-Date"), None);
        got.get("Cache-Control").unwrap().to_owned()
    };
    assert_eq!(full("kept", &[]), "public, max-age=31536000, stale-while-revalidate=300");
    assert_eq!(full("expires", &[("Stream-TTL", "1000")]), "public, max-age=1000");
}

//! gzip for large reads.

use super::support::{Got, Rig};
use crate::serve::StreamsConfig;
use flate2::read::GzDecoder;
use std::io::Read;
use thalweg_http::Method::{Get, Post};

const GZIP: (&str, &str) = ("Accept-Encoding", "gzip, deflate, br");

/// A stream of 30 messages of a kilobyte, and its content as read.
fn rig(content_type: &str, config: StreamsConfig) -> (Rig, Got) {
    let rig = Rig::with(config);
    rig.put("a", content_type, "");
    for n in 0..30 {
        rig.post("a", content_type, &format!("\"{n:01000}\""));
    }
    let plain = rig.get("a?offset=-1");
    (rig, plain)
}

fn unzipped(got: &Got) -> Vec<u8> {
    assert_eq!((got.status, got.get("Content-Encoding")), (200, Some("gzip")));
    let mut back = Vec::new();
    GzDecoder::new(&got.body[..]).read_to_end(&mut back).unwrap();
    back
}

fn tag(got: &Got) -> &str {
    got.get("ETag").unwrap()
}

#[test]
fn whoever_asks_gets_the_same_content_smaller() {
    for content_type in ["application/json", "text/plain"] {
        // The memory rig's chunks are 4 KiB; this read asks for one with a larger message.
        let (rig, _) = rig(content_type, StreamsConfig::default());
        let at = rig.head("a").next();
        rig.post("a", content_type, &format!("\"{}\"", "x".repeat(20_000)));
        let target = format!("a?offset={at}");
        let plain = rig.get(&target);
        let small = rig.send(Get, &target, &[GZIP], b"");
        assert!(small.body.len() < 2_000);
        assert_eq!(unzipped(&small), plain.body);
        assert_eq!((small.next(), small.get("Content-Type")), (plain.next(), plain.get("Content-Type")));
        assert_ne!(tag(&small), tag(&plain), "other bytes, another tag");
        for got in [&plain, &small] {
            assert_eq!(got.get("Vary"), Some("Accept-Encoding"));
        }
        assert_eq!((plain.get("Content-Encoding"), rig.streams.stats().compressed), (None, 1));
        let ask = |known: &str, headers: &[(&str, &str)]| {
            let headers = [&[("If-None-Match", known)], headers].concat();
            let got = rig.send(Get, &target, &headers, b"");
            (got.status, tag(&got).to_owned())
        };
        assert_eq!(ask(tag(&small), &[GZIP]), (304, tag(&small).to_owned()));
        assert_eq!(ask(tag(&plain), &[]), (304, tag(&plain).to_owned()));
        assert_eq!(ask(tag(&plain), &[GZIP]), (304, tag(&plain).to_owned()));
        assert_eq!(ask(tag(&small), &[]).0, 200, "a client without gzip cannot use it");
        assert_eq!(rig.send(Post, "a", &[("Content-Type", content_type), ("If-Match", tag(&small))], b"1").status, 204);
    }
}

#[test]
fn small_answers_and_images_stay_as_they_are() {
    let (rig, _) = rig("application/json", StreamsConfig::default());
    let small = rig.send(Get, "a?offset=-1", &[GZIP], b"");
    assert_eq!((small.get("Content-Encoding"), small.get("Vary")), (None, Some("Accept-Encoding")));
    rig.put("b", "image/png", &"x".repeat(30_000));
    let image = rig.send(Get, "b", &[GZIP], b"");
    assert_eq!((image.get("Content-Encoding"), image.get("Vary")), (None, None));
    rig.put("c", "text/plain", &"x".repeat(30_000));
    assert_eq!(rig.send(Get, "c", &[("Accept-Encoding", "gzip;q=0")], b"").get("Content-Encoding"), None);
}

#[test]
fn it_can_be_switched_off() {
    let (rig, _) = rig("text/plain", StreamsConfig { gzip_level: 0, ..StreamsConfig::default() });
    rig.put("c", "text/plain", &"x".repeat(30_000));
    let got = rig.send(Get, "c", &[GZIP], b"");
    assert_eq!((got.get("Content-Encoding"), got.get("Vary"), got.body.len()), (None, None, 30_000));
}

#[test]
fn without_a_thread_to_spare_the_answer_is_plain() {
    let (rig, _) = rig("text/plain", StreamsConfig { io_threads: 1, io_queue_max: 0, ..StreamsConfig::default() });
    rig.put("c", "text/plain", &"x".repeat(30_000));
    let got = rig.send(Get, "c", &[GZIP], b"");
    assert_eq!((got.status, got.get("Content-Encoding"), got.body.len()), (200, None, 30_000));
    assert!(!tag(&got).contains("gzip"));
}

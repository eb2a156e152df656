//! Streams that go by themselves.

use super::support::{Rig, T0};
use crate::serve::StreamsConfig;
use thalweg_base::Millis;
use thalweg_http::Method::{Get, Head, Post, Put};
use thalweg_journal::Journal;
use thalweg_log::When;

const TEXT: (&str, &str) = ("Content-Type", "text/plain");

fn ttl(rig: &Rig, name: &str, secs: &str) {
    assert_eq!(rig.send(Put, name, &[TEXT, ("Stream-TTL", secs)], b"x").status, 201);
}

#[test]
fn an_expired_stream_is_absent_once_its_delete_is_durable() {
    let rig = Rig::new();
    ttl(&rig, "a", "10");
    rig.pass(9_999);
    assert_eq!(rig.head("a").status, 200);
    rig.pass(1);
    let before = rig.journal.end();
    assert_eq!(rig.head("a").status, 404);
    assert!(rig.journal.end() > before);
    assert_eq!(rig.put("a", "application/json", "").status, 201);
    assert_eq!(rig.streams.stats().expired, 1);
}

#[test]
fn reads_and_writes_renew_but_head_does_not() {
    let rig = Rig::new();
    ttl(&rig, "a", "10");
    let uses: [&dyn Fn(); 6] = [
        &|| assert_eq!(rig.get("a").status, 200),
        &|| assert_eq!(rig.get("a?offset=now").status, 200),
        &|| drop(rig.wait("a?offset=now&live=long-poll")),
        &|| drop(rig.live("a?offset=-1&live=sse")),
        &|| assert_eq!(rig.post("a", "text/plain", "y").status, 204),
        &|| assert_eq!(rig.send(Post, "a", &[("Stream-Closed", "true")], b"").status, 204),
    ];
    for used in uses {
        rig.pass(6_000);
        used();
    }
    rig.pass(6_000);
    assert_eq!(rig.head("a").status, 200);
    rig.pass(6_000);
    assert_eq!(rig.head("a").status, 404);
}

#[test]
fn expires_at_is_never_renewed() {
    let rig = Rig::new();
    let at = ("Stream-Expires-At", "2027-01-15T08:00:10Z");
    assert_eq!(T0, 1_800_000_000_000);
    rig.send(Put, "a", &[TEXT, at], b"x");
    assert_eq!(rig.head("a").get("Stream-Expires-At"), Some(at.1));
    rig.pass(9_000);
    assert_eq!(rig.get("a").get("Cache-Control"), Some("no-cache"));
    rig.pass(1_000);
    assert_eq!(rig.get("a").status, 404);
}

#[test]
fn a_sweep_removes_many_with_bounded_work() {
    let rig = Rig::with(StreamsConfig { sweep_per_tick: 700, expire_per_tick: 300, ..StreamsConfig::default() });
    for n in 0..1_000 {
        ttl(&rig, &format!("s{n}"), "10");
    }
    rig.put("kept", "text/plain", "");
    rig.pass(10_000);
    let (mut ticks, mut left) = (0, 1_001);
    while left > 1 {
        let frames = rig.journal.stats().frames;
        rig.streams.tick(Millis(rig.now.get()));
        let now = rig.logs.len();
        assert!(left - now <= 300 + 256, "{} at once", left - now);
        assert!(rig.journal.stats().frames - frames <= 3);
        left = now;
        ticks += 1;
        assert!(ticks < 40);
    }
    assert!(ticks >= 2);
    assert_eq!((rig.head("kept").status, rig.head("s7").status), (200, 404));
    assert_eq!(rig.streams.stats().expired, 1_000);
}

#[test]
fn an_expired_source_lives_on_for_its_forks_and_forks_release_it() {
    let rig = Rig::new();
    ttl(&rig, "s", "10");
    rig.send(Put, "f", &[("Stream-Forked-From", "/v1/stream/s"), ("Stream-TTL", "20")], b"");
    rig.pass(10_000);
    rig.streams.tick(Millis(rig.now.get()));
    assert_eq!((rig.head("s").status, rig.head("f").status), (410, 200));
    rig.pass(10_000);
    rig.streams.tick(Millis(rig.now.get()));
    assert_eq!(rig.logs.len(), 0);
}

#[test]
fn renewals_are_recorded_coarsely_and_a_restart_errs_towards_keeping() {
    let rig = Rig::new();
    ttl(&rig, "a", "100");
    let frames = rig.journal.stats().frames;
    for _ in 0..9 {
        rig.pass(1_000);
        rig.get("a");
        rig.streams.tick(Millis(rig.now.get()));
    }
    assert_eq!(rig.journal.stats().frames, frames, "within the slack");
    rig.pass(41_000);
    rig.get("a");
    rig.streams.tick(Millis(rig.now.get()));
    rig.streams.tick(Millis(rig.now.get()));
    assert_eq!(rig.journal.stats().frames, frames + 1);
    let rig = rig.reopen();
    rig.pass(99_000);
    assert_eq!(rig.send(Head, "a", &[], b"").status, 200);
    rig.pass(12_000);
    assert_eq!(rig.send(Head, "a", &[], b"").status, 404);
}

#[test]
fn a_stream_at_rest_expires_too() {
    let rig = Rig::new();
    ttl(&rig, "a", "10");
    rig.logs.settle(Millis(rig.now.get()), When::Now).unwrap();
    rig.logs.settle(Millis(rig.now.get()), When::Now).unwrap();
    rig.pass(12_000);
    rig.streams.tick(Millis(rig.now.get()));
    assert_eq!((rig.logs.len(), rig.send(Get, "a", &[], b"").status), (0, 404));
}

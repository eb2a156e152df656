//! Retention by bytes and by age.

use super::support::{Got, Rig};
use crate::serve::StreamsConfig;
use crate::serve::turn::Answer;
use crate::state::retention::Retention;
use thalweg_base::Millis;
use thalweg_http::Method::{Get, Put};
use thalweg_journal::Journal;
use thalweg_log::When;

const TEXT: (&str, &str) = ("Content-Type", "text/plain");
const BYTES: (&str, &str) = ("Stream-Retention-Bytes", "100");
const AGE: (&str, &str) = ("Stream-Retention-Seconds", "160");

fn tick(rig: &Rig) {
    rig.streams.tick(Millis(rig.now.get()));
    rig.journal.kick();
}

/// Appends this many messages of ten bytes; returns their next offsets.
fn fill(rig: &Rig, name: &str, count: u32) -> Vec<String> {
    (0..count).map(|n| rig.post(name, "text/plain", &format!("{n:09};")).next()).collect()
}

fn trimmed(got: &Got) -> String {
    assert_eq!((got.status, got.code()), (410, "offset_trimmed".into()));
    got.get("Stream-Earliest-Offset").unwrap().to_owned()
}

#[test]
fn the_newest_bytes_are_kept_and_older_offsets_are_gone() {
    let rig = Rig::new();
    let first = rig.send(Put, "a", &[TEXT, BYTES], b"").next();
    let offsets = fill(&rig, "a", 11);
    tick(&rig);
    assert_eq!(rig.get("a").body.len(), 110, "an eighth more is kept");
    let offsets = [offsets, fill(&rig, "a", 2)].concat();
    tick(&rig);
    let whole = rig.get("a?offset=-1");
    assert_eq!(whole.text().len(), 100);
    assert!(whole.text().starts_with("000000003;"), "{}", whole.text());
    assert_eq!(whole.get("Cache-Control"), Some("no-cache"), "where it starts may move");
    let earliest = trimmed(&rig.get(&format!("a?offset={first}")));
    assert_eq!(earliest, offsets[2]);
    assert_eq!(trimmed(&rig.get(&format!("a?offset={}&live=long-poll", offsets[1]))), earliest);
    assert_eq!(trimmed(&rig.get(&format!("a?offset={}&live=sse", offsets[1]))), earliest);
    assert_eq!(rig.get(&format!("a?offset={earliest}")).body, whole.body);
    let head = rig.head("a");
    assert_eq!((head.get(BYTES.0), head.get("Stream-Earliest-Offset")), (Some("100"), Some(&*earliest)));
    assert_eq!(rig.streams.stats().trimmed_bytes, 30);
    let rig = rig.reopen();
    assert_eq!(trimmed(&rig.get(&format!("a?offset={first}"))), earliest, "after a restart");
    assert_eq!(rig.get("a").body, whole.body);
}

#[test]
fn json_stays_whole_messages() {
    let rig = Rig::new();
    rig.send(Put, "a", &[("Content-Type", "application/json"), BYTES], b"");
    let numbers: Vec<String> = (0..60).map(|n| format!("{{\"n\":{n}}}")).collect();
    rig.post("a", "application/json", &format!("[{}]", numbers.join(",")));
    tick(&rig);
    let got = rig.get("a");
    let read: Vec<serde_json::Value> = serde_json::from_slice(&got.body).unwrap();
    assert!(read.len() < 20 && read.last().unwrap()["n"] == 59, "{read:?}");
    assert!(got.body.len() > 100);
}

#[test]
fn content_goes_by_age_even_from_a_silent_stream() {
    let rig = Rig::new();
    rig.send(Put, "a", &[TEXT, AGE], b"old");
    tick(&rig);
    rig.pass(100_000);
    rig.post("a", "text/plain", "new");
    tick(&rig);
    for (pass, expected) in [(59_000, "oldnew"), (1_000, "new"), (99_000, "new"), (20_000, "")] {
        rig.pass(pass);
        tick(&rig);
        assert_eq!(rig.get("a").text(), expected, "at {}", rig.now.get());
    }
    // The stream continues as before.
    let next = rig.post("a", "text/plain", "x").next();
    assert_eq!((rig.get("a").text(), rig.get("a").next()), ("x", next));
    assert_eq!(rig.head("a").get(AGE.0), Some("160"));
}

#[test]
fn marks_survive_a_restart_and_rest() {
    let rig = Rig::new();
    rig.send(Put, "a", &[TEXT, AGE], b"old");
    tick(&rig);
    rig.logs.settle(Millis(rig.now.get()), When::Now).unwrap();
    let rig = rig.reopen();
    rig.pass(159_000);
    tick(&rig);
    assert_eq!(rig.get("a").text(), "old");
    rig.pass(1_000);
    tick(&rig);
    assert_eq!(rig.get("a").text(), "");
}

#[test]
fn a_default_holds_for_streams_that_say_nothing() {
    let retention = Retention { bytes: Some(20), secs: None };
    let rig = Rig::with(StreamsConfig { retention, ..StreamsConfig::default() });
    rig.put("plain", "text/plain", "");
    rig.send(Put, "own", &[TEXT, BYTES], b"");
    fill(&rig, "plain", 5);
    fill(&rig, "own", 5);
    tick(&rig);
    assert_eq!((rig.get("plain").body.len(), rig.get("own").body.len()), (20, 50));
    assert_eq!(rig.head("plain").get(BYTES.0), Some("20"));
}

#[test]
fn retention_is_part_of_the_configuration() {
    let rig = Rig::new();
    assert_eq!(rig.send(Put, "a", &[TEXT, BYTES, AGE], b"").status, 201);
    assert_eq!(rig.send(Put, "a", &[TEXT, BYTES, AGE], b"").status, 200);
    assert_eq!(rig.send(Put, "a", &[TEXT, BYTES], b"").status, 409);
    assert_eq!(rig.send(Put, "a", &[TEXT], b"").status, 409);
}

#[test]
fn forks_keep_what_they_inherited() {
    let rig = Rig::new();
    rig.send(Put, "s", &[TEXT, BYTES], b"");
    let offsets = fill(&rig, "s", 5);
    rig.send(Put, "f", &[("Stream-Forked-From", "/v1/stream/s")], b"");
    fill(&rig, "s", 20);
    tick(&rig);
    rig.logs.settle(Millis(rig.now.get()), When::Now).unwrap();
    rig.logs.reclaim(Millis(rig.now.get() + 1_000_000)).unwrap();
    trimmed(&rig.get(&format!("s?offset={}", offsets[0])));
    assert_eq!(rig.get("f").body.len(), 50);
    assert_eq!(rig.get(&format!("f?offset={}", offsets[0])).body.len(), 40);
    let refused =
        rig.send(Put, "g", &[("Stream-Forked-From", "/v1/stream/s"), ("Stream-Fork-Offset", &offsets[0])], b"");
    assert_eq!(refused.code(), "bad_fork_offset");
    // "From the start" means from the retained start, and a repeated request is the same request.
    let whole =
        [("Stream-Forked-From", "/v1/stream/s"), ("Stream-Fork-Offset", "-1"), ("Stream-Fork-Sub-Offset", "10")];
    assert_eq!(rig.send(Put, "h", &whole, b"").status, 201);
    assert_eq!(rig.get("h").body.len(), 10);
    fill(&rig, "s", 20);
    tick(&rig);
    assert_eq!(rig.send(Put, "h", &whole, b"").status, 200);
}

#[test]
fn trimmed_content_frees_its_space() {
    let rig = Rig::new();
    rig.send(Put, "a", &[TEXT, BYTES], b"");
    fill(&rig, "a", 200);
    rig.logs.settle(Millis(rig.now.get()), When::Now).unwrap();
    let before = rig.logs.stats().data_bytes;
    tick(&rig);
    rig.logs.reclaim(Millis(rig.now.get() + 1_000_000)).unwrap();
    rig.logs.reclaim(Millis(rig.now.get() + 2_000_000)).unwrap();
    let after = rig.logs.stats().data_bytes;
    assert!(before >= 2_000 && after <= 110, "{before} became {after}");
    assert_eq!(rig.get("a").body.len(), 100);
}

#[test]
fn a_trim_is_told_when_it_is_durable() {
    let rig = Rig::new();
    let first = rig.send(Put, "a", &[TEXT, BYTES], b"").next();
    fill(&rig, "a", 20);
    // Upkeep commits and kicks: only then are its changes durable in this journal.
    let changes = rig.streams.units.local.logs.journal().end();
    rig.streams.units.local.retain_all(Millis(rig.now.get())).unwrap();
    for target in [format!("a?offset={first}"), "a?offset=-1".into()] {
        let Answer::Response(after, _) = rig.ask(Get, &target, &[], b"") else { panic!("{target}") };
        assert!(after.position() > changes && !rig.logs.reached().covers(after), "{target}");
    }
    rig.journal.kick();
    trimmed(&rig.get(&format!("a?offset={first}")));
}

#[test]
fn an_sse_reader_that_fell_behind_is_closed_and_learns_why_when_it_comes_back() {
    let rig = Rig::new();
    rig.send(Put, "a", &[TEXT, BYTES], b"");
    let tail = fill(&rig, "a", 1).remove(0);
    let mut live = rig.live(&format!("a?offset={tail}&live=sse"));
    rig.pull(&mut live);
    fill(&rig, "a", 30);
    tick(&rig);
    assert_eq!(rig.pull(&mut live), (String::new(), true));
    trimmed(&rig.get(&format!("a?offset={tail}&live=sse")));
}

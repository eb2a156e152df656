//! Nothing is told before it is durable, and what was told survives.

use super::support::{Got, Rig};
use crate::serve::turn::Answer;
use thalweg_base::Lsn;
use thalweg_journal::Journal;
use thalweg_log::When;
use thalweg_wire::http::Method::{Delete, Get, Head, Post, Put};

const TEXT: (&str, &str) = ("Content-Type", "text/plain");

fn producer(seq: &'static str) -> [(&'static str, &'static str); 4] {
    [TEXT, ("Producer-Id", "p"), ("Producer-Epoch", "0"), ("Producer-Seq", seq)]
}

fn held(answer: Answer) -> (Lsn, Got) {
    match answer {
        Answer::Response(after, response) => (after, Got::of(response)),
        _ => panic!("not a response"),
    }
}

#[test]
fn an_append_is_answered_when_it_is_durable() {
    let rig = Rig::new();
    rig.put("a", "text/plain", "");
    let (after, got) = held(rig.ask(Post, "a", &[TEXT], b"x"));
    assert_eq!(got.status, 204);
    assert_eq!(after, rig.journal.end());
    assert!(after > rig.journal.durable());
}

#[test]
fn a_duplicate_is_answered_only_when_its_original_is_durable() {
    let rig = Rig::new();
    rig.put("a", "text/plain", "");
    let (first, got) = held(rig.ask(Post, "a", &producer("0"), b"x"));
    assert_eq!((got.status, got.get("Producer-Seq")), (200, Some("0")));
    let (again, got) = held(rig.ask(Post, "a", &producer("0"), b"x"));
    assert_eq!((got.status, got.get("Producer-Seq")), (204, Some("0")));
    assert_eq!(first, again);
    assert!(again > rig.journal.durable());
    assert_eq!(rig.streams.stats().duplicates, 1);
}

#[test]
fn refusals_wait_for_the_state_that_they_follow_from() {
    let rig = Rig::new();
    rig.put("a", "text/plain", "");
    let (appended, _) = held(rig.ask(Post, "a", &producer("0"), b"x"));
    let (gap, got) = held(rig.ask(Post, "a", &producer("5"), b"x"));
    assert_eq!((got.status, gap), (409, appended));
    assert_eq!((got.get("Producer-Expected-Seq"), got.get("Producer-Received-Seq")), (Some("1"), Some("5")));
    let (deleted, got) = held(rig.ask(Delete, "a", &[], b""));
    assert_eq!(got.status, 204);
    for method in [Get, Head, Post] {
        let (absent, got) = held(rig.ask(method, "a", &[TEXT], b"x"));
        assert_eq!((got.status, absent), (404, deleted));
    }
    let (created, _) = held(rig.ask(Put, "a", &[TEXT], b""));
    let (same, got) = held(rig.ask(Put, "a", &[TEXT], b""));
    assert_eq!((got.status, same), (200, created));
    let (other, got) = held(rig.ask(Put, "a", &[], b""));
    assert_eq!((got.status, other), (409, created));
}

#[test]
fn readers_see_only_what_is_durable() {
    let rig = Rig::new();
    let created = rig.put("a", "text/plain", "old").next();
    let (_, appended) = held(rig.ask(Post, "a", &[TEXT, ("Stream-Closed", "true")], b"new"));
    for _ in 0..2 {
        let (after, got) = held(rig.ask(Get, "a", &[], b""));
        assert_eq!(got.status, 200, "{got:?}");
        assert_eq!((after <= rig.journal.durable(), got.text(), got.next()), (true, "old", created.clone()));
        assert_eq!((got.get("Stream-Closed"), got.get("Stream-Up-To-Date")), (None, Some("true")));
        let (_, head) = held(rig.ask(Head, "a", &[], b""));
        assert_eq!((head.next(), head.get("Stream-Closed")), (created.clone(), None));
    }
    // The position is not theirs to know yet.
    let (_, early) = held(rig.ask(Get, &format!("a?offset={}", appended.next()), &[], b""));
    assert_eq!(early.code(), "offset_beyond_tail");
    rig.journal.kick();
    let got = rig.get("a");
    assert_eq!((got.text(), got.get("Stream-Closed")), ("oldnew", Some("true")));
}

#[test]
fn a_stream_is_not_there_for_readers_before_its_creation_is_durable() {
    let rig = Rig::new();
    let (created, _) = held(rig.ask(Put, "a", &[TEXT], b"x"));
    for method in [Get, Head] {
        assert_eq!(held(rig.ask(method, "a", &[], b"")).0, created);
    }
}

#[test]
fn producers_closure_and_seq_survive_with_the_data() {
    let rig = Rig::new();
    rig.put("a", "text/plain", "");
    rig.send(Post, "a", &producer("0"), b"m0;");
    rig.send(Post, "a", &[TEXT, ("Stream-Seq", "09")], b"s;");
    let mut last = producer("1").to_vec();
    last.push(("Stream-Closed", "true"));
    rig.send(Post, "a", &last, b"m1;");
    let mut rig = rig.reopen();
    for settled in [false, true] {
        assert_eq!(rig.get("a").text(), "m0;s;m1;");
        assert_eq!(rig.head("a").get("Stream-Closed"), Some("true"));
        assert_eq!(rig.send(Post, "a", &last, b"m1;").status, 204);
        assert_eq!(rig.send(Post, "a", &producer("0"), b"m0;").code(), "closed");
        if !settled {
            // At rest, and started again from the checkpoint.
            rig.logs.settle(thalweg_base::Millis(rig.now.get()), When::Now).unwrap();
            rig.logs.settle(thalweg_base::Millis(rig.now.get()), When::Now).unwrap();
            rig = rig.reopen();
        }
    }
}

#[test]
fn what_was_not_durable_is_gone_as_a_whole() {
    let rig = Rig::new();
    rig.put("a", "text/plain", "");
    held(rig.ask(Post, "a", &producer("0"), b"lost"));
    let rig = rig.reopen();
    assert_eq!(rig.get("a").text(), "");
    assert_eq!(rig.send(Post, "a", &producer("0"), b"new").status, 200);
}

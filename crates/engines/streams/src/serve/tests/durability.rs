//! No state is shown before it is durable, and shown state survives.

use super::support::{Got, Rig};
use crate::serve::StreamsConfig;
use crate::serve::turn::Answer;
use thalweg_base::{Durability, Lsn, Until};
use thalweg_http::Method::{Delete, Get, Head, Post, Put};
use thalweg_journal::Journal;
use thalweg_log::Loss;
use thalweg_log::When;

const TEXT: (&str, &str) = ("Content-Type", "text/plain");

fn producer(seq: &'static str) -> [(&'static str, &'static str); 4] {
    [TEXT, ("Producer-Id", "p"), ("Producer-Epoch", "0"), ("Producer-Seq", seq)]
}

/// Asserts that the answer waits for the durable position.
fn held(answer: Answer) -> (Lsn, Got) {
    match answer {
        Answer::Response(Until::Written(after), response) if after > Lsn::ZERO => {
            panic!("{:?} waits for {after} to be written only", Got::of(response))
        }
        Answer::Response(after, response) => (after.position(), Got::of(response)),
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
    let (created, told) = held(rig.ask(Put, "a", &[TEXT], b"x"));
    let (after, head) = held(rig.ask(Head, "a", &[], b""));
    assert_eq!((after, head.get("Stream-Next-Offset")), (created, told.get("Stream-Next-Offset")));
    // The stream is read with its initial content: an empty stream of that name never existed.
    let Answer::Later(read) = rig.ask(Get, "a", &[], b"") else { panic!("its content is not written") };
    let (after, got) = rig.finish(read);
    assert_eq!((after.position(), got.text()), (created, "x"));
}

#[test]
fn a_fork_that_is_read_before_it_is_durable_has_what_it_inherits() {
    let rig = Rig::new();
    rig.ask(Put, "source", &[TEXT], b"hello");
    let fork = [TEXT, ("Stream-Forked-From", "/v1/stream/source")];
    let (created, told) = held(rig.ask(Put, "fork", &fork, b""));
    assert_eq!(told.status, 201);
    assert!(created > rig.journal.durable());
    let Answer::Later(read) = rig.ask(Get, "fork", &[], b"") else { panic!("its content is not written") };
    let (after, got) = rig.finish(read);
    assert_eq!((after.position(), got.status, got.text()), (created, 200, "hello"));
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

const BUFFERED: (&str, &str) = ("Stream-Durability", "buffered");
const DURABLE: (&str, &str) = ("Stream-Durability", "durable");

fn waits(answer: Answer) -> (Until, Got) {
    match answer {
        Answer::Response(after, response) => (after, Got::of(response)),
        _ => panic!("not a response"),
    }
}

/// Answers wait for their stream's durability, independently of the server's default.
#[test]
fn a_stream_promises_what_it_was_asked_to() {
    for server in [Durability::Durable, Durability::Buffered] {
        let rig = Rig::of(StreamsConfig::default(), server);
        for (name, said, promise) in [
            ("plain", None, server),
            ("buffered", Some(BUFFERED), Durability::Buffered),
            ("durable", Some(DURABLE), Durability::Durable),
        ] {
            let headers: Vec<_> = [TEXT].into_iter().chain(said).collect();
            let answers = [
                rig.ask(Put, name, &headers, b"one;"),
                rig.ask(Put, name, &headers, b""),
                rig.ask(Head, name, &[], b""),
                rig.ask(Post, name, &producer("0"), b"two;"),
                rig.ask(Post, name, &producer("0"), b"two;"),
                rig.ask(Post, name, &producer("7"), b"gap"),
            ];
            for (answer, status) in answers.into_iter().zip([201, 200, 200, 200, 204, 409]) {
                let (after, got) = waits(answer);
                assert_eq!(got.status, status, "{got:?}");
                assert_eq!(after, Until::of(promise, after.position()), "{name} on {server:?}: {got:?}");
                assert!(after.position() > rig.journal.durable(), "{got:?}");
            }
            rig.journal.kick();
            let word = if promise == Durability::Buffered { "buffered" } else { "durable" };
            assert_eq!(rig.head(name).get("Stream-Durability"), Some(word));
            assert_eq!(rig.send(Put, name, &headers, b"").get("Stream-Durability"), Some(word));
            // A close is durable, and so is every answer that shows it.
            let closing = rig.ask(Post, name, &[("Stream-Closed", "true")], b"");
            for answer in
                [closing, rig.ask(Post, name, &[("Stream-Closed", "true")], b""), rig.ask(Delete, name, &[], b"")]
            {
                let (after, got) = waits(answer);
                assert_eq!((got.status, after), (204, Until::Durable(after.position())), "{name}: {got:?}");
            }
            for (answer, status) in [(rig.ask(Get, name, &[], b""), 404), (rig.ask(Put, name, &headers, b""), 201)] {
                let (after, got) = waits(answer);
                assert_eq!((got.status, after), (status, Until::Durable(after.position())), "{name}: {got:?}");
            }
            rig.journal.kick();
        }
    }
}

#[test]
fn readers_of_a_buffered_stream_see_what_is_written() {
    let rig = Rig::new();
    rig.send(Put, "b", &[TEXT, BUFFERED], b"old;");
    rig.send(Put, "d", &[TEXT], b"old;");
    let next = rig.get("b").next();
    let mut waiting = ["b", "d"].map(|name| rig.wait(&format!("{name}?offset=now&live=long-poll")));
    rig.stop_syncing();
    for name in ["b", "d"] {
        waits(rig.ask(Post, name, &[TEXT], b"new;"));
    }
    rig.journal.kick();
    let seen = ["b", "d"].map(|name| waits(rig.ask(Get, name, &[], b"")).1.text().to_owned());
    assert_eq!(seen, ["old;new;", "old;"]);
    assert_eq!(waiting.each_ref().map(|w| w.wakes()), [1, 0]);
    assert_eq!(rig.step(&mut waiting[0]).unwrap().text(), "new;");
    assert!(rig.step(&mut waiting[1]).is_none());
    // Closed only when the close is durable, although the content is visible.
    waits(rig.ask(Post, "b", &[TEXT, ("Stream-Closed", "true")], b"last;"));
    rig.journal.kick();
    let (_, got) = waits(rig.ask(Get, "b", &[], b""));
    assert_eq!((got.text(), got.get("Stream-Closed")), ("old;new;last;", None));
    rig.sync();
    assert_eq!(rig.get("b").get("Stream-Closed"), Some("true"));
    assert_eq!(rig.step(&mut waiting[1]).unwrap().text(), "new;");
    assert_eq!(rig.get(&format!("b?offset={next}")).text(), "new;last;");
}

#[test]
fn after_a_crash_of_the_machine_buffered_streams_refuse_old_offsets_and_durable_ones_take_them() {
    let rig = Rig::new();
    rig.send(Put, "b", &[TEXT, BUFFERED], b"one;");
    rig.send(Put, "d", &[TEXT], b"one;");
    rig.stop_syncing();
    let (_, lost) = waits(rig.ask(Post, "b", &[TEXT], b"lost"));
    rig.journal.kick();
    let next = [rig.get("b").next(), rig.get("d").next()];
    assert_eq!(lost.next(), next[0]);
    let rig = rig.reopen_after(Loss::Buffered);
    rig.sync();
    rig.post("b", "text/plain", "other");
    rig.post("d", "text/plain", "two;");
    let refused = rig.get(&format!("b?offset={}", next[0]));
    assert_eq!((refused.status, refused.code()), (400, "stale_offset".into()));
    let tag = format!("\"{}\"", next[0]);
    assert_eq!(rig.send(Post, "b", &[TEXT, ("If-Match", &tag)], b"x").code(), "tail_moved");
    assert_eq!(rig.get("b").text(), "one;other");
    assert_eq!(rig.get(&format!("d?offset={}", next[1])).text(), "two;");
}

#[test]
fn after_a_crash_of_the_machine_a_name_that_becomes_a_fork_repeats_no_offset() {
    let rig = Rig::new();
    for (name, content) in [("gone", "one;"), ("source", "two;")] {
        rig.send(Put, name, &[TEXT, BUFFERED], content.as_bytes());
    }
    let rig = rig.reopen_after(Loss::Buffered);
    let (seen, start) = (rig.get("gone").next(), rig.get("source").next());
    let answered = rig.send(Delete, "gone", &[], b"").status;
    let fork = [("Stream-Forked-From", "/v1/stream/source"), ("Stream-Fork-Offset", &*start)];
    let made = rig.send(Put, "gone", &fork, b"");
    assert_eq!((answered, made.status), (204, 201));
    rig.post("gone", "text/plain", "three;");
    assert_eq!(rig.get(&format!("gone?offset={seen}")).code(), "stale_offset", "four other bytes lie below it now");
    assert_eq!(rig.get(&format!("gone?offset={}", made.next())).text(), "three;");
    assert_eq!(rig.get("gone").text(), "two;three;");
    // A fork of the fork shares its positions, also those in inherited content.
    rig.send(Put, "fork", &[("Stream-Forked-From", "/v1/stream/gone")], b"");
    assert_eq!(rig.get(&format!("fork?offset={}", made.next())).text(), "three;");
}

#[test]
fn durability_is_part_of_the_configuration_and_inherited_by_forks() {
    let rig = Rig::new();
    let put = |name: &str, headers: &[(&str, &str)]| rig.send(Put, name, headers, b"");
    assert_eq!(put("b", &[TEXT, BUFFERED]).status, 201);
    assert_eq!(put("p", &[TEXT]).status, 201);
    for (name, headers) in [("b", vec![TEXT]), ("b", vec![TEXT, DURABLE]), ("p", vec![TEXT, DURABLE])] {
        assert_eq!(put(name, &headers).code(), "exists_differently");
    }
    assert_eq!(put("x", &[TEXT, ("Stream-Durability", "fast")]).code(), "bad_durability");
    let from = |name| ("Stream-Forked-From", name);
    for (name, headers) in [("f", vec![from("/v1/stream/b")]), ("g", vec![from("/v1/stream/b"), BUFFERED])] {
        assert_eq!(put(name, &headers).status, 201);
        assert_eq!(put(name, &headers).status, 200);
        assert_eq!(rig.head(name).get("Stream-Durability"), Some("buffered"));
    }
    assert_eq!(put("h", &[from("/v1/stream/b"), DURABLE]).code(), "fork_durability");
    assert_eq!(put("h", &[from("/v1/stream/p"), DURABLE]).code(), "fork_durability");
    let listed = rig.get("__ds/streams").text().to_owned();
    assert_eq!(listed.matches("\"durability\":\"buffered\"").count(), 3, "{listed}");
    // It survives, from the journal and from a checkpoint.
    let mut rig = rig.reopen();
    for _ in 0..2 {
        assert_eq!(rig.head("f").get("Stream-Durability"), Some("buffered"));
        assert_eq!(rig.head("p").get("Stream-Durability"), Some("durable"));
        rig.logs.settle(thalweg_base::Millis(rig.now.get()), When::Now).unwrap();
        rig = rig.reopen();
    }
}

//! Two units: that of the data folder, and the replicated one.

use super::support::{Got, Recorded, Rig};
use crate::serve::StreamsConfig;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use thalweg_base::Level;
use thalweg_http::Method::{Delete, Get, Head, Post, Put};
use thalweg_http::{Context, Pending, Poll, Reply};
use thalweg_journal::{Journal, Poisoned};

const TEXT: (&str, &str) = ("Content-Type", "text/plain");
const DURABLE: (&str, &str) = ("Stream-Durability", "durable");
const REPLICATED: (&str, &str) = ("Stream-Durability", "replicated");

/// With a store that has not answered yet.
fn away() -> Rig {
    Rig::with(StreamsConfig { has_store: true, ..StreamsConfig::default() })
}

fn joined() -> (Rig, Arc<Recorded>) {
    let rig = away();
    let journal = rig.join();
    (rig, journal)
}

fn levels(rig: &Rig) -> Vec<(String, Value)> {
    let page: Value = serde_json::from_slice(&rig.get("__ds/streams").body).unwrap();
    let streams = page["streams"].as_array().unwrap().iter();
    streams.map(|stream| (stream["name"].as_str().unwrap().to_owned(), stream["durability"].clone())).collect()
}

/// A reply that waits, and how often it was woken.
struct Waiting(Box<dyn Pending>, Arc<AtomicUsize>);

impl Waiting {
    fn of(reply: Reply) -> Self {
        let Reply::Later(pending) = reply else { panic!("not a reply that waits for another journal than the loop's") };
        Self(pending, Arc::default())
    }

    fn poll(&mut self) -> Option<Got> {
        let count = Arc::clone(&self.1);
        let waker = move || {
            let count = Arc::clone(&count);
            thalweg_http::Waker::from_fn(move || {
                count.fetch_add(1, Ordering::SeqCst);
            })
        };
        match self.0.poll(&mut Context::detached(super::support::T0, &waker)) {
            Poll::Wait => None,
            Poll::Ready(Reply::Now(response)) => Some(Got::of(response)),
            Poll::Ready(_) => panic!("a reply that waits again"),
        }
    }

    fn wakes(&self) -> usize {
        self.1.load(Ordering::SeqCst)
    }
}

#[test]
fn without_a_store_no_stream_is_replicated() {
    let rig = Rig::new();
    let refused = rig.send(Put, "s", &[TEXT, REPLICATED], b"");
    assert_eq!((refused.status, refused.code().as_str()), (409, "no_store"));
    assert_eq!(rig.head("s").status, 404);
}

#[test]
fn a_stream_is_in_the_unit_of_its_level() {
    let (rig, journal) = joined();
    let (local, replicated) = (rig.journal.end(), journal.end());
    assert_eq!(rig.send(Put, "r", &[TEXT, REPLICATED], b"one;").status, 201);
    assert!(rig.journal.end() == local && journal.end() > replicated);
    let replicated = journal.end();
    assert_eq!(rig.send(Put, "d", &[TEXT], b"one;").status, 201);
    assert!(rig.journal.end() > local && journal.end() == replicated);
    for (name, level) in [("r", "replicated"), ("d", "durable")] {
        assert_eq!(rig.send(Post, name, &[TEXT], b"two").status, 204);
        assert_eq!(rig.get(name).text(), "one;two");
        assert_eq!(rig.head(name).get("Stream-Durability"), Some(level));
    }
    assert_eq!(levels(&rig), [("d".into(), Value::Null), ("r".into(), "replicated".into())]);
    assert_eq!(rig.streams.stats().appends, 4);
    for (name, said) in [("r", DURABLE), ("d", REPLICATED)] {
        assert_eq!(rig.send(Put, name, &[TEXT, said], b"").code(), "exists_differently");
    }
    assert_eq!(rig.send(Put, "r", &[TEXT, REPLICATED], b"").status, 200);
    assert_eq!((rig.send(Delete, "r", &[], b"").status, rig.get("r").status), (204, 404));
}

#[test]
fn streams_that_do_not_say_theirs_have_the_servers_level() {
    let rig = Rig::with(StreamsConfig { has_store: true, level: Level::Replicated, ..StreamsConfig::default() });
    let journal = rig.join();
    assert_eq!(rig.send(Put, "s", &[TEXT], b"").status, 201);
    assert_eq!(rig.head("s").get("Stream-Durability"), Some("replicated"));
    assert_eq!(levels(&rig), [("s".into(), "replicated".into())]);
    assert!(journal.end() > rig.journal.end());
    assert_eq!(rig.send(Put, "d", &[TEXT, DURABLE], b"").status, 201);
    assert_eq!(rig.head("d").get("Stream-Durability"), Some("durable"));
}

#[test]
fn a_fork_is_in_the_unit_of_its_source() {
    let (rig, _) = joined();
    rig.send(Put, "r", &[TEXT, REPLICATED], b"content");
    let from = ("Stream-Forked-From", "/v1/stream/r");
    assert_eq!(rig.send(Put, "f", &[from], b"").status, 201);
    assert_eq!(rig.get("f").text(), "content");
    assert_eq!(rig.head("f").get("Stream-Durability"), Some("replicated"));
    assert_eq!(rig.send(Put, "g", &[from, DURABLE], b"").code(), "fork_durability");
    assert_eq!(rig.send(Delete, "r", &[], b"").status, 204);
    // The name is kept by the fork, in the unit that it was in.
    assert_eq!((rig.get("r").status, rig.send(Put, "r", &[TEXT], b"").code().as_str()), (410, "name_kept_by_forks"));
    assert_eq!(rig.send(Delete, "f", &[], b"").status, 204);
    assert_eq!(rig.send(Put, "r", &[TEXT], b"").status, 201);
    assert_eq!(rig.head("r").get("Stream-Durability"), Some("durable"));
}

/// While the bucket has not answered nobody knows what is in it.
#[test]
fn before_the_bucket_has_answered_known_streams_are_served_and_no_others() {
    let rig = away();
    for (method, name) in [(Get, "s"), (Head, "s"), (Post, "s"), (Delete, "s"), (Put, "s"), (Get, "__ds/streams")] {
        let refused = rig.send(method, name, &[TEXT], b"x");
        assert_eq!((refused.status, refused.code().as_str()), (503, "store_away"), "{method:?}");
        assert_eq!(refused.get("Retry-After"), Some("1"));
    }
    assert!(!rig.streams.is_complete());
    rig.join();
    assert!(rig.streams.is_complete());
    assert_eq!(rig.send(Put, "s", &[TEXT], b"x").status, 201);
    let rig = rig.reopen();
    assert_eq!(rig.get("s").text(), "x");
    assert_eq!(rig.send(Post, "s", &[TEXT], b"y").status, 204);
    assert_eq!(rig.get("other").code(), "store_away");
}

#[test]
fn answers_wait_for_the_journal_of_their_stream() {
    let (rig, journal) = joined();
    rig.send(Put, "r", &[TEXT, REPLICATED], b"");
    rig.send(Put, "d", &[TEXT], b"");
    journal.stop_syncing();
    let mut append = Waiting::of(rig.reply(Post, "r", &[TEXT], b"one"));
    let mut other = Waiting::of(rig.reply(Post, "r", &[TEXT], b"two"));
    assert!(append.poll().is_none() && other.poll().is_none());
    // The other journal has nothing to do with it.
    assert!(matches!(rig.reply(Post, "d", &[TEXT], b"one"), Reply::Held(..)));
    rig.journal.kick();
    rig.streams.on_durable();
    assert!(append.poll().is_none() && append.wakes() == 0);
    // Readers see what is replicated; those who leave are forgotten.
    assert_eq!(rig.get("r").text(), "");
    drop(other);
    journal.kick();
    journal.sync();
    rig.streams.on_replicated();
    assert_eq!(append.wakes(), 1);
    assert_eq!(append.poll().unwrap().status, 204);
    assert_eq!(rig.get("r").text(), "onetwo");
    assert!(matches!(rig.reply(Get, "r", &[], b""), Reply::Now(_)));
}

#[test]
fn an_answer_that_waits_for_a_journal_which_stops_says_that_nobody_knows() {
    let (rig, journal) = joined();
    rig.send(Put, "r", &[TEXT, REPLICATED], b"");
    journal.stop_syncing();
    let mut append = Waiting::of(rig.reply(Post, "r", &[TEXT], b"one"));
    assert!(append.poll().is_none());
    journal.stop(Poisoned::new("append", "fenced"));
    rig.streams.on_replicated();
    assert_eq!(append.wakes(), 1);
    let got = append.poll().unwrap();
    assert_eq!((got.status, got.code().as_str()), (503, "unconfirmed"));
}

/// A name changes its unit only when the delete before is durable: a crash must not leave two streams of that name.
#[test]
fn a_name_is_in_one_unit() {
    let (rig, journal) = joined();
    for (first, second) in [(REPLICATED, DURABLE), (DURABLE, REPLICATED)] {
        assert_eq!(rig.send(Put, "s", &[TEXT, first], b"").status, 201);
        let of_first = if first == REPLICATED { &journal } else { &rig.journal };
        of_first.stop_syncing();
        drop(rig.ask(Delete, "s", &[], b""));
        assert_eq!(rig.send(Put, "s", &[TEXT, second], b"").code(), "contended");
        of_first.kick();
        of_first.sync();
        assert_eq!(rig.send(Put, "s", &[TEXT, second], b"").status, 201);
        assert_eq!(rig.head("s").get("Stream-Durability"), Some(second.1));
        assert_eq!(rig.send(Delete, "s", &[], b"").status, 204);
    }
}

#[test]
fn an_expired_stream_does_not_decide_for_its_successor() {
    let (rig, _) = joined();
    for (first, second) in [(REPLICATED, DURABLE), (DURABLE, REPLICATED)] {
        assert_eq!(rig.send(Put, "s", &[TEXT, first, ("Stream-TTL", "1")], b"old").status, 201);
        rig.pass(2_000);
        let got = rig.send(Put, "s", &[TEXT, second], b"new");
        let got = if got.status == 503 { rig.send(Put, "s", &[TEXT, second], b"new") } else { got };
        assert_eq!(got.status, 201, "{got:?}");
        assert_eq!((rig.get("s").text(), rig.head("s").get("Stream-Durability")), ("new", Some(second.1)));
        rig.send(Delete, "s", &[], b"");
    }
}

/// Concurrent PUTs of one name with two levels make one stream.
#[test]
fn of_two_that_make_a_stream_at_once_one_does() {
    let (rig, _) = joined();
    let streams = &rig.streams;
    for n in 0..200 {
        let path = format!("/v1/stream/s{n}");
        let put = |said: (&'static str, &'static str)| {
            let headers: [(&str, &[u8]); 2] = [(TEXT.0, TEXT.1.as_bytes()), (said.0, said.1.as_bytes())];
            let request = thalweg_http::Request {
                method: Put,
                path: &path,
                query: None,
                headers: thalweg_http::Headers(&headers),
                body: b"",
            };
            match streams.units.answer(&request, thalweg_base::Millis(super::support::T0)).1 {
                crate::serve::turn::Answer::Response(_, response) => response.status,
                _ => panic!("a PUT that waits"),
            }
        };
        let statuses = std::thread::scope(|scope| {
            let both = [DURABLE, REPLICATED].map(|said| scope.spawn(move || put(said)));
            both.map(|thread| thread.join().unwrap())
        });
        assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 1, "{statuses:?}");
    }
    assert_eq!(levels(&rig).len(), 200);
}

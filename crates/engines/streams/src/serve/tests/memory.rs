//! Answers that clients do not read.

use super::support::Rig;
use crate::serve::StreamsConfig;
use crate::serve::chunk::Span;
use crate::serve::turn::Answer;
use std::sync::mpsc;
use thalweg_base::{Millis, Offset};
use thalweg_http::Method::{Get, Post};
use thalweg_log::When;

const TEXT: (&str, &str) = ("Content-Type", "text/plain");

#[test]
fn slow_readers_cannot_take_all_memory() {
    let rig = Rig::with(StreamsConfig { unsent_bytes_max: 1 << 20, ..StreamsConfig::default() });
    let bound = (1 << 20) + rig.logs.options().chunk_cache_bytes;
    let count = bound / 200_000 + 10;
    for n in 0..count {
        rig.put(&format!("s{n}"), "text/plain", &"x".repeat(200_000));
    }
    rig.put("small", "text/plain", "x");
    // The journal counts the memory of content that it holds.
    while rig.logs.settle(Millis(rig.now.get()), When::Now).unwrap() {}
    rig.get("small");
    // An answer that is not read is held.
    let mut answers = Vec::new();
    let mut refused = 0;
    for n in 0..count {
        match rig.ask(Get, &format!("s{n}"), &[], b"") {
            Answer::Response(_, response) if response.status == 200 => answers.push(response),
            Answer::Response(_, response) => {
                refused += 1;
                let head = String::from_utf8(response.head).unwrap();
                assert!(response.status == 503 && head.contains("Retry-After: 1"), "{head}");
            }
            _ => panic!("it is in memory"),
        }
        assert!(rig.logs.held_bytes() <= bound + 200_000);
    }
    assert!(refused >= 4 && answers.len() > 2, "{refused}");
    assert_eq!(rig.get("s0").code(), "unsent_full");
    assert_eq!(rig.get("__ds/streams").code(), "unsent_full");
    let mut live = rig.live("s0?offset=-1&live=sse");
    assert_eq!(rig.pull(&mut live), (String::new(), false), "a live reader waits");
    // Appends and small reads are still served.
    assert_eq!(rig.send(Post, "s0", &[TEXT], b"y").status, 204);
    assert_eq!(rig.get("small").text(), "x");
    drop(answers);
    assert_eq!(rig.logs.held_bytes(), 0);
    assert_eq!(rig.get("s0").body.len(), 200_000);
    assert!(rig.pull(&mut live).0.len() > 200_000);
}

#[test]
fn readers_of_one_chunk_share_it() {
    let rig = Rig::with(StreamsConfig { unsent_bytes_max: 1 << 20, ..StreamsConfig::default() });
    rig.put("a", "text/plain", &"x".repeat(200_000));
    let mut answers = Vec::new();
    for _ in 0..200 {
        let Answer::Response(_, response) = rig.ask(Get, "a", &[], b"") else { panic!() };
        assert_eq!(response.status, 200);
        answers.push(response);
    }
    assert!(rig.logs.held_bytes() <= 400_000, "{}", rig.logs.held_bytes());
}

/// Occupies the pool's only thread until the sender is dropped.
fn occupy(rig: &Rig) -> mpsc::Sender<()> {
    let (go, gate) = mpsc::channel::<()>();
    assert!(rig.streams.units.local.pool.run(move || gate.recv().is_ok()).is_some());
    go
}

#[test]
fn readers_who_ask_before_the_first_has_its_chunk_share_one_read() {
    let rig = Rig::with(StreamsConfig { io_threads: 1, ..StreamsConfig::default() });
    rig.put("a", "text/plain", &"x".repeat(300_000));
    let busy = occupy(&rig);
    let tasks: Vec<_> = (0..100)
        .map(|_| match rig.ask(Get, "a?offset=-1", &[], b"") {
            Answer::Later(task) => task,
            _ => panic!("it is too large to be read at once"),
        })
        .collect();
    // A tail of another client's is behind the chunk's end as well.
    rig.post("a", "text/plain", "y");
    let Answer::Later(later) = rig.ask(Get, "a?offset=-1", &[], b"") else { panic!() };
    drop(busy);
    let (_, got) = rig.finish(later);
    assert_eq!((got.status, got.body.len()), (200, 300_000));
    // Bytes that the other clients have not taken: the chunk as it was gathered, and the piece that all answers share.
    let held = rig.logs.held_bytes();
    assert!((300_000..=600_000).contains(&held), "{held}");
    for task in tasks {
        assert_eq!(rig.finish(task).1.body.len(), 300_000);
    }
}

#[test]
fn a_read_that_is_given_up_leaves_nobody_waiting() {
    let rig = Rig::with(StreamsConfig { io_threads: 1, io_queue_max: 0, ..StreamsConfig::default() });
    rig.put("a", "text/plain", &"x".repeat(300_000));
    // The pool takes no job: each request reads by itself, and the second does not wait for a read that never began.
    for _ in 0..2 {
        assert_eq!(rig.get("a?offset=-1").body.len(), 300_000);
    }
}

#[test]
fn no_request_waits_for_a_read_that_a_full_pool_refuses_another() {
    let rig = Rig::with(StreamsConfig { io_threads: 1, io_queue_max: 0, ..StreamsConfig::default() });
    rig.put("a", "text/plain", &"x".repeat(300_000));
    let (engine, durable) = (&rig.streams.units.local, rig.logs.durable());
    let mut guard = rig.logs.lock(&["a"]);
    let log = guard.find("a").unwrap();
    let span = guard.view(log).map(|view| Span::new(&view, Offset::ZERO, durable)).unwrap();
    drop(guard);
    let all_are_refused = || {
        for _ in 0..20_000 {
            assert!(
                engine.read_elsewhere(span.read_from(), span.kind).is_none(),
                "it waits for a read that never begins"
            );
        }
    };
    std::thread::scope(|scope| {
        (0..3).for_each(|_| drop(scope.spawn(all_are_refused)));
    });
}

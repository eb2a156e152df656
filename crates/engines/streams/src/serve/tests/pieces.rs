//! Large answers while much memory is held: in pieces, and the same for clients.

use super::reads::behind;
use super::support::{Got, Rig, pulled};
use crate::serve::StreamsConfig;
use crate::serve::turn::{Answer, Turn};
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;
use thalweg_base::Millis;
use thalweg_http::Method::{Delete, Get};
use thalweg_http::{Body, Response, Waker};
use thalweg_log::When;

const LARGE: usize = 1_500_000;

/// Streams of one large message each, among small ones, settled.
fn rig() -> Rig {
    let rig = Rig::with(StreamsConfig { unsent_bytes_max: 64 << 20, gzip_level: 0, ..StreamsConfig::default() });
    let large: String = (0..LARGE).map(|at| char::from(b'a' + (at / 7 % 26) as u8)).collect();
    rig.put("text", "text/plain", "a first message");
    rig.post("text", "text/plain", &large);
    rig.put("json", "application/json", &format!("[{{\"n\": 1}}, \"{large}\"]"));
    for _ in 0..3 {
        rig.post("text", "text/plain", &"small".repeat(200_000));
        rig.post("json", "application/json", "[true, {\"n\": 2}]");
    }
    while rig.logs.settle(Millis(rig.now.get()), When::Now).unwrap() {}
    rig
}

/// Answers that clients do not read.
fn hold(rig: &Rig, bytes: u64) -> Bytes {
    rig.logs.hold(Bytes::from(vec![0; bytes as usize]))
}

fn scarce(rig: &Rig) -> Bytes {
    hold(rig, rig.logs.options().chunk_cache_bytes + (17 << 20))
}

/// The response, before its body is pulled.
fn response(rig: &Rig, target: &str) -> Response {
    let woken = Arc::new(AtomicBool::new(true));
    let Answer::Later(mut task) = rig.ask(Get, target, &[], b"") else { panic!("it needs no read") };
    let waker = {
        let woken = Arc::clone(&woken);
        Waker::from_fn(move || woken.store(true, Ordering::SeqCst))
    };
    loop {
        while !woken.swap(false, Ordering::SeqCst) {
            std::thread::yield_now();
        }
        let waker = || waker.clone();
        match task.step(&mut Turn::new(Millis(rig.now.get()), false, &waker)) {
            Some(Answer::Response(after, response)) if rig.logs.reached().covers(after) => return response,
            Some(Answer::Later(next)) => {
                task = next;
                woken.store(true, Ordering::SeqCst);
            }
            Some(_) => panic!("the answer waits for the journal"),
            None => {}
        }
    }
}

#[test]
fn an_answer_in_pieces_is_the_same_as_a_whole_one() {
    let rig = rig();
    for (name, chunks) in [("text", 4), ("json", 1)] {
        let mut at = "-1".to_owned();
        for _ in 0..chunks {
            let target = format!("{name}?offset={at}");
            let held = scarce(&rig);
            let response = response(&rig, &target);
            assert!(matches!(response.body, Body::Sized(..)), "{target}");
            let got = Got::of(response);
            drop(held);
            let whole = rig.get(&target);
            assert_eq!((got.status, &got.head), (whole.status, &whole.head), "{target}");
            assert!(got.body == whole.body && whole.body.len() > 600_000, "{target}");
            at = whole.next();
        }
    }
}

#[test]
fn a_chunk_that_is_asked_for_again_is_gathered_whole_and_kept() {
    let rig = rig();
    let _held = scarce(&rig);
    let is_in_pieces = || matches!(response(&rig, "text?offset=-1").body, Body::Sized(..));
    assert_eq!([(); 2].map(|()| is_in_pieces()), [true, false]);
    let kept = rig.ask(Get, "text?offset=-1", &[], b"");
    assert!(matches!(kept, Answer::Response(..)), "it is at hand");
}

#[test]
fn a_place_inside_a_message_begins_earlier_whatever_the_memory() {
    let rig = rig();
    let [first, json] = ["text", "json"].map(|name| rig.get(&format!("{name}?offset=-1")).next());
    let inside = behind(&first, 600_000);
    let whole = rig.get(&format!("text?offset={inside}"));
    let _held = scarce(&rig);
    let got = Got::of(response(&rig, &format!("text?offset={inside}")));
    assert_eq!((got.status, got.head), (whole.status, whole.head));
    assert!(got.body == whole.body);
    // Inside the large value.
    let (incarnation, end) = json.split_once('_').unwrap();
    let inside = format!("{incarnation}_{:016}", end.parse::<usize>().unwrap() - LARGE / 2);
    let got = Got::of(response(&rig, &format!("json?offset={inside}")));
    assert_eq!(got.code(), "offset_inside_message");
}

#[test]
fn an_answer_whose_stream_is_deleted_meanwhile_is_cut_off() {
    let rig = rig();
    let _held = scarce(&rig);
    let response = response(&rig, "text?offset=-1");
    let Body::Sized(len, mut source) = response.body else { panic!("it is in pieces") };
    assert!(len > LARGE as u64);
    assert_eq!(rig.send(Delete, "text", &[], b"").status, 204);
    assert_eq!(pulled(&mut *source), None);
}

#[test]
fn large_reads_are_refused_when_answers_hold_all_that_they_may() {
    let rig = rig();
    let _held = hold(&rig, rig.logs.options().chunk_cache_bytes + (64 << 20));
    assert_eq!(rig.get("text?offset=-1").code(), "unsent_full");
}

#[test]
fn a_full_pool_delays_a_piece_and_does_not_cut_the_answer() {
    let rig = rig();
    let _held = scarce(&rig);
    let response = response(&rig, "text?offset=-1");
    let Body::Sized(len, mut source) = response.body else { panic!("it is in pieces") };
    let (go, gate) = mpsc::channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    let pool = &rig.streams.units.local.pool;
    // Fill the pool's queue.
    while pool
        .run({
            let gate = Arc::clone(&gate);
            move || gate.lock().recv().is_ok()
        })
        .is_some()
    {}
    let body = std::thread::scope(|scope| {
        let body = scope.spawn(|| pulled(&mut *source));
        std::thread::sleep(Duration::from_millis(20));
        drop(go);
        body.join().unwrap()
    });
    assert_eq!(body.map(|body| body.len() as u64), Some(len));
}

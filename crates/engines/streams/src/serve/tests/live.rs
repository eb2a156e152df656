//! Long-polls and SSE.

use super::support::Rig;
use crate::serve::StreamsConfig;
use std::time::Duration;
use thalweg_http::Method::{Delete, Post};
use thalweg_journal::Journal;

const TEXT: (&str, &str) = ("Content-Type", "text/plain");

#[test]
fn a_long_poll_wakes_when_data_is_durable_and_not_before() {
    let rig = Rig::new();
    rig.put("a", "text/plain", "old");
    let mut waiting = rig.wait("a?offset=now&live=long-poll");
    assert_eq!(rig.streams.stats().long_poll_waiters, 1);
    drop(rig.ask(Post, "a", &[TEXT], b"new"));
    assert_eq!(waiting.wakes(), 0);
    assert!(rig.step(&mut waiting).is_none());
    rig.journal.kick();
    assert_eq!(waiting.wakes(), 1);
    let got = rig.step(&mut waiting).unwrap();
    assert_eq!((got.status, got.text(), got.get("Stream-Up-To-Date")), (200, "new", Some("true")));
    assert!(got.get("Stream-Cursor").is_some());
    assert_eq!(got.get("Cache-Control"), Some("no-cache"), "`now` is elsewhere for the next request");
    drop(waiting);
    assert_eq!(rig.streams.stats().long_poll_waiters, 0);
}

#[test]
fn what_was_accepted_before_the_wait_began_wakes_it_too() {
    let rig = Rig::new();
    rig.put("a", "text/plain", "");
    drop(rig.ask(Post, "a", &[TEXT], b"new"));
    let mut waiting = rig.wait("a?offset=-1&live=long-poll");
    rig.journal.kick();
    assert_eq!(waiting.wakes(), 1);
    let got = rig.step(&mut waiting).unwrap();
    assert_eq!(
        (got.text(), got.get("Cache-Control").is_some_and(|c| c.starts_with("public, max-age=60"))),
        ("new", true)
    );
}

#[test]
fn a_long_poll_ends_at_its_time_at_closure_and_at_deletion() {
    let rig = Rig::new();
    let tail = rig.put("a", "text/plain", "x").next();
    let mut timed = rig.wait("a?offset=now&live=long-poll");
    rig.pass(500);
    let got = rig.step(&mut timed).unwrap();
    assert_eq!((got.status, got.next(), got.get("Stream-Up-To-Date")), (204, tail.clone(), Some("true")));
    assert!(got.get("Stream-Cursor").is_some());

    let mut closed = rig.wait("a?offset=now&live=long-poll");
    rig.send(Post, "a", &[("Stream-Closed", "true")], b"");
    let got = rig.step(&mut closed).unwrap();
    assert_eq!((closed.wakes(), got.status, got.get("Stream-Closed")), (1, 204, Some("true")));
    assert_eq!(rig.send(thalweg_http::Method::Get, "a?offset=now&live=long-poll", &[], b"").status, 204);

    rig.put("b", "text/plain", "");
    let mut deleted = rig.wait("b?offset=now&live=long-poll");
    drop(rig.ask(Delete, "b", &[], b""));
    rig.journal.kick();
    assert_eq!((deleted.wakes(), rig.step(&mut deleted).unwrap().status), (1, 404));
}

#[test]
fn a_forks_waiters_sleep_through_the_sources_appends() {
    let rig = Rig::new();
    rig.put("s", "text/plain", "x");
    rig.send(thalweg_http::Method::Put, "f", &[("Stream-Forked-From", "/v1/stream/s")], b"");
    let waiting = rig.wait("f?offset=now&live=long-poll");
    rig.post("s", "text/plain", "y");
    assert_eq!(waiting.wakes(), 0);
}

#[test]
fn every_data_event_has_its_control_event() {
    let rig = Rig::new();
    rig.put("a", "application/json", "[1,{\"b\":2}]");
    let mut live = rig.live("a?offset=-1&live=sse");
    assert_eq!(
        (live.got.get("Content-Type"), live.got.get("Cache-Control")),
        (Some("text/event-stream"), Some("no-cache"))
    );
    let (sent, ended) = rig.pull(&mut live);
    assert!(
        !ended && sent.starts_with("event: data\ndata:[1,{\"b\":2}]\n\nevent: control\ndata:{\"streamNextOffset\":\"")
    );
    assert!(sent.contains("\"upToDate\":true"));
    assert_eq!(rig.pull(&mut live), (String::new(), false));

    drop(rig.ask(Post, "a", &[("Content-Type", "application/json"), ("Stream-Closed", "true")], b"3"));
    assert_eq!((live.wakes(), rig.pull(&mut live)), (0, (String::new(), false)));
    rig.journal.kick();
    assert_eq!(live.wakes(), 1);
    let (sent, ended) = rig.pull(&mut live);
    assert!(ended && sent.starts_with("event: data\ndata:[3]\n\n") && sent.contains("\"streamClosed\":true"));
    assert!(!sent.contains("streamCursor"));
}

#[test]
fn sse_at_the_tail_says_so_at_once_then_keeps_alive_then_ends() {
    let rig = Rig::with(StreamsConfig { sse_lifetime: Duration::from_secs(60), ..StreamsConfig::default() });
    let tail = rig.put("a", "image/png", "x").next();
    let mut live = rig.live("a?offset=now&live=sse");
    assert_eq!(live.got.get("Stream-SSE-Data-Encoding"), Some("base64"));
    let (sent, _) = rig.pull(&mut live);
    assert!(sent.contains(&tail) && sent.contains("upToDate") && !sent.contains("event: data"));
    rig.pass(15_000);
    assert_eq!(rig.pull(&mut live), (": keep-alive\n\n".into(), false));
    rig.pass(45_000);
    assert_eq!(rig.pull(&mut live), (String::new(), true));
    drop(live);
    assert_eq!(rig.streams.stats().sse_waiters, 0);
}

#[test]
fn sse_ends_when_the_stream_is_deleted() {
    let rig = Rig::new();
    rig.put("a", "text/plain", "");
    let mut live = rig.live("a?offset=now&live=sse");
    rig.pull(&mut live);
    rig.delete("a");
    assert_eq!(live.wakes(), 1);
    assert_eq!(rig.pull(&mut live), (String::new(), true));
}

#[test]
fn readers_at_the_same_place_share_a_frame() {
    let rig = Rig::new();
    rig.put("a", "text/plain", "x");
    let mut readers: Vec<_> = (0..3).map(|_| rig.live("a?offset=-1&live=sse")).collect();
    let sent: Vec<_> = readers.iter_mut().map(|live| rig.pull(live).0).collect();
    assert!(sent.iter().all(|s| s.starts_with("event: data\ndata:x\n\n")));
    let key = crate::format::sse::FrameKey {
        log: rig.logs.lock(&["a"]).find("a").unwrap(),
        from: thalweg_base::Offset(0),
        upto: thalweg_base::Offset(1),
        closed: false,
        cursor: crate::state::cursor::next(thalweg_base::Millis(rig.now.get()), None),
        encoding: crate::format::sse::Encoding::Text,
    };
    let (a, b) = (rig.streams.units.local.frames.get(&key).unwrap(), rig.streams.units.local.frames.get(&key).unwrap());
    assert_eq!(a.event.as_ptr(), b.event.as_ptr());
}

#[test]
fn an_unwatched_stream_stays_unmarked() {
    let rig = Rig::new();
    rig.put("a", "text/plain", "");
    let watched = || {
        let mut guard = rig.logs.lock(&["a"]);
        let log = guard.find("a").unwrap();
        guard.view(log).unwrap().attachment.watched
    };
    let waiting = rig.wait("a?offset=now&live=long-poll");
    assert!(watched());
    drop(waiting);
    assert!(!watched());
}

#[test]
fn last_event_id_resumes_after_what_was_received() {
    let rig = Rig::new();
    rig.put("a", "text/plain", "x");
    let mut live = rig.live("a?offset=-1&live=sse");
    let (text, _) = rig.pull(&mut live);
    let id = text.lines().filter_map(|line| line.strip_prefix("id:")).next_back().unwrap().to_owned();
    assert_eq!(id, rig.head("a").next());
    assert!(!text.split("\n\n").any(|event| event.contains("event: data") && event.contains("id:")));
    rig.post("a", "text/plain", "y");
    let mut resumed = rig.live_with("a?offset=-1&live=sse", &[("Last-Event-ID", &id)]);
    let (text, _) = rig.pull(&mut resumed);
    assert!(text.contains("data:y\n") && !text.contains("data:x"), "{text}");
    let mut fresh = rig.live_with("a?offset=-1&live=sse", &[("Last-Event-ID", "")]);
    assert!(rig.pull(&mut fresh).0.contains("data:xy\n"));
    let stale = [("Last-Event-ID", "0000000000000001_0000000000000000")];
    assert_eq!(rig.send(thalweg_http::Method::Get, "a?offset=-1&live=sse", &stale, b"").code(), "stale_offset");
    // Other reads ignore the header.
    let odd = [("Last-Event-ID", "7")];
    assert_eq!(rig.send(thalweg_http::Method::Get, "a?offset=-1", &odd, b"").text(), "xy");
}

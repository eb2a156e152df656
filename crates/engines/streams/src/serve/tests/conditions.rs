//! Requests with conditions: `If-Match` on appends, `If-None-Match: *` on creates.

use super::support::Rig;
use crate::serve::turn::Answer;
use thalweg_base::Until;
use thalweg_http::Method::{Post, Put};
use thalweg_journal::Journal;

const TEXT: (&str, &str) = ("Content-Type", "text/plain");
const CLOSE: (&str, &str) = ("Stream-Closed", "true");

#[test]
fn one_of_two_writers_wins_and_the_other_learns_the_tail() {
    let rig = Rig::new();
    let tail = rig.put("a", "text/plain", "x").next();
    let won = rig.send(Post, "a", &[TEXT, ("If-Match", &tail)], b"1");
    assert_eq!(won.status, 204);
    let lost = rig.send(Post, "a", &[TEXT, ("If-Match", &tail)], b"2");
    assert_eq!((lost.status, lost.code(), lost.next()), (412, "tail_moved".into(), won.next()));
    let tag = lost.get("ETag").unwrap().to_owned();
    assert_eq!(won.get("ETag"), Some(&*tag), "the tag for the next request");
    assert_eq!(rig.send(Post, "a", &[TEXT, ("If-Match", &tag)], b"2").status, 204);
    assert_eq!(rig.send(Post, "a", &[TEXT, ("If-Match", "*")], b"3").status, 204);
    assert_eq!(rig.send(Post, "none", &[TEXT, ("If-Match", "*")], b"3").status, 404);
    assert_eq!(rig.get("a").text(), "x123");
    assert_eq!(rig.post("a", "text/plain", "4").get("ETag"), None, "only conditional requests get a tag");
}

#[test]
fn the_tag_of_a_read_is_a_condition() {
    let rig = Rig::new();
    rig.put("a", "text/plain", "x");
    let tag = rig.get("a").get("ETag").unwrap().to_owned();
    assert_eq!(rig.send(Post, "a", &[TEXT, ("If-Match", &tag)], b"1").status, 204);
    assert_eq!(rig.send(Post, "a", &[TEXT, ("If-Match", &tag)], b"2").status, 412);
}

#[test]
fn a_refusal_for_a_moved_tail_waits_until_the_move_is_durable() {
    let rig = Rig::new();
    let tail = rig.put("a", "text/plain", "x").next();
    let Answer::Response(moved, _) = rig.ask(Post, "a", &[TEXT], b"1") else { panic!() };
    assert!(!rig.logs.reached().covers(moved));
    let Answer::Response(after, response) = rig.ask(Post, "a", &[TEXT, ("If-Match", &tail)], b"2") else { panic!() };
    assert_eq!((response.status, after), (412, moved));
    let Answer::Response(after, response) = rig.ask(Put, "a", &[TEXT, ("If-None-Match", "*")], b"") else { panic!() };
    assert_eq!((response.status, after), (412, moved));
    rig.journal.kick();
    assert!(rig.logs.reached().covers(after) && after == Until::Durable(after.position()));
}

#[test]
fn a_retry_of_a_conditional_append_is_a_duplicate() {
    let rig = Rig::new();
    let tail = rig.put("a", "text/plain", "x").next();
    let request = [TEXT, ("If-Match", &*tail), ("Producer-Id", "p"), ("Producer-Epoch", "0"), ("Producer-Seq", "0")];
    let first = rig.send(Post, "a", &request, b"1");
    let again = rig.send(Post, "a", &request, b"1");
    assert_eq!((first.status, again.status), (200, 204));
    assert_eq!((again.next(), again.get("ETag")), (first.next(), first.get("ETag")));
    let next = [TEXT, ("If-Match", &*tail), ("Producer-Id", "p"), ("Producer-Epoch", "0"), ("Producer-Seq", "1")];
    assert_eq!(rig.send(Post, "a", &next, b"2").status, 412);
    assert_eq!(rig.get("a").text(), "x1", "a refused append leaves the producer where it was");
    let next = [TEXT, ("Producer-Id", "p"), ("Producer-Epoch", "0"), ("Producer-Seq", "1")];
    assert_eq!(rig.send(Post, "a", &next, b"2").status, 200);
}

#[test]
fn a_stream_is_closed_only_where_it_was_expected_to_end() {
    let rig = Rig::new();
    let tail = rig.put("a", "text/plain", "x").next();
    let end = rig.post("a", "text/plain", "1").next();
    assert_eq!(rig.send(Post, "a", &[CLOSE, ("If-Match", &tail)], b"").status, 412);
    assert_eq!(rig.head("a").get("Stream-Closed"), None);
    assert_eq!(rig.send(Post, "a", &[CLOSE, ("If-Match", &end)], b"").status, 204);
    assert_eq!(rig.send(Post, "a", &[CLOSE, ("If-Match", &end)], b"").status, 204, "closing again");
    assert_eq!(rig.send(Post, "a", &[CLOSE, ("If-Match", &tail)], b"").status, 412);
    assert_eq!(rig.send(Post, "a", &[TEXT, ("If-Match", &end)], b"y").status, 409);
}

#[test]
fn if_none_match_creates_only() {
    let rig = Rig::new();
    let new = [TEXT, ("If-None-Match", "*")];
    let first = rig.send(Put, "a", &new, b"x");
    let second = rig.send(Put, "a", &new, b"x");
    assert_eq!((first.status, second.status, second.code()), (201, 412, "exists".into()));
    assert_eq!(second.next(), first.next());
    rig.delete("a");
    assert_eq!(rig.send(Put, "a", &new, b"x").status, 201);
    let fork = [("Stream-Forked-From", "/v1/stream/a"), ("If-None-Match", "*")];
    assert_eq!(rig.send(Put, "f", &fork, b"").status, 201);
    assert_eq!(rig.send(Put, "f", &fork, b"").status, 412);
}

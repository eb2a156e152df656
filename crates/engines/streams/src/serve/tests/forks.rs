//! Forks: one offset space, lifetimes of their own, and nothing leaked.

use super::support::{Got, Rig};
use thalweg_http::Method::{Post, Put};

fn fork(rig: &Rig, name: &str, source: &str, more: &[(&str, &str)], body: &str) -> Got {
    let path = format!("/v1/stream/{source}");
    let mut headers = vec![("Stream-Forked-From", path.as_str())];
    headers.extend_from_slice(more);
    rig.send(Put, name, &headers, body.as_bytes())
}

const ZERO: (&str, &str) = ("Stream-Fork-Offset", "0000000000000000_0000000000000000");

#[test]
fn a_fork_shares_offsets_up_to_its_point_and_goes_its_own_way() {
    let rig = Rig::new();
    let middle = rig.put("s", "text/plain", "A").next();
    rig.post("s", "text/plain", "B");
    assert_eq!(fork(&rig, "f", "s", &[("Stream-Fork-Offset", &middle)], "").status, 201);
    let own = rig.post("f", "text/plain", "C").next();
    rig.post("s", "text/plain", "D");
    assert_eq!((rig.get("s").text(), rig.get("f").text()), ("ABD", "AC"));
    assert_eq!(rig.get(&format!("f?offset={middle}")).text(), "C");
    // The same position, other bytes: never the same offset.
    assert_eq!(rig.get(&format!("s?offset={own}")).code(), "stale_offset");
    assert_eq!(rig.head("f").get("Stream-Forked-From"), None);
}

#[test]
fn sub_offsets_count_messages_not_commas() {
    let rig = Rig::new();
    rig.put("s", "application/json", "[{\"a\":1,\"b\":2},{\"c\":[1,2]},3]");
    assert_eq!(fork(&rig, "f", "s", &[ZERO, ("Stream-Fork-Sub-Offset", "2")], "4").status, 201);
    assert_eq!(rig.get("f").text(), "[{\"a\":1,\"b\":2},{\"c\":[1,2]},4]");
    let over = fork(&rig, "g", "s", &[ZERO, ("Stream-Fork-Sub-Offset", "4")], "");
    assert_eq!(over.code(), "fork_sub_offset_overshoot");
}

#[test]
fn binary_sub_offsets_stay_within_one_message() {
    let rig = Rig::new();
    rig.put("s", "text/plain", "hello");
    rig.post("s", "text/plain", "world");
    assert_eq!(fork(&rig, "f", "s", &[ZERO, ("Stream-Fork-Sub-Offset", "3")], "XY").status, 201);
    assert_eq!(rig.get("f").text(), "helXY");
    assert_eq!(fork(&rig, "g", "s", &[ZERO, ("Stream-Fork-Sub-Offset", "6")], "").status, 400);
    let end = rig.head("s").next();
    let inside = format!("{}3", &end[..end.len() - 1]).replace("00013", "00003");
    assert_eq!(fork(&rig, "g", "s", &[("Stream-Fork-Offset", &inside)], "").code(), "offset_inside_message");
}

#[test]
fn a_repeated_fork_is_the_same_fork() {
    let rig = Rig::new();
    rig.send(Put, "s", &[("Content-Type", "text/plain"), ("Stream-TTL", "60")], b"hello");
    let at = [ZERO, ("Stream-Fork-Sub-Offset", "2")];
    assert_eq!(fork(&rig, "f", "s", &at, "").status, 201);
    assert_eq!(fork(&rig, "f", "s", &at, "").status, 200);
    assert_eq!(fork(&rig, "f", "s", &[ZERO, ("Stream-Fork-Sub-Offset", "3")], "").code(), "exists_differently");
    assert_eq!(rig.put("f", "text/plain", "").code(), "exists_differently");
    assert_eq!(rig.head("f").get("Stream-TTL"), Some("60"));
}

#[test]
fn a_rejected_fork_leaks_nothing() {
    let rig = Rig::new();
    rig.put("s", "text/plain", "hello");
    rig.put("taken", "application/json", "");
    assert_eq!(fork(&rig, "f", "s", &[("Content-Type", "application/json")], "").status, 409);
    assert_eq!(fork(&rig, "taken", "s", &[], "").status, 409);
    assert_eq!(fork(&rig, "f", "s", &[ZERO, ("Stream-Fork-Sub-Offset", "9")], "").status, 400);
    rig.refuse(Some(thalweg_journal::AppendError::NoSpace));
    assert_eq!(fork(&rig, "f", "s", &[], "").code(), "disk_full");
    rig.refuse(None);
    rig.delete("s");
    assert_eq!(rig.head("s").status, 404);
}

#[test]
fn a_source_lives_on_for_its_forks_and_goes_with_the_last() {
    let mut rig = Rig::new();
    rig.put("a", "text/plain", "A");
    fork(&rig, "b", "a", &[], "B");
    fork(&rig, "c", "b", &[], "C");
    assert_eq!((rig.delete("a").status, rig.delete("b").status), (204, 204));
    for name in ["a", "b"] {
        let post = rig.post(name, "text/plain", "x").status;
        assert_eq!((rig.get(name).status, rig.head(name).status, post, rig.delete(name).status), (410, 410, 410, 410));
        assert_eq!(rig.put(name, "text/plain", "").code(), "name_kept_by_forks");
        assert_eq!(fork(&rig, "d", name, &[], "").code(), "source_gone");
    }
    rig = rig.reopen();
    assert_eq!(rig.get("c").text(), "ABC");
    assert_eq!(rig.delete("c").status, 204);
    rig = rig.reopen();
    for name in ["a", "b", "c"] {
        assert_eq!(rig.head(name).status, 404);
    }
    assert_eq!(rig.put("a", "text/plain", "").status, 201);
}

#[test]
fn a_living_source_outlives_its_forks() {
    let rig = Rig::new();
    rig.put("s", "text/plain", "x");
    fork(&rig, "f", "s", &[], "");
    fork(&rig, "g", "s", &[], "");
    rig.delete("f");
    rig.delete("g");
    assert_eq!(rig.get("s").text(), "x");
    rig.delete("s");
    assert_eq!(rig.head("s").status, 404);
}

#[test]
fn a_fork_of_a_closed_stream_is_open_and_knows_no_producers() {
    let rig = Rig::new();
    rig.put("s", "text/plain", "");
    let producer =
        [("Content-Type", "text/plain"), ("Producer-Id", "p"), ("Producer-Epoch", "0"), ("Producer-Seq", "0")];
    rig.send(Post, "s", &[&producer[..], &[("Stream-Closed", "true"), ("Stream-Seq", "5")]].concat(), b"x");
    let got = fork(&rig, "f", "s", &[], "");
    assert_eq!((got.status, got.get("Stream-Closed")), (201, None));
    assert_eq!(rig.send(Post, "f", &[&producer[..], &[("Stream-Seq", "1")]].concat(), b"y").status, 200);
    assert_eq!(rig.get("f").text(), "xy");
}

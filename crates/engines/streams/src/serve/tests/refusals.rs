//! Every row of `docs/protocol/refusals.md`, provoked.

use super::support::{Got, Rig};
use crate::error::Refusal;
use crate::serve::StreamsConfig;
use std::collections::BTreeMap;
use thalweg_base::{LogId, Offset};
use thalweg_http::Method::{self, Delete, Get, Other, Post, Put};
use thalweg_journal::{AppendError, Poisoned};
use thalweg_log::ReadError;

const TEXT: (&str, &str) = ("Content-Type", "text/plain");
const JSON: (&str, &str) = ("Content-Type", "application/json");
const FROM: (&str, &str) = ("Stream-Forked-From", "/v1/stream/text");
const ZERO: (&str, &str) = ("Stream-Fork-Offset", "0000000000000000_0000000000000000");

type Row = (&'static str, Method<'static>, &'static str, Vec<(&'static str, &'static str)>, &'static [u8]);

fn producer(id: &'static str, epoch: &'static str, seq: &'static str) -> Vec<(&'static str, &'static str)> {
    vec![TEXT, ("Producer-Id", id), ("Producer-Epoch", epoch), ("Producer-Seq", seq)]
}

/// Requests to the streams that [`prepared`] makes.
fn rows() -> Vec<Row> {
    vec![
        ("bad_name", Put, "a//b", vec![], b""),
        ("repeated_parameter", Get, "text?offset=-1&offset=-1", vec![], b""),
        ("repeated_header", Post, "text", vec![TEXT, TEXT], b"x"),
        ("bad_last_event_id", Get, "text?offset=-1&live=sse", vec![("Last-Event-ID", "7")], b""),
        ("bad_live", Get, "text?offset=-1&live=ws", vec![], b""),
        ("offset_required", Get, "text?live=sse", vec![], b""),
        ("bad_offset", Get, "text?offset=0,1", vec![], b""),
        ("stale_offset", Get, "text?offset=0000000000000001_0000000000000000", vec![], b""),
        ("offset_beyond_tail", Get, "text?offset=9999999999999999_9999999999999999", vec![], b""),
        ("bad_ttl", Put, "new", vec![("Stream-TTL", "05")], b""),
        ("bad_expires_at", Put, "new", vec![("Stream-Expires-At", "soon")], b""),
        (
            "ttl_and_expires_at",
            Put,
            "new",
            vec![("Stream-TTL", "5"), ("Stream-Expires-At", "2030-01-01T00:00:00Z")],
            b"",
        ),
        ("bad_retention", Put, "new", vec![("Stream-Retention-Seconds", "0")], b""),
        ("bad_limit", Get, "__ds/streams?limit=0", vec![], b""),
        ("content_type_required", Post, "text", vec![], b"x"),
        ("bad_content_type", Put, "new", vec![("Content-Type", "nonsense")], b""),
        ("empty_body", Post, "text", vec![TEXT], b""),
        ("bad_json", Post, "json", vec![JSON], b"{"),
        ("empty_array", Post, "json", vec![JSON], b"[]"),
        ("bad_seq", Post, "text", vec![TEXT, ("Stream-Seq", "")], b"x"),
        ("producer_headers_incomplete", Post, "text", vec![TEXT, ("Producer-Id", "p")], b"x"),
        ("bad_producer_id", Post, "text", producer("", "0", "0"), b"x"),
        ("bad_producer_number", Post, "text", producer("p", "-1", "0"), b"x"),
        ("epoch_starts_at_zero", Post, "text", producer("known", "8", "1"), b"x"),
        ("bad_forked_from", Put, "new", vec![("Stream-Forked-From", "elsewhere")], b""),
        ("forked_from_required", Put, "new", vec![ZERO], b""),
        ("bad_fork_offset", Put, "new", vec![FROM, ("Stream-Fork-Offset", "x")], b""),
        ("bad_fork_sub_offset", Put, "new", vec![FROM, ZERO, ("Stream-Fork-Sub-Offset", "05")], b""),
        ("fork_offset_required", Put, "new", vec![FROM, ("Stream-Fork-Sub-Offset", "1")], b""),
        ("fork_sub_offset_overshoot", Put, "new", vec![FROM, ZERO, ("Stream-Fork-Sub-Offset", "99")], b""),
        ("bad_durability", Put, "new", vec![("Stream-Durability", "fast")], b""),
        ("fork_durability", Put, "new", vec![FROM, ("Stream-Durability", "buffered")], b""),
        ("stale_epoch", Post, "text", producer("known", "6", "0"), b"x"),
        ("not_found", Get, "none", vec![], b""),
        ("source_not_found", Put, "new", vec![("Stream-Forked-From", "/v1/stream/none")], b""),
        ("not_a_stream", Get, "/elsewhere", vec![], b""),
        ("method_not_allowed", Other("PATCH"), "text", vec![], b""),
        ("closed", Post, "closed", vec![TEXT], b"x"),
        ("tail_moved", Post, "text", vec![TEXT, ("If-Match", ZERO.1)], b"x"),
        ("exists", Put, "text", vec![TEXT, ("If-None-Match", "*")], b""),
        ("content_type_mismatch", Post, "text", vec![JSON], b"1"),
        ("seq_regression", Post, "text", vec![TEXT, ("Stream-Seq", "10")], b"x"),
        ("producer_gap", Post, "text", producer("known", "7", "5"), b"x"),
        ("exists_differently", Put, "text", vec![JSON], b""),
        ("name_kept_by_forks", Put, "source", vec![TEXT], b""),
        ("source_gone", Put, "new", vec![("Stream-Forked-From", "/v1/stream/source")], b""),
        ("gone", Delete, "source", vec![], b""),
        ("too_many_producers", Post, "text", producer("third", "0", "0"), b"x"),
        ("too_many_streams", Put, "new", vec![TEXT], b""),
        ("too_many_streams", Put, "new", vec![FROM], b""),
        ("no_store", Put, "new", vec![TEXT, ("Stream-Durability", "replicated")], b""),
        ("reserved", Get, "__ds/subscriptions/x", vec![], b""),
    ]
}

fn prepared() -> Rig {
    let rig = Rig::with(StreamsConfig { max_producers: 2, streams_max: 5, ..StreamsConfig::default() });
    rig.put("text", "text/plain", "hello");
    rig.send(Post, "text", &producer("known", "7", "0"), b"x");
    rig.send(Post, "text", &producer("other", "0", "0"), b"x");
    rig.send(Post, "text", &[TEXT, ("Stream-Seq", "2")], b"x");
    rig.put("json", "application/json", "");
    rig.send(Put, "closed", &[TEXT, ("Stream-Closed", "true")], b"");
    rig.put("source", "text/plain", "x");
    rig.send(Put, "fork", &[("Stream-Forked-From", "/v1/stream/source")], b"");
    rig.delete("source");
    rig
}

/// Refusals of an append while the journal refuses.
fn refused_by_the_journal(rig: &Rig) -> Vec<(&'static str, Got)> {
    let errors = [
        ("too_large", AppendError::TooLarge { len: 9, max: 8 }),
        ("journal_full", AppendError::Full { held: 9, bound: 8 }),
        ("disk_full", AppendError::NoSpace),
        ("journal_stopped", AppendError::Poisoned(Poisoned::new("sync", "EIO"))),
    ];
    let mut got = Vec::new();
    for (code, error) in errors {
        rig.refuse(Some(error));
        got.push((code, rig.send(Post, "text", &[TEXT], b"x")));
        rig.refuse(None);
    }
    got
}

/// Refusals that no request can provoke.
fn mapped_only() -> Vec<Refusal> {
    let (log, offset) = (LogId(1), Offset(5));
    let at = |offset| crate::format::offset::Position { incarnation: 1, offset };
    vec![
        Refusal::of_read(&ReadError::Corrupt { log, offset, end: Offset(9), what: "checksum".into() }, "s", at),
        Refusal::of_read(&ReadError::Io { log, offset, cause: "EIO".into() }, "s", at),
        Refusal::of_read(&ReadError::InsideMessage { offset, next: Offset(6) }, "s", at),
        Refusal::of_read(&ReadError::Trimmed { offset, start: Offset(6) }, "s", at),
        Refusal::Internal("a bug".into()),
        Refusal::StoreAway,
        Refusal::Busy,
        Refusal::Unsent,
        Refusal::Contended,
    ]
}

#[test]
fn every_documented_refusal_happens_and_no_other() {
    let rig = prepared();
    let mut seen: BTreeMap<String, u16> = BTreeMap::new();
    for (code, method, target, headers, body) in rows() {
        let got = rig.send(method, target, &headers, body);
        assert_eq!(got.code(), code, "{target} {headers:?}");
        assert_eq!(got.get("Cache-Control"), Some("no-store"));
        seen.insert(got.code(), got.status);
    }
    for (code, got) in refused_by_the_journal(&rig) {
        assert_eq!(got.code(), code);
        assert_eq!(got.get("Retry-After").is_some(), got.status == 503);
        seen.insert(got.code(), got.status);
    }
    for refusal in mapped_only() {
        seen.insert(refusal.code().into(), refusal.status());
    }
    let page = include_str!("../../../../../../docs/protocol/refusals.md");
    // Other parts of the server refuse with the codes of the following sections.
    let table = page.split("\n## Backups").next().unwrap();
    let documented: BTreeMap<String, u16> = table
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| ")?.split(" | ");
            let status = cells.next()?.parse().ok()?;
            Some((cells.next()?.trim_matches('`').to_owned(), status))
        })
        .collect();
    assert_eq!(seen, documented);
    // Nothing of this has left a mark.
    assert_eq!(rig.get("text").text(), "helloxxx");
    assert_eq!(rig.head("new").status, 404);
}

#[test]
fn a_deleted_stream_makes_room_for_another() {
    let rig = Rig::with(StreamsConfig { streams_max: 2, ..StreamsConfig::default() });
    assert_eq!(rig.put("a", "text/plain", "").status, 201);
    assert_eq!(rig.put("b", "text/plain", "").status, 201);
    assert_eq!(rig.put("c", "text/plain", "").status, 507);
    // The bound does not affect existing streams.
    assert_eq!(rig.put("b", "text/plain", "").status, 200);
    assert_eq!(rig.send(Post, "b", &[TEXT], b"x").status, 204);
    rig.delete("a");
    rig.streams.tick(thalweg_base::Millis(1));
    assert_eq!(rig.put("c", "text/plain", "").status, 201);
    assert_eq!(rig.put("d", "text/plain", "").status, 507);
}

#[test]
fn refusals_are_counted_by_class() {
    let rig = Rig::new();
    rig.get("none");
    rig.refuse(Some(AppendError::NoSpace));
    rig.put("a", "text/plain", "");
    let stats = rig.streams.stats();
    assert_eq!((stats.refused_4xx, stats.refused_5xx), (1, 1));
}

//! Control messages, patches of encoded changes, and the encoding of both as an SSE stream.

use thalweg_shapes_model::json::push_string;
use thalweg_shapes_model::snapshot::PgSnapshot;

/// The body of an answer that tells a client to refetch.
pub const MUST_REFETCH: &[u8] = b"[{\"headers\":{\"control\":\"must-refetch\"}}]";

/// The end of every encoded row: the brace of the headers, that of the message, and a comma.
const END: &[u8] = b"}},";
/// The end of control messages, which are never patched.
const EVENT_END: &[u8] = b"} },";
/// The end of the last change of a transaction in a shape.
pub const LAST_END: &[u8] = b",\"last\":true}},";

/// `{…up-to-date…}`, without a comma: it is the last message of an answer. `lsn`: the client has everything below.
#[must_use]
pub fn up_to_date(lsn: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(80);
    out.extend_from_slice(b"{\"headers\":{\"control\":\"up-to-date\",\"global_last_seen_lsn\":\"");
    out.extend_from_slice(itoa::Buffer::new().format(lsn).as_bytes());
    out.extend_from_slice(b"\"}}");
    out
}

/// The last message of the initial snapshot: which transactions it contains. Ends in a comma, like bodies.
/// `in_log`: it stands among changes.
pub fn push_snapshot_end(out: &mut Vec<u8>, snapshot: &PgSnapshot, in_log: bool) {
    out.extend_from_slice(b"{\"headers\":{\"control\":\"snapshot-end\"");
    push_visibility(out, snapshot);
    out.extend_from_slice(if in_log { EVENT_END } else { END });
}

/// `,"xmin":"…","xmax":"…","xip_list":["…"]`.
pub fn push_visibility(out: &mut Vec<u8>, snapshot: &PgSnapshot) {
    let mut number = itoa::Buffer::new();
    for (name, xid) in [("xmin", snapshot.xmin), ("xmax", snapshot.xmax)] {
        out.extend_from_slice(b",\"");
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\":\"");
        out.extend_from_slice(number.format(xid).as_bytes());
        out.push(b'"');
    }
    out.extend_from_slice(b",\"xip_list\":[");
    push_list(out, &snapshot.xip, |out, xid| {
        out.push(b'"');
        out.extend_from_slice(number.format(*xid).as_bytes());
        out.push(b'"');
    });
    out.push(b']');
}

/// Rows that come or go because an inner query's result changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    In,
    Out,
}

/// An affected slot of tags: its position among the slots, and the hash at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern<'a> {
    pub position: u32,
    pub value: &'a str,
}

/// Lists the tags that rows lose or gain. Ends in a comma.
pub fn push_move(out: &mut Vec<u8>, direction: Move, patterns: &[Pattern<'_>], xids: &[u32]) {
    let mut number = itoa::Buffer::new();
    out.extend_from_slice(b"{\"headers\":{\"event\":\"");
    out.extend_from_slice(match direction {
        Move::In => b"move-in".as_slice(),
        Move::Out => b"move-out",
    });
    out.extend_from_slice(b"\",\"patterns\":[");
    push_list(out, patterns, |out, pattern| {
        out.extend_from_slice(b"{\"pos\":");
        out.extend_from_slice(number.format(pattern.position).as_bytes());
        out.extend_from_slice(b",\"value\":");
        push_string(out, pattern.value.as_bytes());
        out.push(b'}');
    });
    out.extend_from_slice(b"],\"txids\":[");
    push_list(out, xids, |out, xid| out.extend_from_slice(number.format(*xid).as_bytes()));
    out.push(b']');
    out.extend_from_slice(EVENT_END);
}

/// The headers of a row of a shape with inner queries, for [`with_headers`] and
/// [`snapshot_row_with`](super::projection::Projection::snapshot_row_with). Empty lists are left out, except that an
/// update which has tags always says which ones it lost (`removed`).
pub fn push_tags(out: &mut Vec<u8>, tags: &[&str], removed: Option<&[&str]>, active: &[bool]) {
    let list = |out: &mut Vec<u8>, name: &str, list: &[&str]| {
        out.extend_from_slice(b",\"");
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\":[");
        push_list(out, list, |out, tag| push_string(out, tag.as_bytes()));
        out.push(b']');
    };
    if !tags.is_empty() {
        list(out, "tags", tags);
        if let Some(removed) = removed {
            list(out, "removed_tags", removed);
        }
    }
    if !active.is_empty() {
        out.extend_from_slice(b",\"active_conditions\":[");
        push_list(out, active, |out, on| out.extend_from_slice(if *on { b"true" } else { b"false" }));
        out.push(b']');
    }
}

/// The header of rows that a move brings in.
pub const IS_MOVE_IN: &[u8] = b",\"is_move_in\":true";

/// Appends a body with more headers: JSON members, each after a comma.
pub fn with_headers(out: &mut Vec<u8>, body: &[u8], more: &[u8]) {
    match body.strip_suffix(END) {
        Some(open) => {
            out.extend_from_slice(open);
            out.extend_from_slice(more);
            out.extend_from_slice(END);
        }
        None => out.extend_from_slice(body),
    }
}

/// Marks the last of these bodies as the last of its transaction. Control messages stay unchanged.
pub fn mark_last(bodies: &mut Vec<u8>) {
    if bodies.ends_with(END) {
        bodies.truncate(bodies.len() - END.len());
        bodies.extend_from_slice(LAST_END);
    }
}

/// Appends bodies as events of an SSE stream (WHATWG HTML, section 9.2): one for each message. No body has a line
/// break.
pub fn push_events(out: &mut Vec<u8>, bodies: &[u8]) {
    let mut rest = bodies;
    while !rest.is_empty() {
        let end = next_body(rest);
        push_event(out, rest[..end].strip_suffix(b",").unwrap_or(&rest[..end]));
        rest = &rest[end..];
    }
}

/// Appends one message, which has no comma at its end, as an event.
pub fn push_event(out: &mut Vec<u8>, message: &[u8]) {
    out.extend_from_slice(b"data: ");
    out.extend_from_slice(message);
    out.extend_from_slice(b"\n\n");
}

/// Keeps an idle SSE stream open.
pub const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// The end of the first body, its comma included.
///
/// Bodies begin with `{"key":` or `{"headers":`, so the search is for `{"` and a letter. Within a string the quote has
/// a backslash before it, unless it ends the string: then no letter follows. No other place has members of those names.
fn next_body(bodies: &[u8]) -> usize {
    for at in memchr::memmem::find_iter(bodies, b"},{\"") {
        let name = &bodies[at + 4..];
        if name.starts_with(b"key\":") || name.starts_with(b"headers\":") {
            return at + 2;
        }
    }
    bodies.len()
}

fn push_list<T>(out: &mut Vec<u8>, list: &[T], mut push: impl FnMut(&mut Vec<u8>, &T)) {
    for (at, item) in list.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        push(out, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn value(bytes: &[u8]) -> Value {
        serde_json::from_slice(bytes.strip_suffix(b",").unwrap_or(bytes)).unwrap()
    }

    #[test]
    fn up_to_date_has_the_lsn_as_text() {
        assert_eq!(
            up_to_date(26_800_584),
            br#"{"headers":{"control":"up-to-date","global_last_seen_lsn":"26800584"}}"#
        );
    }

    #[test]
    fn the_end_of_a_snapshot_says_what_it_contains() {
        let mut out = Vec::new();
        push_snapshot_end(&mut out, &"10:20:12,15".parse().unwrap(), false);
        assert_eq!(out, br#"{"headers":{"control":"snapshot-end","xmin":"10","xmax":"20","xip_list":["12","15"]}},"#);
        assert_eq!(value(MUST_REFETCH), json!([{"headers": {"control": "must-refetch"}}]));
    }

    #[test]
    fn moves_name_slots_and_hashes() {
        let mut out = Vec::new();
        let patterns = [Pattern { position: 0, value: "ab" }, Pattern { position: 2, value: "" }];
        push_move(&mut out, Move::Out, &patterns, &[7, 8]);
        assert_eq!(
            out,
            br#"{"headers":{"event":"move-out","patterns":[{"pos":0,"value":"ab"},{"pos":2,"value":""}],"txids":[7,8]} },"#
        );
        out.clear();
        push_move(&mut out, Move::In, &[], &[]);
        assert_eq!(value(&out), json!({"headers": {"event": "move-in", "patterns": [], "txids": []}}));
    }

    #[test]
    fn headers_are_added_to_a_body_that_is_there() {
        let body = br#"{"key":"k","value":{"a":"}},"},"headers":{"operation":"update"}},"#;
        let mut more = Vec::new();
        push_tags(&mut more, &["a/b", "/1"], Some(&[]), &[true, false]);
        more.extend_from_slice(IS_MOVE_IN);
        let mut out = Vec::new();
        with_headers(&mut out, body, &more);
        assert_eq!(
            value(&out)["headers"],
            json!({"operation": "update", "tags": ["a/b", "/1"], "removed_tags": [], "active_conditions": [true, false], "is_move_in": true})
        );
        more.clear();
        push_tags(&mut more, &[], Some(&["x"]), &[]);
        assert!(more.is_empty());
    }

    #[test]
    fn only_the_last_body_is_marked_and_only_a_body() {
        let mut bodies = b"{\"key\":\"a\",\"headers\":{\"x\":1}},{\"key\":\"b\",\"headers\":{\"x\":2}},".to_vec();
        mark_last(&mut bodies);
        let marked = b"{\"key\":\"a\",\"headers\":{\"x\":1}},{\"key\":\"b\",\"headers\":{\"x\":2,\"last\":true}},";
        assert_eq!(bodies, marked);
        let mut none = Vec::new();
        mark_last(&mut none);
        assert!(none.is_empty());
    }

    #[test]
    fn every_message_is_an_event_of_its_own() {
        let mut bodies = br#"{"key":"},{","value":{"a":"}},{"},"headers":{}},"#.to_vec();
        push_move(
            &mut bodies,
            Move::Out,
            &[Pattern { position: 0, value: "a" }, Pattern { position: 1, value: "b" }],
            &[1],
        );
        bodies.extend_from_slice(br#"{"key":"b","value":{},"headers":{}},"#);
        let mut out = Vec::new();
        push_events(&mut out, &bodies);
        push_event(&mut out, &up_to_date(1));
        let text = String::from_utf8(out).unwrap();
        let events: Vec<&str> = text.split_terminator("\n\n").collect();
        assert_eq!(events.len(), 4);
        for event in events {
            serde_json::from_str::<Value>(event.strip_prefix("data: ").unwrap()).unwrap();
        }
        let mut none = Vec::new();
        push_events(&mut none, b"");
        assert!(none.is_empty());
    }

    proptest! {
        #[test]
        fn whatever_values_hold_bodies_are_told_apart(
            values in prop::collection::vec("[a-z{}:,\"\\\\]{0,12}|[}]{2},[{]\"key\":", 0..6),
        ) {
            let mut bodies = Vec::new();
            for text in &values {
                bodies.extend_from_slice(b"{\"key\":");
                push_string(&mut bodies, text.as_bytes());
                bodies.extend_from_slice(b",\"value\":{\"a\":");
                push_string(&mut bodies, text.as_bytes());
                bodies.extend_from_slice(b"},\"headers\":{}},");
            }
            let mut out = Vec::new();
            push_events(&mut out, &bodies);
            let text = String::from_utf8(out).unwrap();
            let keys: Vec<String> = text
                .split_terminator("\n\n")
                .map(|event| serde_json::from_str::<Value>(&event[6..]).unwrap()["key"].as_str().unwrap().to_owned())
                .collect();
            prop_assert_eq!(keys, values);
        }
    }
}

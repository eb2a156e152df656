use super::*;
use proptest::prelude::*;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The messages of `{…},{…},`, without the commas between them.
fn split(messages: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = messages;
    std::iter::from_fn(move || {
        let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<&RawValue>();
        let message = values.next()?.unwrap().get().as_bytes();
        rest = rest[message.len()..].strip_prefix(b",").unwrap_or(&rest[message.len()..]);
        Some(message)
    })
}

/// Rows of a client, by their keys.
type Client = BTreeMap<String, Map<String, Value>>;

/// Applies messages to a client's rows.
fn replay(client: &mut Client, messages: &[u8]) {
    for message in split(messages) {
        let message: Value = serde_json::from_slice(message).unwrap();
        let key = message["key"].as_str().unwrap().to_owned();
        let value = message["value"].as_object().unwrap().clone();
        match message["headers"]["operation"].as_str().unwrap() {
            "insert" => {
                client.insert(key, value);
            }
            "update" => client.entry(key).or_default().extend(value),
            "delete" => {
                client.remove(&key);
            }
            other => panic!("{other}"),
        }
    }
}

fn row(key: u32, columns: &[(&str, Option<&str>)]) -> Vec<u8> {
    let value: Map<String, Value> =
        columns.iter().map(|(name, text)| ((*name).to_owned(), text.map_or(Value::Null, Into::into))).collect();
    let key = format!("\"public\".\"t\"/\"{key}\"");
    let mut out = serde_json::to_vec(&serde_json::json!({"key": key})).unwrap();
    out.pop();
    out.extend_from_slice(b",\"value\":");
    out.extend_from_slice(&serde_json::to_vec(&value).unwrap());
    out
}

fn change(operation: &str, key: u32, columns: &[(&str, Option<&str>)], xid: u32) -> Vec<u8> {
    let mut out = row(key, columns);
    let headers = format!(
        ",\"headers\":{{\"operation\":\"{operation}\",\"txids\":[{xid}],\"relation\":[\"public\",\"t\"],\"lsn\":\"1\",\"op_position\":0}}}},"
    );
    out.extend_from_slice(headers.as_bytes());
    out
}

fn base_row(key: u32, columns: &[(&str, Option<&str>)]) -> Vec<u8> {
    let mut out = row(key, columns);
    out.extend_from_slice(b",\"headers\":{\"operation\":\"insert\",\"relation\":[\"public\",\"t\"]}},");
    out
}

#[test]
fn rows_that_did_not_change_are_the_same_bytes() {
    let rows: Vec<Vec<u8>> = (0..3).map(|n| base_row(n, &[("id", Some("x")), ("a", None)])).collect();
    let merged = merged(&rows.concat(), &change("update", 1, &[("id", Some("x")), ("a", Some("\"}"))], 7), 1).unwrap();
    let changed = base_row(1, &[("id", Some("x")), ("a", Some("\"}"))]);
    assert_eq!(
        String::from_utf8(merged).unwrap(),
        String::from_utf8([&rows[0], &changed[..], &rows[2]].concat()).unwrap()
    );
}

#[test]
fn a_delete_leaves_nothing_and_an_insert_after_it_a_row() {
    let base = base_row(1, &[("a", Some("old"))]);
    let delete = change("delete", 1, &[], 7);
    assert_eq!(merged(&base, &delete, 1).unwrap(), b"");
    let back = [delete, change("insert", 1, &[("a", Some("new"))], 8)].concat();
    assert_eq!(merged(&base, &back, 1).unwrap(), base_row(1, &[("a", Some("new"))]));
    assert_eq!(merged(b"", &back, 1).unwrap(), base_row(1, &[("a", Some("new"))]));
}

#[test]
fn transactions_are_remembered_by_number_up_to_a_bound() {
    let mut delta = Delta::new(RandomState::new(), Part::ALL);
    for xid in 1..=XIDS_MAX as u32 + 3 {
        delta.changes(&change("delete", 1, &[], xid)).unwrap();
    }
    let snapshot = delta.snapshot(&"1:1:".parse().unwrap(), 9);
    let xmax = XIDS_MAX as u64 + 4;
    assert_eq!(snapshot, PgSnapshot { xmin: xmax, xmax, xip: vec![], lsn: 9 });
    assert_eq!(delta.xids.len(), XIDS_MAX);
    assert!(delta.bytes() < 1000, "one row was touched");
}

#[test]
fn a_log_of_what_is_not_known_is_left_alone() {
    let event = br#"{"headers":{"control":"must-refetch"} },"#;
    assert_eq!(merged(b"", event, 1), Err(BodyError::NotRows));
}

#[derive(Clone, Debug)]
struct Step {
    operation: &'static str,
    key: u32,
    a: Option<Option<String>>,
    b: Option<Option<String>>,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let text = prop::option::of("[a-z{}:,\"\\\\\u{e9}]{0,6}");
    let step = (
        prop::sample::select(vec!["insert", "update", "update", "delete"]),
        0..6_u32,
        prop::option::of(text.clone()),
        prop::option::of(text),
    )
        .prop_map(|(operation, key, a, b)| Step { operation, key, a, b });
    prop::collection::vec(step, 0..40)
}

fn rendered(steps: &[Step]) -> Vec<u8> {
    let mut out = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        let id = step.key.to_string();
        let mut columns = vec![("id", Some(id.as_str()))];
        if step.operation != "delete" {
            columns.extend(step.a.as_ref().map(|a| ("a", a.as_deref())));
            columns.extend(step.b.as_ref().map(|b| ("b", b.as_deref())));
        }
        out.extend_from_slice(&change(step.operation, step.key, &columns, at as u32));
    }
    out
}

proptest! {
    /// In every history a client that reads the merged rows has the same rows as one that saw all messages, now and
    /// after later messages.
    #[test]
    fn merged_rows_are_what_a_replay_comes_to(first in steps(), second in steps(), third in steps(), parts in 1..4_u64) {
        let (first, second, third) = (rendered(&first), rendered(&second), rendered(&third));
        let mut all = Client::new();
        replay(&mut all, &first);
        let one = merged(b"", &first, parts).unwrap();
        let mut new = Client::new();
        replay(&mut new, &one);
        prop_assert_eq!(&new, &all);
        let two = merged(&one, &second, parts).unwrap();
        replay(&mut all, &second);
        let mut newer = Client::new();
        replay(&mut newer, &two);
        prop_assert_eq!(&newer, &all);
        for client in [&mut all, &mut newer] {
            replay(client, &third);
        }
        prop_assert_eq!(&newer, &all);
        prop_assert_eq!(split(&two).count(), newer_keys(&two));
    }
}

/// Number of different keys.
fn newer_keys(rows: &[u8]) -> usize {
    let keys: std::collections::BTreeSet<String> =
        split(rows).map(|row| serde_json::from_slice::<Value>(row).unwrap()["key"].to_string()).collect();
    keys.len()
}

//! The decoder as fuzzers and property tests drive it.

use super::{Decoder, Message, Tuple, Value, encode};

/// Reads `data` as a stream of messages, each after its length in one byte, walks everything in them, and panics if a
/// message does not survive being written and read again.
#[doc(hidden)]
pub fn fuzz_pgoutput(data: &[u8]) {
    let (mut decoder, mut rest) = (Decoder::new(), data);
    while let Some((len, after)) = rest.split_first() {
        let (bytes, after) = after.split_at(usize::from(*len).min(after.len()));
        rest = after;
        let before = decoder;
        let Ok(message) = decoder.decode(bytes) else {
            assert_eq!(before, decoder, "an error changed the decoder");
            continue;
        };
        walk(&message);
        let mut written = Vec::new();
        encode(&message, &mut written);
        let mut again = before;
        assert_eq!(again.decode(&written), Ok(message));
        assert_eq!(again, decoder);
    }
}

fn walk(message: &Message<'_>) {
    match message {
        Message::Relation { columns, .. } => assert_eq!(columns.iter().count(), columns.len()),
        Message::Truncate { relations, .. } => assert_eq!(relations.iter().count(), relations.len()),
        Message::Insert { new, .. } => row(new),
        Message::Update { old, new, .. } => {
            old.tuple().iter().for_each(row);
            row(new);
        }
        Message::Delete { old, .. } => old.tuple().iter().for_each(row),
        _ => {}
    }
}

fn row(tuple: &Tuple<'_>) {
    assert_eq!(tuple.values().count(), tuple.len());
    let bytes = |value| match value {
        Value::Null | Value::UnchangedToast => 1,
        Value::Text(bytes) | Value::Binary(bytes) => 5 + bytes.len(),
    };
    assert_eq!(tuple.values().map(bytes).sum::<usize>(), tuple.bytes().len());
}

//! What an answer holds: rows of the snapshot, or changes after a position, in the form in which they are sent.

use crate::format::offset::ShapeOffset;
use crate::hot::Hot;
use crate::state::entries::Entry;
use crate::store::Store;
use bytes::Bytes;
use thalweg_base::LogId;
use thalweg_log::ReadError;

/// What ends every body: the value's brace is closed, then that of the headers and that of the message, then comes the comma.
const BODY_END: &[u8] = b"}},";
/// What ends the last change of a transaction.
const LAST_END: &[u8] = b",\"last\":true}},";

/// What is to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Rows between two positions of a shape's own log.
    Rows { log: LogId, from: u64, upto: u64 },
    /// Changes. `whole`: the last one is the last of its transaction.
    Changes { entries: Vec<Entry>, whole: bool },
}

impl Wanted {
    /// How many bytes it is, about.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Wanted::Rows { from, upto, .. } => upto - from,
            Wanted::Changes { entries, .. } => entries.iter().map(|entry| u64::from(entry.len)).sum(),
        }
    }
}

/// Messages, each with a comma after it, if no device has to be waited for.
pub(crate) fn try_read(wanted: &Wanted, hot: &Hot, store: &Store) -> Option<Result<Vec<u8>, ReadError>> {
    let mut out = Vec::with_capacity(wanted.bytes() as usize + 64);
    match wanted {
        Wanted::Rows { log, from, upto } => {
            let mut from = *from;
            while from < *upto {
                match store.try_rows(*log, from, *upto)? {
                    Ok(chunk) => {
                        from = chunk.end.0;
                        chunk.parts.iter().for_each(|part| out.extend_from_slice(part));
                    }
                    Err(error) => return Some(Err(error)),
                }
            }
        }
        Wanted::Changes { entries, whole } => {
            for (at, entry) in entries.iter().enumerate() {
                if let Some(bytes) = hot.get(entry.at, entry.len) {
                    out.extend_from_slice(&bytes);
                } else {
                    match store.try_bodies(entry.at, entry.len)? {
                        // A range may go over a chunk's end: then who may wait reads on.
                        Ok(chunk) if chunk.end.0 < entry.at + u64::from(entry.len) => return None,
                        Ok(chunk) => chunk.parts.iter().for_each(|part| out.extend_from_slice(part)),
                        Err(error) => return Some(Err(error)),
                    }
                }
                mark(&mut out, entries, at, *whole);
            }
        }
    }
    Some(Ok(out))
}

/// The same, from a thread that may wait.
pub(crate) fn read(wanted: &Wanted, hot: &Hot, store: &Store) -> Result<Vec<u8>, ReadError> {
    let mut out = Vec::with_capacity(wanted.bytes() as usize + 64);
    let put = |parts: Vec<Bytes>, out: &mut Vec<u8>| parts.iter().for_each(|part| out.extend_from_slice(part));
    match wanted {
        Wanted::Rows { log, from, upto } => put(store.rows(*log, *from, *upto)?, &mut out),
        Wanted::Changes { entries, whole } => {
            for (at, entry) in entries.iter().enumerate() {
                match hot.get(entry.at, entry.len) {
                    Some(bytes) => out.extend_from_slice(&bytes),
                    None => put(store.bodies(entry.at, entry.len)?, &mut out),
                }
                mark(&mut out, entries, at, *whole);
            }
        }
    }
    Ok(out)
}

/// Marks the end of a transaction on its last change.
fn mark(out: &mut Vec<u8>, entries: &[Entry], at: usize, whole: bool) {
    let last = match entries.get(at + 1) {
        Some(next) => next.lsn != entries[at].lsn,
        None => whole,
    };
    if last && out.ends_with(BODY_END) {
        out.truncate(out.len() - BODY_END.len());
        out.extend_from_slice(LAST_END);
    }
}

/// Leaves out the changes at or before `from`. Needed when a position lies inside of an entry: it was given out before a crash, by
/// a server that had put its changes together in another way.
pub(crate) fn skip(messages: Vec<u8>, from: ShapeOffset) -> Vec<u8> {
    let mut at = 0;
    for message in split(&messages) {
        match op_of(message) {
            Some(op) if op <= from.op => at += message.len() + 1,
            _ => break,
        }
    }
    messages[at.min(messages.len())..].to_vec()
}

/// The `op_position` of a change.
fn op_of(message: &[u8]) -> Option<u64> {
    const NAME: &[u8] = b"\"op_position\":";
    // A value cannot hold the name with these quotes, but a column may have it: the headers come last.
    let at = memchr::memmem::rfind(message, NAME)? + NAME.len();
    let digits = message[at..].iter().take_while(|b| b.is_ascii_digit()).count();
    std::str::from_utf8(&message[at..at + digits]).ok()?.parse().ok()
}

/// The messages of `{…},{…},`, without the commas between them.
pub(crate) fn split(messages: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = messages;
    std::iter::from_fn(move || {
        let end = message_end(rest)?;
        let (message, after) = rest.split_at(end);
        rest = after.strip_prefix(b",").unwrap_or(after);
        Some(message)
    })
}

/// How long the object is that `bytes` begin with.
fn message_end(bytes: &[u8]) -> Option<usize> {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(found) = memchr::memchr3(b'{', b'}', b'"', &bytes[at..]) {
        at += found;
        match bytes[at] {
            b'{' => depth += 1,
            b'}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => at += text_end(&bytes[at + 1..])?,
        }
        at += 1;
    }
    None
}

/// Where the closing quote of a text stands, after the opening one, plus one.
fn text_end(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr::memchr2(b'"', b'\\', &bytes[at..])?;
        if bytes[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
        if at > bytes.len() {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_split_whatever_their_texts_hold() {
        let messages: [&[u8]; 4] =
            [br#"{"a":"}{\"},"}"#, br#"{"b":{"c":"\\"}}"#, br"{}", br#"{"key":"\"p\".\"t\"/\"1\""}"#];
        let joined = [messages.join(&b","[..]), b",".to_vec()].concat();
        assert_eq!(split(&joined).collect::<Vec<_>>(), messages);
        assert_eq!(split(b"").count(), 0);
        for broken in [&b"{"[..], b"}", b"{\"", b"{\"\\", b"[1]", b"{\"a\":\"b}"] {
            assert_eq!(split(broken).count(), 0, "{}", String::from_utf8_lossy(broken));
        }
    }

    fn change(op: u64) -> String {
        format!(r#"{{"key":"k","value":{{"op_position":"7"}},"headers":{{"operation":"insert","op_position":{op}}}}}"#)
    }

    #[test]
    fn a_position_inside_of_an_entry_leaves_out_what_is_before_it() {
        let all = format!("{},{},{},", change(0), change(2), change(4));
        let rest = skip(all.clone().into_bytes(), ShapeOffset::new(9, 2));
        assert_eq!(rest, format!("{},", change(4)).into_bytes());
        assert_eq!(skip(all.clone().into_bytes(), ShapeOffset::new(9, 99)), b"");
    }

    #[test]
    fn the_last_change_of_a_transaction_says_so() {
        let entry = |lsn| Entry { lsn, at: 0, op: 0, len: 0 };
        let entries = [entry(1), entry(1), entry(2), entry(3)];
        let marked = |at, whole| {
            let mut out = format!("{},", change(0)).into_bytes();
            mark(&mut out, &entries, at, whole);
            out.ends_with(b"\"op_position\":0,\"last\":true}},")
        };
        assert_eq!(
            [marked(0, true), marked(1, true), marked(2, true), marked(3, true), marked(3, false)],
            [false, true, true, true, false]
        );
    }
}

//! The content of an answer: rows of the snapshot, or changes after a position, in the form in which they are sent.
//!
//! Entries of a shape are often neighbours in the change log, or nearly so: they are read in one go, and the bytes
//! between them are left out. Changes that were put together once are kept for a while in the change cache, for other
//! requests for the same.

use crate::change_cache::{ChangeCache, Key};
use crate::recent_window::RecentWindow;
use crate::store::{Store, read_from};
use bytes::Bytes;
use std::ops::Range;
use thalweg_base::{LogId, Step, Ticket};
use thalweg_log::{Chunk, ChunkRead, ReadError, ReadFrom};
use thalweg_shapes_core::encode::message;
use thalweg_shapes_core::state::entries::Entry;
use thalweg_shapes_model::offset::ShapeOffset;

/// Reading this many bytes of other shapes costs less than another lookup.
const GAP_MAX: u64 = 4096;
/// Answers of less are not counted: bounds on connections are enough for them.
pub(crate) const UNCOUNTED_MAX: u64 = 4 << 10;
/// Attempts to read from the recent window; changes that leave it during an attempt are on the disk.
const HOT_TRIES: usize = 3;

/// The messages to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReadRange {
    /// Rows between two positions of a shape's own log.
    Rows { log: LogId, from: u64, upto: u64 },
    /// Changes. `whole`: the last one is the last of its transaction.
    Changes { entries: Vec<Entry>, whole: bool },
}

impl ReadRange {
    /// How many bytes it is, about.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            ReadRange::Rows { from, upto, .. } => upto - from,
            ReadRange::Changes { entries, .. } => entries.iter().map(|entry| u64::from(entry.len)).sum(),
        }
    }
}

/// From where messages are read.
#[derive(Clone, Copy)]
pub(crate) struct Sources<'a> {
    pub(crate) recent_window: &'a RecentWindow,
    pub(crate) store: &'a Store,
    pub(crate) change_cache: &'a ChangeCache,
}

enum Blocking<'a> {
    Wait,
    NoWait,
    Steps(&'a mut Steps),
}

impl Blocking<'_> {
    /// `None`: not now.
    fn chunk(&mut self, store: &Store, from: ReadFrom) -> Option<Result<Chunk, ReadError>> {
        match self {
            Blocking::NoWait => store.try_chunk(from),
            Blocking::Wait => Some(store.chunk(from)),
            Blocking::Steps(steps) => steps.chunk(store, from),
        }
    }
}

/// The chunks that a read in steps has so far. Each step goes over the range from its start, with these chunks.
#[derive(Default)]
struct Steps {
    /// Kept once a step had to wait: until then no step is taken twice.
    have: Vec<(ReadFrom, Chunk)>,
    under_way: Option<(ReadFrom, Box<ChunkRead>)>,
    wants: Option<Ticket<()>>,
    has_waited: bool,
}

impl Steps {
    fn chunk(&mut self, store: &Store, from: ReadFrom) -> Option<Result<Chunk, ReadError>> {
        if let Some((_, chunk)) = self.have.iter().find(|(of, _)| *of == from) {
            return Some(Ok(chunk.clone()));
        }
        if let Some(chunk) = store.logs().recall(from) {
            return Some(Ok(chunk));
        }
        let before = self.under_way.take().filter(|(of, _)| *of == from);
        let (_, mut read) = before.unwrap_or_else(|| (from, Box::new(ChunkRead::new(from))));
        match read.step(store.logs()) {
            Step::Done(read) => {
                if let (Ok(chunk), true) = (&read, self.has_waited) {
                    self.have.push((from, chunk.clone()));
                }
                Some(read)
            }
            Step::Wants(ticket) => {
                self.under_way = Some((from, read));
                (self.wants, self.has_waited) = (Some(ticket), true);
                None
            }
        }
    }
}

/// A read of one range in steps, on I/O threads.
pub(crate) struct Reading {
    shape: u64,
    range: ReadRange,
    steps: Steps,
}

impl Reading {
    pub(crate) fn new(shape: u64, range: ReadRange) -> Self {
        Self { shape, range, steps: Steps::default() }
    }

    /// See [`try_read`] for the result. A step blocks for a local device alone.
    pub(crate) fn step(&mut self, from: Sources<'_>) -> Step<Result<Vec<Bytes>, ReadError>> {
        let read = from.read(self.shape, &self.range, &mut Blocking::Steps(&mut self.steps));
        match (read, self.steps.wants.take()) {
            (Some(read), _) => Step::Done(read),
            (None, Some(ticket)) => Step::Wants(ticket),
            (None, None) => Step::Done(Ok(Vec::new())),
        }
    }
}

/// Messages of a shape, each with a comma after it, cut anywhere; `None`: a device would have to be waited for. `shape`
/// is its number.
pub(crate) fn try_read(shape: u64, range: &ReadRange, from: Sources<'_>) -> Option<Result<Vec<Bytes>, ReadError>> {
    from.read(shape, range, &mut Blocking::NoWait)
}

/// The same, from a thread that may wait.
#[cfg(test)]
pub(crate) fn read(shape: u64, range: &ReadRange, from: Sources<'_>) -> Result<Vec<Bytes>, ReadError> {
    from.read(shape, range, &mut Blocking::Wait).unwrap_or_else(|| Ok(Vec::new()))
}

impl Sources<'_> {
    fn read(
        &self,
        shape: u64,
        range: &ReadRange,
        blocking: &mut Blocking<'_>,
    ) -> Option<Result<Vec<Bytes>, ReadError>> {
        match range {
            ReadRange::Rows { log, from, upto } => {
                parts(*from..*upto, |at| blocking.chunk(self.store, read_from(*log, at..*upto)))
            }
            ReadRange::Changes { entries, whole } => {
                let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return Some(Ok(Vec::new())) };
                let key = Key { shape, from: first.at, upto: last.at + u64::from(last.len), whole: *whole };
                if let Some(known) = self.change_cache.get(&key) {
                    return Some(Ok(vec![known]));
                }
                let changes = self.changes(entries, *whole, blocking)?;
                Some(changes.map(|changes| vec![self.change_cache.note(key, changes)]))
            }
        }
    }

    fn changes(&self, entries: &[Entry], whole: bool, blocking: &mut Blocking<'_>) -> Option<Result<Bytes, ReadError>> {
        let bytes: usize = entries.iter().map(|entry| entry.len as usize).sum();
        let out = Vec::with_capacity(bytes + entries.len().min(bytes / 256) * message::LAST_END.len() + 64);
        let mut picked = Picked { entries, next: 0, upto: 0, whole, out };
        while let Some(begin) = entries.get(picked.next).map(|entry| entry.at) {
            picked.upto = picked.next + run(&entries[picked.next..]);
            let last = &entries[picked.upto - 1];
            let read =
                self.each_part(begin..last.at + u64::from(last.len), blocking, |at, part| picked.take(at, part))?;
            if let Err(error) = read {
                return Some(Err(error));
            }
            picked.next = picked.upto;
        }
        let out = Bytes::from(picked.out);
        Some(Ok(if out.len() < UNCOUNTED_MAX as usize { out } else { self.store.logs().hold(out) }))
    }

    /// Bodies of the change log, from a thread that may wait.
    pub(crate) fn bodies(&self, range: Range<u64>) -> Result<Vec<u8>, ReadError> {
        let mut out = Vec::with_capacity((range.end - range.start) as usize);
        let read = self.each_part(range, &mut Blocking::Wait, |_, part| out.extend_from_slice(part));
        read.unwrap_or(Ok(())).map(|()| out)
    }

    /// Gives bodies of the change log to `f`, each part with its place: the recent ones are in memory, the others are
    /// durable.
    fn each_part(
        &self,
        range: Range<u64>,
        blocking: &mut Blocking<'_>,
        mut f: impl FnMut(u64, &[u8]),
    ) -> Option<Result<(), ReadError>> {
        let (mut split, mut recent) = (range.end, Vec::new());
        for _ in 0..HOT_TRIES {
            let from = self.recent_window.first().clamp(range.start, range.end);
            if let Some(found) = self.recent_window.range(from..range.end) {
                (split, recent) = (from, found);
                break;
            }
            // The changes left the window in between: they are durable now.
        }
        let durable = |at| blocking.chunk(self.store, self.store.bodies(at..split));
        if let Err(error) = each_durable(range.start..split, durable, &mut f)? {
            return Some(Err(error));
        }
        let mut at = split;
        for part in recent {
            f(at, &part);
            at += part.len() as u64;
        }
        Some(Ok(()))
    }
}

/// Reads chunk after chunk. Each is let go of before the next one is read: a part may be a small slice of a whole frame
/// of the journal, and keeps all of it in memory.
fn each_durable(
    range: Range<u64>,
    mut read: impl FnMut(u64) -> Option<Result<Chunk, ReadError>>,
    f: &mut impl FnMut(u64, &[u8]),
) -> Option<Result<(), ReadError>> {
    let mut at = range.start;
    while at < range.end {
        let begun = at;
        let chunk = match read(at)? {
            Ok(chunk) => chunk,
            Err(error) => return Some(Err(error)),
        };
        for part in &chunk.parts {
            f(at, part);
            at += part.len() as u64;
        }
        debug_assert_eq!(at, chunk.end.0, "a chunk has other bytes than it says");
        assert!(chunk.end.0 > begun, "a read of {range:?} at {begun} found nothing");
        at = chunk.end.0;
    }
    Some(Ok(()))
}

/// Reads chunk after chunk.
fn parts(
    range: Range<u64>,
    mut read: impl FnMut(u64) -> Option<Result<Chunk, ReadError>>,
) -> Option<Result<Vec<Bytes>, ReadError>> {
    let (mut at, mut parts) = (range.start, Vec::new());
    while at < range.end {
        match read(at)? {
            Ok(chunk) => {
                assert!(chunk.end.0 > at, "a read of {range:?} at {at} found nothing");
                at = chunk.end.0;
                parts.extend(chunk.parts);
            }
            Err(error) => return Some(Err(error)),
        }
    }
    Some(Ok(parts))
}

/// How many of these entries are read in one go, at least one.
fn run(entries: &[Entry]) -> usize {
    let follows = |pair: &[Entry]| {
        let end = pair[0].at + u64::from(pair[0].len);
        pair[1].at >= end && pair[1].at - end <= GAP_MAX
    };
    1 + entries.windows(2).take_while(|pair| follows(pair)).count()
}

/// Picks entries out of the change log, part after part.
struct Picked<'a> {
    entries: &'a [Entry],
    /// The entry that is not whole yet.
    next: usize,
    /// The entries before this one are read in one go.
    upto: usize,
    whole: bool,
    out: Vec<u8>,
}

impl Picked<'_> {
    /// Appends the entries' bytes of a part; `at` is its place in the change log.
    fn take(&mut self, at: u64, part: &[u8]) {
        let part_end = at + part.len() as u64;
        while let Some(entry) = self.entries[..self.upto].get(self.next) {
            let end = entry.at + u64::from(entry.len);
            let (from, upto) = (entry.at.max(at), end.min(part_end));
            if from < upto {
                self.out.extend_from_slice(&part[(from - at) as usize..(upto - at) as usize]);
            }
            if end > part_end {
                return;
            }
            mark(&mut self.out, self.entries, self.next, self.whole);
            self.next += 1;
        }
    }
}

/// Marks the end of a transaction on its last change.
fn mark(out: &mut Vec<u8>, entries: &[Entry], at: usize, whole: bool) {
    let last = match entries.get(at + 1) {
        Some(next) => next.lsn != entries[at].lsn,
        None => whole,
    };
    if last {
        message::mark_last(out);
    }
}

/// In one piece.
pub(crate) fn joined(parts: Vec<Bytes>) -> Bytes {
    match &parts[..] {
        [one] => one.clone(),
        parts => parts.concat().into(),
    }
}

/// Leaves out the changes at or before `from`. Needed when a position lies inside of an entry: it was given out before
/// a crash, by a server that had put its changes together in another blocking.
pub(crate) fn skip(messages: &Bytes, from: ShapeOffset) -> Bytes {
    let mut at = 0;
    for message in split(messages) {
        match op_of(message) {
            Some(op) if op <= from.op => at += message.len() + 1,
            _ => break,
        }
    }
    messages.slice(at.min(messages.len())..)
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
    use std::sync::Arc;

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
        let rest = skip(&all.clone().into(), ShapeOffset::new(9, 2));
        assert_eq!(rest, format!("{},", change(4)));
        assert!(skip(&all.into(), ShapeOffset::new(9, 99)).is_empty());
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

    #[test]
    fn neighbours_are_read_in_one_go() {
        let entry = |at, len| Entry { lsn: 1, at, op: 0, len };
        assert_eq!(run(&[entry(0, 10)]), 1);
        assert_eq!(run(&[entry(0, 10), entry(10, 5), entry(15, 1)]), 3);
        let near = 10 + GAP_MAX;
        assert_eq!(run(&[entry(0, 10), entry(near, 5), entry(near + 5, 1)]), 3);
        assert_eq!(run(&[entry(0, 10), entry(near + 1, 5)]), 1);
        assert_eq!(run(&[entry(20, 10), entry(0, 5)]), 1, "what lies before was written again");
    }

    #[test]
    fn what_lies_between_entries_is_left_out_wherever_the_parts_are_cut() {
        let log: Vec<u8> = (0..200).collect();
        let entries = [(3, 7), (10, 1), (15, 30), (45, 5), (60, 40), (199, 1)];
        let entries = entries.map(|(at, len)| Entry { lsn: 1, at: 100 + at, op: 0, len });
        let expected: Vec<u8> =
            entries.iter().flat_map(|e| &log[e.at as usize - 100..][..e.len as usize]).copied().collect();
        for size in [1, 2, 7, 64, 500] {
            let mut picked = Picked { entries: &entries, next: 0, upto: entries.len(), whole: true, out: Vec::new() };
            for (n, part) in log[3..].chunks(size).enumerate() {
                picked.take(103 + (n * size) as u64, part);
            }
            assert_eq!((picked.next, &picked.out), (entries.len(), &expected), "parts of {size}");
        }
    }

    #[test]
    fn a_chunk_is_let_go_of_before_the_next_one_is_read() {
        /// A slice of a frame, which keeps the frame.
        struct Frame(Arc<[u8; 10]>);
        impl AsRef<[u8]> for Frame {
            fn as_ref(&self) -> &[u8] {
                &self.0[..]
            }
        }
        let frames = Arc::new([7; 10]);
        let read = |at: u64| {
            assert_eq!(Arc::strong_count(&frames), 1, "frames in memory beside the one that is read next");
            let part = Bytes::from_owner(Frame(Arc::clone(&frames))).slice((at % 10) as usize..);
            let end = thalweg_base::Offset(at + part.len() as u64);
            Some(Ok(Chunk { parts: vec![part], end }))
        };
        let mut found = Vec::new();
        let done = each_durable(5..40, read, &mut |at, part| found.push((at, part.len())));
        assert!(matches!(done, Some(Ok(()))));
        assert_eq!(found, [(5, 5), (10, 10), (20, 10), (30, 10)]);
    }
}

//! The lengths of messages that stand one after the other, run-length coded.
//!
//! A list of lengths says where messages begin and end in a piece of a log. Positions here are relative to the start of
//! the piece; a *boundary* is a position where a message starts or ends, so 0 and [`Lengths::bytes`] are always
//! boundaries. A list of one message, or of many equal ones, costs no allocation.
//!
//! Form: a varint count of runs, then per run a varint `length << 1 | repeated`, followed, if `repeated`, by a varint
//! of the number of messages. Runs are canonical: two neighbours never have the same length.

use std::ops::Range;
use thalweg_base::{DecodeError, Decoder, Encoder};

/// Lengths of messages, in order. All are above zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lengths {
    /// The first run, empty only if the list is: a list of one run needs no allocation.
    first: Run,
    rest: Vec<Run>,
    bytes: u64,
    count: u64,
}

/// `count` messages of `length` bytes each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    pub count: u32,
    pub length: u32,
}

impl Run {
    #[must_use]
    pub fn bytes(self) -> u64 {
        u64::from(self.count) * u64::from(self.length)
    }

    #[inline]
    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let head = from.varint()?;
        let length = u32::try_from(head >> 1).map_err(|_| DecodeError::Range("message length"))?;
        let count = if head & 1 == 1 { from.varint_u32()? } else { 1 };
        if count == 0 || length == 0 {
            return Err(DecodeError::Range("message length"));
        }
        Ok(Self { count, length })
    }
}

impl Lengths {
    /// A list without messages.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One message. An empty list if `length` is zero.
    #[must_use]
    pub fn one(length: u32) -> Self {
        Self::repeated(1, length)
    }

    /// `count` messages of `length` bytes.
    #[must_use]
    pub fn repeated(count: u32, length: u32) -> Self {
        let mut lengths = Self::new();
        lengths.push_run(Run { count, length });
        lengths
    }

    /// Appends one message. A message of no bytes is no message, and leaves the list as it is.
    pub fn push(&mut self, length: u32) {
        self.push_run(Run { count: 1, length });
    }

    /// Appends a run of equal messages.
    pub fn push_run(&mut self, run: Run) {
        if run.count == 0 || run.length == 0 {
            return;
        }
        self.bytes = self.bytes.saturating_add(run.bytes());
        self.count += u64::from(run.count);
        let last = self.rest.last_mut().unwrap_or(&mut self.first);
        if last.count == 0 {
            *last = run;
        } else if last.length == run.length {
            match last.count.checked_add(run.count) {
                Some(sum) => last.count = sum,
                None => {
                    // Full runs come first, so that equal lists stay equal values.
                    let over = run.count - (u32::MAX - last.count);
                    last.count = u32::MAX;
                    self.rest.push(Run { count: over, length: run.length });
                }
            }
        } else {
            self.rest.push(run);
        }
    }

    /// Appends all of `other`.
    pub fn append(&mut self, other: &Self) {
        for run in other.runs() {
            self.push_run(run);
        }
    }

    /// The sum of the lengths.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many messages there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether the list has no messages.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The messages as runs of equal lengths, in order.
    pub fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        std::iter::once(self.first).filter(|run| run.count > 0).chain(self.rest.iter().copied())
    }

    /// Each message's length.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.runs().flat_map(|run| std::iter::repeat_n(run.length, run.count as usize))
    }

    /// Does a message start or end at `at`?
    #[must_use]
    pub fn is_boundary(&self, at: u64) -> bool {
        self.boundary_at_or_after(at) == Some(at)
    }

    /// The first boundary that is not before `at`; `None` if `at` is past the end.
    #[must_use]
    pub fn boundary_at_or_after(&self, at: u64) -> Option<u64> {
        let found = self.locate(at)?;
        Some(if found.inside == 0 { at } else { at - u64::from(found.inside) + u64::from(found.length) })
    }

    /// The last boundary that is not after `at`.
    #[must_use]
    pub fn boundary_at_or_before(&self, at: u64) -> u64 {
        self.locate(at).map_or(self.bytes, |found| at - u64::from(found.inside))
    }

    /// How many messages end at or before `at`; `None` if `at` is past the end.
    #[must_use]
    pub fn messages_before(&self, at: u64) -> Option<u64> {
        self.locate(at).map(|found| found.messages)
    }

    /// The end of the `n`-th message after the boundary `from` (`from` itself for 0); `None` if `from` is no boundary
    /// or fewer than `n` messages follow it.
    #[must_use]
    pub fn nth_after(&self, from: u64, n: u64) -> Option<u64> {
        let found = self.locate(from).filter(|found| found.inside == 0)?;
        self.end_of(found.messages.checked_add(n)?)
    }

    /// The end of the first `n` messages; `None` if there are fewer.
    #[must_use]
    pub fn end_of(&self, mut n: u64) -> Option<u64> {
        let mut end = 0;
        for run in self.runs() {
            let taken = n.min(u64::from(run.count));
            end += taken * u64::from(run.length);
            n -= taken;
            if n == 0 {
                break;
            }
        }
        (n == 0).then_some(end)
    }

    /// The messages before the boundary `at` and those after it; `None` if `at` is no boundary.
    #[must_use]
    pub fn split_at(&self, at: u64) -> Option<(Self, Self)> {
        self.is_boundary(at).then(|| (self.slice(0..at), self.slice(at..self.bytes)))
    }

    /// The messages in `range`, which is clipped to the list. A message that crosses an end of `range` keeps the part
    /// inside.
    #[must_use]
    pub fn slice(&self, range: Range<u64>) -> Self {
        let mut sliced = Self::new();
        let mut at = 0u64;
        for run in self.runs() {
            let end = at + run.bytes();
            if at >= range.end {
                break;
            }
            if end > range.start {
                let from = range.start.max(at) - at;
                let to = range.end.min(end) - at;
                sliced.push_within(run.length, from, to);
            }
            at = end;
        }
        sliced
    }

    /// Pushes the part of equal messages of `length` bytes that lies in `from..to` (from < to).
    fn push_within(&mut self, length: u32, from: u64, to: u64) {
        let step = u64::from(length);
        let (first, last) = (from.div_ceil(step), to / step);
        if first > last {
            // Both ends lie within one message.
            self.push((to - from) as u32);
            return;
        }
        self.push((first * step - from) as u32);
        self.push_run(Run { count: (last - first) as u32, length });
        self.push((to - last * step) as u32);
    }

    fn locate(&self, at: u64) -> Option<Found> {
        if at > self.bytes {
            return None;
        }
        let (mut start, mut messages) = (0u64, 0u64);
        for run in self.runs() {
            if at < start + run.bytes() {
                let within = at - start;
                let step = u64::from(run.length);
                messages += within / step;
                return Some(Found { messages, inside: (within % step) as u32, length: run.length });
            }
            start += run.bytes();
            messages += u64::from(run.count);
        }
        Some(Found { messages, inside: 0, length: 0 })
    }

    /// The stored form: `docs/format/log.md`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.rest.len() as u64 + u64::from(self.first.count > 0));
        for run in self.runs() {
            out.put_varint(u64::from(run.length) << 1 | u64::from(run.count > 1));
            if run.count > 1 {
                out.put_varint(u64::from(run.count));
            }
        }
    }

    /// Takes an encoded list off the front without keeping it: its bytes and its messages.
    #[inline]
    pub fn skip(from: &mut Decoder<'_>) -> Result<(u64, u64), DecodeError> {
        let (mut bytes, mut messages) = (0u64, 0u64);
        for _ in 0..from.varint()? {
            let run = Run::decode(from)?;
            bytes = bytes.checked_add(run.bytes()).ok_or(DecodeError::Range("sum of message lengths"))?;
            messages += u64::from(run.count);
        }
        Ok((bytes, messages))
    }

    /// Takes an encoded list off the front. Its memory is bounded by the bytes that it takes.
    pub fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let mut lengths = Self::new();
        let runs = from.varint()?;
        if runs > from.rest().len() as u64 {
            return Err(DecodeError::Range("number of runs"));
        }
        for _ in 0..runs {
            let run = Run::decode(from)?;
            lengths.bytes.checked_add(run.bytes()).ok_or(DecodeError::Range("sum of message lengths"))?;
            lengths.push_run(run);
        }
        Ok(lengths)
    }
}

impl FromIterator<u32> for Lengths {
    fn from_iter<I: IntoIterator<Item = u32>>(lengths: I) -> Self {
        let mut list = Self::new();
        for length in lengths {
            list.push(length);
        }
        list
    }
}

/// The place of a position among messages.
struct Found {
    /// Messages that end at or before it.
    messages: u64,
    /// How far it is inside the message that it falls into; 0 on a boundary.
    inside: u32,
    /// The length of that message.
    length: u32,
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lists() -> impl Strategy<Value = Vec<u32>> {
        prop::collection::vec(prop_oneof![1..4u32, 1..300u32, Just(u32::MAX)], 0..20)
    }

    fn boundaries(list: &[u32]) -> Vec<u64> {
        let mut at = 0;
        std::iter::once(0)
            .chain(list.iter().map(|length| {
                at += u64::from(*length);
                at
            }))
            .collect()
    }

    proptest! {
        #[test]
        fn lists_round_trip(list in lists()) {
            let lengths: Lengths = list.iter().copied().collect();
            prop_assert_eq!(lengths.iter().collect::<Vec<_>>(), list.clone());
            prop_assert_eq!(lengths.count(), list.len() as u64);
            prop_assert_eq!(lengths.bytes(), list.iter().map(|n| u64::from(*n)).sum::<u64>());
            let mut out = Vec::new();
            lengths.encode(&mut out);
            let mut decoder = Decoder::new(&out);
            prop_assert_eq!(Lengths::decode(&mut decoder), Ok(lengths.clone()));
            prop_assert_eq!(decoder.end(), Ok(()));
            prop_assert_eq!(Lengths::skip(&mut Decoder::new(&out)), Ok((lengths.bytes(), lengths.count())));
            for cut in 0..out.len() {
                prop_assert!(Lengths::decode(&mut Decoder::new(&out[..cut])).is_err());
            }
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            if let Ok(lengths) = Lengths::decode(&mut Decoder::new(&bytes)) {
                let mut out = Vec::new();
                lengths.encode(&mut out);
                prop_assert_eq!(Lengths::decode(&mut Decoder::new(&out)), Ok(lengths));
            }
        }

        #[test]
        fn positions_agree_with_a_plain_list(list in prop::collection::vec(1..6u32, 0..20), at in 0..120u64, n in 0..25u64) {
            let lengths: Lengths = list.iter().copied().collect();
            let edges = boundaries(&list);
            prop_assert_eq!(lengths.is_boundary(at), edges.contains(&at));
            let after = edges.iter().position(|edge| *edge >= at);
            prop_assert_eq!(lengths.boundary_at_or_after(at), after.map(|i| edges[i]));
            prop_assert_eq!(Some(&lengths.boundary_at_or_before(at)), edges.iter().rfind(|edge| **edge <= at));
            let ended = edges.iter().filter(|edge| **edge > 0 && **edge <= at).count() as u64;
            prop_assert_eq!(lengths.messages_before(at), (at <= lengths.bytes()).then_some(ended));
            let nth = edges.iter().position(|edge| *edge == at).and_then(|i| edges.get(i + n as usize).copied());
            prop_assert_eq!(lengths.nth_after(at, n), nth);
            match lengths.split_at(at) {
                Some((mut head, tail)) => {
                    prop_assert_eq!(head.bytes(), at);
                    head.append(&tail);
                    prop_assert_eq!(head, lengths);
                }
                None => prop_assert!(!edges.contains(&at)),
            }
        }

        #[test]
        fn a_slice_keeps_the_parts_inside(list in prop::collection::vec(1..6u32, 0..20), from in 0..120u64, len in 0..60u64) {
            let lengths: Lengths = list.iter().copied().collect();
            let mut expected = Lengths::new();
            let mut at = 0;
            for length in list {
                let end = at + u64::from(length);
                expected.push(end.min(from + len).saturating_sub(at.max(from)) as u32);
                at = end;
            }
            prop_assert_eq!(lengths.slice(from..from + len), expected);
        }
    }

    #[test]
    fn the_form_is_pinned() {
        let mut out = Vec::new();
        Lengths::from_iter([5, 5, 5, 200]).encode(&mut out);
        assert_eq!(out, [2, 11, 3, 0x90, 0x03]);
        out.clear();
        Lengths::one(7).encode(&mut out);
        assert_eq!(out, [1, 14]);
    }

    #[test]
    fn a_run_never_overflows() {
        let mut lengths = Lengths::repeated(u32::MAX, 2);
        lengths.push_run(Run { count: 3, length: 2 });
        assert_eq!(lengths.count(), u64::from(u32::MAX) + 3);
        assert_eq!(lengths.runs().count(), 2);
        assert_eq!(lengths.nth_after(0, u64::from(u32::MAX) + 3), Some(lengths.bytes()));
    }
}

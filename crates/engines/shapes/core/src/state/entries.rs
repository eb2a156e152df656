//! The entries of a shape's log: ranges of encoded changes in the change log.
//!
//! An entry holds consecutive changes of one transaction. A chunk is a run of entries at whose end an answer ends, so
//! that all clients which read from one position get the same bytes: a chunk ends with the entry that brings it to the
//! threshold.

use std::sync::LazyLock;
use thalweg_shapes_model::lazy_box::Empty;
use thalweg_shapes_model::offset::ShapeOffset;

/// Consecutive changes of one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The commit's LSN.
    pub lsn: u64,
    /// The position of the first body in the change log.
    pub at: u64,
    /// The place of the last change in its transaction.
    pub op: u32,
    /// The length of the bodies in bytes, each with the comma after it.
    pub len: u32,
}

impl Entry {
    /// The position after this entry.
    #[must_use]
    pub fn offset(&self) -> ShapeOffset {
        ShapeOffset::new(self.lsn, u64::from(self.op))
    }
}

/// Entries in the order of their offsets.
#[derive(Clone, Debug, Default)]
pub struct Entries {
    list: Vec<Entry>,
    /// Ends of complete chunks, as indexes into `list`.
    chunks: Vec<u32>,
    /// Bytes since the end of the last complete chunk.
    open: u64,
    /// Bytes of all entries.
    bytes: u64,
    /// Whether positions in the change log do not rise with the entries: fetched rows precede the entries that waited
    /// for them.
    unordered: bool,
}

impl Empty for Entries {
    fn empty() -> &'static Self {
        static NONE: LazyLock<Entries> = LazyLock::new(Entries::default);
        &NONE
    }
}

/// The part of a shape's log that one answer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    pub entries: &'a [Entry],
    /// The position after the part.
    pub end: ShapeOffset,
    /// Whether the log ends here.
    pub at_tail: bool,
    /// Whether the last entry is also the last of its transaction. (Transactions are published whole, so the next entry
    /// is of another one.)
    pub whole: bool,
}

impl Entries {
    /// Appends an entry after the tail; ignores a replayed one. A chunk is complete at `chunk_bytes`.
    pub fn push(&mut self, entry: Entry, chunk_bytes: u64) {
        if entry.offset() <= self.tail() && !self.list.is_empty() {
            return;
        }
        self.unordered |= self.list.last().is_some_and(|last| last.at > entry.at);
        self.list.push(entry);
        self.open += u64::from(entry.len);
        self.bytes += u64::from(entry.len);
        if self.open >= chunk_bytes {
            self.chunks.push(u32::try_from(self.list.len()).unwrap_or(u32::MAX));
            self.open = 0;
        }
    }

    /// The position after the last entry, or the end of the snapshot.
    #[must_use]
    pub fn tail(&self) -> ShapeOffset {
        self.list.last().map_or(ShapeOffset::SNAPSHOT_END, Entry::offset)
    }

    /// The position of the oldest body in the change log.
    #[must_use]
    pub fn oldest(&self) -> Option<u64> {
        self.oldest_after(ShapeOffset::SNAPSHOT_END)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Bytes of all bodies.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Every entry.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.list.iter()
    }

    /// The entries after `from`, to the end of its chunk or to the tail.
    #[must_use]
    pub fn after(&self, from: ShapeOffset) -> Part<'_> {
        let first = self.list.partition_point(|entry| entry.offset() <= from);
        let chunk = self.chunks.partition_point(|end| *end as usize <= first);
        let last = self.chunks.get(chunk).map_or(self.list.len(), |end| *end as usize);
        let entries = &self.list[first..last];
        debug_assert!(entries.is_sorted_by_key(Entry::offset), "invariant 5: entries out of order: {entries:?}");
        let end = entries.last().map_or(from, Entry::offset);
        let next = self.list.get(last);
        Part {
            entries,
            end,
            at_tail: next.is_none(),
            whole: entries.last().is_none_or(|entry| next.is_none_or(|next| next.lsn != entry.lsn)),
        }
    }

    /// Bytes of the entries up to `upto`.
    #[must_use]
    pub fn bytes_before(&self, upto: ShapeOffset) -> u64 {
        let count = self.list.partition_point(|entry| entry.offset() <= upto);
        self.list[..count].iter().map(|entry| u64::from(entry.len)).sum()
    }

    /// The position in the change log of the oldest body after an offset.
    #[must_use]
    pub fn oldest_after(&self, from: ShapeOffset) -> Option<u64> {
        let after = &self.list[self.list.partition_point(|entry| entry.offset() <= from)..];
        let first = after.first().map(|entry| entry.at);
        if self.unordered { after.iter().map(|entry| entry.at).min() } else { first }
    }

    /// The entries after a position, up to the last one whose transaction is not after `lsn`.
    #[must_use]
    pub fn between(&self, from: ShapeOffset, lsn: u64) -> &[Entry] {
        let first = self.list.partition_point(|entry| entry.offset() <= from);
        let last = self.list.partition_point(|entry| entry.lsn <= lsn);
        self.list.get(first..last).unwrap_or_default()
    }

    /// Removes the entries up to `upto`, which no request can ask for. The ends of chunks stay.
    pub fn cut(&mut self, upto: ShapeOffset) {
        let count = self.list.partition_point(|entry| entry.offset() <= upto);
        if count == 0 {
            return;
        }
        // The removed bytes of an incomplete chunk still count.
        self.bytes -= self.list.drain(..count).map(|entry| u64::from(entry.len)).sum::<u64>();
        self.chunks.retain(|end| *end as usize > count);
        let gone = u32::try_from(count).unwrap_or(u32::MAX);
        self.chunks.iter_mut().for_each(|end| *end -= gone);
        self.list.shrink_to(self.list.len() * 2);
        self.chunks.shrink_to(self.chunks.len() * 2);
    }

    /// Memory of the lists, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.list.capacity() * size_of::<Entry>() + self.chunks.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(lsn: u64, op: u32, len: u32) -> Entry {
        Entry { lsn, at: 0, op, len }
    }

    fn entries(list: &[Entry], chunk: u64) -> Entries {
        let mut entries = Entries::default();
        list.iter().for_each(|e| entries.push(*e, chunk));
        entries
    }

    #[test]
    fn a_read_ends_at_the_chunk_that_it_lies_in() {
        let list = [entry(5, 0, 60), entry(5, 8, 60), entry(7, 2, 10), entry(9, 0, 95), entry(9, 2, 1)];
        let entries = entries(&list, 100);
        let first = entries.after(ShapeOffset::SNAPSHOT_END);
        assert_eq!(
            (first.entries, first.end, first.at_tail, first.whole),
            (&list[..2], ShapeOffset::new(5, 8), false, true)
        );
        let second = entries.after(first.end);
        assert_eq!((second.entries, second.end, second.at_tail), (&list[2..4], ShapeOffset::new(9, 0), false));
        assert!(!second.whole, "the transaction goes on in the next chunk");
        let last = entries.after(second.end);
        assert_eq!((last.entries, last.at_tail, last.whole), (&list[4..], true, true));
        let none = entries.after(last.end);
        assert_eq!((none.entries, none.end, none.at_tail, none.whole), (&list[5..], last.end, true, true));
    }

    #[test]
    fn a_read_from_the_middle_of_a_chunk_ends_where_others_do() {
        let list = [entry(5, 0, 60), entry(6, 0, 60), entry(7, 0, 10)];
        let entries = entries(&list, 100);
        assert_eq!(entries.after(ShapeOffset::new(5, 0)).end, ShapeOffset::new(6, 0));
    }

    #[test]
    fn what_is_replayed_is_not_appended_again() {
        let mut entries = entries(&[entry(5, 0, 1), entry(5, 2, 1)], 100);
        entries.push(entry(5, 0, 1), 100);
        entries.push(entry(5, 2, 1), 100);
        entries.push(entry(4, 9, 1), 100);
        assert_eq!(entries.len(), 2);
        assert_eq!(entries.tail(), ShapeOffset::new(5, 2));
    }

    #[test]
    fn a_log_that_is_cut_ends_chunks_where_it_did() {
        let list: Vec<Entry> = (0..40).map(|n| entry(n / 3 + 1, (n % 3) as u32 * 2, 7 + n as u32 % 5)).collect();
        let whole = entries(&list, 30);
        for cut in 0..list.len() - 5 {
            let mut rest = entries(&list[..list.len() - 5], 30);
            rest.cut(list[cut].offset());
            list[list.len() - 5..].iter().for_each(|e| rest.push(*e, 30));
            assert_eq!(rest.len(), list.len() - 1 - cut);
            assert_eq!(rest.bytes(), whole.bytes() - whole.bytes_before(list[cut].offset()));
            for from in &list[cut..] {
                let (a, b) = (whole.after(from.offset()), rest.after(from.offset()));
                assert_eq!((a.entries, a.end, a.at_tail, a.whole), (b.entries, b.end, b.at_tail, b.whole));
            }
        }
    }

    #[test]
    fn the_oldest_body_is_not_always_the_first() {
        let at = |lsn, at| Entry { at, ..entry(lsn, 0, 1) };
        let mut entries = entries(&[at(5, 10), at(6, 30), at(7, 20), at(8, 40)], 100);
        assert_eq!((entries.oldest(), entries.oldest_after(ShapeOffset::new(5, 0))), (Some(10), Some(20)));
        entries.cut(ShapeOffset::new(5, 0));
        assert_eq!((entries.oldest(), entries.oldest_after(ShapeOffset::new(8, 0))), (Some(20), None));
    }

    #[test]
    fn what_lies_between_two_positions_ends_with_a_transaction() {
        let entries = entries(&[entry(5, 0, 1), entry(5, 2, 2), entry(7, 0, 4), entry(9, 0, 8)], 100);
        let sum = |from, lsn| entries.between(from, lsn).iter().map(|e| e.len).sum::<u32>();
        assert_eq!(
            [sum(ShapeOffset::SNAPSHOT_END, 8), sum(ShapeOffset::new(5, 0), 7), sum(ShapeOffset::new(7, 0), 5)],
            [7, 6, 0]
        );
        assert_eq!(entries.bytes_before(ShapeOffset::new(5, 2)), 3);
    }

    #[test]
    fn the_tail_of_a_log_without_changes_is_the_end_of_the_snapshot() {
        assert_eq!(Entries::default().tail(), ShapeOffset::SNAPSHOT_END);
        assert!(Entries::default().after(ShapeOffset::chunk(0)).at_tail);
    }
}

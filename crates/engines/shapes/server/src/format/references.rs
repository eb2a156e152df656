//! References of one transaction: which shapes have which of its bodies.
//!
//! Form, all varints: the commit's LSN, the xid, the count of groups; each group: where its first body starts in the
//! change log (the first group's as it is, the others' as the distance from the end of the one before), its length, the
//! place of its last change, the count of its shapes and their numbers (the first as it is, then distances). A count of
//! 0 stands for the shapes of the group before. Behind the groups stand two lists of shapes, each a count and numbers
//! like those of a group: those for which a move-in is pending from here on, and those whose move-in is written.

use thalweg_base::{DecodeError, Decoder, Encoder};

/// Bodies that lie together, and the shapes that have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub at: u64,
    pub len: u32,
    /// The place of the last change in its transaction.
    pub op: u32,
    /// Ascending.
    pub shapes: std::sync::Arc<[u64]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct References {
    pub lsn: u64,
    pub xid: u32,
    /// In the order of their bodies' places.
    pub groups: Vec<Group>,
    /// Shapes with subqueries for which a move-in is pending from here on, and those whose move-in is written;
    /// ascending. Both lists may have a shape several times; it waits for as long as the first list has had it more
    /// often.
    pub began: Vec<u64>,
    pub ended: Vec<u64>,
}

impl References {
    /// A transaction that no shape has anything of.
    #[must_use]
    pub fn new(lsn: u64, xid: u32) -> Self {
        Self { lsn, xid, groups: Vec::new(), began: Vec::new(), ended: Vec::new() }
    }

    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(32);
        out.put_varint(self.lsn);
        out.put_varint(u64::from(self.xid));
        out.put_varint(self.groups.len() as u64);
        let mut at = 0;
        let mut before: &[u64] = &[];
        for group in &self.groups {
            out.put_varint(group.at.wrapping_sub(at));
            out.put_varint(u64::from(group.len));
            out.put_varint(u64::from(group.op));
            at = group.at + u64::from(group.len);
            if *group.shapes == *before {
                out.put_varint(0);
                continue;
            }
            put_numbers(&mut out, &group.shapes);
            before = &group.shapes;
        }
        if !self.began.is_empty() || !self.ended.is_empty() {
            put_numbers(&mut out, &self.began);
            put_numbers(&mut out, &self.ended);
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut d = Decoder::new(bytes);
        let (lsn, xid, count) = (d.varint()?, d.varint_u32()?, d.varint()?);
        if count > d.rest().len() as u64 {
            return Err(DecodeError::Truncated(1));
        }
        let mut groups: Vec<Group> = Vec::with_capacity(count as usize);
        let mut end = 0_u64;
        for _ in 0..count {
            let (at, len, op) = (end.wrapping_add(d.varint()?), d.varint_u32()?, d.varint_u32()?);
            end = at.checked_add(u64::from(len)).ok_or(DecodeError::Range("place"))?;
            let shapes = shapes(&mut d, groups.last())?;
            groups.push(Group { at, len, op, shapes });
        }
        let (mut began, mut ended) = (Vec::new(), Vec::new());
        if !d.rest().is_empty() {
            began = numbers(&mut d)?;
            ended = numbers(&mut d)?;
        }
        d.end()?;
        Ok(Self { lsn, xid, groups, began, ended })
    }
}

/// A count, and ascending numbers: the first as it is, then distances.
pub(super) fn put_numbers(out: &mut Vec<u8>, numbers: &[u64]) {
    out.put_varint(numbers.len() as u64);
    let mut last = 0;
    for number in numbers {
        out.put_varint(number - last);
        last = *number;
    }
}

pub(super) fn numbers(d: &mut Decoder<'_>) -> Result<Vec<u64>, DecodeError> {
    let count = d.varint()?;
    some_numbers(d, count)
}

fn some_numbers(d: &mut Decoder<'_>, count: u64) -> Result<Vec<u64>, DecodeError> {
    if count > d.rest().len() as u64 {
        return Err(DecodeError::Truncated(1));
    }
    let mut last = 0_u64;
    (0..count)
        .map(|_| {
            last = last.checked_add(d.varint()?).ok_or(DecodeError::Range("shape"))?;
            Ok(last)
        })
        .collect()
}

fn shapes(d: &mut Decoder<'_>, before: Option<&Group>) -> Result<std::sync::Arc<[u64]>, DecodeError> {
    let count = d.varint()?;
    if count == 0 {
        return before.map(|group| group.shapes.clone()).ok_or(DecodeError::Range("shapes"));
    }
    some_numbers(d, count).map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn references_are_read_back_as_they_were_written(
            lsn: u64, xid: u32, began in prop::collection::btree_set(0..1_u64 << 33, 0..3), ended in prop::collection::btree_set(0..99_u64, 0..3),
            groups in prop::collection::vec((0..1_u64 << 40, 0..1_u32 << 20, 0..99_u32, prop::collection::btree_set(0..1_u64 << 33, 1..5)), 0..6),
        ) {
            let groups = groups
                .into_iter()
                .map(|(at, len, op, shapes)| Group { at, len, op, shapes: shapes.into_iter().collect() })
                .collect();
            let (began, ended) = (began.into_iter().collect(), ended.into_iter().collect());
            let references = References { lsn, xid, groups, began, ended };
            prop_assert_eq!(References::decode(&references.encode()), Ok(references));
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            let _ = References::decode(&bytes);
        }
    }

    #[test]
    fn golden_bytes_of_references() {
        let group = |at, len, op, shapes: &[u64]| Group { at, len, op, shapes: shapes.into() };
        let groups = vec![group(10, 20, 0, &[7, 9]), group(30, 5, 2, &[7, 9]), group(40, 1, 4, &[300])];
        let references = References { groups, ..References::new(300, 5) };
        let hex: String = references.encode().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, ["ac020503", "0a1400020702", "00050200", "05010401ac02"].concat());
    }

    #[test]
    fn groups_of_the_same_shapes_name_them_once() {
        let shapes: std::sync::Arc<[u64]> = (100..850).collect();
        let group = |at| Group { at, len: 1000, op: 0, shapes: shapes.clone() };
        let references = References { groups: vec![group(0), group(1000), group(5000)], ..References::new(1, 1) };
        assert!(references.encode().len() < 800);
        assert_eq!(References::decode(&references.encode()), Ok(references));
    }

    #[test]
    fn shapes_that_wait_stand_behind_the_groups() {
        let waiting = References { began: vec![7, 300], ended: vec![9], ..References::new(300, 5) };
        assert_eq!(waiting.encode(), [0xac, 2, 5, 0, 2, 7, 0xa5, 2, 1, 9]);
        assert_eq!(References::decode(&waiting.encode()), Ok(waiting));
    }
}

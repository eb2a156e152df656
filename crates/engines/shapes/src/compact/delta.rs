//! What changes come to: the last state of each row that they touch.

use super::body::{Body, BodyError, Operation, patched, push_row};
use crate::state::snapshot::PgSnapshot;
use hashbrown::HashTable;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};

/// Transactions that are remembered by their number, at most.
const XIDS_MAX: usize = 1 << 16;
/// What a row costs beside its bytes, about.
const ROW_BYTES: usize = 64;

/// A part of all keys: those whose hash leaves `part` when it is divided by `of`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) part: u64,
    pub(crate) of: u64,
}

impl Part {
    pub(crate) const ALL: Part = Part { part: 0, of: 1 };

    fn has(self, hash: u64) -> bool {
        // The lower bits are the table's.
        (hash >> 32) % self.of == self.part
    }
}

/// A row after the changes.
enum Last {
    Gone,
    /// All of its value.
    There(Box<[u8]>),
    /// What differs from before.
    Changed(Box<[u8]>),
}

struct Row {
    key: Box<[u8]>,
    last: Last,
    /// It stood among the rows from before.
    met: bool,
}

/// Changes of some keys on their way into rows.
pub(crate) struct Delta {
    hasher: RandomState,
    part: Part,
    table: HashTable<usize>,
    /// In the order in which they were first touched.
    rows: Vec<Row>,
    bytes: usize,
    relation: Option<Box<[u8]>>,
    xids: BTreeSet<u32>,
    xids_dropped: Option<u32>,
}

impl Delta {
    /// `hasher`: the same for all parts.
    pub(crate) fn new(hasher: RandomState, part: Part) -> Self {
        Self {
            hasher,
            part,
            table: HashTable::new(),
            rows: Vec::new(),
            bytes: 0,
            relation: None,
            xids: BTreeSet::new(),
            xids_dropped: None,
        }
    }

    /// Memory, about.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes in changes that follow those from before.
    pub(crate) fn changes(&mut self, mut bodies: &[u8]) -> Result<(), BodyError> {
        while !bodies.is_empty() {
            let (body, rest) = Body::split(bodies)?;
            self.change(&body)?;
            bodies = rest;
        }
        Ok(())
    }

    fn change(&mut self, body: &Body<'_>) -> Result<(), BodyError> {
        let operation = body.operation()?;
        if let Some(xid) = body.xid() {
            self.saw(xid);
        }
        let hash = self.hasher.hash_one(body.key);
        if !self.part.has(hash) {
            return Ok(());
        }
        if self.relation.is_none() {
            self.relation = Some(body.relation()?.into());
        }
        let rows = &mut self.rows;
        let found = self.table.find(hash, |at| *rows[*at].key == *body.key).copied();
        let before = found.map(|at| &rows[at].last);
        let last = match (operation, before) {
            (Operation::Delete, _) => Last::Gone,
            (Operation::Insert, _) | (Operation::Update, Some(Last::Gone)) => Last::There(body.value.into()),
            (Operation::Update, Some(Last::There(value))) => Last::There(patched(value, body.value)?.into()),
            (Operation::Update, Some(Last::Changed(value))) => Last::Changed(patched(value, body.value)?.into()),
            (Operation::Update, None) => Last::Changed(body.value.into()),
        };
        self.bytes += last.bytes();
        match found {
            Some(at) => {
                self.bytes -= rows[at].last.bytes();
                rows[at].last = last;
            }
            None => {
                self.bytes += ROW_BYTES + body.key.len();
                rows.push(Row { key: body.key.into(), last, met: false });
                let hasher = &self.hasher;
                self.table.insert_unique(hash, rows.len() - 1, |at| hasher.hash_one(&*rows[*at].key));
            }
        }
        Ok(())
    }

    fn saw(&mut self, xid: u32) {
        self.xids.insert(xid);
        if self.xids.len() > XIDS_MAX {
            self.xids_dropped = self.xids.pop_first();
        }
    }

    /// The transactions that rows have after the changes, if they had those of `before`.
    pub(crate) fn snapshot(&self, before: &PgSnapshot, lsn: u64) -> PgSnapshot {
        let seen: BTreeSet<u64> = self.xids.iter().map(|xid| before.with_epoch(*xid)).collect();
        let below = self.xids_dropped.map_or(0, |xid| before.with_epoch(xid) + 1);
        before.with(&seen, below, lsn)
    }

    /// Gives on what became of the first row of `bodies`, which are from before: nothing, if it is not of this part. What follows it.
    pub(crate) fn row<'a>(&mut self, bodies: &'a [u8], out: &mut impl FnMut(&[u8])) -> Result<&'a [u8], BodyError> {
        let (body, rest) = Body::split(bodies)?;
        let hash = self.hasher.hash_one(body.key);
        if !self.part.has(hash) {
            return Ok(rest);
        }
        let rows = &mut self.rows;
        let Some(at) = self.table.find(hash, |at| *rows[*at].key == *body.key).copied() else {
            out(body.whole);
            return Ok(rest);
        };
        // A table without a key may have the same row twice. For clients it is one row.
        if std::mem::replace(&mut rows[at].met, true) {
            return Ok(rest);
        }
        let mut made = Vec::new();
        match &rows[at].last {
            Last::Gone => return Ok(rest),
            Last::There(value) => push_row(&mut made, body.key, value, body.relation()?),
            Last::Changed(changes) => push_row(&mut made, body.key, &patched(body.value, changes)?, body.relation()?),
        }
        out(&made);
        Ok(rest)
    }

    /// Gives on the rows of this part that are new, when [`Delta::row`] has seen all from before.
    pub(crate) fn rest(&self, out: &mut impl FnMut(&[u8])) {
        let mut made = Vec::new();
        let Some(relation) = &self.relation else { return };
        for row in self.rows.iter().filter(|row| !row.met) {
            made.clear();
            match &row.last {
                Last::Gone => continue,
                // An update of a row that is not there makes one of what it has, at clients too.
                Last::There(value) | Last::Changed(value) => push_row(&mut made, &row.key, value, relation),
            }
            out(&made);
        }
    }
}

impl Last {
    fn bytes(&self) -> usize {
        match self {
            Last::Gone => 0,
            Last::There(value) | Last::Changed(value) => value.len(),
        }
    }
}

#[cfg(test)]
#[path = "delta_tests.rs"]
mod tests;

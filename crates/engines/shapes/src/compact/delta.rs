//! What changes come to: the last state of each row that they touch.

use super::body::{Body, BodyError, Message, Operation, patched, push_row};
use super::moves::{Fate, Moves, Reasons};
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

/// [`Reasons`] that are kept.
struct Kept {
    tags: Box<[u8]>,
    active: Box<[u8]>,
}

struct Row {
    key: Box<[u8]>,
    last: Last,
    /// Of a shape with subqueries: its tags, and which positions are true.
    reasons: Option<Box<Kept>>,
    /// The place among messages of the one that told of it last.
    at: u64,
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
    /// Messages that were taken in.
    at: u64,
    moves: Moves,
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
            at: 0,
            moves: Moves::default(),
            relation: None,
            xids: BTreeSet::new(),
            xids_dropped: None,
        }
    }

    /// Memory, about.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.moves.bytes()
    }

    /// Takes in changes that follow those from before.
    pub(crate) fn changes(&mut self, mut bodies: &[u8]) -> Result<(), BodyError> {
        while !bodies.is_empty() {
            let (message, rest) = Message::split(bodies)?;
            self.at += 1;
            match message {
                Message::Row(body) => self.change(&body)?,
                Message::Event(event) => {
                    self.moves.take(self.at, &event)?;
                    event.txids.iter().for_each(|xid| self.saw(*xid));
                }
            }
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
        let reasons =
            body.reasons()?.map(|reasons| Box::new(Kept { tags: reasons.tags.into(), active: reasons.active.into() }));
        let row = Row { key: body.key.into(), last, reasons, at: self.at, met: false };
        self.bytes += row.bytes();
        match found {
            Some(at) => {
                self.bytes -= rows[at].bytes();
                rows[at] = row;
            }
            None => {
                rows.push(row);
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
            match body.reasons()? {
                Some(reasons) if !self.moves.is_empty() => {
                    let mut made = Vec::new();
                    let relation = body.relation()?;
                    if push_settled(&self.moves, Some(reasons), 0, body.key, body.value, relation, &mut made)? {
                        out(&made);
                    }
                }
                _ => out(body.whole),
            }
            return Ok(rest);
        };
        // A table without a key may have the same row twice. For clients it is one row.
        if std::mem::replace(&mut rows[at].met, true) {
            return Ok(rest);
        }
        let mut made = Vec::new();
        if rows[at].push(&self.moves, Some(body.value), body.relation()?, &mut made)? {
            out(&made);
        }
        Ok(rest)
    }

    /// Gives on the rows of this part that are new, when [`Delta::row`] has seen all from before.
    pub(crate) fn rest(&self, out: &mut impl FnMut(&[u8])) -> Result<(), BodyError> {
        let mut made = Vec::new();
        let Some(relation) = &self.relation else { return Ok(()) };
        for row in self.rows.iter().filter(|row| !row.met) {
            made.clear();
            if row.push(&self.moves, None, relation, &mut made)? {
                out(&made);
            }
        }
        Ok(())
    }
}

impl Row {
    /// Memory, about.
    fn bytes(&self) -> usize {
        let reasons = self.reasons.as_ref().map_or(0, |reasons| reasons.tags.len() + reasons.active.len());
        ROW_BYTES + self.key.len() + self.last.bytes() + reasons
    }

    /// Appends what it is after all changes; whether it is still there. `before`: its value before.
    fn push(
        &self,
        moves: &Moves,
        before: Option<&[u8]>,
        relation: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<bool, BodyError> {
        let patch;
        let value: &[u8] = match (&self.last, before) {
            (Last::Gone, _) => return Ok(false),
            // An update of a row that is not there makes one of what it has, at clients too.
            (Last::There(value), _) | (Last::Changed(value), None) => value,
            (Last::Changed(changes), Some(before)) => {
                patch = patched(before, changes)?;
                &patch
            }
        };
        let reasons = self.reasons.as_ref().map(|reasons| Reasons { tags: &reasons.tags, active: &reasons.active });
        push_settled(moves, reasons, self.at, self.key.as_ref(), value, relation, out)
    }
}

/// Appends a row that was last told of at `since`, as events left it; whether it is still there.
fn push_settled(
    moves: &Moves,
    reasons: Option<Reasons<'_>>,
    since: u64,
    key: &[u8],
    value: &[u8],
    relation: &[u8],
    out: &mut Vec<u8>,
) -> Result<bool, BodyError> {
    let Some(reasons) = reasons else {
        push_row(out, key, value, relation, None);
        return Ok(true);
    };
    match moves.fate(reasons, since)? {
        Fate::Gone => return Ok(false),
        Fate::Stays => push_row(out, key, value, relation, Some(reasons)),
        Fate::Changed(active) => push_row(out, key, value, relation, Some(Reasons { active: &active, ..reasons })),
    }
    Ok(true)
}

impl Last {
    fn bytes(&self) -> usize {
        match self {
            Last::Gone => 0,
            Last::There(value) | Last::Changed(value) => value.len(),
        }
    }
}

/// Rows with changes, in so many parts.
#[cfg(test)]
pub(crate) fn merged(base: &[u8], changes: &[u8], parts: u64) -> Result<Vec<u8>, BodyError> {
    let hasher = RandomState::new();
    let mut out = Vec::new();
    for part in 0..parts {
        let mut delta = Delta::new(hasher.clone(), Part { part, of: parts });
        delta.changes(changes)?;
        let mut push = |row: &[u8]| out.extend_from_slice(row);
        let mut rest = base;
        while !rest.is_empty() {
            rest = delta.row(rest, &mut push)?;
        }
        delta.rest(&mut push)?;
    }
    Ok(out)
}

#[cfg(test)]
#[path = "delta_tests.rs"]
mod tests;

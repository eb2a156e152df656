//! The net effect of changes: the last state of each row that they touch.

use super::body::{Body, BodyError, Message, Operation, patched, push_row};
use super::moves::{Fate, Moves, Reasons};
use hashbrown::HashTable;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use thalweg_shapes_model::snapshot::PgSnapshot;

/// The most transactions whose xids are remembered.
const XIDS_MAX: usize = 1 << 16;
/// The approximate memory of a row beside its bytes.
const ROW_BYTES: usize = 64;

/// A part of all keys: those whose hash leaves `part` when it is divided by `of`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub part: u64,
    pub of: u64,
}

impl Part {
    pub const ALL: Part = Part { part: 0, of: 1 };

    fn has(self, hash: u64) -> bool {
        // The lower bits are the table's.
        (hash >> 32) % self.of == self.part
    }
}

/// A row after the changes.
enum Last {
    Gone,
    /// The row exists, with this whole value.
    There(Box<[u8]>),
    /// The row's changed columns.
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
    /// In a shape with subqueries: the row's tags, and which positions are true.
    reasons: Option<Box<Kept>>,
    /// The position of its last message.
    at: u64,
    /// The earlier base has the row.
    met: bool,
}

/// The merged changes of some keys.
pub struct Delta {
    hasher: RandomState,
    part: Part,
    table: HashTable<usize>,
    /// Rows in the order of their first change.
    rows: Vec<Row>,
    bytes: usize,
    /// The number of messages so far.
    at: u64,
    moves: Moves,
    relation: Option<Box<[u8]>>,
    xids: BTreeSet<u32>,
    xids_dropped: Option<u32>,
}

impl Delta {
    /// `hasher`: the same for all parts.
    pub fn new(hasher: RandomState, part: Part) -> Self {
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
    pub fn bytes(&self) -> usize {
        self.bytes + self.moves.bytes()
    }

    /// Adds changes, which follow those of earlier calls.
    pub fn changes(&mut self, mut bodies: &[u8]) -> Result<(), BodyError> {
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

    /// The snapshot of the rows after the changes, if `before` was that of the rows before.
    pub fn snapshot(&self, before: &PgSnapshot, lsn: u64) -> PgSnapshot {
        let seen: BTreeSet<u64> = self.xids.iter().map(|xid| before.with_epoch(*xid)).collect();
        let below = self.xids_dropped.map_or(0, |xid| before.with_epoch(xid) + 1);
        before.with(&seen, below, lsn)
    }

    /// Passes on the new state of the first row of `bodies`, which are rows of the earlier base: nothing, if the row is
    /// of another part. Returns the rest of `bodies`.
    pub fn row<'a>(&mut self, bodies: &'a [u8], out: &mut impl FnMut(&[u8])) -> Result<&'a [u8], BodyError> {
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
        // A table without a primary key may have equal rows, which clients cannot tell apart.
        if std::mem::replace(&mut rows[at].met, true) {
            return Ok(rest);
        }
        let mut made = Vec::new();
        if rows[at].push(&self.moves, Some(body.value), body.relation()?, &mut made)? {
            out(&made);
        }
        Ok(rest)
    }

    /// Passes on the new rows of this part, after [`Delta::row`] has seen all rows of the earlier base.
    pub fn rest(&self, out: &mut impl FnMut(&[u8])) -> Result<(), BodyError> {
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

    /// Appends the row after all changes; returns whether it still exists. `before`: its value before.
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
            // An update of an unknown row inserts the columns that it has, as clients do.
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

/// Appends a row whose last message was at `since`, with the effect of later events; returns whether it still exists.
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

/// The rows of a base with changes, merged in this many parts.
#[cfg(any(test, feature = "testing"))]
pub fn merged(base: &[u8], changes: &[u8], parts: u64) -> Result<Vec<u8>, BodyError> {
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

//! Rows as messages: the encoding of a table's changes for all shapes with the same columns and replica mode.
//!
//! A body is `{"key":…,"value":{…},"headers":{…}},`: bodies that follow each other are the inside of a JSON array, but
//! for the last comma. [`super::message`] patches them afterwards.
//!
//! Values are text or null. Booleans are `true` and `false` in changes and in snapshots.

use thalweg_shapes_model::definition::Replica;
use thalweg_shapes_model::json::{push_escaped, push_string};
use thalweg_shapes_model::row::Row;
use thalweg_shapes_model::table::{Table, quoted};

const BOOL: u32 = 16;

/// The position of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub xid: u32,
    /// The commit's.
    pub lsn: u64,
    /// The place in the transaction.
    pub op: u32,
}

/// The effect of an update on the selected columns of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// No selected column changed.
    Nothing,
    Columns,
    /// The key changed: a delete and an insert.
    Key,
}

/// Renders rows of one table. `Row`s of changes have the table's columns in its order; those of snapshots have the
/// selected ones, in the order of [`Projection::select_list`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Projection {
    /// `{"key":"\"schema\".\"table\"`.
    head: Box<[u8]>,
    /// `,"relation":["schema","table"]`.
    relation: Box<[u8]>,
    columns: Box<[Selected]>,
    key: Box<[Part]>,
    /// From a column's place in the table to its place in the selection.
    places: Box<[u32]>,
    replica: Replica,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Selected {
    at: usize,
    name: Box<str>,
    /// `"name":`.
    label: Box<[u8]>,
    boolean: bool,
    key: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Part {
    at: usize,
    boolean: bool,
}

impl Projection {
    /// `selected`: places of columns in the table, which hold those of the key; others than the table has are left out.
    #[must_use]
    pub fn new(table: &Table, selected: &[usize], replica: Replica) -> Self {
        let key = table.key();
        let mut head = b"{\"key\":\"\\\"".to_vec();
        push_relation_part(&mut head, &table.name.schema);
        head.extend_from_slice(b"\\\".\\\"");
        push_relation_part(&mut head, &table.name.name);
        head.extend_from_slice(b"\\\"");
        let mut relation = b",\"relation\":[".to_vec();
        push_string(&mut relation, table.name.schema.as_bytes());
        relation.push(b',');
        push_string(&mut relation, table.name.name.as_bytes());
        relation.push(b']');
        let mut order: Vec<usize> = selected.iter().copied().filter(|at| *at < table.columns.len()).collect();
        order.sort_unstable();
        order.dedup();
        let mut places = vec![u32::MAX; table.columns.len()];
        let mut columns = Vec::with_capacity(order.len());
        for at in order {
            let column = &table.columns[at];
            places[at] = columns.len() as u32;
            let mut label = Vec::with_capacity(column.name.len() + 3);
            push_string(&mut label, column.name.as_bytes());
            label.push(b':');
            columns.push(Selected {
                at,
                name: column.name.as_str().into(),
                label: label.into(),
                boolean: column.ty.oid == BOOL,
                key: key.contains(&at),
            });
        }
        let key = key.iter().map(|at| Part { at: *at, boolean: table.columns[*at].ty.oid == BOOL }).collect();
        Self {
            head: head.into(),
            relation: relation.into(),
            columns: columns.into(),
            key,
            places: places.into(),
            replica,
        }
    }

    /// Every column of the table.
    #[must_use]
    pub fn all(table: &Table, replica: Replica) -> Self {
        Self::new(table, &(0..table.columns.len()).collect::<Vec<_>>(), replica)
    }

    /// The selected columns for SQL, each in quotes: `"id","title"`. Without any, a constant that makes rows of one
    /// column.
    #[must_use]
    pub fn select_list(&self) -> String {
        if self.columns.is_empty() {
            return "NULL".to_owned();
        }
        self.columns.iter().map(|column| quoted(&column.name)).collect::<Vec<_>>().join(",")
    }

    /// Places in the table of the selected columns, ascending.
    pub fn selected(&self) -> impl Iterator<Item = usize> + '_ {
        self.columns.iter().map(|column| column.at)
    }

    /// A row of a snapshot.
    pub fn snapshot_row(&self, row: &(impl Row + ?Sized), out: &mut Vec<u8>) {
        self.snapshot_row_with(row, b"", out);
    }

    /// [`Projection::snapshot_row`] with more headers: JSON members, each after a comma.
    pub fn snapshot_row_with(&self, row: &(impl Row + ?Sized), more: &[u8], out: &mut Vec<u8>) {
        self.table_row_with(&Chosen { places: &self.places, row }, more, out);
    }

    /// [`Projection::snapshot_row_with`] of a row with the table's columns in its order.
    pub fn table_row_with(&self, row: &(impl Row + ?Sized), more: &[u8], out: &mut Vec<u8>) {
        self.whole(row, out);
        out.extend_from_slice(b",\"headers\":{\"operation\":\"insert\"");
        out.extend_from_slice(&self.relation);
        out.extend_from_slice(more);
        out.extend_from_slice(b"}},");
    }

    /// An insert: a row that is new, or new to the shape.
    pub fn insert(&self, place: Place, new: &(impl Row + ?Sized), out: &mut Vec<u8>) {
        self.whole(new, out);
        self.end("insert", place, out);
    }

    /// A delete: a row that is gone, or gone from the shape.
    pub fn delete(&self, place: Place, old: &(impl Row + ?Sized), out: &mut Vec<u8>) {
        self.remains(old, out);
        self.end("delete", place, out);
    }

    /// An update: selected columns differ, but not the key ([`Difference::Columns`]).
    pub fn update(&self, place: Place, old: &(impl Row + ?Sized), new: &(impl Row + ?Sized), out: &mut Vec<u8>) {
        let changed = |column: &Selected| old.cell(column.at) != new.cell(column.at);
        self.begin(new, out);
        match self.replica {
            Replica::Default => self.values(new, |column| column.key || changed(column), out),
            Replica::Full => {
                self.values(new, |_| true, out);
                out.extend_from_slice(b",\"old_value\":");
                self.values(old, changed, out);
            }
        }
        self.end("update", place, out);
    }

    /// First half of an update that changes the key ([`Difference::Key`]).
    pub fn key_change_delete(
        &self,
        place: Place,
        old: &(impl Row + ?Sized),
        new: &(impl Row + ?Sized),
        out: &mut Vec<u8>,
    ) {
        self.remains(old, out);
        self.end_with("delete", place, "key_change_to", Some(new), out);
    }

    /// Second half of an update that changes the key; `place` is that of the first half.
    pub fn key_change_insert(
        &self,
        place: Place,
        old: &(impl Row + ?Sized),
        new: &(impl Row + ?Sized),
        out: &mut Vec<u8>,
    ) {
        self.whole(new, out);
        self.end_with("insert", Place { op: place.op.saturating_add(1), ..place }, "key_change_from", Some(old), out);
    }

    /// The effect of an update on the selected columns.
    #[must_use]
    pub fn difference(&self, old: &(impl Row + ?Sized), new: &(impl Row + ?Sized)) -> Difference {
        if self.key.iter().any(|part| old.cell(part.at) != new.cell(part.at)) {
            Difference::Key
        } else if self.columns.iter().any(|column| old.cell(column.at) != new.cell(column.at)) {
            Difference::Columns
        } else {
            Difference::Nothing
        }
    }

    /// The row's key as clients see it, without JSON's escapes and quotes around it.
    #[must_use]
    pub fn key(&self, row: &(impl Row + ?Sized)) -> String {
        let mut out = b"\"".to_vec();
        self.push_key(row, &mut out);
        out.push(b'"');
        serde_json::from_slice(&out).unwrap_or_default()
    }

    fn whole(&self, row: &(impl Row + ?Sized), out: &mut Vec<u8>) {
        self.begin(row, out);
        self.values(row, |_| true, out);
    }

    /// The value of a deleted row.
    fn remains(&self, old: &(impl Row + ?Sized), out: &mut Vec<u8>) {
        self.begin(old, out);
        self.values(old, |column| column.key || self.replica == Replica::Full, out);
    }

    /// `{"key":"…","value":`.
    #[inline]
    fn begin(&self, row: &(impl Row + ?Sized), out: &mut Vec<u8>) {
        out.extend_from_slice(&self.head);
        self.push_parts(row, out);
        out.extend_from_slice(b"\",\"value\":");
    }

    fn push_key(&self, row: &(impl Row + ?Sized), out: &mut Vec<u8>) {
        out.extend_from_slice(&self.head[b"{\"key\":\"".len()..]);
        self.push_parts(row, out);
    }

    #[inline]
    fn push_parts(&self, row: &(impl Row + ?Sized), out: &mut Vec<u8>) {
        for part in &self.key {
            match row.cell(part.at) {
                None => out.extend_from_slice(b"/_"),
                Some(text) => {
                    out.extend_from_slice(b"/\\\"");
                    push_doubled(out, plain(text, part.boolean), b'/');
                    out.extend_from_slice(b"\\\"");
                }
            }
        }
    }

    #[inline]
    fn values(&self, row: &(impl Row + ?Sized), wanted: impl Fn(&Selected) -> bool, out: &mut Vec<u8>) {
        out.push(b'{');
        let mut first = true;
        for column in self.columns.iter().filter(|column| wanted(column)) {
            if !std::mem::take(&mut first) {
                out.push(b',');
            }
            out.extend_from_slice(&column.label);
            match row.cell(column.at) {
                None => out.extend_from_slice(b"null"),
                Some(text) => push_string(out, plain(text, column.boolean)),
            }
        }
        out.push(b'}');
    }

    fn end(&self, operation: &'static str, place: Place, out: &mut Vec<u8>) {
        self.end_with(operation, place, "", None::<&[Option<&[u8]>]>, out);
    }

    #[inline]
    fn end_with(
        &self,
        operation: &'static str,
        place: Place,
        name: &'static str,
        other: Option<&(impl Row + ?Sized)>,
        out: &mut Vec<u8>,
    ) {
        let mut number = itoa::Buffer::new();
        out.extend_from_slice(b",\"headers\":{\"operation\":\"");
        out.extend_from_slice(operation.as_bytes());
        out.extend_from_slice(b"\",\"txids\":[");
        out.extend_from_slice(number.format(place.xid).as_bytes());
        out.push(b']');
        out.extend_from_slice(&self.relation);
        if let Some(row) = other {
            out.extend_from_slice(b",\"");
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b"\":\"");
            self.push_key(row, out);
            out.push(b'"');
        }
        out.extend_from_slice(b",\"lsn\":\"");
        out.extend_from_slice(number.format(place.lsn).as_bytes());
        out.extend_from_slice(b"\",\"op_position\":");
        out.extend_from_slice(number.format(place.op).as_bytes());
        out.extend_from_slice(b"}},");
    }
}

/// A row of the selected columns, seen by the places of the table's.
struct Chosen<'a, R: Row + ?Sized> {
    places: &'a [u32],
    row: &'a R,
}

impl<R: Row + ?Sized> Row for Chosen<'_, R> {
    #[inline]
    fn cell(&self, at: usize) -> Option<&[u8]> {
        self.row.cell(*self.places.get(at)? as usize)
    }
}

#[inline]
fn plain(text: &[u8], boolean: bool) -> &[u8] {
    match text {
        b"t" if boolean => b"true",
        b"f" if boolean => b"false",
        _ => text,
    }
}

/// Escapes for JSON, with each `mark` twice.
#[inline]
fn push_doubled(out: &mut Vec<u8>, text: &[u8], mark: u8) {
    let mut rest = text;
    while let Some(at) = memchr::memchr(mark, rest) {
        push_escaped(out, &rest[..at]);
        out.extend_from_slice(&[mark, mark]);
        rest = &rest[at + 1..];
    }
    push_escaped(out, rest);
}

fn push_relation_part(out: &mut Vec<u8>, name: &str) {
    push_escaped(out, name.replace('/', "//").replace('.', "..").as_bytes());
}

#[cfg(test)]
#[path = "projection_tests.rs"]
pub mod tests;

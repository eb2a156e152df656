//! Results that are held in memory, as text.

use super::error::Error;
use super::frame::{Frame, Receiver};
use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::Message;

/// Result of one statement: rows, or only its command tag.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResultSet {
    /// The columns; none for a statement without rows.
    pub columns: Vec<Column>,
    /// The command tag: `SELECT 3`, `INSERT 0 1`, `BEGIN`; empty for an empty statement.
    pub command: String,
    text: String,
    /// The end of each value in `text`, row by row.
    cells: Vec<Cell>,
    rows: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    end: usize,
    null: bool,
}

/// A column of a result. The numbers are those of the server's catalogs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// The column's name in the result.
    pub name: String,
    /// 0 if it is not a plain column of a table.
    pub table_oid: u32,
    /// `attnum`, or 0.
    pub table_column: i16,
    /// The type's oid.
    pub type_oid: u32,
    /// `typlen`: bytes, or -1 for types of any length.
    pub type_size: i16,
    /// `atttypmod`, or -1.
    pub type_modifier: i32,
}

/// One row; values are in the text form of Postgres.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    set: &'a ResultSet,
    row: usize,
}

impl ResultSet {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The rows, in order.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = Row<'_>> + Clone {
        (0..self.rows).map(|row| Row { set: self, row })
    }

    /// The row of this number, from 0.
    pub fn row(&self, row: usize) -> Option<Row<'_>> {
        (row < self.rows).then_some(Row { set: self, row })
    }

    /// The first value of the first row: the result of a query for one value.
    pub fn value(&self) -> Option<&str> {
        self.row(0)?.get(0)
    }

    /// The place of the column with this name.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// Number of rows that the statement touched or returned, if its kind has one.
    pub fn rows_affected(&self) -> Option<u64> {
        self.command.rsplit(' ').next()?.parse().ok()
    }

    /// Approximate memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.text.len() + self.cells.len() * size_of::<Cell>()
    }

    /// Adds a `DataRow`. A server whose database has no encoding (SQL_ASCII) itself ensures that it sends UTF-8.
    pub(super) fn push(&mut self, body: &[u8]) -> Result<(), Error> {
        const SHORT: Error = Error::Protocol("a row that is not whole");
        let (count, mut rest) = body.split_first_chunk::<2>().ok_or(SHORT)?;
        if usize::from(u16::from_be_bytes(*count)) != self.columns.len() {
            return Err(Error::Protocol("a row with other columns than were announced"));
        }
        for _ in 0..self.columns.len() {
            let (len, after) = rest.split_first_chunk::<4>().ok_or(SHORT)?;
            let len = i32::from_be_bytes(*len);
            let (value, after) = after.split_at_checked(usize::try_from(len).unwrap_or(0)).ok_or(SHORT)?;
            match (len, std::str::from_utf8(value)) {
                (..-1, _) => return Err(Error::Protocol("a value of negative length")),
                (_, Ok(text)) => self.text.push_str(text),
                (_, Err(_)) => return Err(Error::Protocol("a value that is not UTF-8")),
            }
            self.cells.push(Cell { end: self.text.len(), null: len == -1 });
            rest = after;
        }
        if !rest.is_empty() {
            return Err(Error::Protocol("a row with something behind it"));
        }
        self.rows += 1;
        Ok(())
    }
}

impl<'a> Row<'a> {
    /// The value, or `None` for NULL and for a missing column.
    pub fn get(&self, column: usize) -> Option<&'a str> {
        if column >= self.set.columns.len() {
            return None;
        }
        let at = self.row * self.set.columns.len() + column;
        let cell = self.set.cells[at];
        let start = at.checked_sub(1).map_or(0, |before| self.set.cells[before].end);
        (!cell.null).then(|| &self.set.text[start..cell.end])
    }

    /// The row's values, in the order of the columns; `None` is NULL.
    pub fn values(&self) -> impl ExactSizeIterator<Item = Option<&'a str>> + use<'a> {
        let row = *self;
        (0..self.set.columns.len()).map(move |column| row.get(column))
    }
}

impl std::fmt::Debug for Row<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.values()).finish()
    }
}

/// Reads a `RowDescription`.
pub(super) fn columns(receiver: &Receiver, frame: &Frame) -> Result<Vec<Column>, Error> {
    let Message::RowDescription(body) = receiver.message(frame)? else {
        return Err(Error::Protocol("columns that are none"));
    };
    let column = |field: postgres_protocol::message::backend::Field<'_>| {
        Ok(Column {
            name: field.name().to_owned(),
            table_oid: field.table_oid(),
            table_column: field.column_id(),
            type_oid: field.type_oid(),
            type_size: field.type_size(),
            type_modifier: field.type_modifier(),
        })
    };
    body.fields().map(column).collect().map_err(|_| Error::Protocol("columns that cannot be read"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn named(count: usize) -> ResultSet {
        let column = |i| Column {
            name: format!("c{i}"),
            table_oid: 0,
            table_column: 0,
            type_oid: 25,
            type_size: -1,
            type_modifier: -1,
        };
        ResultSet { columns: (0..count).map(column).collect(), ..ResultSet::default() }
    }

    fn data_row(values: &[Option<String>]) -> Vec<u8> {
        let mut body = (values.len() as u16).to_be_bytes().to_vec();
        for value in values {
            let len = value.as_ref().map_or(-1, |value| value.len() as i32);
            body.extend(len.to_be_bytes());
            body.extend(value.iter().flat_map(|value| value.bytes()));
        }
        body
    }

    proptest! {
        #[test]
        fn rows_come_out_as_they_went_in(rows in (0_usize..5).prop_flat_map(|n| prop::collection::vec(prop::collection::vec(any::<Option<String>>(), n), 0..6))) {
            let mut set = named(rows.first().map_or(0, Vec::len));
            for row in &rows {
                set.push(&data_row(row)).unwrap();
            }
            let out: Vec<Vec<_>> = set.rows().map(|row| row.values().map(|v| v.map(str::to_owned)).collect()).collect();
            prop_assert_eq!(&out, &rows);
            prop_assert_eq!(set.row(0).and_then(|row| row.get(99)), None);
            prop_assert!(set.row(rows.len()).is_none());
        }

        #[test]
        fn a_row_that_is_cut_or_garbage_is_refused(values: Vec<Option<String>>, garbage: Vec<u8>) {
            let whole = data_row(&values);
            for cut in 0..whole.len() {
                prop_assert!(named(values.len()).push(&whole[..cut]).is_err());
            }
            let _ = named(2).push(&garbage);
        }
    }
}

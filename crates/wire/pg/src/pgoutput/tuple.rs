//! Rows.

use super::decode::Reader;
use super::error::DecodeError;
use std::fmt;

/// The columns of one row, in the order of the table's [`Columns`](super::Columns).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Tuple<'a> {
    columns: u16,
    /// Was walked once, and is whole.
    bytes: &'a [u8],
}

/// One column of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// NULL.
    Null,
    /// A large value that the change did not touch, and that the log therefore has not.
    UnchangedToast,
    /// The value as Postgres prints it, in the client's encoding, which is UTF-8.
    Text(&'a [u8]),
    /// The value in its type's binary form.
    Binary(&'a [u8]),
}

impl<'a> Tuple<'a> {
    #[inline]
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let columns = reader.u16()?;
        Self::read_columns(columns, reader)
    }

    #[inline]
    fn read_columns(columns: u16, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let begin = reader.rest();
        for _ in 0..columns {
            match reader.u8()? {
                b'n' | b'u' => {}
                b't' | b'b' => {
                    let len = reader.len("the length of a value")?;
                    reader.bytes(len)?;
                }
                value => return Err(DecodeError::Value { what: "the kind of a column", value }),
            }
        }
        let bytes = &begin[..begin.len() - reader.rest().len()];
        Ok(Self { columns, bytes })
    }

    /// Number of columns.
    pub fn len(&self) -> usize {
        usize::from(self.columns)
    }

    /// Whether there are no columns.
    pub fn is_empty(&self) -> bool {
        self.columns == 0
    }

    /// The values, in the order of the table's columns.
    #[inline]
    pub fn values(&self) -> Values<'a> {
        Values { left: self.columns, bytes: self.bytes }
    }

    /// The bytes as in the message, after the number of columns: kind, length and bytes of each.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Reads the bytes of [`Tuple::bytes`], with the number of columns.
    pub fn from_bytes(columns: u16, bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let tuple = Self::read_columns(columns, &mut reader)?;
        reader.end()?;
        Ok(tuple)
    }
}

impl<'a> IntoIterator for &Tuple<'a> {
    type Item = Value<'a>;
    type IntoIter = Values<'a>;

    fn into_iter(self) -> Values<'a> {
        self.values()
    }
}

impl fmt::Debug for Tuple<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.values()).finish()
    }
}

/// The columns of a row, one by one.
#[derive(Clone)]
pub struct Values<'a> {
    left: u16,
    bytes: &'a [u8],
}

impl<'a> Iterator for Values<'a> {
    type Item = Value<'a>;

    #[inline]
    fn next(&mut self) -> Option<Value<'a>> {
        self.left = self.left.checked_sub(1)?;
        let (kind, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(match kind {
            b'n' => Value::Null,
            b'u' => Value::UnchangedToast,
            kind => {
                let (len, rest) = rest.split_first_chunk()?;
                let (value, rest) = rest.split_at_checked(u32::from_be_bytes(*len) as usize)?;
                self.bytes = rest;
                if *kind == b't' { Value::Text(value) } else { Value::Binary(value) }
            }
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::from(self.left), Some(usize::from(self.left)))
    }
}

impl ExactSizeIterator for Values<'_> {}

/// Writes the bytes of a [`Tuple`], for makers of messages.
#[derive(Clone, Debug, Default)]
pub struct TupleWriter {
    columns: u16,
    bytes: Vec<u8>,
}

impl TupleWriter {
    /// Adds a column.
    pub fn push(&mut self, value: Value<'_>) {
        self.columns += 1;
        match value {
            Value::Null => self.bytes.push(b'n'),
            Value::UnchangedToast => self.bytes.push(b'u'),
            Value::Text(bytes) | Value::Binary(bytes) => {
                self.bytes.push(if matches!(value, Value::Text(_)) { b't' } else { b'b' });
                self.bytes.extend((bytes.len() as u32).to_be_bytes());
                self.bytes.extend(bytes);
            }
        }
    }

    /// The row of the added columns.
    pub fn tuple(&self) -> Tuple<'_> {
        Tuple { columns: self.columns, bytes: &self.bytes }
    }
}

impl<'a> FromIterator<Value<'a>> for TupleWriter {
    fn from_iter<I: IntoIterator<Item = Value<'a>>>(values: I) -> Self {
        let mut writer = Self::default();
        values.into_iter().for_each(|value| writer.push(value));
        writer
    }
}

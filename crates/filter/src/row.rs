//! A row whose values are read when they are asked for, each once.

use crate::schema::Schema;
use crate::types::cast::Failed;
use crate::types::input;
use crate::types::value::Value;
use std::cell::OnceCell;

pub(crate) struct Row<'a> {
    pub(crate) schema: &'a Schema,
    values: &'a [Option<&'a [u8]>],
    /// What stands in the holes of the expression that is evaluated.
    pub(crate) holes: &'a [Value<'static>],
    cells: Box<[OnceCell<Result<Value<'a>, Failed>>]>,
}

static NULL: Value<'static> = Value::Null;

impl<'a> Row<'a> {
    /// Columns that the row has not are null.
    pub(crate) fn new(schema: &'a Schema, values: &'a [Option<&'a [u8]>]) -> Self {
        let cells = (0..values.len().min(schema.columns().len())).map(|_| OnceCell::new()).collect();
        Self { schema, values, holes: &[], cells }
    }

    pub(crate) fn column(&self, column: u16) -> Result<&Value<'a>, Failed> {
        let at = usize::from(column);
        let (Some(cell), Some(Some(bytes))) = (self.cells.get(at), self.values.get(at)) else { return Ok(&NULL) };
        let read = || {
            let text = std::str::from_utf8(bytes).map_err(|_| Failed)?;
            input::parse(text, self.schema.type_of(column), self.schema).map_err(|_| Failed)
        };
        cell.get_or_init(read).as_ref().map_err(|failed| *failed)
    }
}

//! A row whose values are parsed on first use, each once.

use crate::budget::{Budget, Failed};
use crate::schema::Schema;
use crate::types::input;
use crate::types::value::Value;
use std::cell::OnceCell;

pub(crate) struct Row<'a> {
    pub(crate) schema: &'a Schema,
    values: &'a [Option<&'a [u8]>],
    /// Constants for the holes of the evaluated expression.
    pub(crate) holes: &'a [Value<'static>],
    /// The remaining budget of the evaluation.
    pub(crate) budget: Budget,
    /// The remaining budget of parsing values, which is shared by all clauses on the row.
    reading: Budget,
    /// Bytes of all values.
    bytes: usize,
    cells: Box<[OnceCell<Result<Value<'a>, Failed>>]>,
}

static NULL: Value<'static> = Value::Null;

impl<'a> Row<'a> {
    /// A row with the budget of one evaluation. Columns beyond `values` are null.
    pub(crate) fn new(schema: &'a Schema, values: &'a [Option<&'a [u8]>]) -> Self {
        let bytes = values.iter().flatten().map(|value| value.len()).sum();
        let (budget, reading) = (Budget::of(Budget::of_evaluation(bytes)), Budget::of(Budget::of_reading(bytes)));
        let cells = (0..values.len().min(schema.columns().len())).map(|_| OnceCell::new()).collect();
        Self { schema, values, holes: &[], budget, reading, bytes, cells }
    }

    /// A row for expressions without columns.
    pub(crate) fn of_constants(schema: &'a Schema) -> Self {
        Self::new(schema, &[])
    }

    /// Without a budget, for work that the row's own size bounds.
    pub(crate) fn without_limit(mut self) -> Self {
        (self.budget, self.reading) = (Budget::unlimited(), Budget::unlimited());
        self
    }

    /// The budget of one evaluation for this row.
    pub(crate) fn allowance(&self) -> u64 {
        Budget::of_evaluation(self.bytes)
    }

    pub(crate) fn column(&self, column: u16) -> Result<&Value<'a>, Failed> {
        let at = usize::from(column);
        let (Some(cell), Some(Some(bytes))) = (self.cells.get(at), self.values.get(at)) else { return Ok(&NULL) };
        let read = || -> Result<_, Failed> {
            let text = std::str::from_utf8(bytes).map_err(|_| Failed::Invalid)?;
            Ok(input::parse(text, self.schema.type_of(column), self.schema, &self.reading)?)
        };
        cell.get_or_init(read).as_ref().map_err(|failed| *failed)
    }
}

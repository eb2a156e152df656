//! A where clause that was understood.

use crate::analyse;
use crate::budget::{Budget, Failed, TooCostly};
use crate::error::{ParseError, refuse_oversized};
use crate::expr::Expr;
use crate::print;
use crate::row::Row;
use crate::schema::Schema;
use crate::syntax;
use std::fmt;

/// Most bytes of all parameters together.
pub(crate) const PARAMS_BYTES_MAX: usize = 256 << 10;

/// A condition on the rows of a table.
#[derive(Clone)]
pub struct Predicate {
    pub(crate) expr: Expr,
    pub(crate) schema: Schema,
}

impl Predicate {
    /// Parses a where clause (without the word). `params` are the values of `$1`, `$2`, …, as text of the type that
    /// their context requires.
    pub fn parse(sql: &str, params: &[(u32, String)], schema: &Schema) -> Result<Self, ParseError> {
        let read = || {
            if params.iter().map(|(_, value)| value.len()).sum::<usize>() > PARAMS_BYTES_MAX {
                return refuse_oversized(0, format!("parameters are longer than {PARAMS_BYTES_MAX} bytes"));
            }
            let tree = syntax::parse(sql, params)?;
            analyse::condition(&tree, schema, &Budget::of_clause())
        };
        match read() {
            Ok(expr) => Ok(Self { expr, schema: schema.clone() }),
            Err(refusal) => Err(refusal.locate(sql)),
        }
    }

    /// The predicate as SQL for Postgres: with its parameters inlined, fully parenthesised, and independent of the
    /// session's settings and search path. Texts are ordered by bytes, as in [`Predicate::holds`], whatever the
    /// database's collation.
    pub fn sql(&self) -> String {
        print::sql(&self.expr, &self.schema)
    }

    /// The predicate for people. Predicates of one table with the same text are equal.
    pub fn canonical(&self) -> String {
        print::canonical(&self.expr, &self.schema)
    }

    /// Whether it is true (not false, not null, and no error) for a row: the texts of its columns as Postgres sends
    /// them, `None` for nulls.
    pub fn holds(&self, row: &[Option<&[u8]>]) -> Result<bool, TooCostly> {
        decided(self.expr.holds(&Row::new(&self.schema, row)))
    }

    /// The columns that it uses, ascending.
    pub fn columns(&self) -> Vec<usize> {
        let mut columns = Vec::new();
        self.expr.for_each_column(&mut |column| columns.push(usize::from(column)));
        columns.sort_unstable();
        columns.dedup();
        columns
    }
}

/// Whether a row satisfies a condition. A failing evaluation counts as no; a too costly one is undecided.
pub(crate) fn decided(holds: Result<bool, Failed>) -> Result<bool, TooCostly> {
    match holds {
        Ok(holds) => Ok(holds),
        Err(Failed::Invalid) => Ok(false),
        Err(Failed::Costly) => Err(TooCostly),
    }
}

impl fmt::Debug for Predicate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.canonical())
    }
}

/// Predicates of the same table are equal if Postgres's rules for types and operators give them the same meaning,
/// however they are written.
impl PartialEq for Predicate {
    fn eq(&self, other: &Self) -> bool {
        self.expr == other.expr
    }
}

impl Eq for Predicate {}

//! Bounds on the cost of an evaluation.
//!
//! A unit is about a nanosecond of work or a byte of memory, whichever an operation takes more of. An operation spends
//! before it begins, so time and memory never exceed the budget, for any clause and any value.

use std::cell::Cell;
use thiserror::Error;

/// Budget of one evaluation of a where clause for one row, and its growth with each byte of the row.
const EVALUATION: u64 = 4 << 20;
const EVALUATION_PER_BYTE: u64 = 32;
/// Budget of parsing the values of one row, for all clauses together, and its growth with each byte: an array of short
/// numbers takes more memory than its text.
const READING: u64 = 16 << 20;
const READING_PER_BYTE: u64 = 128;
/// No budget is larger than this, however long the row.
const LARGEST: u64 = 256 << 20;

/// Budget of analysing one where clause, including its constants.
const CLAUSE: u64 = 64 << 20;

/// Joint budget of all evaluations above [`LIGHT`] for one row; once it is spent, each further clause has [`LIGHT`].
pub(crate) const HEAVY_TOGETHER: u64 = 256 << 20;
pub(crate) const LIGHT: u64 = 16 << 10;

/// Evaluating a where clause for a row takes more time or memory than one evaluation may. Whether the row satisfies it
/// is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("evaluating the where clause for a row takes more time or memory than the limit")]
pub struct TooCostly;

/// Why an expression has no value for a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failed {
    /// Postgres has no value either: a division by zero, a cast of a text that is no number. The row is not in the
    /// shape.
    Invalid,
    /// The budget is spent.
    Costly,
}

/// The remaining units.
#[derive(Debug)]
pub(crate) struct Budget(Cell<u64>);

impl Budget {
    pub(crate) fn of(units: u64) -> Self {
        Self(Cell::new(units))
    }

    /// For constants that were parsed within a budget already, and for work that the row's own size bounds.
    pub(crate) fn unlimited() -> Self {
        Self::of(u64::MAX)
    }

    /// Budget of analysing one where clause.
    pub(crate) fn of_clause() -> Self {
        Self::of(CLAUSE)
    }

    /// For evaluating one where clause for a row of this many bytes.
    pub(crate) fn of_evaluation(row_bytes: usize) -> u64 {
        scaled(EVALUATION, EVALUATION_PER_BYTE, row_bytes)
    }

    /// For parsing the values of a row of this many bytes.
    pub(crate) fn of_reading(row_bytes: usize) -> u64 {
        scaled(READING, READING_PER_BYTE, row_bytes)
    }

    pub(crate) fn left(&self) -> u64 {
        self.0.get()
    }

    pub(crate) fn refill(&self, units: u64) {
        self.0.set(units);
    }

    /// Whether the budget is spent: the evaluation must end.
    pub(crate) fn is_spent(&self) -> bool {
        self.left() == 0
    }

    /// Spends `units` on the next operation, or all that are left if they are fewer.
    pub(crate) fn spend(&self, units: u64) -> Result<(), Failed> {
        match self.left().checked_sub(units) {
            Some(left) => {
                self.0.set(left);
                Ok(())
            }
            None => {
                self.0.set(0);
                Err(Failed::Costly)
            }
        }
    }

    /// Spends a unit for each byte that is about to be made.
    pub(crate) fn make(&self, bytes: usize) -> Result<(), Failed> {
        self.spend(bytes as u64)
    }

    /// Spends on a scan of this many bytes with vector instructions.
    pub(crate) fn scan(&self, bytes: usize) -> Result<(), Failed> {
        self.spend(bytes as u64 / 8 + 1)
    }
}

fn scaled(base: u64, per_byte: u64, bytes: usize) -> u64 {
    base.saturating_add(per_byte.saturating_mul(bytes as u64)).min(LARGEST)
}

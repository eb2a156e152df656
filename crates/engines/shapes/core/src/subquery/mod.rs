//! Sets of values that subqueries select, and how a condition sees a row over them.

pub mod place;
pub mod seen;
pub mod set;
pub mod sets;

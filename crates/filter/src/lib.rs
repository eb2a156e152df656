//! Where clauses with Postgres's meaning ([`Predicate`]), and an index of those that a row satisfies (`Index`).
//!
//! A clause is parsed by Postgres's grammar, typed by its rules for literals, casts, operators and functions, and
//! evaluated on the text of a row as logical replication sends it. Syntax without an exact equivalent here is refused,
//! never guessed. The README has the language.

mod analyse;
mod budget;
mod condition;
mod error;
mod eval;
mod expr;
mod function;
mod index;
mod key;
mod like;
mod narrow;
mod predicate;
mod print;
mod row;
mod schema;
mod syntax;
mod types;
mod union;

pub use budget::TooCostly;
pub use condition::{Condition, Filter, InnerTable, Membership, Named, Position, Query, inner_tables};
pub use error::ParseError;
pub use index::{Explanation, Filing, Index};
pub use key::Key;
pub use narrow::{Uses, both, uses};
pub use predicate::Predicate;
pub use schema::{Column, Schema};
pub use union::any_sql;

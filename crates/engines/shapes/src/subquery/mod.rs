//! Shapes whose where clause asks for rows of other tables: `parent_id IN (SELECT id FROM parent WHERE …)`.
//!
//! What an inner query selects is kept as an *inner shape* that no client sees: its rows lie on the disk as those of any shape, and in memory
//! as a [`set::Set`] of values, shared by all shapes with that query. When a transaction changes a set, the rows of the *outer* shapes that
//! ask for its values come or go without having been written:
//!
//! - values that make rows go are told to clients as a pattern (`move-out`): each row carries a hash of what it asked for (its *tags*), so
//!   nobody has to know the rows;
//! - rows that come must be fetched from Postgres (`move-in`), which shows them as of a later moment, a snapshot Q. Until the stream has
//!   brought every transaction that Q contains (the *boundary*) the shape goes on as if the values were not there; then come the fetched
//!   rows, then everything after. If the rows are late, what comes after the boundary is held back.
//!
//! | module | owns |
//! |---|---|
//! | `set` | values with their counts, and which come and go in a transaction |
//! | `seen` | what a where clause makes of a row: truths, tags |
//! | `node` | one shape of the graph, how it sees sets while rows are on their way |
//! | `graph` | all of them, in the order in which they depend on each other |
//! | `asking` | fetching the rows that come |
//! | `making`, `restore` | where nodes come from |

mod asking;
mod graph;
mod making;
mod node;
mod restore;
mod rows;
mod seen;
mod set;

pub(crate) use asking::Asking;
pub(crate) use graph::{Graph, Publication, Verdict};
pub(crate) use making::{Dependence, Making, headers, positions_list};
pub(crate) use node::{RowChange, row};
pub(crate) use restore::Restoring;

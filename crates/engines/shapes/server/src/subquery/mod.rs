//! Shapes whose where clause asks for rows of other tables: `parent_id IN (SELECT id FROM parent WHERE …)`.
//!
//! The rows of an inner query are kept as an *inner shape* that no client sees: they lie on the disk as those of any
//! shape, and in memory as a [`thalweg_shapes_core::subquery::set::Set`] of values, shared by all shapes with that
//! query. When a transaction changes a set, the rows of the *outer* shapes that ask for its values come or go without
//! having been written:
//!
//! - values that make rows go are sent to clients as a pattern (`move-out`): each row carries a hash of the values that
//!   it asked for (its *tags*), so the server need not know the rows;
//! - rows that come must be fetched from Postgres (`move-in`), which shows them as of a later moment, a snapshot Q.
//!   Until the stream has brought every transaction that Q contains (the *boundary*) the shape goes on as if the values
//!   were not there; then come the fetched rows, then everything after. If the rows are late, changes after the
//!   boundary are held back.
//!
//! | module | owns |
//! |---|---|
//! | `set`, `sets` (in core) | values with their counts, and which come and go in a transaction; all of them, and which sets have a value |
//! | `seen` (in core) | a where clause's results for a row: truths, tags |
//! | `node` | one shape of the graph, and its view of sets while rows are pending |
//! | `pending` | values whose rows a node waits for |
//! | `inner`, `outer` | the rows of an inner shape; the messages for clients of an outer one |
//! | `graph` | all nodes, and their dependences |
//! | `finder` | the nodes that a changed row may concern |
//! | `spread` | the effects of a transaction, from node to node |
//! | `waiting` | nodes that wait for rows, until these are in the log |
//! | `dependence` | where clauses with subqueries, and the nodes that they come to |
//!
//! `make/dependent.rs` makes nodes, `recover/dependent.rs` brings them back, `move_in_fetcher.rs` fetches the rows that come.

#[cfg(test)]
mod applied_tests;
mod dependence;
mod finder;
mod graph;
mod inner;
mod node;
mod outer;
mod pending;
mod spread;
#[cfg(test)]
mod tests;
mod waiting;

pub(crate) use dependence::{
    Dependence, cells, headers, identity, inner_columns, inner_identity, inner_node, outer_node, positions_list,
};
pub(crate) use finder::explain;
pub(crate) use graph::{Ask, Ended, FetchedRows, Graph, MoveInRequest, Turn, Verdict};
pub(crate) use node::Node;
pub(crate) use waiting::MoveIn;

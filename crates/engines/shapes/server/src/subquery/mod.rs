//! Shapes whose where clause asks for rows of other tables: `parent_id IN (SELECT id FROM parent WHERE …)`.
//!
//! What an inner query selects is kept as an *inner shape* that no client sees: its rows lie on the disk as those of any shape, and in memory
//! as a [`thalweg_shapes_core::subquery::set::Set`] of values, shared by all shapes with that query. When a transaction changes a set, the rows of the *outer* shapes that
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
//! | `set`, `sets` (in core) | values with their counts, and which come and go in a transaction; all of them, and who has which value |
//! | `seen` (in core) | what a where clause makes of a row: truths, tags |
//! | `node` | one shape of the graph, how it sees sets while rows are on their way |
//! | `pending` | values whose rows are on their way to a node |
//! | `inner`, `outer` | the rows of an inner shape; what clients of an outer one are told |
//! | `graph` | all of them, and who needs whom |
//! | `finder` | which of them a changed row may concern |
//! | `spread` | what a transaction does, from node to node |
//! | `waiting` | nodes that wait for rows, until these are in the log |
//! | `move_in_fetcher` | fetching the rows that come |
//! | `making`, `restore` | where nodes come from |

#[cfg(test)]
mod applied_tests;
mod finder;
mod graph;
mod inner;
mod making;
mod move_in_fetcher;
mod node;
mod outer;
mod pending;
mod restore;
mod rows;
mod spread;
#[cfg(test)]
mod tests;
mod waiting;

pub(crate) use finder::explain;
pub(crate) use graph::{Ended, Graph, Verdict};
pub(crate) use making::{Dependence, Making, headers, positions_list};
pub(crate) use move_in_fetcher::MoveInFetcher;
pub(crate) use restore::Restoring;
pub(crate) use waiting::Publication;

use crate::shape::Shape;
use parking_lot::Mutex;
use std::sync::Arc;
use thalweg_base::Lsn;
use thalweg_shapes_source::session::Endpoint;

impl Subqueries {
    /// Another history begins; all shapes of the one before are dropped.
    pub(crate) fn forget_source(&self) {
        self.graph.lock().last_lsn = 0;
        // Rows that are asked for are wanted by shapes that are gone.
        self.holding.lock().clear();
    }
}

/// What the engine keeps for shapes with subqueries.
pub(crate) struct Subqueries {
    /// Locks are taken in this order: the router, the graph, the recent transactions. None is held over a round trip to Postgres.
    pub(crate) graph: Mutex<Graph>,
    pub(crate) fetcher: MoveInFetcher,
    /// Shapes that show no more until the journal is durable up to there.
    pub(crate) holding: Mutex<Vec<(Arc<Shape>, Lsn)>>,
    pub(crate) making: Mutex<Making>,
}

impl Subqueries {
    /// `endpoint`: where rows are fetched.
    pub(crate) fn new(endpoint: Endpoint) -> Self {
        Self {
            graph: Mutex::default(),
            fetcher: MoveInFetcher::new(endpoint),
            holding: Mutex::default(),
            making: Mutex::default(),
        }
    }
}

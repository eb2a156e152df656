//! All shapes that depend on other tables' rows, and the inner shapes that they depend on: which needs which.

use super::finder::Finders;
use super::node::Node;
use super::waiting::Waiting;
use crate::faults::Faults;
use crate::shape::Shape;
use crate::state::transaction::Transaction;
use hashbrown::{HashMap, HashSet};
use std::collections::BTreeSet;
use std::sync::Arc;
use thalweg_filter::TooCostly;
use thalweg_shapes_core::route::ids::RouteId;
use thalweg_shapes_core::subquery::place::At;
use thalweg_shapes_core::subquery::sets::Sets;
use thalweg_shapes_model::row::Cells;

#[derive(Default)]
pub(crate) struct Graph {
    pub(super) nodes: HashMap<u64, Node>,
    pub(super) sets: Sets,
    pub(super) finders: Finders,
    pub(super) waiting: Waiting,
    by_identity: HashMap<String, u64>,
    /// Nodes by the tables whose rows they select.
    by_table: HashMap<u32, BTreeSet<u64>>,
    /// Nodes whose first rows may have transactions that are still to come.
    pub(super) young: BTreeSet<u64>,
    /// The last transaction that was seen.
    pub(super) last_lsn: u64,
    pub(crate) faults: Faults,
}

/// The actions that a call of the graph leaves to its caller.
#[derive(Default)]
pub(crate) struct Verdict {
    /// Shapes that cannot go on, and why.
    pub(crate) drop: Vec<(Arc<Shape>, Ended)>,
    /// Shapes that wait for rows from now on.
    pub(crate) began: Vec<u64>,
    /// The move-ins to fetch.
    pub(crate) ask: Vec<MoveInRequest>,
}

/// Why a shape cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Its clients fetch it again.
    Because(&'static str),
    /// A row is too costly to evaluate its where clause for.
    Costly,
}

impl From<&'static str> for Ended {
    fn from(why: &'static str) -> Self {
        Self::Because(why)
    }
}

impl From<TooCostly> for Ended {
    fn from(_: TooCostly) -> Self {
        Self::Costly
    }
}

/// Rows of a table that a shape waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MoveInRequest {
    pub(crate) shape: u64,
    pub(crate) pending: u64,
    /// Its oid.
    pub(crate) table: u32,
}

/// Rows for a shape, or why there are none.
pub(crate) struct FetchedRows {
    pub(crate) shape: u64,
    pub(crate) pending: u64,
    pub(crate) rows: Result<Vec<Cells>, String>,
}

/// Whether to request rows now.
#[derive(Debug)]
pub(crate) enum Turn {
    Ask(Ask),
    /// Rows that belong before them have no snapshot yet.
    Later,
    /// No node waits for them.
    Gone,
}

/// How rows are to be fetched.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) shape: u64,
    pub(crate) pending: u64,
    pub(crate) table: Arc<thalweg_shapes_model::table::Table>,
    /// Places of the columns that are needed, ascending.
    pub(crate) columns: Vec<usize>,
    /// SQL; `None`: no rows are needed now, only their place in the stream.
    pub(crate) filter: Option<String>,
}

impl Graph {
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Another history begins; all shapes of the one before are dropped.
    pub(crate) fn forget_source(&mut self) {
        self.last_lsn = 0;
    }

    /// Whether any node waits for rows.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.is_any()
    }

    /// Whether it matters how far the stream is, beyond its transactions.
    pub(crate) fn is_listening(&self) -> bool {
        self.is_waiting() || !self.young.is_empty()
    }

    /// Whether every transaction that a node's first rows may contain is applied; `None`: the node is gone.
    pub(crate) fn is_grown(&self, number: u64) -> Option<bool> {
        self.nodes.get(&number).map(|node| node.contained.is_none())
    }

    /// The shapes that cannot be without this one, however indirectly.
    pub(crate) fn above(&self, number: u64) -> Vec<Arc<Shape>> {
        let users = self.nodes.get(&number).and_then(|node| node.inner.as_ref()).into_iter().flat_map(|i| &i.users);
        users.flat_map(|user| self.shape(*user).into_iter().chain(self.above(*user))).collect()
    }

    /// Route ids of shapes whose changes must not be referred to yet.
    pub(crate) fn held(&self) -> &HashSet<RouteId> {
        self.waiting.held()
    }

    pub(crate) fn shape(&self, number: u64) -> Option<Arc<Shape>> {
        self.nodes.get(&number).map(|node| Arc::clone(&node.shape))
    }

    /// How often a condition or a part of it was evaluated since this was asked last.
    pub(crate) fn take_evaluations(&mut self) -> u64 {
        self.finders.take_evaluations()
    }

    /// The shapes that select from these tables.
    pub(crate) fn of_tables(&self, tables: &[u32]) -> Vec<Arc<Shape>> {
        let numbers = tables.iter().filter_map(|table| self.by_table.get(table)).flatten();
        numbers.filter_map(|number| self.shape(*number)).collect()
    }

    pub(crate) fn inner(&self, identity: &str) -> Option<(u64, &Node)> {
        let number = *self.by_identity.get(identity)?;
        Some((number, self.nodes.get(&number)?))
    }

    /// Whether all of these inner shapes exist.
    pub(crate) fn has(&self, sets: &[Option<u64>]) -> bool {
        sets.iter().flatten().all(|number| self.nodes.contains_key(number))
    }

    /// Whether these inner shapes have all of their rows, and those below them.
    pub(crate) fn is_settled(&self, sets: &[Option<u64>]) -> bool {
        sets.iter().flatten().all(|number| {
            self.nodes.get(number).is_some_and(|node| {
                node.pendings.is_empty()
                    && node.inner.as_ref().is_some_and(|inner| inner.loading.is_none())
                    && self.is_settled(&node.sets)
            })
        })
    }

    fn depth_of(&self, sets: &[Option<u64>]) -> usize {
        sets.iter().flatten().filter_map(|set| self.nodes.get(set)).map(|node| node.depth + 1).max().unwrap_or(0)
    }

    /// Takes a node in. Those whose sets it asks for must be there.
    pub(crate) fn insert(&mut self, mut node: Node) {
        let number = node.shape.number;
        node.depth = self.depth_of(&node.sets);
        for set in node.sets.iter().flatten() {
            if let Some(inner) = self.nodes.get_mut(set).and_then(|node| node.inner.as_mut()) {
                inner.users.insert(number);
                inner.was_unused = false;
            }
        }
        self.by_table.entry(node.table.oid).or_default().insert(number);
        if let Some(inner) = &node.inner {
            self.by_identity.insert(inner.identity.clone(), number);
            self.sets.insert(number, &inner.query);
        }
        self.finders.insert(&node, &mut self.sets);
        if node.contained.is_some() {
            self.young.insert(number);
        }
        self.nodes.insert(number, node);
    }

    /// Takes a shape out. Returns its dependent shapes, and the inner shapes that no shape needs now.
    pub(crate) fn remove(&mut self, number: u64) -> Vec<Arc<Shape>> {
        let Some(node) = self.nodes.remove(&number) else { return Vec::new() };
        self.finders.remove(&node);
        self.sets.remove(number);
        self.waiting.forget(&node);
        self.young.remove(&number);
        if let Some(numbers) = self.by_table.get_mut(&node.table.oid) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.by_table.remove(&node.table.oid);
            }
        }
        let mut others = Vec::new();
        for set in node.sets.iter().flatten() {
            let Some(below) = self.nodes.get_mut(set) else { continue };
            let Some(inner) = &mut below.inner else { continue };
            inner.users.remove(&number);
            if inner.is_unused() {
                others.push(Arc::clone(&below.shape));
            }
        }
        if let Some(inner) = node.inner {
            self.by_identity.remove(&inner.identity);
            others.extend(inner.users.iter().filter_map(|user| Some(Arc::clone(&self.nodes.get(user)?.shape))));
        }
        others
    }

    /// Inner shapes that no shape has needed since the last call.
    pub(crate) fn orphans(&mut self) -> Vec<Arc<Shape>> {
        let mut orphans = Vec::new();
        for node in self.nodes.values_mut() {
            let Some(inner) = &mut node.inner else { continue };
            let unused = inner.is_unused();
            if unused && std::mem::replace(&mut inner.was_unused, unused) {
                orphans.push(Arc::clone(&node.shape));
            }
        }
        orphans
    }

    /// The first rows of an inner shape are all here.
    pub(crate) fn loaded(&mut self, number: u64, rows: Vec<Cells>) -> Result<(), TooCostly> {
        let Some(mut node) = self.nodes.remove(&number) else { return Ok(()) };
        let mut told = Ok(());
        // No shape asks for its values before it has them.
        self.sets.change(number, |sets, set, changes| {
            let mut queued = Vec::new();
            if let Some(inner) = &mut node.inner {
                rows.into_iter().for_each(|cells| inner.put(set, changes, cells));
                queued = inner.loading.take().unwrap_or_default();
            }
            // Its log has them already.
            let mut nothing = Transaction::new(0, 0, usize::MAX);
            for change in &queued {
                let at = At { xid: 0, lsn: 0, since: 0 };
                told = told.and_then(|()| node.inner_change(sets, set, changes, change, at, &mut nothing));
            }
        });
        self.finders.watch(&node);
        self.nodes.insert(number, node);
        told
    }
}

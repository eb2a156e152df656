//! Finds the nodes that a changed row may concern, without evaluating each.
//!
//! A row concerns a node if the node's condition holds for it. One position of each alternative of a condition is
//! enough for a lookup: a condition on the row alone as everywhere ([`Index`]), a membership through the value that the
//! row asks for. The value leads to the sets that have it ([`Sets::holders`]), and these to the nodes that ask them.
//! Where an alternative has neither (`NOT IN` alone, `<>`), the node is evaluated for each row. A found node evaluates
//! its whole condition, so the lookup may find too many nodes, and never too few.
//!
//! The lookup uses the current values of sets. A node with pending rows sees its sets without the new values: these are
//! fewer, so the lookup misses no node.

use super::node::Node;
use hashbrown::HashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thalweg_filter::{Condition, Explanation, Filing, Filter, Index, Membership, Position, Predicate};
use thalweg_shapes_core::subquery::sets::{Kind, Sets};
use thalweg_shapes_model::row::{RowChange, borrowed};

/// Nodes by their tables, and by how many levels of sets are below them: a set must be as the transaction leaves it
/// before it leads anywhere.
#[derive(Default)]
pub(super) struct Finders {
    /// Evaluates every node for each row, without lookups.
    #[cfg(test)]
    pub(super) one_by_one: bool,
    tables: HashMap<u32, BTreeMap<usize, Finder>>,
}

#[derive(Default)]
struct Finder {
    rows: Index<u64>,
    /// The memberships that rows are tested for, by their text.
    asked: HashMap<String, Asked>,
    /// Without a way that leads to them.
    each: BTreeSet<u64>,
    /// Those that have to see every change for a while.
    watching: BTreeSet<u64>,
    filed: HashMap<u64, Vec<Filed>>,
    evaluations: u64,
}

/// Nodes that ask rows the same, by the set whose values they want.
struct Asked {
    membership: Membership,
    kind: Kind,
    users: HashMap<u64, BTreeSet<u64>>,
}

/// Where a node is filed: the key that takes it out again.
#[derive(PartialEq)]
enum Filed {
    Row(Filing),
    Value { question: String, set: u64 },
}

/// A way to an alternative.
enum Access<'a> {
    Row(&'a Predicate),
    Value(&'a Membership, u64),
}

/// The lookups by which changes find a condition, as text for people.
pub(crate) struct Found {
    pub(crate) keys: Vec<String>,
    /// The reasons why alternatives have no lookup.
    pub(crate) because: Vec<String>,
}

impl Finders {
    fn of(&mut self, node: &Node) -> &mut Finder {
        self.tables.entry(node.table.oid).or_default().entry(node.depth).or_default()
    }

    pub(super) fn insert(&mut self, node: &Node, sets: &mut Sets) {
        let number = node.shape.number;
        #[cfg(test)]
        if self.one_by_one {
            let finder = self.of(node);
            finder.each.insert(number);
            finder.filed.insert(number, Vec::new());
            return;
        }
        let finder = self.of(node);
        finder.watch(number, node.is_watching());
        let filed = match &node.filter {
            Filter::All => vec![Filed::Row(finder.rows.insert(number, None))],
            Filter::Row(predicate) => vec![Filed::Row(finder.rows.insert(number, Some(predicate)))],
            Filter::Nested(condition) => finder.file(number, condition, &node.sets, sets),
        };
        finder.filed.insert(number, filed);
    }

    pub(super) fn remove(&mut self, node: &Node) {
        let number = node.shape.number;
        let finder = self.of(node);
        finder.each.remove(&number);
        finder.watching.remove(&number);
        for filed in finder.filed.remove(&number).unwrap_or_default() {
            finder.take(number, filed);
        }
        if finder.filed.is_empty()
            && let Some(table) = self.tables.get_mut(&node.table.oid)
        {
            table.remove(&node.depth);
            if table.is_empty() {
                self.tables.remove(&node.table.oid);
            }
        }
    }

    /// Updates whether a node has to see every change.
    pub(super) fn watch(&mut self, node: &Node) {
        let (number, is_watching) = (node.shape.number, node.is_watching());
        self.of(node).watch(number, is_watching);
    }

    /// The deepest nodes of these tables.
    pub(super) fn depth(&self, tables: impl Iterator<Item = u32>) -> Option<usize> {
        tables.filter_map(|table| Some(*self.tables.get(&table)?.last_key_value()?.0)).max()
    }

    /// Appends the nodes of this depth that a change may concern: ascending, none twice.
    pub(super) fn find(&mut self, depth: usize, change: &RowChange, sets: &Sets, out: &mut Vec<u64>) {
        let finder = self.tables.get_mut(&change.table).and_then(|table| table.get_mut(&depth));
        if let Some(finder) = finder {
            finder.find(change, sets, out);
        }
    }

    /// The number of evaluations since the last call.
    pub(super) fn take_evaluations(&mut self) -> u64 {
        let all = self.tables.values_mut().flat_map(BTreeMap::values_mut);
        all.map(|finder| std::mem::take(&mut finder.evaluations)).sum()
    }
}

impl Finder {
    fn watch(&mut self, number: u64, is_watching: bool) {
        if is_watching {
            self.watching.insert(number)
        } else {
            self.watching.remove(&number)
        };
    }

    fn file(&mut self, number: u64, condition: &Condition, of: &[Option<u64>], sets: &mut Sets) -> Vec<Filed> {
        let ways: Option<Vec<Access<'_>>> =
            condition.alternatives().map(|all| self.way(condition, all, of, sets)).collect();
        let Some(ways) = ways else {
            self.each.insert(number);
            return Vec::new();
        };
        let mut filed = Vec::new();
        for way in ways {
            let one = match way {
                Access::Row(predicate) => Filed::Row(self.rows.insert(number, Some(&Arc::new(predicate.clone())))),
                Access::Value(membership, set) => {
                    let question = membership.question();
                    let asked = self.asked.entry(question.clone()).or_insert_with(|| Asked {
                        membership: membership.clone(),
                        kind: sets.kind(&membership.query),
                        users: HashMap::new(),
                    });
                    asked.users.entry(set).or_default().insert(number);
                    Filed::Value { question, set }
                }
            };
            if !filed.contains(&one) {
                filed.push(one);
            }
        }
        filed
    }

    /// The way to an alternative that leads to the fewest others.
    fn way<'a>(&self, condition: &'a Condition, all: &[u16], of: &[Option<u64>], sets: &Sets) -> Option<Access<'a>> {
        let ways = all.iter().filter_map(|at| {
            let at = usize::from(*at);
            match &condition.positions()[at] {
                Position::Row(predicate) => Some((self.rows.cost(predicate)?, Access::Row(predicate))),
                Position::In(membership) if !membership.negated => {
                    let set = of.get(at).copied().flatten()?;
                    Some((self.value_cost(membership, set, sets), Access::Value(membership, set)))
                }
                Position::In(_) => None,
            }
        });
        // If no lookup tells them apart yet, by value: such shapes differ in their subqueries.
        ways.min_by_key(|(cost, way)| (*cost, matches!(way, Access::Row(_)))).map(|(_, way)| way)
    }

    fn value_cost(&self, membership: &Membership, set: u64, sets: &Sets) -> u64 {
        let Some(asked) = self.asked.get(&membership.question()) else { return 1 };
        (asked.users.get(&set).map_or(0, BTreeSet::len) as u64 + 1) * sets.crowd(asked.kind)
    }

    fn take(&mut self, number: u64, filed: Filed) {
        match filed {
            Filed::Row(filing) => self.rows.remove(number, filing),
            Filed::Value { question, set } => {
                let Some(asked) = self.asked.get_mut(&question) else { return };
                if let Some(users) = asked.users.get_mut(&set) {
                    users.remove(&number);
                    if users.is_empty() {
                        asked.users.remove(&set);
                    }
                }
                if asked.users.is_empty() {
                    self.asked.remove(&question);
                }
            }
        }
    }

    fn find(&mut self, change: &RowChange, sets: &Sets, out: &mut Vec<u64>) {
        let (from, mut costly) = (out.len(), Vec::new());
        out.extend(self.each.iter().chain(&self.watching));
        for cells in change.old.iter().chain(&change.new) {
            let row = borrowed(cells);
            // A node whose lookup is too costly evaluates the row itself, and reports that.
            self.rows.matching(&row, out, &mut costly);
            out.append(&mut costly);
            for asked in self.asked.values() {
                let key = asked.membership.key(&row);
                if key.has_null() {
                    continue;
                }
                let users = sets.holders(asked.kind, &key).iter().filter_map(|set| asked.users.get(set));
                users.for_each(|users| out.extend(users));
            }
        }
        out[from..].sort_unstable();
        let mut found = out.split_off(from);
        found.dedup();
        self.evaluations += self.rows.take_evaluations() + found.len() as u64;
        out.append(&mut found);
    }
}

/// The lookup by which changes of its table would find a condition, if it were the only one.
pub(crate) fn explain(condition: &Condition) -> Found {
    let rows: Index<u64> = Index::new();
    let (mut keys, mut because) = (Vec::new(), Vec::new());
    for all in condition.alternatives() {
        let positions = || all.iter().map(|at| &condition.positions()[usize::from(*at)]);
        let membership = positions().find_map(|position| match position {
            Position::In(membership) if !membership.negated => Some(membership),
            _ => None,
        });
        if let Some(membership) = membership {
            keys.push(format!("a value of {}", membership.question()));
            continue;
        }
        let explained = positions().filter_map(|position| match position {
            Position::Row(predicate) => Some(rows.explain(predicate)),
            Position::In(_) => None,
        });
        let mut why = "NOT IN is true of nearly every row".to_owned();
        let mut found = None;
        for explanation in explained {
            match explanation {
                Explanation::Keys(list) => found = Some(list),
                Explanation::Never => found = Some(Vec::new()),
                Explanation::EachRow { because } => why = because,
            }
        }
        match found {
            Some(list) => keys.extend(list),
            None => because.push(why),
        }
    }
    Found { keys, because }
}

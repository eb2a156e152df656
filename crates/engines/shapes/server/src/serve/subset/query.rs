//! The query of a subset.

use super::order::Order;
use std::fmt::Write as _;
use thalweg_shapes_model::table::{Table, quoted};

/// The parts of a subset's query. The predicates are SQL without parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query<'a> {
    /// The shape's own.
    pub(crate) shape_where: Option<&'a str>,
    pub(crate) subset_where: Option<&'a str>,
    pub(crate) order: &'a [Order],
    pub(crate) limit: Option<u64>,
    pub(crate) offset: Option<u64>,
}

impl Query<'_> {
    /// `list`: the select list.
    #[must_use]
    pub(crate) fn sql(&self, table: &Table, list: &str) -> String {
        let mut sql = format!("SELECT {list} FROM {}", table.name);
        let mut word = " WHERE";
        // Each in parentheses: both may have an OR outside.
        for predicate in [self.shape_where, self.subset_where].into_iter().flatten() {
            let _ = write!(sql, "{word} ({predicate})");
            word = " AND";
        }
        let mut word = " ORDER BY";
        for order in self.order {
            let _ = write!(sql, "{word} {}", quoted(&order.column));
            sql.push_str(if order.descending { " DESC" } else { "" });
            sql.push_str(match order.nulls_first {
                None => "",
                Some(true) => " NULLS FIRST",
                Some(false) => " NULLS LAST",
            });
            word = ",";
        }
        for (word, number) in [("LIMIT", self.limit), ("OFFSET", self.offset)] {
            if let Some(number) = number {
                let _ = write!(sql, " {word} {number}");
            }
        }
        sql
    }
}

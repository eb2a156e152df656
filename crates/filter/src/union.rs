//! One condition for the rows of many predicates.

use crate::Predicate;
use crate::expr::{Comparison, Expr};
use crate::print;
use crate::types::Type;
use std::collections::HashMap;

impl Predicate {
    /// The column that must equal a constant if the predicate is to be true.
    #[must_use]
    pub fn equal_column(&self) -> Option<usize> {
        self.equality().map(|(column, ..)| usize::from(column))
    }

    fn equality(&self) -> Option<(u16, Type, &Expr)> {
        match &self.expr {
            Expr::And(list) => list.iter().find_map(equality),
            expr => equality(expr),
        }
    }
}

fn equality(expr: &Expr) -> Option<(u16, Type, &Expr)> {
    let Expr::Compare(Comparison::Equal, ty, sides) = expr else { return None };
    match &**sides {
        [Expr::Column(column), value @ Expr::Const(..)] | [value @ Expr::Const(..), Expr::Column(column)] => {
            Some((*column, *ty, value))
        }
        _ => None,
    }
}

/// SQL that is true for every row for which one of the predicates is true, and perhaps for others: equality conditions
/// on one column become one list of values, which Postgres looks up in an index or in a hash. All predicates must be of
/// one table.
#[must_use]
pub fn any_sql<'a>(predicates: impl IntoIterator<Item = &'a Predicate>) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut lists: HashMap<(u16, Type), (&Predicate, Vec<String>)> = HashMap::new();
    for predicate in predicates {
        match predicate.equality() {
            None => parts.push(predicate.sql()),
            Some((column, ty, value)) => {
                let (_, values) = lists.entry((column, ty)).or_insert_with(|| (predicate, Vec::new()));
                values.push(print::sql(value, &predicate.schema));
            }
        }
    }
    parts.extend(lists.iter().map(|((column, ty), (of, values))| {
        print::is_one_of(&print::sql(&Expr::Column(*column), &of.schema), *ty, values, &of.schema)
    }));
    if parts.is_empty() { "false".to_owned() } else { parts.join(" OR ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Column, Schema};

    fn parsed(list: &[&str]) -> Vec<Predicate> {
        let column = |name: &str, type_oid| Column { name: name.into(), type_oid, ..Column::default() };
        let schema = Schema::new("t", vec![column("id", 20), column("name", 25)]);
        list.iter().map(|sql| Predicate::parse(sql, &[], &schema).unwrap()).collect()
    }

    #[test]
    fn values_of_one_column_become_a_list() {
        let all = parsed(&["name = 'a'", "id = 7 AND name > 'x'", "'b' = name", "name LIKE 'c%'", "name = 'it''s'"]);
        let sql = any_sql(&all);
        let values: Vec<String> = ["a", "b", "it''s"].iter().map(|text| format!("'{text}'::pg_catalog.text")).collect();
        let names = format!("(\"name\" OPERATOR(pg_catalog.=) ANY (ARRAY[{}]))", values.join(", "));
        assert!(sql.contains(&names), "{sql}");
        assert!(sql.contains(&all[3].sql()), "{sql}");
        assert_eq!(sql.matches(" ANY (").count(), 2, "{sql}");
        assert_eq!(sql.matches(") OR (").count(), 2, "{sql}");
    }

    #[test]
    fn only_what_must_be_true_names_a_column() {
        let columns = |list: &[&str]| parsed(list).iter().map(Predicate::equal_column).collect::<Vec<_>>();
        assert_eq!(columns(&["id = 1", "1 = id", "id > 0 AND name = 'a'"]), [Some(0), Some(0), Some(1)]);
        assert_eq!(columns(&["id = 1 OR name = 'a'", "NOT id = 1", "id <> 1", "id = id"]), [None; 4]);
    }

    #[test]
    fn nothing_wants_no_row() {
        assert_eq!(any_sql([]), "false");
    }
}

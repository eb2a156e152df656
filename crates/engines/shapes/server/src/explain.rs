//! How a change finds the shapes of a where clause: through an index, or by evaluating the clause.

use crate::feed_lock::SharedFeed;
use crate::subquery::{self, Dependence};
use serde::Serialize;
use thalweg_shapes_model::definition::Definition;
use thalweg_shapes_model::predicate;
use thalweg_shapes_model::table::Table;

/// The explanation of one where clause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// Whether a change reaches the shape through an index; otherwise the clause is evaluated for each change of the
    /// table.
    pub indexed: bool,
    /// The index lookups that lead to the shape, such as `equality on "name"`.
    pub keys: Vec<String>,
    /// The condition that is evaluated for each row that a lookup finds, or for each row of the table; `None`: no
    /// condition.
    pub evaluated: Option<String>,
    /// The reason why there is no index, or another remark, as text.
    pub why: Option<String>,
}

/// Explains a definition's where clause, as it would be filed among the table's shapes now. The error is a text for the
/// caller's client.
pub(crate) fn explain(
    definition: &Definition,
    table: &Table,
    dependence: Option<&Dependence>,
    feed: &SharedFeed,
) -> Result<Explanation, String> {
    let Some(sql) = &definition.where_sql else {
        return Ok(Explanation {
            indexed: true,
            keys: Vec::new(),
            evaluated: None,
            why: Some("without a where clause every change of the table belongs to the shape".to_owned()),
        });
    };
    if let Some(dependence) = dependence {
        let found = subquery::explain(&dependence.condition);
        let indexed = found.because.is_empty();
        let why = if indexed {
            "where an alternative has several of these, changes look for what fewest others share".to_owned()
        } else {
            format!("each alternative of a clause with subqueries needs one: {}", found.because.join("; "))
        };
        let keys = if indexed { found.keys } else { Vec::new() };
        return Ok(Explanation { indexed, keys, evaluated: Some(dependence.condition.canonical()), why: Some(why) });
    }
    let read = predicate::parse(sql, &definition.params, table).map_err(|error| error.to_string())?;
    let found = feed.lock().router.explain(table.oid, &read);
    let (keys, evaluated, why) = match found {
        thalweg_filter::Explanation::Keys(keys) => (keys, Some(read.canonical()), None),
        thalweg_filter::Explanation::EachRow { because } => (Vec::new(), Some(read.canonical()), Some(because)),
        thalweg_filter::Explanation::Never => (Vec::new(), None, Some("the clause is never true".to_owned())),
    };
    let indexed = !keys.is_empty() || evaluated.is_none();
    Ok(Explanation { indexed, keys, evaluated, why })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use thalweg_shapes_model::table::sample::{self, INT4, TEXT, column};

    fn table() -> Table {
        sample::table("t", vec![column("id", INT4, None), column("name", TEXT, None)])
    }

    fn said(sql: Option<&str>) -> Result<Explanation, String> {
        let definition = Definition { where_sql: sql.map(str::to_owned), ..Definition::of_table("public", "t") };
        explain(&definition, &table(), None, &SharedFeed::default())
    }

    #[test]
    fn it_says_by_which_values_subqueries_are_found() {
        let said = |sql: &str| {
            let tables = [Arc::new(table())];
            let condition = Arc::new(predicate::condition(sql, &[], &table(), &tables).unwrap());
            let dependence = Dependence { condition, tables: hashbrown::HashMap::new() };
            let definition = Definition { where_sql: Some(sql.to_owned()), ..Definition::of_table("public", "t") };
            explain(&definition, &table(), Some(&dependence), &SharedFeed::default()).unwrap()
        };
        let found = said("id IN (SELECT id FROM t WHERE name = 'x') OR id > 7 AND id NOT IN (SELECT id FROM t)");
        let value = "a value of \"id\" IN (SELECT \"id\" FROM \"public\".\"t\")";
        assert_eq!((found.indexed, found.keys), (true, vec![value.to_owned(), "range on \"id\"".to_owned()]));
        let found = said("id IN (SELECT id FROM t WHERE name = 'x') OR id <> 7");
        assert!(!found.indexed && found.keys.is_empty() && found.why.unwrap().contains("<> '7'"));
        assert!(said("id NOT IN (SELECT id FROM t)").why.unwrap().contains("NOT IN"));
    }

    #[test]
    fn it_says_what_is_looked_up_and_why_nothing_is() {
        let found = said(Some("name = 'x' AND id <> 3")).unwrap();
        assert_eq!((found.indexed, found.keys, found.why), (true, vec!["equality on \"name\"".to_owned()], None));
        assert!(found.evaluated.unwrap().contains("<> '3'"));
        let found = said(Some("name = 'x' OR id <> 3")).unwrap();
        assert!(!found.indexed && found.keys.is_empty() && found.evaluated.is_some());
        assert!(found.why.unwrap().contains("<> '3'"));
        let found = said(Some("id = NULL")).unwrap();
        assert_eq!((found.indexed, found.evaluated), (true, None));
        assert_eq!(said(None).unwrap().evaluated, None);
        assert!(said(Some("nothing = 1")).unwrap_err().contains("nothing"));
    }
}

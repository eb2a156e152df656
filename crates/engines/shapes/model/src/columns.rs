//! The columns that a definition selects. The messages are on the wire.

use crate::definition::Definition;
use crate::invalid::{Invalid, MISSING};
use crate::table::{Generated, Table};

/// Places of the selected columns in the table, ascending. `stored`: this Postgres sends changes of stored generated
/// columns.
///
/// Without a primary key all columns are the key, so all must be selected.
pub fn selected(table: &Table, definition: &Definition, stored: bool) -> Result<Vec<usize>, Invalid> {
    if let Some(names) = &definition.queryable {
        check(table, names, None).map_err(|wrong| match wrong {
            Wrong::NoKey(missing) => Invalid::shape(
                "queryable_columns",
                format!("The list of queryable columns must include all primary key columns{MISSING}{missing}"),
            ),
            Wrong::Unknown(unknown) => Invalid::shape(
                "queryable_columns",
                format!("The following queryable columns are not found on the table: {unknown}"),
            ),
        })?;
    }
    let selected = match (&definition.columns, &definition.queryable) {
        (Some(names), queryable) => check(table, names, queryable.as_deref()).map_err(|wrong| {
            let message = match wrong {
                Wrong::NoKey(missing) => {
                    format!("The list of columns must include all primary key columns{MISSING}{missing}")
                }
                Wrong::Unknown(unknown) => format!("The following columns are not found on the table: {unknown}"),
            };
            Invalid::shape("columns", message)
        })?,
        (None, Some(names)) => places(table, names),
        (None, None) => (0..table.columns.len()).collect(),
    };
    let is_silent = |at: &&usize| match table.columns[**at].generated {
        None => false,
        Some(Generated::Stored) => !stored,
        Some(Generated::Virtual) => true,
    };
    if selected.iter().any(|at| is_silent(&at)) {
        let names: Vec<&str> = selected.iter().filter(is_silent).map(|at| table.columns[*at].name.as_str()).collect();
        let way_out = if definition.columns.is_some() {
            ""
        } else {
            ". You can exclude them from the shape by explicitly listing which columns to fetch in the 'columns' query param"
        };
        let names = names.join(", ");
        return Err(Invalid::shape(
            "columns",
            format!("The following columns are generated and cannot be included in the shape: {names}{way_out}"),
        ));
    }
    Ok(selected)
}

/// Names of columns, for a message.
enum Wrong {
    NoKey(String),
    Unknown(String),
}

fn check(table: &Table, names: &[String], allowed: Option<&[String]>) -> Result<Vec<usize>, Wrong> {
    let has = |name: &str| names.iter().any(|known| known == name);
    let missing: Vec<&str> =
        table.key().into_iter().map(|at| table.columns[at].name.as_str()).filter(|name| !has(name)).collect();
    if !missing.is_empty() {
        return Err(Wrong::NoKey(missing.join(", ")));
    }
    let is_known =
        |name: &String| allowed.map_or_else(|| table.column(name).is_some(), |allowed| allowed.contains(name));
    let unknown: Vec<&str> = names.iter().filter(|name| !is_known(name)).map(String::as_str).collect();
    if !unknown.is_empty() {
        return Err(Wrong::Unknown(unknown.join(", ")));
    }
    Ok(places(table, names))
}

fn places(table: &Table, names: &[String]) -> Vec<usize> {
    let mut places: Vec<usize> = names.iter().filter_map(|name| table.column(name)).collect();
    places.sort_unstable();
    places.dedup();
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Column;
    use crate::table::sample::{self, TEXT, column};
    use serde_json::{Value, json};

    fn table(key: Option<u32>) -> Table {
        let generated = Column { generated: Some(Generated::Stored), ..column("g", TEXT, None) };
        sample::table("t", vec![column("b", TEXT, None), column("id", TEXT, key), generated])
    }

    fn of(columns: Option<&[&str]>, queryable: Option<&[&str]>, stored: bool) -> Result<Vec<usize>, Value> {
        let owned = |names: Option<&[&str]>| names.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        let definition =
            Definition { columns: owned(columns), queryable: owned(queryable), ..Definition::of_table("public", "t") };
        selected(&table(Some(0)), &definition, stored)
            .map_err(|invalid| serde_json::from_slice::<Value>(&invalid.body()).unwrap()["errors"].take())
    }

    #[test]
    fn all_columns_or_the_named_ones_are_selected_in_the_tables_order() {
        assert_eq!(of(None, None, true), Ok(vec![0, 1, 2]));
        assert_eq!(of(Some(&["id", "b"]), None, false), Ok(vec![0, 1]));
        assert_eq!(of(None, Some(&["id"]), false), Ok(vec![1]), "granted columns are the shown ones");
        assert_eq!(of(Some(&["id"]), Some(&["b", "id"]), false), Ok(vec![1]));
    }

    #[test]
    fn the_key_must_be_among_them() {
        let message = "The list of columns must include all primary key columns, missing: id";
        assert_eq!(of(Some(&["b", "zz"]), None, true), Err(json!({"columns": [message]})));
        let message = "The list of queryable columns must include all primary key columns, missing: id";
        assert_eq!(of(None, Some(&["b"]), true), Err(json!({"queryable_columns": [message]})));
        let definition = Definition { columns: Some(vec!["b".into()]), ..Definition::of_table("public", "t") };
        let invalid = selected(&table(None), &definition, true).unwrap_err();
        assert_eq!(
            invalid,
            Invalid::shape("columns", "The list of columns must include all primary key columns, missing: g, id"),
            "without a primary key every column is a part of it"
        );
    }

    #[test]
    fn unknown_columns_are_refused_and_so_are_those_that_may_not_be_asked_for() {
        let message = "The following columns are not found on the table: x, y";
        assert_eq!(of(Some(&["id", "x", "y"]), None, true), Err(json!({"columns": [message]})));
        let message = "The following columns are not found on the table: b";
        assert_eq!(of(Some(&["id", "b"]), Some(&["id"]), true), Err(json!({"columns": [message]})));
        let message = "The following queryable columns are not found on the table: x";
        assert_eq!(of(None, Some(&["id", "x"]), true), Err(json!({"queryable_columns": [message]})));
    }

    #[test]
    fn generated_columns_need_a_postgres_that_sends_them() {
        let message = "The following columns are generated and cannot be included in the shape: g";
        assert_eq!(of(Some(&["id", "g"]), None, false), Err(json!({"columns": [message]})));
        let message = format!(
            "{message}. You can exclude them from the shape by explicitly listing which columns to fetch in the 'columns' query param"
        );
        assert_eq!(of(None, None, false), Err(json!({"columns": [message]})));
        assert_eq!(of(Some(&["id", "g"]), None, true), Ok(vec![1, 2]));
        let mut table = table(Some(0));
        table.columns[2].generated = Some(Generated::Virtual);
        assert!(selected(&table, &Definition::of_table("public", "t"), true).is_err(), "a virtual one is never sent");
    }
}

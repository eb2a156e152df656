//! How a change finds the shapes of a where clause: through an index, or by evaluating the clause.

use crate::definition::Definition;
use crate::predicate;
use crate::table::Table;
use serde::Serialize;

/// What is said of one where clause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// Whether a change reaches the shape through an index; otherwise the clause is evaluated for each change of the table.
    pub indexed: bool,
    /// What is looked up, such as `name = 'x'`; one for each way in.
    pub keys: Vec<String>,
    /// What is evaluated for a row that was found, or for each row; `None`: nothing.
    pub evaluated: Option<String>,
    /// Why there is no index, or what would be cheaper; in words.
    pub why: Option<String>,
}

/// Explains a definition's where clause. The error is in words for who asks.
pub(crate) fn explain(definition: &Definition, table: &Table) -> Result<Explanation, String> {
    match &definition.where_sql {
        None => Ok(Explanation {
            indexed: true,
            keys: Vec::new(),
            evaluated: None,
            why: Some("without a where clause every change of the table belongs to the shape".to_owned()),
        }),
        Some(sql) => {
            let read = predicate::parse(sql, &definition.params, table).map_err(|error| error.to_string())?;
            Ok(Explanation {
                indexed: false,
                keys: Vec::new(),
                evaluated: Some(read.sql()),
                why: Some("there is no index of where clauses yet".to_owned()),
            })
        }
    }
}

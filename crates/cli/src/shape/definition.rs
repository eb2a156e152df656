//! The arguments that define a shape, and the query that they become.

use crate::server::query_value;
use clap::{Args, ValueEnum};

#[derive(Args)]
pub(super) struct DefinitionArgs {
    /// The table, as in SQL.
    table: String,
    /// Select only rows for which this is true.
    #[arg(long = "where", value_name = "SQL")]
    where_sql: Option<String>,
    /// The value of $1 in the clause; given again, of $2, and so on.
    #[arg(long = "param", value_name = "VALUE", requires = "where_sql", allow_hyphen_values = true)]
    params: Vec<String>,
    /// Select only these columns, with commas between; the primary key must be among them.
    #[arg(long, value_name = "LIST")]
    columns: Option<String>,
    /// Whether changes carry the key and the changed columns, or whole rows and the old values.
    #[arg(long, value_enum)]
    replica: Option<Replica>,
    /// Get no rows, only changes.
    #[arg(long)]
    changes_only: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Replica {
    Default,
    Full,
}

impl DefinitionArgs {
    pub(super) fn table(&self) -> &str {
        &self.table
    }

    /// Parameters of the definition with these others, in the order of their names as the official client has them: so
    /// caches on the way see one URL for one question.
    pub(super) fn query(&self, others: &[(&str, &str)]) -> String {
        let mut all: Vec<(String, &str)> = vec![("table".to_owned(), &self.table)];
        let mut add = |name: &str, value| all.push((name.to_owned(), value));
        if let Some(clause) = &self.where_sql {
            add("where", clause);
        }
        if let Some(columns) = &self.columns {
            add("columns", columns);
        }
        match self.replica {
            Some(Replica::Full) => add("replica", "full"),
            Some(Replica::Default) | None => {}
        }
        if self.changes_only {
            add("log", "changes_only");
        }
        for (at, value) in self.params.iter().enumerate() {
            add(&format!("params[{}]", at + 1), value);
        }
        for (name, value) in others {
            add(name, value);
        }
        all.sort();
        let pairs: Vec<String> =
            all.iter().map(|(name, value)| format!("{}={}", query_value(name), query_value(value))).collect();
        pairs.join("&")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        definition: DefinitionArgs,
    }

    fn definition(line: &[&str]) -> DefinitionArgs {
        Line::parse_from(std::iter::once(&"test").chain(line)).definition
    }

    #[test]
    fn a_definition_becomes_one_query_in_the_order_of_names() {
        let definition =
            definition(&["app.\"Items\"", "--where", "a = $1 AND b < $2", "--param", "x&y", "--param", "-1"]);
        assert_eq!(
            definition.query(&[("offset", "-1"), ("handle", "1-2")]),
            "handle=1-2&offset=-1&params%5B1%5D=x%26y&params%5B2%5D=-1&table=app.%22Items%22&where=a%20%3D%20%241%20AND%20b%20%3C%20%242"
        );
    }

    #[test]
    fn options_are_told_as_the_api_has_them() {
        let definition = definition(&["t", "--columns", "id,b", "--replica", "full", "--changes-only"]);
        assert_eq!(definition.query(&[]), "columns=id%2Cb&log=changes_only&replica=full&table=t");
    }
}

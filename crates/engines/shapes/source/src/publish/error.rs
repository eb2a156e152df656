//! Why a table's changes do not come, with messages that clients of Electric know.

use crate::catalog::Unsupported;
use crate::error::SourceError;
use thalweg_shapes_model::table::TableName;

#[derive(Clone, Debug, thiserror::Error)]
pub enum PublishError {
    /// The database's administrator must add it.
    #[error("Database table {} is missing from the publication {publication:?} and {}", named(.table), if *.manual {
        "the ELECTRIC_MANUAL_TABLE_PUBLISHING setting prevents Electric from adding it"
    } else {
        "Electric lacks privileges to add it"
    })]
    Missing { table: TableName, publication: String, manual: bool },
    #[error("Database table {} does not have its replica identity set to FULL", named(.table))]
    Identity { table: TableName },
    /// While this lasts, all existing shapes are dropped.
    #[error("Publication {publication:?} does not publish all required operations: INSERT, UPDATE, DELETE, TRUNCATE")]
    Operations { publication: String },
    #[error("Database table {} has been dropped or renamed", named(.table))]
    Gone { table: TableName },
    /// A row filter or a list of columns.
    #[error("The publication {publication:?} leaves out rows or columns of the database table {}", named(.table))]
    Cut { table: TableName, publication: String },
    #[error(
        "The publication {publication:?} has publish_via_partition_root on, so that no changes of the partition {} come by its name, and no \
         TRUNCATE of it at all",
        named(.table)
    )]
    AsRoot { table: TableName, publication: String },
    #[error(
        "Publication {publication:?} does not publish generated columns. This is a feature introduced in PostgreSQL 18 and requires \
         setting the publication parameter 'publish_generated_columns' to 'stored'. Alternatively, you can exclude them from the shape \
         by explicitly listing which columns to fetch in the 'columns' query param."
    )]
    Generated { publication: String },
    /// A lock timeout, or a writing transaction on the table does not end.
    #[error("Database table {} is being written to by a transaction that does not end", named(.table))]
    Busy { table: TableName },
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    #[error(transparent)]
    Source(#[from] SourceError),
}

impl PublishError {
    /// The error code for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "relation_missing_from_publication",
            Self::Identity { .. } => "misconfigured_replica_identity",
            Self::Operations { .. } => "publication_misses_operations",
            Self::Gone { .. } => "schema_changed",
            Self::Cut { .. } => "relation_cut_by_publication",
            Self::AsRoot { .. } => "partition_published_as_root",
            Self::Generated { .. } => "publication_missing_generated_columns",
            Self::Busy { .. } => "table_lock_timeout",
            Self::Unsupported(_) => "unsupported_table",
            Self::Source(_) => "database_error",
        }
    }
}

/// `"schema.table"`, as Electric names it: quotes within quotes where a name needs them.
fn named(table: &TableName) -> String {
    let plain = |name: &str| {
        let mut bytes = name.bytes();
        bytes.next().is_some_and(|b| b.is_ascii_lowercase() || b == b'_')
            && bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    let part = |name: &str| if plain(name) { name.to_owned() } else { thalweg_shapes_model::table::quoted(name) };
    thalweg_shapes_model::table::quoted(&format!("{}.{}", part(&table.schema), part(&table.name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_refusals_has_the_codes_of_publications() {
        let page = include_str!("../../../../../../docs/protocol/refusals.md");
        let (table, publication) = (TableName { schema: "s".into(), name: "t".into() }, String::from("p"));
        let errors = [
            PublishError::Missing { table: table.clone(), publication: publication.clone(), manual: true },
            PublishError::Identity { table: table.clone() },
            PublishError::Operations { publication: publication.clone() },
            PublishError::Cut { table: table.clone(), publication: publication.clone() },
            PublishError::AsRoot { table: table.clone(), publication: publication.clone() },
            PublishError::Generated { publication },
            PublishError::Busy { table },
        ];
        for error in errors {
            assert!(page.contains(&format!("`\"code\":\"{}\"`", error.code())), "{}", error.code());
        }
    }

    #[test]
    fn the_words_are_those_that_clients_know() {
        let table = |name: &str| TableName { schema: "public".into(), name: name.into() };
        let missing =
            |manual| PublishError::Missing { table: table("items"), publication: "p".into(), manual }.to_string();
        assert_eq!(
            missing(true),
            "Database table \"public.items\" is missing from the publication \"p\" and the ELECTRIC_MANUAL_TABLE_PUBLISHING setting \
             prevents Electric from adding it"
        );
        assert!(missing(false).ends_with("and Electric lacks privileges to add it"));
        let identity = PublishError::Identity { table: table("It\"em") };
        let expected = r#"Database table "public.""It""""em""" does not have its replica identity set to FULL"#;
        assert_eq!(identity.to_string(), expected);
    }
}

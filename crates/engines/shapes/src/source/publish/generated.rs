//! Generated columns: from Postgres 18 on the stream can have stored ones, never virtual ones.

use crate::source::catalog::Standing;
use crate::table::{Generated, Table};
use thalweg_wire::pg::ServerVersion;

/// Why a shape cannot have a generated column.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GeneratedError {
    /// 400, field `columns`. The hint is for who has not named columns.
    #[error("The following columns are generated and cannot be included in the shape: {}{}", .columns.join(", "), if *.listed { "" } else {
        ". You can exclude them from the shape by explicitly listing which columns to fetch in the 'columns' query param"
    })]
    Columns { columns: Vec<String>, listed: bool },
    /// 503: it is up to who looks after the publication.
    #[error(
        "Publication {publication:?} does not publish generated columns. This is a feature introduced in PostgreSQL 18 and requires \
         setting the publication parameter 'publish_generated_columns' to 'stored'. Alternatively, you can exclude them from the shape \
         by explicitly listing which columns to fetch in the 'columns' query param."
    )]
    Publication { publication: String },
}

/// Looks at the selected columns. `listed`: the request named them.
pub(crate) fn generated(
    table: &Table,
    selected: &[usize],
    listed: bool,
    standing: &Standing,
    publication: &str,
    version: ServerVersion,
) -> Result<(), GeneratedError> {
    let columns = selected.iter().map(|at| &table.columns[*at]);
    let never = |generated| version.major < 18 || generated == Generated::Virtual;
    let cannot = columns.clone().filter(|column| column.generated.is_some_and(never));
    let cannot: Vec<String> = cannot.map(|column| column.name.clone()).collect();
    if !cannot.is_empty() {
        return Err(GeneratedError::Columns { columns: cannot, listed });
    }
    if !standing.publishes_generated && columns.clone().any(|column| column.generated.is_some()) {
        return Err(GeneratedError::Publication { publication: publication.to_owned() });
    }
    Ok(())
}

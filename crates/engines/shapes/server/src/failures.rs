//! Failures to make a shape, in the form in which clients get them.

use crate::store::StoreError;
use thalweg_shapes_model::failure::Failure;
use thalweg_shapes_model::invalid::Invalid;
use thalweg_shapes_model::table::TableName;
use thalweg_shapes_source::error::SourceError;
use thalweg_shapes_source::publish::PublishError;

pub(crate) fn no_table(name: &TableName) -> Failure {
    invalid(
        "table",
        format!(
            "Table {name} does not exist. If the table name contains capitals or special characters you must quote it."
        ),
    )
}

pub(crate) fn invalid(field: &'static str, message: impl ToString) -> Failure {
    Failure::Invalid(Invalid::shape(field, message.to_string()))
}

pub(crate) fn unavailable(error: SourceError) -> Failure {
    match error {
        SourceError::SchemaChanged(_) | SourceError::Replaced => Failure::Rotated,
        SourceError::Permission(error) => invalid("table", error),
        SourceError::Invalid(error) => invalid("where", error),
        SourceError::Unreachable(_) => Failure::unavailable("database_unreachable", "Database is unreachable", 10),
        error => Failure::unavailable("snapshot_error", error, 10),
    }
}

/// The table's changes cannot be had, for now.
pub(crate) fn not_published(error: PublishError) -> Failure {
    match error {
        PublishError::Source(error) => unavailable(error),
        PublishError::Gone { .. } => Failure::Rotated,
        PublishError::Unsupported(error) => invalid("table", error),
        error => Failure::unavailable(error.code(), error, 10),
    }
}

/// No snapshot has a transaction that was applied already.
pub(crate) fn not_visible() -> Failure {
    let why = "a transaction that was told already is not visible yet: its commit may wait for a standby (synchronous_standby_names)";
    Failure::unavailable("transaction_not_visible", why, 5)
}

pub(crate) fn cannot_store(error: StoreError) -> Failure {
    let code = if error.is_no_space() { "disk_full" } else { "storage_error" };
    Failure::unavailable(code, error, 10)
}

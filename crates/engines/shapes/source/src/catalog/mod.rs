//! Tables as the catalog has them.
//!
//! A [`Table`] describes the rows of a table; shapes keep it. A [`Standing`] decides whether the changes of the table
//! come; it may change at any time while the rows stay the same.

mod cached;
mod read;
mod standing;

pub use cached::Tables;
pub(crate) use cached::marks;
pub use standing::{Class, Identity, Persistence, Relation, Standing, Unsupported};

use super::error::SourceError;
use super::postgres::Connection;
use super::session::{Session, Sql};
use thalweg_pg::{ServerVersion, quote_literal};
use thalweg_shapes_model::table::{Table, TableName};

/// A table and its standing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub table: Table,
    pub standing: Standing,
}

/// The reason why no shape can be made of a table.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    #[error(transparent)]
    Source(#[from] SourceError),
}

/// The table of exactly this name; `None` if it does not exist. One round trip.
pub fn lookup(session: &mut Session, publication: &str, name: &TableName) -> Result<Option<Found>, LookupError> {
    let found = session.connection.tables(publication, Which::Name(name))?.pop();
    let Some(found) = found else { return Ok(None) };
    found.standing.supported()?;
    Ok(Some(found))
}

/// The tables among these oids that exist. One round trip.
pub fn lookup_oids(session: &mut Session, publication: &str, oids: &[u32]) -> Result<Vec<Found>, SourceError> {
    if oids.is_empty() {
        return Ok(Vec::new());
    }
    session.connection.tables(publication, Which::Oids(oids))
}

/// The tables to look up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which<'a> {
    Name(&'a TableName),
    Oids(&'a [u32]),
}

impl Which<'_> {
    fn sql(self) -> String {
        match self {
            Self::Name(name) => format!(
                "n.nspname OPERATOR(pg_catalog.=) {} AND c.relname OPERATOR(pg_catalog.=) {}",
                quote_literal(&name.schema),
                quote_literal(&name.name)
            ),
            Self::Oids(oids) => format!("c.oid OPERATOR(pg_catalog.=) ANY ({})", array(oids)),
        }
    }
}

pub(crate) fn ask(sql: &mut Sql, publication: &str, which: Which<'_>) -> Result<Vec<Found>, SourceError> {
    let statement = statement(sql.version(), publication, &which.sql());
    let answer = sql.ask(&statement)?;
    answer.rows().map(|row| read::found(row.get(0).unwrap_or_default())).collect()
}

const BY_SCHEMA: &str = "EXISTS (SELECT FROM pg_catalog.pg_publication_namespace pn \
    WHERE pn.pnpubid OPERATOR(pg_catalog.=) p.oid AND pn.pnnspid OPERATOR(pg_catalog.=) s.relnamespace)";
const SCHEMA_ENTRIES: &str = "SELECT pg_catalog.format('n%s:%s', pn.oid, pn.xmin) FROM publication p \
    JOIN pg_catalog.pg_publication_namespace pn ON pn.pnpubid OPERATOR(pg_catalog.=) p.oid \
    WHERE pn.pnnspid OPERATOR(pg_catalog.=) c.relnamespace OR EXISTS (SELECT FROM pg_catalog.pg_partition_ancestors(c.oid) t \
    JOIN pg_catalog.pg_class a ON a.oid OPERATOR(pg_catalog.=) t.relid::pg_catalog.oid \
    WHERE a.relnamespace OPERATOR(pg_catalog.=) pn.pnnspid)";

fn statement(version: ServerVersion, publication: &str, which: &str) -> String {
    // Publications of schemas came with 15, and with them their table.
    let (by_schema, schema_entries) =
        if version.major >= 15 { (BY_SCHEMA, SCHEMA_ENTRIES) } else { ("false", "SELECT NULL") };
    let sql = include_str!("tables.sql").replace("{by_schema}", by_schema).replace("{schema_entries}", schema_entries);
    // The names of the request are substituted last, because they may contain a placeholder.
    sql.replace("{publication}", &quote_literal(publication)).replace("{which}", which)
}

/// SQL for the oid of the relation of this name; null if it does not exist.
pub(super) fn regclass(name: &TableName) -> String {
    format!("pg_catalog.to_regclass({})", quote_literal(&name.to_string()))
}

/// Oids as SQL.
pub(super) fn array(oids: &[u32]) -> String {
    let list: Vec<String> = oids.iter().map(u32::to_string).collect();
    format!("'{{{}}}'::pg_catalog.oid[]", list.join(","))
}

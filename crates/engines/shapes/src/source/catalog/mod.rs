//! Tables as the catalog has them.
//!
//! What makes up the rows of a table is its [`Table`], which shapes keep. What decides whether its changes can be had is its
//! [`Standing`], which may change at any time without any row looking different.

mod cached;
mod read;
mod standing;

pub(crate) use cached::Tables;
pub(crate) use standing::{Identity, Relation, Standing, Unsupported};

use super::error::SourceError;
use crate::table::{Table, TableName};
use thalweg_wire::pg::{Conn, ServerVersion};

/// A table and how it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) table: Table,
    pub(crate) standing: Standing,
}

/// Why there is no table to make shapes of.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LookupError {
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    #[error(transparent)]
    Source(#[from] SourceError),
}

/// The table of exactly this name; `None`: there is none. One round trip.
pub(crate) fn lookup(conn: &mut Conn, publication: &str, name: &TableName) -> Result<Option<Found>, LookupError> {
    let sql = sql(conn.server_version(), "n.nspname = $2 AND c.relname = $3");
    let found = ask(conn, &sql, &[Some(publication), Some(&name.schema), Some(&name.name)])?.pop();
    let Some(found) = found else { return Ok(None) };
    found.standing.supported()?;
    Ok(Some(found))
}

/// Those of the tables that there are, by their oids. One round trip.
pub(crate) fn lookup_oids(conn: &mut Conn, publication: &str, oids: &[u32]) -> Result<Vec<Found>, SourceError> {
    if oids.is_empty() {
        return Ok(Vec::new());
    }
    let sql = sql(conn.server_version(), "c.oid = ANY($2::oid[])");
    ask(conn, &sql, &[Some(publication), Some(&array(oids))])
}

fn ask(conn: &mut Conn, sql: &str, parameters: &[Option<&str>]) -> Result<Vec<Found>, SourceError> {
    let answer = conn.query(sql, parameters)?;
    answer.rows().map(|row| read::found(row.get(0).unwrap_or_default())).collect()
}

fn sql(version: ServerVersion, which: &str) -> String {
    // Publications of schemas came with 15, and with them their table.
    let by_schema = if version.major >= 15 {
        "EXISTS (SELECT FROM pg_publication_namespace pn WHERE pn.pnpubid = p.oid AND pn.pnnspid = s.relnamespace)"
    } else {
        "false"
    };
    include_str!("tables.sql").replace("{which}", which).replace("{by_schema}", by_schema)
}

/// `{1,2,3}`.
pub(super) fn array(oids: &[u32]) -> String {
    let list: Vec<String> = oids.iter().map(u32::to_string).collect();
    format!("{{{}}}", list.join(","))
}

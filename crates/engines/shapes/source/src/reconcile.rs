//! Comparison of known tables with the catalog.
//!
//! The replication stream does not report that a table is altered, dropped or recreated until a transaction writes to
//! it; so the catalog is asked now and then, by oid, and after each reconnect.

use super::catalog::{Found, Identity, Relation, lookup_oids};
use super::error::SourceError;
use super::session::Session;
use std::collections::HashMap;
use std::fmt;
use thalweg_shapes_model::table::Table;

/// Tables per query.
const BATCH: usize = 500;

/// The reason why the shapes of a table are invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gone {
    /// Even if a new table has the same name.
    Dropped,
    Renamed {
        to: String,
    },
    Altered,
    /// The publication has missed the table for a while.
    Unpublished,
    /// The publication has the table again, after a gap.
    Republished,
    /// The table's changes have come without whole old rows for a while.
    Identity,
    /// The table got a partition that may have had rows before.
    Attached {
        part: String,
    },
    /// The table lost a partition, and the rows in it.
    Detached,
}

/// "The table …".
impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dropped => f.write_str("was dropped"),
            Self::Renamed { to } => write!(f, "was renamed to {to}"),
            Self::Altered => f.write_str("was altered"),
            Self::Unpublished => f.write_str("is no longer in the publication"),
            Self::Republished => f.write_str("was out of the publication for a while"),
            Self::Identity => f.write_str("no longer has REPLICA IDENTITY FULL"),
            Self::Attached { part } => write!(f, "got {part} as a part, with the rows that it had"),
            Self::Detached => f.write_str("lost a part, with its rows"),
        }
    }
}

/// The result of a comparison.
#[derive(Debug, Default)]
pub struct Reconciled {
    /// Tables whose shapes must go, by oid.
    pub gone: Vec<(u32, Gone)>,
    /// Tables with the same rows but other ancestors or parts. The caller replaces their descriptions and ensures them
    /// again (`Publisher::ensure`): a new part may lack `REPLICA IDENTITY FULL`.
    pub moved: Vec<Found>,
    /// The version of the publication, if any table was compared; see [`super::catalog::Standing::publication`].
    pub publication: Option<String>,
}

/// Compares tables with the catalog.
pub fn reconcile<'a>(
    session: &mut Session,
    publication: &str,
    known: impl IntoIterator<Item = &'a Table>,
) -> Result<Reconciled, SourceError> {
    let mut reconciled = Reconciled::default();
    let known: Vec<&Table> = known.into_iter().collect();
    for batch in known.chunks(BATCH) {
        let oids: Vec<u32> = batch.iter().map(|table| table.oid).collect();
        let found = lookup_oids(session, publication, &oids)?;
        let mut found: HashMap<u32, Found> = found.into_iter().map(|found| (found.table.oid, found)).collect();
        for table in batch {
            let now = found.remove(&table.oid);
            reconciled.publication =
                now.as_ref().map(|now| now.standing.publication.clone()).or(reconciled.publication);
            match compare(table, now.as_ref()) {
                Some(gone) => reconciled.gone.push((table.oid, gone)),
                None => reconciled.moved.extend(now.filter(|now| now.table != **table)),
            }
        }
    }
    Ok(reconciled)
}

fn compare(table: &Table, now: Option<&Found>) -> Option<Gone> {
    let Some(Found { table: now, standing }) = now else { return Some(Gone::Dropped) };
    if now.name != table.name {
        return Some(Gone::Renamed { to: now.name.to_string() });
    }
    if !table.goes_on(now) || now.kind != table.kind || standing.supported().is_err() {
        return Some(Gone::Altered);
    }
    if table.parts.iter().any(|part| !now.parts.contains(part)) {
        return Some(Gone::Detached);
    }
    let is_new = |oid: u32| !table.parts.contains(&oid);
    // A part that only inherits and is not published may have got rows since.
    let had_rows = |part: &&Relation| is_new(part.oid) && part.has_rows() && (!part.made_as_part || !part.published);
    if let Some(part) = standing.parts.iter().find(had_rows) {
        return Some(Gone::Attached { part: part.name.to_string() });
    }
    let mut settled = standing.relations().filter(|relation| !is_new(relation.oid) || relation.oid == table.oid);
    if settled.clone().any(|relation| !relation.published || relation.cut || relation.as_root) {
        return Some(Gone::Unpublished);
    }
    if table.republished(now).is_some() {
        return Some(Gone::Republished);
    }
    settled.any(|relation| relation.has_rows() && relation.identity != Identity::Full).then_some(Gone::Identity)
}

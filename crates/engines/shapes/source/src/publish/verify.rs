//! Read-only publication checks.

use super::Turn;
use super::error::PublishError;
use crate::catalog::{Found, Identity, Relation, Standing, array};
use crate::error::SourceError;
use crate::session::{Session, Sql};
use std::collections::HashSet;
use std::time::Duration;
use thalweg_pg::Error;
use thalweg_shapes_model::table::TableName;

/// How long transactions that write may take to end.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Transactions that may write to these tables, by the locks that they hold.
const WRITERS: &str = "SELECT l.relation::pg_catalog.int8, l.virtualtransaction FROM pg_catalog.pg_locks l \
    WHERE l.locktype OPERATOR(pg_catalog.=) 'relation' AND l.database OPERATOR(pg_catalog.=) \
    (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()) \
    AND l.granted AND l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid() AND l.mode OPERATOR(pg_catalog.=) ANY \
    ('{RowExclusiveLock,ShareRowExclusiveLock,ExclusiveLock,AccessExclusiveLock}'::pg_catalog.text[]) \
    AND l.relation OPERATOR(pg_catalog.=) ANY ";

pub(super) enum Verdict {
    Ready,
    Lacking(Lacking),
    /// No change that this role may make helps.
    Impossible(PublishError),
}

/// The relations, of the table and its parts, that must be altered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lacking {
    pub table: TableName,
    /// Relations that are not in the publication.
    pub members: Vec<Relation>,
    /// Relations without `REPLICA IDENTITY FULL`.
    pub identities: Vec<Relation>,
}

pub(super) fn verdict(standing: &Standing, publication: &str) -> Verdict {
    if let Err(error) = standing.supported() {
        return Verdict::Impossible(error.into());
    }
    let table = standing.relation.name.clone();
    if !standing.publishes_all {
        return Verdict::Impossible(PublishError::Operations { publication: publication.into() });
    }
    if let Some(cut) = standing.relations().find(|relation| relation.cut) {
        return Verdict::Impossible(PublishError::Cut { table: cut.name.clone(), publication: publication.into() });
    }
    // Changes of a partition come as the root's, but a TRUNCATE of it does not come at all.
    if let Some(part) = standing.relations().find(|relation| relation.as_root) {
        return Verdict::Impossible(PublishError::AsRoot { table: part.name.clone(), publication: publication.into() });
    }
    let members = standing.relations().filter(|relation| !relation.published);
    // A partition comes with the table that it is a partition of.
    let whole_is_published = |part: &Relation| !part.partition || part.oid == standing.relation.oid;
    let members: Vec<Relation> = members.filter(|relation| whole_is_published(relation)).cloned().collect();
    let identities = standing.relations().filter(|relation| relation.has_rows() && relation.identity != Identity::Full);
    let lacking = Lacking { table, members, identities: identities.cloned().collect() };
    if lacking.members.is_empty() && lacking.identities.is_empty() { Verdict::Ready } else { Verdict::Lacking(lacking) }
}

impl Lacking {
    /// The refusal if the role may not alter them.
    pub(super) fn refusal(&self, publication: &str, manual: bool) -> PublishError {
        match (self.members.first(), self.identities.first()) {
            (Some(relation), _) => {
                let table = relation.name.clone();
                PublishError::Missing { table, publication: publication.to_owned(), manual }
            }
            (None, Some(relation)) => PublishError::Identity { table: relation.name.clone() },
            (None, None) => PublishError::Gone { table: self.table.clone() },
        }
    }

    pub(super) fn relations(&self) -> impl Iterator<Item = &Relation> {
        self.members.iter().chain(&self.identities)
    }
}

/// Waits until all transactions have ended that write to these tables now: they may have begun before the tables were
/// published.
pub(super) fn writers_have_ended(
    session: &mut Session,
    tables: Vec<Found>,
    turn: &mut Turn<'_>,
) -> Vec<(Found, Result<(), PublishError>)> {
    let relations = |found: &Found| found.standing.relations().map(|relation| relation.oid).collect::<Vec<u32>>();
    let all: Vec<u32> = tables.iter().flat_map(relations).collect();
    let until = session.clock.now() + PATIENCE;
    let waited = session.connection.writers(&all).and_then(|mut before| {
        while !before.is_empty() && session.clock.now() < until {
            turn.pause(LOOK_EVERY);
            let now = session.connection.writers(&all)?;
            before.retain(|writer| now.contains(writer));
        }
        Ok(before)
    });
    let waited = waited.map_err(SourceError::from);
    tables
        .into_iter()
        .map(|found| {
            let result = match &waited {
                Err(error) => Err(PublishError::Source(error.clone())),
                Ok(left) if relations(&found).iter().any(|oid| left.iter().any(|(table, _)| table == oid)) => {
                    Err(PublishError::Busy { table: found.table.name.clone() })
                }
                Ok(_) => Ok(()),
            };
            (found, result)
        })
        .collect()
}

/// The transactions that write to these tables, as pairs of a table's oid and a transaction.
pub(crate) fn writers(sql: &mut Sql, tables: &[u32]) -> Result<HashSet<(u32, String)>, Error> {
    let answer = sql.ask(&format!("{WRITERS}({})", array(tables)))?;
    let pair = |row: thalweg_pg::Row<'_>| Some((row.get(0)?.parse().ok()?, row.get(1)?.to_owned()));
    Ok(answer.rows().filter_map(pair).collect())
}

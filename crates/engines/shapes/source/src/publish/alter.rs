//! Fixes publication and replica identity.

use super::Turn;
use super::error::PublishError;
use super::verify::{Lacking, Verdict, verdict};
use crate::catalog::{Found, lookup_oids};
use crate::session::{Session, Sql};
use std::fmt::Write;
use std::time::Duration;
use thalweg_pg::{Error, quote_literal};
use thalweg_shapes_model::table::{TableName, quoted};

/// A waiting lock request blocks all later ones on the table: so each attempt gives up soon and is repeated.
pub(super) const LOCK_TIMEOUT: Duration = Duration::from_millis(200);
const ATTEMPTS: u32 = 12;
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Publishes a table. When this returns, no transaction is left that wrote to it before: the lock waited for them.
pub(super) fn publish(
    session: &mut Session,
    publication: &str,
    found: &Found,
    mut lacking: Lacking,
    turn: &mut Turn<'_>,
) -> Result<(), PublishError> {
    let oid = found.table.oid;
    let mut pause = PAUSE_MIN;
    for _ in 0..ATTEMPTS {
        let not_ours = lacking.relations().any(|relation| !relation.owned);
        if not_ours {
            return Err(lacking.refusal(publication, false));
        }
        let Err(error) = session.connection.publish(LOCK_TIMEOUT, publication, found, &lacking) else { return Ok(()) };
        match again(&error) {
            Again::Never if error.code() == Some("42501") => return Err(lacking.refusal(publication, false)),
            Again::Never => return Err(PublishError::Source(error.into())),
            Again::Later => {
                turn.pause(pause);
                pause = (pause * 2).min(PAUSE_MAX);
            }
            Again::AfterALook => {}
        }
        let now = lookup_oids(session, publication, &[oid])?.pop();
        let now = now.ok_or_else(|| PublishError::Gone { table: found.table.name.clone() })?;
        match verdict(&now.standing, publication) {
            Verdict::Lacking(still) => lacking = still,
            Verdict::Impossible(error) => return Err(error),
            // Another session published the table: the transactions that wrote before must end.
            Verdict::Ready => {
                let mut waited = super::verify::writers_have_ended(session, vec![now], turn);
                return waited.pop().map_or(Ok(()), |(_, result)| result);
            }
        }
    }
    Err(PublishError::Busy { table: found.table.name.clone() })
}

/// One transaction, which takes its strongest lock first: raising a weaker lock could deadlock.
pub(crate) fn sql(publication: &str, found: &Found, lacking: &Lacking) -> String {
    let list = |names: Vec<String>| names.join(", ");
    let mode = if lacking.identities.is_empty() { "SHARE ROW EXCLUSIVE" } else { "ACCESS EXCLUSIVE" };
    let all = list(found.standing.relations().map(|relation| format!("ONLY {}", relation.name)).collect());
    let mut sql = format!("LOCK TABLE {all} IN {mode} MODE; ");
    for relation in &lacking.identities {
        let _ = write!(sql, "ALTER TABLE ONLY {} REPLICA IDENTITY FULL; ", relation.name);
    }
    if !lacking.members.is_empty() {
        let members = list(lacking.members.iter().map(|relation| format!("ONLY {}", relation.name)).collect());
        let _ = write!(sql, "ALTER PUBLICATION {} ADD TABLE {members}", quoted(publication));
    }
    sql
}

enum Again {
    Later,
    AfterALook,
    Never,
}

fn again(error: &Error) -> Again {
    match error.code() {
        // Locked, deadlock, serialization.
        Some("55P03" | "40P01" | "40001") => Again::Later,
        // Already a member, by name or by key; renamed or dropped since the lookup; `tuple concurrently updated`.
        Some("42710" | "23505" | "42P01" | "3F000" | "XX000") => Again::AfterALook,
        _ => Again::Never,
    }
}

const MEMBERS: &str = "SELECT c.oid, n.nspname, c.relname FROM pg_catalog.pg_publication p \
    JOIN pg_catalog.pg_publication_rel r ON r.prpubid OPERATOR(pg_catalog.=) p.oid \
    JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) r.prrelid \
    JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace WHERE p.pubname OPERATOR(pg_catalog.=) ";

/// Tables that the publication names.
pub(crate) fn members(sql: &mut Sql, publication: &str) -> Result<Vec<(u32, TableName)>, Error> {
    let answer = sql.ask(&format!("{MEMBERS}{}", quote_literal(publication)))?;
    let member = |row: thalweg_pg::Row<'_>| {
        let name = TableName { schema: row.get(1)?.to_owned(), name: row.get(2)?.to_owned() };
        Some((row.get(0)?.parse().ok()?, name))
    };
    Ok(answer.rows().filter_map(member).collect())
}

pub(crate) fn drop_table(sql: &mut Sql, lock: Duration, publication: &str, table: &TableName) -> Result<(), Error> {
    let statement = format!("ALTER PUBLICATION {} DROP TABLE ONLY {table}", quoted(publication));
    sql.change(lock, &statement).map(drop)
}

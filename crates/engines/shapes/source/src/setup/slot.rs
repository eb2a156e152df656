//! The slot: from where on changes are kept for us.

use super::judge;
use super::server::Facts;
use super::{Options, Resume, SetupError, SlotOptions, literal, row};
use crate::postgres::Walsender;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use thalweg_pg::PgLsn;
use thalweg_pg::replication::Conn;
use thalweg_shapes_model::history::SourceIdentity;

const LOOK_EVERY: Duration = Duration::from_millis(50);

pub(super) struct Slot {
    pub(super) resume: Resume,
    pub(super) confirmed: PgLsn,
}

/// A replication slot as the server has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Why no stream of it would be ours.
    pub foreign: Option<String>,
    /// The process that reads it.
    pub active: Option<String>,
    /// The reason why Postgres no longer has the WAL that the slot needs.
    pub lost: Option<String>,
    /// The slot has everything after it.
    pub confirmed: Option<PgLsn>,
    /// Standbys keep a copy of it.
    pub failover: bool,
    pub temporary: bool,
}

/// `broken`: the reason why the slot's history is broken, if known already.
pub(super) fn prepare(
    conn: &mut dyn Walsender,
    options: &Options,
    facts: &Facts,
    identity: &SourceIdentity,
    broken: Option<String>,
    stopping: &(dyn Fn() -> bool + Sync),
) -> Result<Slot, SetupError> {
    let slot = &options.slot;
    let found = conn.slot(slot, &identity.database)?;
    let why = match found {
        Some(Found { foreign: Some(what), .. }) => return Err(SetupError::ForeignSlot { slot: slot.clone(), what }),
        Some(Found { active: Some(pid), .. }) => return Err(SetupError::SlotInUse { slot: slot.clone(), pid }),
        Some(found) => match (found.lost, broken.or_else(|| skipped(options, found.confirmed)), found.confirmed) {
            (None, None, Some(confirmed)) if found.temporary == options.temporary => {
                if options.failover && !found.failover {
                    conn.keep_on_standbys(slot)?;
                }
                return Ok(Slot { resume: Resume::Continue, confirmed });
            }
            // A valid slot is dropped too if its changes are of no use.
            (lost, broken, _) => {
                conn.drop_slot(slot)?;
                let lost = lost.map(|why| format!("Postgres no longer keeps what the replication slot needs ({why})"));
                lost.or(broken)
                    .unwrap_or_else(|| "the replication slot was never ready, or is to be of another kind".to_owned())
            }
        },
        None => broken.unwrap_or_else(|| "the replication slot was dropped".to_owned()),
    };
    let confirmed = conn.create_slot(options, facts, stopping)?;
    Ok(Slot { resume: Resume::Restart { why }, confirmed })
}

fn skipped(options: &Options, confirmed: Option<PgLsn>) -> Option<String> {
    judge::skipped(options.known.as_ref()?, confirmed?)
}

pub(super) fn find(conn: &mut Conn, slot: &str, database: &str) -> Result<Option<Found>, SetupError> {
    let answers = conn.simple(&format!(
        "SELECT slot_type, plugin, database, active_pid, wal_status, confirmed_flush_lsn, temporary, \
         pg_catalog.to_jsonb(s) OPERATOR(pg_catalog.->>) 'failover' AS failover, \
         pg_catalog.to_jsonb(s) OPERATOR(pg_catalog.->>) 'invalidation_reason' AS reason, \
         pg_catalog.to_jsonb(s) OPERATOR(pg_catalog.->>) 'conflicting' AS conflicting \
         FROM pg_catalog.pg_replication_slots s WHERE slot_name OPERATOR(pg_catalog.=) {}",
        literal(slot)
    ))?;
    let fact = row(&answers);
    let Some(kind) = fact("slot_type") else { return Ok(None) };
    let foreign = if kind != "logical" {
        Some(format!("it is {kind}"))
    } else if fact("plugin") != Some("pgoutput") {
        Some(format!("its plugin is {}", fact("plugin").unwrap_or_default()))
    } else if fact("database") != Some(database) {
        Some(format!("it is of the database {}", fact("database").unwrap_or_default()))
    } else {
        None
    };
    let lost = if fact("wal_status") == Some("lost") {
        Some(fact("reason").unwrap_or("wal_status is lost").to_owned())
    } else if fact("conflicting") == Some("true") {
        Some("it conflicts with recovery".to_owned())
    } else {
        fact("reason").map(str::to_owned)
    };
    Ok(Some(Found {
        foreign,
        active: fact("active_pid").map(str::to_owned),
        lost,
        confirmed: fact("confirmed_flush_lsn").and_then(|text| text.parse().ok()),
        failover: fact("failover") == Some("true"),
        temporary: fact("temporary") == Some("t"),
    }))
}

/// Creates the slot, which is ready when every transaction that runs now has ended; until then a thread of its own
/// polls `stopping`.
pub(super) fn create(
    conn: &mut Conn,
    options: &Options,
    facts: &Facts,
    stopping: &(dyn Fn() -> bool + Sync),
) -> Result<PgLsn, SetupError> {
    let slot = SlotOptions { temporary: options.temporary, failover: options.failover, ..SlotOptions::default() };
    tracing::info!(slot = options.slot, "creating a replication slot: Postgres waits for running transactions to end");
    let token = conn.session().cancel_token();
    let (done, stopped) = (AtomicBool::new(false), AtomicBool::new(false));
    let made = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                if stopping() {
                    stopped.store(true, Ordering::Release);
                    let _ = token.as_ref().map(|token| token.cancel());
                }
                std::thread::park_timeout(LOOK_EVERY);
            }
        });
        let made = conn.create_slot(&options.slot, &slot);
        done.store(true, Ordering::Release);
        watch.thread().unpark();
        made
    });
    match made {
        Ok(made) => Ok(made.consistent_point),
        Err(_) if stopped.load(Ordering::Acquire) => Err(SetupError::Stopped),
        Err(error) => Err(match error.db() {
            Some(db) if db.code == "53400" => SetupError::NoSlotFree { max: facts.slots_max.clone() },
            Some(db) if db.code == "42501" => {
                let role = conn.session().parameter("session_authorization").unwrap_or("of this connection");
                SetupError::Privilege { role: role.to_owned(), error: Box::new(db.clone()) }
            }
            _ => error.into(),
        }),
    }
}

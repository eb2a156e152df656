//! Replication slots.

use super::super::error::Error;
use super::super::lsn::PgLsn;
use super::Conn;

/// `NAMEDATALEN` - 1.
const NAME_MAX: usize = 63;

/// Options of a new logical slot of pgoutput.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotOptions {
    /// The slot is dropped with the connection.
    pub temporary: bool,
    /// The use of the slot's snapshot.
    pub snapshot: Snapshot,
    /// A standby keeps a copy (from Postgres 17 on).
    pub failover: bool,
}

/// Use of the snapshot at the slot's start: it shows all changes that the slot does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Snapshot {
    /// The server drops the snapshot.
    #[default]
    Nothing,
    /// Give it a name; another transaction can take it while this connection does nothing else.
    Export,
    /// Use it in this connection's transaction, which must be the first thing in it and `REPEATABLE READ`.
    Use,
}

/// A slot that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatedSlot {
    /// The slot has the changes committed after this position, the snapshot those before.
    pub consistent_point: PgLsn,
    /// With [`Snapshot::Export`]: the name for `SET TRANSACTION SNAPSHOT`.
    pub snapshot: Option<String>,
}

impl Conn {
    /// Makes a logical slot of pgoutput. Waits for every transaction that is running at that moment, so that the read
    /// timeout may expire.
    pub fn create_slot(&mut self, name: &str, options: &SlotOptions) -> Result<CreatedSlot, Error> {
        let name = quoted(name)?;
        let temporary = if options.temporary { " TEMPORARY" } else { "" };
        let what = match (options.failover, options.snapshot) {
            // All versions read this form; the form with FAILOVER needs Postgres 17.
            (false, Snapshot::Nothing) => "NOEXPORT_SNAPSHOT",
            (false, Snapshot::Export) => "EXPORT_SNAPSHOT",
            (false, Snapshot::Use) => "USE_SNAPSHOT",
            (true, Snapshot::Nothing) => "(SNAPSHOT 'nothing', FAILOVER)",
            (true, Snapshot::Export) => "(SNAPSHOT 'export', FAILOVER)",
            (true, Snapshot::Use) => "(SNAPSHOT 'use', FAILOVER)",
        };
        let results = self.simple(&format!("CREATE_REPLICATION_SLOT {name}{temporary} LOGICAL pgoutput {what}"))?;
        let row = results.first().and_then(|set| set.row(0));
        let point = row.and_then(|row| row.get(1)).and_then(|text| text.parse().ok());
        let snapshot = row.and_then(|row| row.get(2)).map(str::to_owned);
        match point {
            Some(consistent_point) => Ok(CreatedSlot { consistent_point, snapshot }),
            None => Err(self.session.unexpected("no answer to CREATE_REPLICATION_SLOT")),
        }
    }

    /// Sets whether standbys keep a copy of an existing slot (from Postgres 17 on).
    pub fn alter_slot(&mut self, name: &str, failover: bool) -> Result<(), Error> {
        self.simple(&format!("ALTER_REPLICATION_SLOT {} (FAILOVER {failover})", quoted(name)?)).map(drop)
    }

    /// `wait`: until the slot is free; otherwise a slot in use is an error (SQLSTATE 55006).
    pub fn drop_slot(&mut self, name: &str, wait: bool) -> Result<(), Error> {
        let wait = if wait { " WAIT" } else { "" };
        self.simple(&format!("DROP_REPLICATION_SLOT {}{wait}", quoted(name)?)).map(drop)
    }
}

/// The server accepts no other characters; the check here keeps everything else out of the command.
pub(super) fn quoted(name: &str) -> Result<String, Error> {
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    if name.is_empty() || name.len() > NAME_MAX || !name.bytes().all(letter) {
        return Err(Error::Refused("a slot's name is 1 to 63 of a-z, 0-9 and _"));
    }
    Ok(format!("\"{name}\""))
}

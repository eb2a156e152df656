//! Nodes: the unit that answers for a name.
//!
//! The streams of nodes are in a fixed number of units, which nodes own. A name's first home is the unit that its hash
//! chooses. A fork must be in the unit of its source, which may be another one: then the home of the fork's name moves.
//! Only the home can move it, in a durable record, while it has no stream of the name. The record says where the home
//! is now, and its *grant*: the number of moves so far. The new home takes the name from whoever comes with a grant
//! that is above its own record's. So a name has one home at any time, and a request that comes late, with an old
//! grant, is sent on.
//!
//! Requests learn where to go by [`Refusal::Elsewhere`], which never reaches a client: the node that has taken the
//! request follows it.

use super::engine::Engine;
use crate::error::{Refusal, Refused};
use crate::format::content_type::ContentType;
use crate::format::note::{Note, encode_config};
use crate::state::lifetime::Lifetime;
use crate::state::{Config, StreamState};
use thalweg_base::{LogId, Lsn, Millis, Until, crc};
use thalweg_http::Headers;
use thalweg_journal::Class;
use thalweg_log::{Guard, Op};

/// Names of the logs that keep records: this, and the name of a stream.
const RECORDS: &str = "__ds/home/";

/// The highest grant that is believed.
const GRANT_MAX: u64 = 1 << 48;
/// The header by which nodes hand on a grant.
pub const GRANT: &str = "thalweg-grant";
/// The header by which nodes say which unit has the source of a fork.
pub const SOURCE_UNIT: &str = "thalweg-source-unit";

/// The home of a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Home {
    /// The unit that answers for the name.
    pub unit: u64,
    /// How often the home has moved.
    pub grant: u64,
}

/// What a node says with a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hop {
    /// Of the home that the request was sent to.
    pub(crate) grant: u64,
    /// The unit of the source of a fork.
    pub(crate) source_unit: Option<u64>,
}

/// The unit that the hash of a name chooses.
#[must_use]
pub(super) fn first_unit(name: &str, units: u64) -> u64 {
    // The checksum of short names differs in few bits: multiplied, all of them count.
    let mixed = u64::from(crc(name.as_bytes())).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) % units.max(1)
}

impl Hop {
    pub(crate) fn of(headers: Headers<'_>) -> Self {
        let number = |name: &str| std::str::from_utf8(headers.get(name)?).ok()?.parse().ok();
        // No home has moved so often: the next number must exist.
        let grant = number(GRANT).filter(|grant| *grant <= GRANT_MAX).unwrap_or_default();
        Self { grant, source_unit: number(SOURCE_UNIT) }
    }
}

/// The record of a name's home in this unit.
#[derive(Clone, Copy)]
pub(crate) struct Record {
    log: LogId,
    home: Home,
    /// When it counts.
    when: Until,
}

/// The change of a record, in a frame.
pub(crate) struct Change {
    record: Option<LogId>,
    name: String,
    note: Vec<u8>,
}

impl Change {
    pub(crate) fn op(&self) -> Op<'_> {
        match self.record {
            Some(log) => Op::Write { log, note: &self.note, append: None },
            None => Op::Create { name: &self.name, note: &self.note, origin: None, append: None },
        }
    }
}

/// The name of the log that has the record of `name`, which a guard must hold for the functions below.
pub(crate) fn record_name(name: &str) -> String {
    format!("{RECORDS}{name}")
}

impl Engine {
    /// What a node says with a request for one of its units.
    pub(crate) fn hop(&self, headers: Headers<'_>) -> Hop {
        if self.unit.is_some() { Hop::of(headers) } else { Hop::default() }
    }

    pub(crate) fn record(&self, guard: &mut Guard<'_, StreamState>, record: &str) -> Option<Record> {
        let view = guard.find(record).and_then(|log| guard.view(log))?;
        Some(Record { log: view.id, home: view.attachment.home?, when: view.when(view.changed) })
    }

    /// The refusal of a request for a name without a stream, if another unit is its home; otherwise the grant that this
    /// unit has the name by.
    pub(crate) fn check_home(&self, record: Option<Record>, name: &str, hop: Hop) -> Result<u64, Refused> {
        let (Some(unit), Some(units)) = (self.unit, self.units.upgrade()) else { return Ok(0) };
        let first = units.first_unit(name);
        match record {
            Some(Record { home, when, .. }) if home.unit != unit && hop.grant <= home.grant => {
                Err(Refusal::Elsewhere(home).after(when))
            }
            Some(Record { home, .. }) => Ok(home.grant.max(hop.grant)),
            None if hop.grant > 0 || first == unit => Ok(hop.grant),
            None => Err(Refusal::Elsewhere(Home { unit: first, grant: 0 }).into()),
        }
    }

    /// The same, of a name whose shard is not locked.
    pub(crate) fn check_home_of(&self, name: &str, hop: Hop) -> Result<(), Refused> {
        if self.unit.is_some() {
            let record = record_name(name);
            let found = self.record(&mut self.logs.lock(&[&record]), &record);
            self.check_home(found, name, hop)?;
        }
        Ok(())
    }

    /// The change after which `home` is the name's.
    pub(crate) fn new_home(&self, record: Option<Record>, name: &str, home: Home, now: Millis) -> Change {
        let mut note = Vec::with_capacity(32);
        if record.is_some() {
            Note::Home(home).encode(&mut note);
        } else {
            let config = Config {
                content_type: ContentType::OCTET_STREAM,
                lifetime: Lifetime::Unlimited,
                created: now,
                closed: false,
                fork: None,
                retention: Default::default(),
                durability: None,
                home: Some(home),
            };
            encode_config(&config, &mut note);
        }
        Change { record: record.map(|record| record.log), name: record_name(name), note }
    }

    /// The change that notes the grant by which this unit has a name, if its record does not.
    pub(crate) fn note_grant(&self, record: Option<Record>, name: &str, grant: u64, now: Millis) -> Option<Change> {
        let unit = self.unit.filter(|_| grant > 0)?;
        let home = Home { unit, grant };
        (record.map(|record| record.home) != Some(home)).then(|| self.new_home(record, name, home, now))
    }

    /// Moves the home of a name without a stream to the unit of a fork's source, unless that is this one.
    pub(crate) fn move_home(
        &self,
        guard: &mut Guard<'_, StreamState>,
        record: Option<Record>,
        name: &str,
        (hop, grant): (Hop, u64),
        now: Millis,
    ) -> Result<(), Refused> {
        let to = hop.source_unit.filter(|to| self.unit.is_some_and(|unit| unit != *to));
        let (Some(unit), Some(units)) = (to, self.units.upgrade()) else { return Ok(()) };
        if unit >= units.count() {
            return Err(Refusal::Internal(format!("there is no unit {unit}")).into());
        }
        let home = Home { unit, grant: grant + 1 };
        let change = self.new_home(record, name, home, now);
        let end: Lsn = guard.commit_durably(Class::User, &[change.op()]).map_err(Refusal::from)?.end;
        Err(Refusal::Elsewhere(home).after(end))
    }
}

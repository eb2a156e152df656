//! Logical replication: slots, and the stream of a slot's changes.

mod ack;
mod slot;
mod stream;
#[cfg(test)]
mod tests;

pub use ack::Acker;
pub use slot::{CreatedSlot, SlotOptions, Snapshot};
pub use stream::{Event, Stream};

use super::config::Config;
use super::conn::{Conn as Session, ServerVersion, Step};
use super::connect::{Purpose, connect};
use super::error::Error;
use super::lsn::PgLsn;
use super::query::refused;
use super::rows::ResultSet;
use super::{quote_identifier, quote_literal};
use postgres_protocol::message::frontend;
use std::fmt::Write;

/// A connection that replicates one database. It takes replication commands and plain SQL, one statement at a time and
/// by the simple protocol only; [`Conn::start`] makes a [`Stream`] of it.
#[derive(Debug)]
pub struct Conn {
    session: Session,
}

/// Result of `IDENTIFY_SYSTEM`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct System {
    /// The cluster's number: another one is another cluster, where no position of this one means anything.
    pub id: String,
    /// The present timeline.
    pub timeline: u32,
    /// The end of the write-ahead log, as far as it is flushed.
    pub end: PgLsn,
    /// The database of this connection.
    pub database: Option<String>,
}

/// A timeline up to where the next one left it (Postgres documentation, section "Timelines").
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// The timeline's number.
    pub timeline: u32,
    /// The log before this position belongs to the next timeline too.
    pub end: PgLsn,
}

impl Branch {
    /// Lines of a timeline, a position and a reason; `bytea` as the server prints it is read too.
    fn read_all(text: &str) -> Option<Vec<Self>> {
        let decoded;
        let text = match text.strip_prefix("\\x") {
            Some(hex) => {
                let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
                let bytes: Option<Vec<u8>> = hex.as_bytes().chunks(2).map(byte).collect();
                decoded = String::from_utf8_lossy(&bytes?).into_owned();
                &decoded
            }
            None => text,
        };
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let branch = |line: &str| {
            let mut words = line.split_whitespace();
            Some(Self { timeline: words.next()?.parse().ok()?, end: words.next()?.parse().ok()? })
        };
        lines.map(branch).collect()
    }
}

/// Options of pgoutput (Postgres documentation, section "Logical Streaming Replication Parameters").
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartOptions {
    /// 1, or 2 for [`StartOptions::streaming`] (from Postgres 14 on).
    pub proto_version: u32,
    /// The names of the publications to follow.
    pub publications: Vec<String>,
    /// Large transactions come while they run, in separate blocks.
    pub streaming: bool,
    /// Messages of `pg_logical_emit_message` come too (from Postgres 14 on).
    pub messages: bool,
    /// Values come in their types' binary form.
    pub binary: bool,
}

impl Default for StartOptions {
    fn default() -> Self {
        Self { proto_version: 2, publications: Vec::new(), streaming: true, messages: false, binary: false }
    }
}

impl Conn {
    /// Connects to the first acceptable host of `config`, as a walsender of its database.
    pub fn connect(config: &Config) -> Result<Self, Error> {
        Ok(Self { session: connect(config, Purpose::Replication)? })
    }

    /// One statement, by the simple protocol.
    pub fn simple(&mut self, sql: &str) -> Result<Vec<ResultSet>, Error> {
        self.session.simple(sql)
    }

    /// The session's version, settings and process.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The server's version.
    pub fn server_version(&self) -> ServerVersion {
        self.session.server_version()
    }

    /// `IDENTIFY_SYSTEM`.
    pub fn identify_system(&mut self) -> Result<System, Error> {
        let results = self.simple("IDENTIFY_SYSTEM")?;
        let row = results.first().and_then(|set| set.row(0));
        let value = |i| row.and_then(|row| row.get(i));
        let read = || {
            Some(System {
                id: value(0)?.to_owned(),
                timeline: value(1)?.parse().ok()?,
                end: value(2)?.parse().ok()?,
                database: value(3).map(str::to_owned),
            })
        };
        read().ok_or_else(|| self.session.unexpected("no answer to IDENTIFY_SYSTEM"))
    }

    /// The ancestors of a timeline, oldest first: each with the position where the next one begins. Empty for the first
    /// timeline.
    pub fn timeline_history(&mut self, timeline: u32) -> Result<Vec<Branch>, Error> {
        if timeline <= 1 {
            return Ok(Vec::new());
        }
        let results = self.simple(&format!("TIMELINE_HISTORY {timeline}"))?;
        let text = results.first().and_then(|set| set.row(0)).and_then(|row| row.get(1));
        match text.and_then(Branch::read_all) {
            Some(branches) => Ok(branches),
            None => Err(self.session.unexpected("no answer to TIMELINE_HISTORY")),
        }
    }

    /// Starts to stream the changes of `slot` after `from`, or after the confirmed position if that is later;
    /// [`PgLsn::ZERO`] is always earlier. Fails while another session uses the slot.
    pub fn start(mut self, slot: &str, from: PgLsn, options: &StartOptions) -> Result<Stream, Error> {
        let sql = start_sql(slot, from, options)?;
        self.session.check()?;
        frontend::query(&sql, self.session.out()).map_err(refused)?;
        self.session.flush()?;
        match self.session.step()? {
            Step::Frame(frame) if frame.tag == b'W' => Ok(Stream::new(self.session)),
            Step::Frame(_) => Err(self.session.unexpected("no stream")),
            Step::Error(error) => Err(Error::Server(error)),
        }
    }
}

fn start_sql(slot: &str, from: PgLsn, options: &StartOptions) -> Result<String, Error> {
    if options.publications.is_empty() {
        return Err(Error::Refused("no publication"));
    }
    if options.streaming && options.proto_version < 2 {
        return Err(Error::Refused("streaming needs version 2 of pgoutput"));
    }
    let publications: Vec<_> = options.publications.iter().map(|name| quote_identifier(name)).collect();
    let mut sql = format!("START_REPLICATION SLOT {} LOGICAL {from} (", slot::quoted(slot)?);
    let _ = write!(sql, "proto_version '{}', publication_names ", options.proto_version);
    sql.push_str(&literal(&publications.join(",")));
    for (on, name) in [(options.streaming, "streaming"), (options.messages, "messages"), (options.binary, "binary")] {
        if on {
            let _ = write!(sql, ", {name} 'on'");
        }
    }
    sql.push(')');
    Ok(sql)
}

/// The grammar of replication commands knows doubled quotes and no `E'…'`.
fn literal(text: &str) -> String {
    if text.contains('\\') { format!("'{}'", text.replace('\'', "''")) } else { quote_literal(text) }
}

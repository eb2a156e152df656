//! Reads the replication stream and hands over whole transactions, in the order of their commits.

use super::anchor::{Diverged, Proof};
use super::clock::Clock;
use super::postgres::Changes;
use super::spill::Spill;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use thalweg_pg::pgoutput::{DecodeError, Decoder, Message};
use thalweg_pg::replication::Event;
use thalweg_pg::{Error, PgLsn};
use thalweg_shapes_model::history::Anchor;

/// The interval of acknowledgements to Postgres while changes come: one per change would cost as much as a change.
const CONFIRM_EVERY: Duration = Duration::from_millis(5);
/// The silence of the stream after which the journal is synced: clients see changes before they are durable, and a sync
/// would delay them. `SYNC_EVERY` bounds the wait.
const QUIET: Duration = Duration::from_millis(2);
const SYNC_EVERY: Duration = Duration::from_millis(10);
/// The interval of acknowledgements while the stream is idle. Postgres disconnects after `wal_sender_timeout`, 60 s by
/// default, and asks for an acknowledgement at half of it.
const IDLE: Duration = Duration::from_secs(5);

/// The interval of checks while fetched rows are outstanding.
const WAITING: Duration = Duration::from_millis(1);

/// The longest time until a stop is noticed.
const STOP_WITHIN: Duration = Duration::from_millis(200);

/// The receiver of transactions.
pub trait Apply {
    type Error: From<std::io::Error> + From<Error> + From<DecodeError> + From<Diverged>;

    /// A transaction begins that commits at `lsn`. Returns whether to apply it: `false` if it was applied before.
    fn begin(&mut self, xid: u32, lsn: u64) -> bool;
    /// A change of the transaction, or the description of a table.
    fn change(&mut self, message: &Message<'_>) -> Result<(), Self::Error>;
    /// The transaction is complete; the next one is after `end`.
    fn commit(&mut self, end: u64) -> Result<(), Self::Error>;
    /// The stream has brought this transaction, with or without changes of interest.
    fn brought(&mut self, anchor: Anchor);
    /// No transaction that commits before `lsn` is outstanding.
    fn reached(&mut self, lsn: u64);
    /// Work once per batch: the stream is silent for a moment, or the batch is long.
    fn pause(&mut self) -> Result<(), Self::Error>;
    /// Whether the receiver has such work.
    fn wants_pause(&self) -> bool;
    /// The LSN up to which everything is durable here, so that Postgres may discard its WAL.
    fn flushed(&mut self) -> u64;
    /// Postgres waits for an acknowledgement: make the durable LSN advance soon.
    fn hurry(&mut self);
    /// Whether transactions were applied that are not durable yet.
    fn unconfirmed(&self) -> bool;
    /// Whether fetched rows are outstanding that belong between transactions, so that the position of the stream
    /// matters.
    fn waiting(&self) -> bool;
    fn stopping(&self) -> bool;
}

/// A follower of one stream.
pub struct Follower {
    decoder: Decoder,
    /// Transactions that are streamed before their commit, by xid.
    spills: HashMap<u32, Spill>,
    /// The xid of the current stream block.
    block: Option<u32>,
    folder: PathBuf,
    /// `Some` within a transaction: whether it is applied.
    open: Option<bool>,
    /// The current transaction, or the last one.
    anchor: Option<Anchor>,
    proof: Proof,
    confirmed: u64,
    clock: Arc<dyn Clock>,
}

impl Follower {
    /// `folder` holds large transactions until their commit. `proof`: the transaction that the stream must repeat
    /// first.
    pub fn new(folder: PathBuf, proof: Proof, clock: Arc<dyn Clock>) -> Self {
        let (decoder, spills) = (Decoder::new(), HashMap::new());
        Self { decoder, spills, block: None, folder, open: None, anchor: None, proof, confirmed: 0, clock }
    }

    /// Follows until the stream ends or it is time to stop.
    pub fn run<A: Apply>(&mut self, stream: &mut dyn Changes, to: &mut A) -> Result<(), A::Error> {
        let clock = Arc::clone(&self.clock);
        let (mut spoke, mut paused, mut quiet) = (clock.now(), clock.now(), true);
        loop {
            let mut reply = false;
            if quiet || clock.since(paused) >= if to.waiting() { WAITING } else { SYNC_EVERY } {
                to.pause()?;
                paused = clock.now();
            }
            let flushed = to.flushed();
            if flushed > self.confirmed && clock.since(spoke) >= CONFIRM_EVERY || clock.since(spoke) > IDLE {
                stream.ack(PgLsn(flushed), false)?;
                (self.confirmed, spoke) = (flushed, clock.now());
            }
            if to.stopping() {
                return Ok(());
            }
            let waiting = to.waiting();
            if waiting && clock.since(spoke) >= WAITING {
                // The server answers with its position in the stream.
                stream.ack(PgLsn(flushed), true)?;
                (self.confirmed, spoke) = (flushed, clock.now());
            }
            let wait = match to.unconfirmed() || flushed > self.confirmed {
                _ if waiting => WAITING,
                _ if to.wants_pause() => QUIET,
                true => CONFIRM_EVERY,
                false => IDLE,
            };
            quiet = false;
            match stream.next(clock.now() + wait.min(STOP_WITHIN))? {
                Event::XLogData { body, .. } => self.message(body, to)?,
                Event::Keepalive { end, reply: wanted, .. } => {
                    if self.open.is_none() {
                        self.proof.passed(end.0)?;
                        to.reached(end.0);
                    }
                    reply = wanted;
                }
                Event::Idle => quiet = true,
            }
            if reply {
                to.hurry();
                let flushed = to.flushed();
                stream.ack(PgLsn(flushed), false)?;
                (self.confirmed, spoke) = (flushed, clock.now());
            }
        }
    }

    fn message<A: Apply>(&mut self, body: &[u8], to: &mut A) -> Result<(), A::Error> {
        match self.decoder.decode(body)? {
            Message::Begin { final_lsn, xid, commit_time } => {
                self.comes(Anchor { lsn: final_lsn.0, xid, time: commit_time })?;
                self.open = Some(to.begin(xid, final_lsn.0));
            }
            Message::Commit { end_lsn, .. } => self.close(end_lsn.0, to)?,
            Message::StreamStart { xid, .. } => {
                self.block = Some(xid);
                let spill = self.spills.entry(xid).or_insert_with(Spill::new);
                // The first message determines how the decoder of a replay reads the rest.
                if spill.bytes() == 0 {
                    spill.push(&self.folder, xid, body)?;
                }
            }
            Message::StreamStop => self.block = None,
            Message::StreamAbort { xid, subxid } if xid == subxid => {
                self.spills.remove(&xid);
            }
            Message::StreamAbort { xid, subxid } => {
                if let Some(spill) = self.spills.get_mut(&xid) {
                    spill.abort(subxid);
                }
            }
            Message::StreamCommit { xid, commit_lsn, end_lsn, commit_time, .. } => {
                let Some(spill) = self.spills.remove(&xid) else { return Ok(()) };
                self.comes(Anchor { lsn: commit_lsn.0, xid, time: commit_time })?;
                let wanted = to.begin(xid, commit_lsn.0);
                self.open = Some(wanted);
                let mut decoder = Decoder::new();
                spill.replay(|message| match decoder.decode(message)? {
                    Message::StreamStart { .. } => Ok(()),
                    // Relations and types are decoded in any case: Postgres does not send them again.
                    message if wanted || is_description(&message) => to.change(&message),
                    _ => Ok(()),
                })?;
                self.close(end_lsn.0, to)?;
            }
            message => match self.block {
                Some(xid) => {
                    let subxid = xid_of(&message).unwrap_or(xid);
                    let spill = self.spills.entry(xid).or_insert_with(Spill::new);
                    spill.push(&self.folder, subxid, body)?;
                }
                None if self.open != Some(false) || is_description(&message) => to.change(&message)?,
                None => {}
            },
        }
        Ok(())
    }

    fn comes(&mut self, anchor: Anchor) -> Result<(), Diverged> {
        self.proof.came(anchor)?;
        self.anchor = Some(anchor);
        Ok(())
    }

    fn close<A: Apply>(&mut self, end: u64, to: &mut A) -> Result<(), A::Error> {
        match self.open.take() {
            Some(true) => to.commit(end)?,
            _ => to.reached(end),
        }
        self.anchor.into_iter().for_each(|anchor| to.brought(anchor));
        Ok(())
    }
}

fn is_description(message: &Message<'_>) -> bool {
    matches!(message, Message::Relation { .. } | Message::Type { .. })
}

/// The subtransaction that a message in a block belongs to.
fn xid_of(message: &Message<'_>) -> Option<u32> {
    match message {
        Message::Insert { xid, .. }
        | Message::Update { xid, .. }
        | Message::Delete { xid, .. }
        | Message::Truncate { xid, .. }
        | Message::Message { xid, .. } => *xid,
        // Table descriptions stay valid, even if their subtransaction is undone.
        _ => None,
    }
}

//! Reads the replication stream and hands over whole transactions, in the order of their commits.

use super::anchor::{Diverged, Proof};
use super::spill::Spill;
use crate::format::note::Anchor;
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use thalweg_wire::pg::pgoutput::{DecodeError, Decoder, Message};
use thalweg_wire::pg::replication::{Event, Stream};
use thalweg_wire::pg::{Error, Lsn};

/// How often Postgres is told how far we are, while changes come: not after each, which would cost as much as a change.
const CONFIRM_EVERY: Duration = Duration::from_millis(5);
/// The disk gets to work when nothing has come for so long: clients see changes before they are durable here, and it would only be in
/// their way. But not later than this.
const QUIET: Duration = Duration::from_millis(2);
const SYNC_EVERY: Duration = Duration::from_millis(10);
/// How often Postgres is told when nothing is new. It hangs up after `wal_sender_timeout`, 60 s by default, and asks at half of it.
const IDLE: Duration = Duration::from_secs(5);

/// How often it is looked for rows that are on their way.
const WAITING: Duration = Duration::from_millis(1);

/// A stop is noticed so soon.
const STOP_WITHIN: Duration = Duration::from_millis(200);

/// Takes transactions.
pub(crate) trait Apply {
    type Error: From<std::io::Error> + From<Error> + From<DecodeError> + From<Diverged>;

    /// A transaction begins that commits at `lsn`. Whether it is wanted: one that was applied before is not.
    fn begin(&mut self, xid: u32, lsn: u64) -> bool;
    /// A change of the transaction, or the description of a table.
    fn change(&mut self, message: &Message<'_>) -> Result<(), Self::Error>;
    /// The transaction is complete; the next one is after `end`.
    fn commit(&mut self, end: u64) -> Result<(), Self::Error>;
    /// The stream has brought this transaction, wanted or not.
    fn brought(&mut self, anchor: Anchor);
    /// Nothing that commits before `lsn` is outstanding.
    fn reached(&mut self, lsn: u64);
    /// The place for work once per batch: nothing more has come for a moment, or the batch is long.
    fn pause(&mut self) -> Result<(), Self::Error>;
    /// Something waits for a pause.
    fn wants_pause(&self) -> bool;
    /// Postgres may forget what is before: it is durable here.
    fn flushed(&mut self) -> u64;
    /// Postgres waits to be told.
    fn hurry(&mut self);
    /// Something was applied that Postgres may not forget yet.
    fn unconfirmed(&self) -> bool;
    /// Rows are on their way that belong between transactions: to know where the stream is matters.
    fn waiting(&self) -> bool;
    fn stopping(&self) -> bool;
}

/// A follower of one stream.
pub(crate) struct Follower {
    decoder: Decoder,
    /// Transactions that are streamed before their commit, by xid.
    spills: HashMap<u32, Spill>,
    /// Whose block this is.
    block: Option<u32>,
    folder: PathBuf,
    /// In the middle of a transaction; whether it is wanted.
    open: Option<bool>,
    /// The transaction that comes, or came last.
    anchor: Option<Anchor>,
    proof: Proof,
    confirmed: u64,
}

impl Follower {
    /// Large transactions wait for their commit in `folder`. `proof`: what the stream has to show first.
    pub(crate) fn new(folder: PathBuf, proof: Proof) -> Self {
        let (decoder, spills) = (Decoder::new(), HashMap::new());
        Self { decoder, spills, block: None, folder, open: None, anchor: None, proof, confirmed: 0 }
    }

    /// Follows until the stream ends or it is time to stop.
    pub(crate) fn run<A: Apply>(&mut self, stream: &mut Stream, to: &mut A) -> Result<(), A::Error> {
        let acker = stream.acker();
        let (mut spoke, mut paused, mut quiet) = (Instant::now(), Instant::now(), true);
        loop {
            let mut reply = false;
            if quiet || paused.elapsed() >= if to.waiting() { WAITING } else { SYNC_EVERY } {
                to.pause()?;
                paused = Instant::now();
            }
            let flushed = to.flushed();
            if flushed > self.confirmed && spoke.elapsed() >= CONFIRM_EVERY || spoke.elapsed() > IDLE {
                acker.ack(Lsn(flushed), Lsn(flushed), Lsn(flushed), false)?;
                (self.confirmed, spoke) = (flushed, Instant::now());
            }
            if to.stopping() {
                return Ok(());
            }
            let waiting = to.waiting();
            if waiting && spoke.elapsed() >= WAITING {
                // The answer says how far the stream is.
                acker.ack(Lsn(flushed), Lsn(flushed), Lsn(flushed), true)?;
                (self.confirmed, spoke) = (flushed, Instant::now());
            }
            let wait = match to.unconfirmed() || flushed > self.confirmed {
                _ if waiting => WAITING,
                _ if to.wants_pause() => QUIET,
                true => CONFIRM_EVERY,
                false => IDLE,
            };
            quiet = false;
            match stream.next(Some(Instant::now() + wait.min(STOP_WITHIN)))? {
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
                acker.ack(Lsn(flushed), Lsn(flushed), Lsn(flushed), false)?;
                (self.confirmed, spoke) = (flushed, Instant::now());
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
                // So that a decoder knows, when the messages are read again, what form they have.
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
                    // Descriptions are wanted in any case: they are not sent again.
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
        // Descriptions hold for whatever comes after them, whether their subtransaction is undone or not.
        _ => None,
    }
}

//! The simulated cluster as the engine asks it.

use super::cluster::{Change, Clause, Cluster, Committed, Dictionary, Logged, Row, Slot as Kept, TABLES};
use super::scheduler::Scheduler;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use thalweg_pg::pgoutput::{
    Column, Columns, Message, OldTuple, Relations, ReplicaIdentity, TupleWriter, Value, encode,
};
use thalweg_pg::replication::{Event, StartOptions, System};
use thalweg_pg::{CancelToken, Config, DbError, Error, PgLsn, ServerVersion};
use thalweg_shapes_model::table::{Kind, Table, TableName};
use thalweg_shapes_source::cancel::Cancel;
use thalweg_shapes_source::catalog::{Class, Found, Identity, Persistence, Relation, Standing, Which};
use thalweg_shapes_source::error::SourceError;
use thalweg_shapes_source::pool::{Job, Jobs, Options as PoolOptions};
use thalweg_shapes_source::postgres::{Begun, Changes, Connection, Postgres, Walsender};
use thalweg_shapes_source::publish::Lacking;
use thalweg_shapes_source::session::{Limits, Place};
use thalweg_shapes_source::setup::{Options, Publication, Server, ServerFacts, SetupError, Slot};

/// The interval between a session's attempts to take a lock.
const LOCK_LOOK: Duration = Duration::from_millis(20);

/// The task that follows the stream: no other session may hold it up.
pub(super) const FOLLOWS: &str = "follow";

#[derive(Clone, Debug)]
pub(super) struct Simulated {
    pub(super) cluster: Arc<Mutex<Cluster>>,
    pub(super) scheduler: Scheduler,
}

fn refused(code: &str) -> Error {
    Error::Server(Box::new(DbError {
        code: code.into(),
        message: "the simulation says so".into(),
        ..DbError::default()
    }))
}

fn closed() -> Error {
    Error::Closed(None)
}

impl Postgres for Simulated {
    fn connect(&self, _: &Config) -> Result<Box<dyn Connection>, Error> {
        assert_ne!(self.scheduler.name(), FOLLOWS, "the thread that applies changes asks Postgres");
        self.scheduler.give_way();
        let mut cluster = self.cluster.lock();
        if !cluster.is_up {
            return Err(closed());
        }
        cluster.next_session += 1;
        let (run, number) = (cluster.run, cluster.next_session);
        drop(cluster);
        Ok(Box::new(Session { of: self.clone(), run, number, moment: None, is_broken: false }))
    }

    fn replicate(&self, _: &Config) -> Result<Box<dyn Walsender>, Error> {
        self.scheduler.give_way();
        let cluster = self.cluster.lock();
        if cluster.is_up { Ok(Box::new(Sender { of: self.clone(), run: cluster.run })) } else { Err(closed()) }
    }

    fn jobs(&self, options: PoolOptions) -> Box<dyn Jobs> {
        Box::new(Workers { of: self.clone(), options })
    }
}

/// A task for each job.
struct Workers {
    of: Simulated,
    options: PoolOptions,
}

impl Jobs for Workers {
    fn submit(&self, job: Job) -> Result<Arc<Cancel>, SourceError> {
        let endpoint = self.options.endpoint.clone();
        self.of.scheduler.spawn("fetch", move || match endpoint.connect() {
            Ok(mut session) => job(Ok(&mut session)),
            Err(error) => job(Err(error.into())),
        });
        Ok(Arc::new(Cancel::new()))
    }
}

/// The rows that a transaction of a session sees.
struct Moment {
    rows: Vec<super::cluster::Rows>,
}

/// A connection for queries.
struct Session {
    of: Simulated,
    run: u64,
    number: u64,
    moment: Option<Moment>,
    is_broken: bool,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Session {
    /// A round trip, during which others run.
    fn ask<T>(&mut self, answer: impl FnOnce(&mut Cluster) -> T) -> Result<T, Error> {
        self.of.scheduler.give_way();
        self.answer(answer)
    }

    /// A round trip that others may wait for, holding a lock of their own.
    fn answer<T>(&mut self, answer: impl FnOnce(&mut Cluster) -> T) -> Result<T, Error> {
        assert_ne!(self.of.scheduler.name(), FOLLOWS, "the thread that applies changes asks Postgres");
        let mut cluster = self.of.cluster.lock();
        if self.is_broken || !cluster.is_up || cluster.run != self.run {
            self.is_broken = true;
            return Err(closed());
        }
        Ok(answer(&mut cluster))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.of.cluster.lock().readers.remove(&self.number);
    }
}

fn found(cluster: &Cluster, at: usize) -> Found {
    let files = &cluster.files;
    let known = &files.tables[at];
    let relation = Relation {
        oid: known.table.oid,
        name: known.table.name.clone(),
        class: Class::Ordinary,
        persistence: Persistence::Permanent,
        identity: if known.is_full { Identity::Full } else { Identity::Key },
        system: false,
        owned: true,
        readable: true,
        partition: false,
        made_as_part: false,
        member: known.entry.is_some(),
        published: known.entry.is_some(),
        cut: false,
        as_root: false,
    };
    let standing = Standing {
        relation,
        parts: Vec::new(),
        publishes_generated: false,
        publishes_all: true,
        publication: files.publication.map(|(_, version)| version.to_string()).unwrap_or_default(),
    };
    debug_assert_eq!(known.table.kind, Kind::Ordinary);
    Found { table: (*known.table).clone(), standing }
}

impl Connection for Session {
    fn version(&self) -> ServerVersion {
        ServerVersion { major: 17, minor: 0 }
    }

    fn place(&mut self) -> Result<Option<Place>, Error> {
        self.ask(|cluster| Some(place(cluster)))
    }

    fn tables(&mut self, _: &str, which: Which<'_>) -> Result<Vec<Found>, SourceError> {
        // Also asked while tables are published, which one thread does for all.
        let found = self.answer(|cluster| {
            let is_meant = |table: &Table| match which {
                Which::Name(name) => table.name == *name,
                Which::Oids(oids) => oids.contains(&table.oid),
            };
            let all = (0..TABLES.len()).filter(|at| is_meant(&cluster.files.tables[*at].table));
            all.map(|at| found(cluster, at)).collect()
        });
        Ok(found?)
    }

    fn marks(&mut self, name: &TableName) -> Result<Option<String>, Error> {
        self.ask(|cluster| {
            let known = cluster.files.tables.iter().find(|known| known.table.name == *name)?;
            Some(format!("{}/{}", known.table.oid, known.version))
        })
    }

    fn publish(&mut self, _: Duration, _: &str, found: &Found, _: &Lacking) -> Result<(), Error> {
        self.answer(|cluster| {
            let at = cluster.files.table_at(found.table.oid).ok_or_else(|| refused("42P01"))?;
            if cluster.files.has_writers(at) || cluster.readers.values().any(|table| *table == at) {
                return Err(refused("55P03"));
            }
            if cluster.files.publication.is_none() {
                return Err(refused("42704"));
            }
            cluster.files.publish(at);
            Ok(())
        })?
    }

    fn members(&mut self, _: &str) -> Result<Vec<(u32, TableName)>, Error> {
        self.answer(|cluster| {
            let members = cluster.files.tables.iter().filter(|known| known.entry.is_some());
            members.map(|known| (known.table.oid, known.table.name.clone())).collect()
        })
    }

    fn unpublish(&mut self, _: Duration, _: &str, table: &TableName) -> Result<(), Error> {
        self.answer(|cluster| {
            let at = super::cluster::place(&table.name);
            if cluster.files.has_writers(at) {
                return Err(refused("55P03"));
            }
            cluster.files.unpublish(at);
            Ok(())
        })?
    }

    fn drop_publication(&mut self, _: Duration, _: &str) -> Result<(), Error> {
        self.answer(|cluster| cluster.files.publication = None)
    }

    fn writers(&mut self, tables: &[u32]) -> Result<HashSet<(u32, String)>, Error> {
        self.answer(|cluster| {
            let files = &cluster.files;
            let writers = tables.iter().filter_map(|oid| Some((*oid, files.table_at(*oid)?)));
            writers.flat_map(|(oid, at)| files.writers(at).map(move |xid| (oid, xid.to_string()))).collect()
        })
    }

    fn read(&mut self, _: &str, _: &[u32]) -> Result<(), Error> {
        self.ask(|_| ())
    }

    fn begin(&mut self, table: &Table, limits: Limits, _: bool) -> Result<Begun, Error> {
        let scheduler = self.of.scheduler.clone();
        let until = scheduler.now() + limits.lock;
        let number = self.number;
        loop {
            let begun = self.ask(|cluster| {
                let at = super::cluster::place(&table.name.name);
                if cluster.files.is_locked(at) {
                    return None;
                }
                cluster.readers.insert(number, at);
                let begun = Begun {
                    snapshot: cluster.files.snapshot(),
                    oid: Some(cluster.files.tables[at].table.oid),
                    place: Some(place(cluster)),
                };
                Some((begun, Moment { rows: cluster.files.visible.clone() }))
            })?;
            match begun {
                Some((begun, moment)) => {
                    scheduler.say(|| format!("session {number} of {} sees {:?}", table.name, begun.snapshot));
                    self.moment = Some(moment);
                    self.of.scheduler.give_way();
                    return Ok(begun);
                }
                None if scheduler.now() >= until => return Err(refused("55P03")),
                None => scheduler.sleep(LOCK_LOOK),
            }
        }
    }

    fn rows(&mut self, select: &str, take: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) -> Result<ControlFlow<()>, Error> {
        let moment = self.moment.take().ok_or(Error::Protocol("no transaction is open"))?;
        self.of.scheduler.say(|| format!("session {} {select}", self.number));
        let rows = self.ask(|cluster| answer(cluster, &moment, select));
        self.moment = Some(moment);
        for row in rows? {
            if self.of.scheduler.below(4) == 0 {
                self.ask(|_| ())?;
            }
            if take(&row).is_break() {
                self.is_broken = true;
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn end(&mut self) -> Result<PgLsn, Error> {
        let flushed = self.ask(|cluster| PgLsn(cluster.files.flushed));
        self.roll_back();
        flushed
    }

    fn roll_back(&mut self) {
        self.moment = None;
        self.of.cluster.lock().readers.remove(&self.number);
    }

    fn flushed(&mut self) -> Result<PgLsn, Error> {
        self.ask(|cluster| PgLsn(cluster.files.flushed))
    }

    fn flush(&mut self, _: Duration) -> Result<(), Error> {
        let scheduler = self.of.scheduler.clone();
        self.ask(|cluster| {
            cluster.files.xid();
            cluster.files.inserted += 60;
            cluster.files.flushed = cluster.files.inserted;
            scheduler.wake(FOLLOWS);
        })
    }

    fn wal_end(&mut self, _: &str) -> Result<(PgLsn, u64), Error> {
        self.ask(|cluster| (PgLsn(cluster.files.flushed), 0))
    }

    fn is_idle(&self) -> bool {
        !self.is_broken && self.moment.is_none()
    }

    fn has_unread(&self) -> bool {
        false
    }

    fn is_alive(&mut self) -> bool {
        self.ask(|_| ()).is_ok()
    }

    fn cancel_token(&self) -> Option<CancelToken> {
        None
    }

    fn set_read_timeout(&mut self, _: Option<Duration>) {}
}

fn place(cluster: &Cluster) -> Place {
    Place { system: cluster.files.system.to_string(), timeline: cluster.files.timeline }
}

/// The rows of a statement: `SELECT list FROM table [WHERE (clause)]`, where the list has columns and `(clause) IS
/// TRUE`.
fn answer(cluster: &Cluster, moment: &Moment, select: &str) -> Vec<Vec<u8>> {
    let files = &cluster.files;
    let (list, rest) = split_top(select.strip_prefix("SELECT ").expect("a SELECT"), " FROM ");
    let (name, filter) = split_top(rest, " WHERE ");
    let at = TABLES.iter().position(|(known, _)| name == format!("\"public\".\"{known}\"")).expect("a table");
    let items: Vec<Item> = items(list)
        .into_iter()
        .map(|item| match item.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
            Some(column) => Item::Column(TABLES[at].1.iter().position(|known| *known == column).expect("a column")),
            None => Item::Truth(truth(at, item)),
        })
        .collect();
    // Of rows that come because of a subquery's values there may be more than were asked for: each is judged again.
    let filter = inside(filter).and_then(|sql| DICTIONARY.clause(at, sql)).unwrap_or(Clause::All);
    let rows = moment.rows[at].values().filter(|row| files.satisfies(&moment.rows, &filter, row));
    let line = |row: &Row| {
        let value = |item: &Item| match item {
            Item::Column(at) => row[*at].map_or_else(|| "\\N".to_owned(), |number| number.to_string()),
            Item::Truth(clause) => if files.satisfies(&moment.rows, clause, row) { "t" } else { "f" }.to_owned(),
        };
        items.iter().map(value).collect::<Vec<_>>().join("\t").into_bytes()
    };
    rows.map(line).collect()
}

static DICTIONARY: LazyLock<Dictionary> = LazyLock::new(|| Dictionary::of(super::world::clauses()));

/// The text in parentheses.
fn inside(sql: &str) -> Option<&str> {
    sql.strip_prefix('(')?.strip_suffix(')')
}

fn truth(at: usize, item: &str) -> Clause {
    let sql = item.strip_suffix(" IS TRUE").and_then(inside).expect("a truth");
    DICTIONARY.clause(at, sql).unwrap_or_else(|| panic!("{sql} is no position of a condition"))
}

enum Item {
    Column(usize),
    Truth(Clause),
}

/// The text before and after the first `at` that stands in no parenthesis.
fn split_top<'a>(text: &'a str, at: &str) -> (&'a str, &'a str) {
    let mut depth = 0_i32;
    for (place, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ if depth == 0 && text[place..].starts_with(at) => return (&text[..place], &text[place + at.len()..]),
            _ => {}
        }
    }
    (text, "")
}

fn items(list: &str) -> Vec<&str> {
    let (mut all, mut rest) = (Vec::new(), list);
    while !rest.is_empty() {
        let (item, after) = split_top(rest, ", ");
        all.push(item);
        rest = after;
    }
    all
}

/// A connection for replication.
#[derive(Debug)]
struct Sender {
    of: Simulated,
    run: u64,
}

impl Sender {
    fn ask<T>(&mut self, answer: impl FnOnce(&mut Cluster) -> T) -> Result<T, Error> {
        self.of.scheduler.give_way();
        let mut cluster = self.of.cluster.lock();
        if !cluster.is_up || cluster.run != self.run {
            return Err(closed());
        }
        Ok(answer(&mut cluster))
    }
}

impl Walsender for Sender {
    fn system(&mut self) -> Result<System, Error> {
        self.ask(|cluster| System {
            id: cluster.files.system.to_string(),
            timeline: cluster.files.timeline,
            end: PgLsn(cluster.files.flushed),
            database: Some("app".into()),
        })
    }

    fn facts(&mut self) -> Result<ServerFacts, SetupError> {
        Ok(self.ask(|cluster| ServerFacts {
            version: ServerVersion { major: 17, minor: 0 },
            slots_max: "10".into(),
            database_oid: 5,
            server: Server {
                waits_for_standbys: cluster.files.committed.iter().any(|done| done.hangs),
                superuser: None,
            },
        })?)
    }

    fn try_lock(&mut self, _: i64) -> Result<bool, Error> {
        self.ask(|_| true)
    }

    fn depose(&mut self, _: i64, _: &str) -> Result<Vec<u32>, Error> {
        Ok(Vec::new())
    }

    fn publication(&mut self, _: &Options, _: ServerVersion) -> Result<Publication, SetupError> {
        Ok(self.ask(|cluster| {
            if cluster.files.publication.is_none() {
                cluster.files.create_publication();
            }
            let (oid, version) = cluster.files.publication.unwrap_or_default();
            Publication { oid, version: version.to_string(), passing: false }
        })?)
    }

    fn branches(&mut self, _: u32) -> Result<Vec<(u32, u64)>, SetupError> {
        Ok(self.ask(|cluster| cluster.files.branches.clone())?)
    }

    fn slot(&mut self, _: &str, _: &str) -> Result<Option<Slot>, SetupError> {
        Ok(self.ask(|cluster| {
            cluster.files.slot.map(|slot| Slot {
                active: slot.is_active.then(|| "1".to_owned()),
                confirmed: Some(PgLsn(slot.confirmed)),
                ..Slot::default()
            })
        })?)
    }

    fn create_slot(
        &mut self,
        _: &Options,
        _: &ServerFacts,
        stopping: &(dyn Fn() -> bool + Sync),
    ) -> Result<PgLsn, SetupError> {
        // The slot is ready when every transaction has ended that runs now, or has committed and is not visible yet.
        let running = self.ask(|cluster| cluster.files.running())?;
        while self.ask(|cluster| !cluster.files.running().is_disjoint(&running))? {
            if stopping() {
                return Err(SetupError::Stopped);
            }
            self.of.scheduler.sleep(LOCK_LOOK);
        }
        Ok(self.ask(|cluster| {
            cluster.files.inserted += 50;
            // A transaction that has not committed yet is sent as a whole.
            let confirmed = cluster.files.inserted;
            cluster.files.flushed = confirmed;
            cluster.files.slot = Some(Kept { confirmed, is_active: false });
            PgLsn(confirmed)
        })?)
    }

    fn keep_on_standbys(&mut self, _: &str) -> Result<(), Error> {
        self.ask(|_| ())
    }

    fn drop_slot(&mut self, _: &str) -> Result<(), Error> {
        self.ask(|cluster| cluster.files.slot = None)
    }

    fn start(mut self: Box<Self>, _: &str, _: &StartOptions) -> Result<Box<dyn Changes>, Error> {
        let (from, history, run) = self
            .ask(|cluster| {
                let slot = cluster.files.slot.as_mut()?;
                slot.is_active = true;
                Some((slot.confirmed, cluster.history, cluster.run))
            })?
            .ok_or_else(|| refused("42704"))?;
        {
            let mut cluster = self.of.cluster.lock();
            (cluster.streams, cluster.followed, cluster.asked) = (Some((history, run)), history, None);
        }
        self.of.scheduler.say(|| format!("a stream begins after {from}"));
        Ok(Box::new(Stream {
            of: self.of.clone(),
            run,
            from,
            sent: from,
            told: from,
            blocks: BTreeMap::new(),
            described: BTreeSet::new(),
            waiting: std::collections::VecDeque::new(),
            body: Vec::new(),
            wants_reply: false,
        }))
    }
}

/// A transaction that is sent before it commits.
#[derive(Default)]
struct Block {
    /// How many of its changes were sent.
    sent: usize,
    described: BTreeSet<u32>,
}

struct Stream {
    of: Simulated,
    run: u64,
    /// Transactions that end at or before this LSN were confirmed.
    from: u64,
    /// Every transaction that ends at or before this was sent.
    sent: u64,
    /// The end that was sent last.
    told: u64,
    blocks: BTreeMap<u64, Block>,
    described: BTreeSet<u32>,
    waiting: std::collections::VecDeque<Vec<u8>>,
    body: Vec<u8>,
    wants_reply: bool,
}

impl Changes for Stream {
    fn next(&mut self, deadline: Instant) -> Result<Event<'_>, Error> {
        let Simulated { cluster, scheduler } = self.of.clone();
        loop {
            scheduler.give_way();
            {
                let mut cluster = cluster.lock();
                cluster.asked = Some(scheduler.now());
                if !cluster.is_up || cluster.run != self.run {
                    return Err(closed());
                }
                if self.waiting.is_empty() {
                    fill(self, &cluster);
                }
            }
            if let Some(body) = self.waiting.pop_front() {
                self.body = body;
                return Ok(Event::XLogData { start: PgLsn(0), end: PgLsn(self.sent), clock: 0, body: &self.body });
            }
            let end = cluster.lock().files.flushed;
            // A server that has sent all changes repeats its position until that is confirmed.
            if std::mem::take(&mut self.wants_reply) || end > self.told && scheduler.below(3) == 0 {
                (self.sent, self.told) = (end, end);
                let reply = scheduler.below(8) == 0;
                return Ok(Event::Keepalive { end: PgLsn(end), clock: 0, reply });
            }
            let left = deadline.saturating_duration_since(thalweg_shapes_source::clock::Clock::now(&scheduler));
            if left.is_zero() {
                return Ok(Event::Idle);
            }
            scheduler.sleep(left);
        }
    }

    fn ack(&mut self, flushed: PgLsn, reply: bool) -> Result<(), Error> {
        self.wants_reply |= reply;
        let mut cluster = self.of.cluster.lock();
        if !cluster.is_up || cluster.run != self.run {
            return Err(closed());
        }
        assert!(flushed.0 <= cluster.files.inserted, "a position is confirmed that the log does not have");
        if let Some(slot) = &mut cluster.files.slot {
            slot.confirmed = slot.confirmed.max(flushed.0);
        }
        Ok(())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut cluster = self.of.cluster.lock();
        if cluster.run == self.run {
            cluster.streams = None;
            if let Some(slot) = &mut cluster.files.slot {
                slot.is_active = false;
            }
        }
    }
}

/// Puts the next messages into the stream: of the next transaction that has committed, or of one that is in progress.
fn fill(stream: &mut Stream, cluster: &Cluster) {
    let files = &cluster.files;
    let from = stream.sent.max(stream.from);
    for done in files.committed.iter().filter(|done| done.end > from && done.end <= files.flushed) {
        stream.sent = done.end;
        commit(stream, cluster, done);
        if !stream.waiting.is_empty() {
            return;
        }
    }
    // Transactions that were sent in part and are gone have been rolled back.
    let gone: Vec<u64> = stream
        .blocks
        .keys()
        .copied()
        .filter(|xid| {
            !files.open.iter().any(|open| open.xid == *xid) && !files.committed.iter().any(|done| done.xid == *xid)
        })
        .collect();
    for xid in gone {
        stream.blocks.remove(&xid);
        push(stream, &Message::StreamAbort { xid: xid as u32, subxid: xid as u32 });
    }
    for open in files.open.iter().filter(|open| open.is_streamed) {
        block(stream, cluster, open.xid, &open.changes);
    }
}

fn push(stream: &mut Stream, message: &Message<'_>) {
    let mut out = Vec::new();
    encode(message, &mut out);
    stream.waiting.push_back(out);
}

fn commit(stream: &mut Stream, cluster: &Cluster, done: &Committed) {
    let xid = done.xid as u32;
    if done.is_streamed {
        block(stream, cluster, done.xid, &done.changes);
        if let Some(block) = stream.blocks.remove(&done.xid) {
            stream.of.scheduler.say(|| format!("the stream has {xid} in blocks at {}", done.lsn));
            stream.described.extend(block.described);
            push(
                stream,
                &Message::StreamCommit {
                    xid,
                    flags: 0,
                    commit_lsn: PgLsn(done.lsn),
                    end_lsn: PgLsn(done.end),
                    commit_time: done.time,
                },
            );
            return;
        }
    }
    if !done.changes.iter().any(|logged| logged.is_published) {
        // Empty transactions are left out.
        return;
    }
    stream.of.scheduler.say(|| format!("the stream has {xid} at {}", done.lsn));
    push(stream, &Message::Begin { final_lsn: PgLsn(done.lsn), commit_time: done.time, xid });
    let mut described = std::mem::take(&mut stream.described);
    changes(stream, cluster, &done.changes, None, &mut described);
    stream.described = described;
    push(
        stream,
        &Message::Commit { flags: 0, commit_lsn: PgLsn(done.lsn), end_lsn: PgLsn(done.end), commit_time: done.time },
    );
}

/// Sends the changes of a transaction in progress since the last block.
fn block(stream: &mut Stream, cluster: &Cluster, xid: u64, all: &[Logged]) {
    let mut block = stream.blocks.remove(&xid).unwrap_or_default();
    let new = &all[block.sent.min(all.len())..];
    if new.iter().any(|logged| logged.is_published) {
        push(stream, &Message::StreamStart { xid: xid as u32, first_segment: block.sent == 0 });
        let mut described: BTreeSet<u32> = block.described.union(&stream.described).copied().collect();
        let before = described.clone();
        changes(stream, cluster, new, Some(xid as u32), &mut described);
        block.described.extend(described.difference(&before));
        push(stream, &Message::StreamStop);
        block.sent = all.len();
        stream.blocks.insert(xid, block);
    } else if block.sent > 0 {
        stream.blocks.insert(xid, block);
    }
}

fn changes(stream: &mut Stream, cluster: &Cluster, all: &[Logged], xid: Option<u32>, described: &mut BTreeSet<u32>) {
    for Logged { change, oid, .. } in all.iter().filter(|logged| logged.is_published) {
        let table = &cluster.files.tables[change.table()].table;
        let relation = *oid;
        if described.insert(relation) {
            let columns: Vec<Column<'_>> = table
                .columns
                .iter()
                .map(|column| Column { key: true, name: &column.name, type_oid: column.ty.oid, type_modifier: -1 })
                .collect();
            let (count, mut bytes) = (columns.len() as u16, Vec::new());
            Columns::write(columns, &mut bytes);
            push(
                stream,
                &Message::Relation {
                    xid,
                    id: relation,
                    namespace: "public",
                    name: &table.name.name,
                    replica_identity: ReplicaIdentity::Full,
                    columns: Columns::from_bytes(count, &bytes).expect("columns"),
                },
            );
        }
        match change {
            Change::Row { old, new, .. } => {
                let old = old.as_ref().map(texts);
                let new = new.as_ref().map(texts);
                let (old, new) = (old.as_ref().map(tuple), new.as_ref().map(tuple));
                match (&old, &new) {
                    (None, Some(new)) => push(stream, &Message::Insert { xid, relation, new: new.tuple() }),
                    (Some(old), Some(new)) => {
                        let old = OldTuple::Full(old.tuple());
                        push(stream, &Message::Update { xid, relation, old, new: new.tuple() });
                    }
                    (Some(old), None) => {
                        push(stream, &Message::Delete { xid, relation, old: OldTuple::Full(old.tuple()) });
                    }
                    (None, None) => {}
                }
            }
            Change::Truncate { .. } => {
                let relations = relation.to_be_bytes();
                push(
                    stream,
                    &Message::Truncate {
                        xid,
                        cascade: false,
                        restart_identity: false,
                        relations: Relations::from_bytes(&relations),
                    },
                );
            }
            Change::Recreate { .. } | Change::Rewrite { .. } => {}
        }
    }
}

fn texts(row: &Row) -> [Option<String>; 3] {
    row.map(|number| number.map(|number| number.to_string()))
}

fn tuple(texts: &[Option<String>; 3]) -> TupleWriter {
    texts.iter().map(|text| text.as_ref().map_or(Value::Null, |text| Value::Text(text.as_bytes()))).collect()
}

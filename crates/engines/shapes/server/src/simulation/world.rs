//! One history.

use super::client::{Client, Seen};
use super::cluster::{Change, Cluster, Files, Logged, Open, Row, Rows, TABLES, place};
use super::postgres::{FOLLOWS, Simulated};
use super::scheduler::Scheduler;
use crate::failures::unavailable;
use crate::faults::{Fault, Faults};
use crate::footprint;
use crate::make::scan::scans;
use crate::server::ShapesServer;
use crate::shape::Phase;
use crate::store::Store;
use crate::{compact, follow, maintenance};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use thalweg_base::Millis;
use thalweg_disk::Disk;
use thalweg_journal::{FileJournal, Options};
use thalweg_log::{FileUnit, LogsOptions, Loss, When};
use thalweg_shapes_model::definition::{Definition, Replica};
use thalweg_shapes_model::failure::Failure;
use thalweg_shapes_model::health::Health;
use thalweg_shapes_model::predicate;
use thalweg_sim::SimDisk;

/// The counts of events in a history.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    commits: u64,
    streamed: u64,
    aborts: u64,
    hidden: u64,
    shapes: u64,
    reads: u64,
    exact: u64,
    claims: u64,
    kills: u64,
    power_cuts: u64,
    stops: u64,
    server_restarts: u64,
    promotions: u64,
    set_backs: u64,
    replacements: u64,
    locks: u64,
    alterations: u64,
    rests: u64,
    compared: u64,
}

impl Tally {
    pub(super) fn add(&mut self, other: &Self) {
        let Self { commits, streamed, aborts, hidden, shapes, reads, exact, claims, kills, .. } = other;
        let Self { power_cuts, stops, server_restarts, promotions, set_backs, replacements, .. } = other;
        let Self { locks, alterations, rests, compared, .. } = other;
        for (sum, more) in [
            (&mut self.commits, commits),
            (&mut self.streamed, streamed),
            (&mut self.aborts, aborts),
            (&mut self.hidden, hidden),
            (&mut self.shapes, shapes),
            (&mut self.reads, reads),
            (&mut self.exact, exact),
            (&mut self.claims, claims),
            (&mut self.kills, kills),
            (&mut self.power_cuts, power_cuts),
            (&mut self.stops, stops),
            (&mut self.server_restarts, server_restarts),
            (&mut self.promotions, promotions),
            (&mut self.set_backs, set_backs),
            (&mut self.replacements, replacements),
            (&mut self.locks, locks),
            (&mut self.alterations, alterations),
            (&mut self.rests, rests),
            (&mut self.compared, compared),
        ] {
            *sum += more;
        }
    }

    /// The least counts of eighty histories.
    pub(super) fn least(&self) -> [(&'static str, u64, u64); 18] {
        [
            ("commits", self.commits, 1500),
            ("streamed transactions", self.streamed, 150),
            ("aborts", self.aborts, 100),
            ("commits that snapshots show late", self.hidden, 400),
            ("shapes", self.shapes, 500),
            ("reads of clients", self.reads, 500),
            ("comparisons of rows at a moment", self.exact, 200),
            ("comparisons of rows at an LSN that was told", self.claims, 40),
            ("kills", self.kills, 15),
            ("power cuts", self.power_cuts, 15),
            ("clean stops", self.stops, 8),
            ("restarts of the server", self.server_restarts, 25),
            ("promotions", self.promotions, 4),
            ("servers that were set back", self.set_backs, 4),
            ("servers that were replaced", self.replacements, 8),
            ("tables that were locked for long", self.locks, 15),
            ("alterations of tables", self.alterations, 6),
            ("comparisons of shapes at rest", self.compared, 60),
        ]
    }
}

const PLAIN: &[Option<&str>] =
    &[None, Some("a = 1"), Some("a = 2"), Some("b > 1"), Some("a <> 3 OR b = 2"), Some("id < 5"), Some("a IS NULL")];

const NESTED: &[&str] = &[
    "a IN (SELECT v FROM p)",
    "a IN (SELECT v FROM p WHERE g = 1)",
    "a NOT IN (SELECT v FROM p WHERE g = 3)",
    "a NOT IN (SELECT v FROM p WHERE g = 3) AND b = 2",
    "b = 1 OR a IN (SELECT v FROM p WHERE g = 1)",
    "a IN (SELECT v FROM p WHERE g = 1) AND b IN (SELECT v FROM q)",
    "a IN (SELECT v FROM p WHERE g IN (SELECT v FROM q))",
    "a NOT IN (SELECT id FROM p) AND a NOT IN (SELECT g FROM q WHERE v = 1)",
    "id IN (SELECT a FROM t WHERE b = 1)",
];

/// Every clause that a definition may have, with its table.
pub(super) fn clauses() -> impl Iterator<Item = (usize, &'static str)> {
    PLAIN.iter().flatten().chain(NESTED).map(|sql| (0, *sql))
}

/// All work finishes within this time, unless a task hangs.
const REST_WITHIN: Duration = Duration::from_secs(600);
/// A shape is made within this time when all other work is done.
const MADE_WITHIN: Duration = Duration::from_secs(20);
/// The thread that applies changes takes the next one within this time.
const APPLIED_WITHIN: Duration = Duration::from_millis(700);

/// Makes a shape of a definition, or finds the one that there is.
fn made(server: &Arc<ShapesServer>, definition: &Definition) -> Result<(), Failure> {
    let mut session = server.source.queries.connect().map_err(|error| unavailable(error.into()))?;
    let found = server.table_of(&mut session, &definition.table)?;
    let words = format!("{definition:?}");
    let now_us = server.lifetime.clock.unix_us();
    let (shape, filling) = server.begin(&mut session, &found, definition, words.as_bytes(), now_us)?;
    scans(filling.into_iter().collect()).into_iter().for_each(|scan| server.fill(&mut session, scan));
    match &shape.lock().phase {
        Phase::Live => Ok(()),
        Phase::Failed(failure) => Err((**failure).clone()),
        _ => Err(Failure::Rotated),
    }
}

/// Our process.
struct Process {
    server: Arc<ShapesServer>,
    journal: Arc<FileJournal>,
}

pub(super) struct World {
    scheduler: Scheduler,
    postgres: Simulated,
    disk: SimDisk,
    fault: Option<Fault>,
    process: Option<Process>,
    clients: Vec<Client>,
    /// Files of a server as they were.
    copies: Vec<Files>,
    systems: u64,
    /// The history that began when the storage was last set back.
    set_back_to: Option<u64>,
    /// An event happened that the stream does not report: shapes may be wrong until the catalog was compared.
    disturbed: bool,
    /// One of so many commits is shown to snapshots late.
    late_one_in: u64,
    /// The tables' owners alter them, and an operator changes the publication.
    alters: bool,
    /// Postgres fails, and so does our process.
    fails: bool,
    pub(super) tally: Tally,
}

impl Drop for World {
    fn drop(&mut self) {
        self.scheduler.kill();
    }
}

impl World {
    pub(super) fn new(seed: u64, fault: Option<Fault>) -> Self {
        let scheduler = Scheduler::new(seed);
        let cluster = Arc::new(Mutex::new(Cluster::new(1)));
        let postgres = Simulated { cluster, scheduler: scheduler.clone() };
        let disk = SimDisk::new(seed);
        let mut world = Self {
            scheduler,
            postgres,
            disk,
            fault,
            process: None,
            clients: Vec::new(),
            copies: Vec::new(),
            systems: 1,
            set_back_to: None,
            disturbed: false,
            late_one_in: if matches!(fault, Some(Fault::OrderUnnoticed | Fault::RecentForgotten)) { 2 } else { 3 },
            alters: seed % 3 == 1,
            fails: seed % 4 != 3,
            tally: Tally::default(),
        };
        world.start(Loss::Nothing);
        world
    }

    pub(super) fn seen(&self) -> u64 {
        self.scheduler.seen()
    }

    fn upto(&self, n: u64) -> u64 {
        self.scheduler.below(n)
    }

    fn one_in(&self, n: u64) -> bool {
        self.upto(n) == 0
    }

    fn server(&self) -> Arc<ShapesServer> {
        Arc::clone(&self.process.as_ref().expect("our process runs").server)
    }

    // ---- our process

    fn start(&mut self, loss: Loss) {
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let journal = Options {
            segment_bytes: 64 << 10,
            bound_bytes: 8 << 20,
            window_bytes: 16 << 10,
            salt: self.upto(1 << 32),
            ..Options::default()
        };
        let options = LogsOptions { settle_bytes: 20_000, object_bytes: 10_000, ..LogsOptions::default() };
        let FileUnit { journal, logs, .. } = FileUnit::open(disk, journal, options, loss).expect("the unit opens");
        let mut config = footprint::config();
        (config.compact_bytes, config.log_keep_ms) = (600, 3_000);
        let clock = Arc::new(self.scheduler.clone());
        let store = Store::open(logs).expect("the store opens");
        let faults = Faults { planted: self.fault };
        let server = Arc::new(ShapesServer::of(Arc::new(self.postgres.clone()), config, store, clock, faults));
        server.feed.lock().graph.faults = faults;
        server.recover().expect("shapes come back");
        let spawn = |name: &'static str, run: fn(&Arc<ShapesServer>)| {
            let server = Arc::clone(&server);
            self.scheduler.spawn(name, move || run(&server));
        };
        spawn(FOLLOWS, follow::run);
        spawn("maintenance", maintenance::run);
        spawn("compact", |server| compact::run(&server.compactor));
        self.process = Some(Process { server, journal });
    }

    /// Our process is killed, or the machine loses its power.
    fn crash(&mut self) {
        let power = self.one_in(2);
        self.scheduler.say(|| format!("our process is killed, with the machine: {power}"));
        *(if power { &mut self.tally.power_cuts } else { &mut self.tally.kills }) += 1;
        self.end_process(power);
    }

    /// The server's process is stopped, finishes its work, and is started again.
    fn stop_and_start(&mut self) {
        self.scheduler.say(|| "our process stops".into());
        let server = self.server();
        server.lifetime.stop();
        self.scheduler.wake(FOLLOWS);
        let until = self.scheduler.now() + REST_WITHIN;
        while [FOLLOWS, "maintenance", "compact"].iter().any(|name| self.scheduler.is_running(name)) {
            self.scheduler.sleep(Duration::from_millis(20));
            self.write();
            assert!(self.scheduler.now() < until, "our process does not stop");
        }
        server.note_clean_stop().expect("a clean stop is noted");
        self.tally.stops += 1;
        self.end_process(false);
    }

    fn end_process(&mut self, power: bool) {
        self.scheduler.kill();
        if power {
            self.disk.crash_power();
        } else {
            self.disk.crash_kill();
        }
        {
            // Connections of a process that is gone break.
            let mut cluster = self.postgres.cluster.lock();
            cluster.run += 1;
            cluster.readers.clear();
            cluster.streams = None;
            if let Some(slot) = &mut cluster.files.slot {
                slot.is_active = false;
            }
        }
        self.process = None;
        self.disk.heal();
        self.start(if power { Loss::Buffered } else { Loss::Nothing });
    }

    /// The journal's writer takes steps.
    fn write(&self) {
        if let Some(process) = &self.process {
            while matches!(process.journal.step(), Ok(true)) {}
        }
    }

    fn settle(&self) {
        if let Some(process) = &self.process {
            let logs = process.server.changes.store.logs();
            let now = Millis(self.scheduler.now().as_millis() as u64);
            while logs.settle(now, When::Now).expect("settling works") {}
            self.write();
        }
    }

    fn definition(&self) -> Definition {
        let nested = self.one_in(2);
        let mut definition = if nested || self.one_in(3) {
            Definition::of_table("public", "t")
        } else {
            Definition::of_table("public", TABLES[self.upto(3) as usize].0)
        };
        if nested {
            definition.where_sql = Some(NESTED[self.upto(NESTED.len() as u64) as usize].into());
        } else if definition.table.name == "t" {
            definition.where_sql = PLAIN[self.upto(PLAIN.len() as u64) as usize].map(str::to_owned);
        }
        if self.one_in(4) {
            definition.replica = Replica::Full;
        }
        definition
    }

    fn make(&mut self) {
        let definition = self.definition();
        self.tally.shapes += 1;
        self.scheduler.say(|| format!("asks for {} {:?}", definition.table, definition.where_sql));
        self.begin(definition);
    }

    /// A client asks for a definition that there may be no shape of.
    fn begin(&self, definition: Definition) {
        self.begin_and(definition, |_| ());
    }

    /// The same; `then` is told whether there is one afterwards.
    fn begin_and(&self, definition: Definition, then: impl FnOnce(Result<(), Failure>) + Send + 'static) {
        let server = self.server();
        self.scheduler.spawn("make", move || then(made(&server, &definition)));
    }

    // ---- others write

    fn number(&self) -> Option<i32> {
        Some(self.upto(6) as i32).filter(|n| *n < 5)
    }

    /// Changes that one transaction makes.
    fn changes(&self, xid: u64, count: u64) -> Vec<Logged> {
        let mut all = Vec::new();
        let cluster = self.postgres.cluster.lock();
        let files = &cluster.files;
        let mut rows = files.visible.clone();
        let own = files.open.iter().find(|open| open.xid == xid);
        let mut mine: Vec<(usize, i32)> = Vec::new();
        for logged in own.iter().flat_map(|open| &open.changes) {
            logged.change.apply(&mut rows);
            if let Change::Row { table, old, new } = logged.change {
                mine.extend([old, new].iter().flatten().filter_map(|row| Some((table, row[0]?))));
            }
        }
        let locked = files.locked_rows();
        for _ in 0..count {
            let (table, key) = (self.upto(3) as usize, self.upto(9) as i32);
            // Sometimes a row gets another key.
            let to = if self.one_in(8) { 9 + self.upto(3) as i32 } else { key };
            let is_locked = |key: i32| locked.contains(&(table, key)) && !mine.contains(&(table, key));
            if files.is_locked(table) || is_locked(key) || is_locked(to) {
                continue;
            }
            let old = rows[table].get(&key).copied();
            let comes = old.is_none() || self.upto(4) > 0;
            let new: Option<Row> = (comes && (to == key || !rows[table].contains_key(&to)))
                .then(|| [Some(to), self.number(), self.number()]);
            if old.is_none() && new.is_none() {
                continue;
            }
            let change = Change::Row { table, old, new };
            change.apply(&mut rows);
            mine.extend([(table, key), (table, to)]);
            let known = &files.tables[table];
            all.push(Logged { change, oid: known.table.oid, is_published: known.entry.is_some() && known.is_full });
        }
        all
    }

    fn transaction(&mut self) {
        let (is_streamed, count) = (self.one_in(6), 1 + self.upto(4));
        let xid = self.postgres.cluster.lock().files.xid();
        let changes = self.changes(xid, count);
        let mut cluster = self.postgres.cluster.lock();
        cluster.files.inserted += 30;
        if changes.is_empty() {
            return;
        }
        cluster.files.open.push(Open { xid, changes, is_streamed, locks: None });
    }

    /// An event of a transaction that is in progress.
    fn progress(&mut self) {
        let open: Vec<u64> = {
            let cluster = self.postgres.cluster.lock();
            cluster.files.open.iter().filter(|open| open.locks.is_none()).map(|open| open.xid).collect()
        };
        if open.is_empty() {
            return;
        }
        let xid = open[self.upto(open.len() as u64) as usize];
        match self.upto(10) {
            0 => {
                self.tally.aborts += 1;
                self.postgres.cluster.lock().files.open.retain(|open| open.xid != xid);
            }
            1 | 2 => {
                let changes = self.changes(xid, 2);
                let mut cluster = self.postgres.cluster.lock();
                if let Some(open) = cluster.files.open.iter_mut().find(|open| open.xid == xid) {
                    open.changes.extend(changes);
                }
            }
            _ => self.commit(xid),
        }
        self.scheduler.wake(FOLLOWS);
    }

    fn commit(&mut self, xid: u64) {
        let (is_late, hangs, is_lazy) = (self.one_in(self.late_one_in), self.one_in(20), self.one_in(6));
        self.commit_as(xid, is_late, hangs, is_lazy);
    }

    /// A transaction begins and commits.
    fn commit_new(&mut self, is_late: bool) {
        self.transaction();
        let newest = self.postgres.cluster.lock().files.open.last().map(|open| open.xid);
        newest.into_iter().for_each(|xid| self.commit_as(xid, is_late, false, false));
    }

    /// Commits a transaction. `is_late`: snapshots do not show it yet; `hangs`: they do only after all others are
    /// shown; `is_lazy`: its commit is not flushed.
    fn commit_as(&mut self, xid: u64, is_late: bool, hangs: bool, is_lazy: bool) {
        let time = self.scheduler.now().as_micros() as i64;
        let mut cluster = self.postgres.cluster.lock();
        let files = &mut cluster.files;
        let Some(at) = files.open.iter().position(|open| open.xid == xid) else { return };
        let open = files.open.remove(at);
        self.tally.commits += 1;
        self.tally.streamed += u64::from(open.is_streamed);
        let changes: Vec<Change> = open.changes.iter().map(|logged| logged.change).collect();
        files.commit(open, 100, time, hangs);
        let lsn = files.committed.last().map_or(0, |last| last.lsn);
        self.scheduler
            .say(|| format!("{xid} commits at {lsn}, late {is_late}, hangs {hangs}, lazy {is_lazy}: {changes:?}"));
        if !is_lazy {
            files.flushed = files.inserted;
        }
        if is_late || hangs {
            self.tally.hidden += 1;
        } else {
            let last = files.committed.len() - 1;
            files.show(last);
        }
        drop(cluster);
        self.scheduler.wake(FOLLOWS);
    }

    /// Snapshots show a transaction that has committed.
    fn show(&self, even_hanging: bool) {
        let mut cluster = self.postgres.cluster.lock();
        let files = &mut cluster.files;
        let hidden: Vec<usize> = (0..files.committed.len())
            .filter(|at| !files.committed[*at].is_visible && (even_hanging || !files.committed[*at].hangs))
            .collect();
        if !hidden.is_empty() {
            let at = hidden[self.scheduler.below(hidden.len() as u64) as usize];
            self.scheduler.say(|| format!("{} becomes visible", files.committed[at].xid));
            files.show(at);
        }
    }

    /// The server writes which transactions run, as it does every 15 seconds.
    fn standby_snapshot(&self) {
        self.postgres.cluster.lock().files.inserted += 56;
        self.flush();
    }

    fn flush(&self) {
        let mut cluster = self.postgres.cluster.lock();
        cluster.files.flushed = cluster.files.inserted;
        drop(cluster);
        self.scheduler.wake(FOLLOWS);
    }

    /// A session locks a table for long, or releases it.
    fn lock(&mut self) {
        let table = self.upto(3) as usize;
        let mut cluster = self.postgres.cluster.lock();
        if cluster.files.open.iter().any(|open| open.locks.is_some()) {
            cluster.files.open.retain(|open| open.locks.is_none());
        } else if !cluster.files.has_writers(table) && !cluster.readers.values().any(|read| *read == table) {
            self.tally.locks += 1;
            let xid = cluster.files.xid();
            cluster.files.open.push(Open { xid, changes: Vec::new(), is_streamed: false, locks: Some(table) });
        }
    }

    fn truncate(&mut self) {
        let table = self.upto(3) as usize;
        let xid = {
            let mut cluster = self.postgres.cluster.lock();
            if cluster.files.has_writers(table) || cluster.readers.values().any(|read| *read == table) {
                return;
            }
            let known = &cluster.files.tables[table];
            let (oid, is_published) = (known.table.oid, known.entry.is_some());
            let changes = vec![Logged { change: Change::Truncate { table }, oid, is_published }];
            let xid = cluster.files.xid();
            cluster.files.open.push(Open { xid, changes, is_streamed: false, locks: Some(table) });
            xid
        };
        self.tally.alterations += 1;
        self.commit(xid);
        self.show(false);
    }

    fn alter(&mut self) {
        let (table, how) = (self.upto(3) as usize, self.upto(3));
        let mut cluster = self.postgres.cluster.lock();
        if cluster.files.has_writers(table) || cluster.readers.values().any(|read| *read == table) {
            return;
        }
        self.tally.alterations += 1;
        self.disturbed = true;
        self.scheduler.say(|| format!("table {table} is altered: {how}"));
        match how {
            0 => cluster.files.recreate(table),
            1 => cluster.files.rewrite(table),
            // An operator takes the table out of the publication, and it comes back.
            _ => cluster.files.unpublish(table),
        }
    }

    // ---- the server

    fn restart_server(&mut self) {
        self.scheduler.say(|| "the server restarts".into());
        self.tally.server_restarts += 1;
        let mut cluster = self.postgres.cluster.lock();
        cluster.restart();
        drop(cluster);
        self.scheduler.wake(FOLLOWS);
    }

    /// A standby takes over: it may lack the last transactions, and may have a copy of the slot.
    fn promote(&mut self) {
        self.scheduler.say(|| "a standby is promoted".into());
        self.tally.promotions += 1;
        let (lacks, keeps_slot) = (self.one_in(2), self.one_in(2));
        let mut cluster = self.postgres.cluster.lock();
        let files = &mut cluster.files;
        if lacks && files.committed.len() > 2 {
            let kept = files.committed[files.committed.len() - 2].end;
            files.flushed = files.flushed.min(kept);
        }
        if !keeps_slot {
            files.slot = None;
        }
        cluster.restart();
        let files = &mut cluster.files;
        let left = files.committed.last().map_or(files.flushed - 120, |last| last.end);
        files.branches.push((files.timeline, left.max(files.flushed - 120)));
        files.timeline += 1;
        if let Some(slot) = &mut files.slot {
            slot.confirmed = slot.confirmed.min(left);
        }
        cluster.history += u64::from(lacks);
    }

    fn copy(&mut self) {
        let files = self.postgres.cluster.lock().files.clone();
        self.copies.push(files);
        if self.copies.len() > 3 {
            self.copies.remove(0);
        }
    }

    /// The server's storage is set back to a copy, as it was or as another timeline.
    fn set_back(&mut self) {
        if self.copies.is_empty() {
            return;
        }
        self.tally.set_backs += 1;
        self.scheduler.say(|| "the storage is set back".into());
        let files = self.copies[self.upto(self.copies.len() as u64) as usize].clone();
        let as_another_timeline = self.one_in(3);
        let more = self.upto(4);
        let mut cluster = self.postgres.cluster.lock();
        cluster.files = files;
        cluster.restart();
        if as_another_timeline {
            let files = &mut cluster.files;
            files.branches.push((files.timeline, files.flushed - 120));
            files.timeline += 1;
        }
        cluster.history += 1;
        self.set_back_to = Some(cluster.history);
        drop(cluster);
        self.disturbed = true;
        self.make();
        // It goes on from there, perhaps beyond where it was, before we are back.
        for _ in 0..more {
            self.transaction();
            let last = self.postgres.cluster.lock().files.open.last().map(|open| open.xid);
            if let Some(xid) = last {
                self.commit(xid);
            }
            if self.one_in(2) {
                let mut cluster = self.postgres.cluster.lock();
                cluster.files.inserted += 3_000;
                cluster.files.flushed = cluster.files.inserted;
            }
        }
    }

    /// Another server takes the address.
    fn replace(&mut self) {
        self.scheduler.say(|| "another server".into());
        self.tally.replacements += 1;
        self.systems += 1;
        let mut cluster = self.postgres.cluster.lock();
        cluster.files = Files::new(self.systems);
        cluster.restart();
        cluster.history += 1;
        drop(cluster);
        self.copies.clear();
        self.disturbed = true;
        self.make();
        for _ in 0..3 {
            self.transaction();
            let last = self.postgres.cluster.lock().files.open.last().map(|open| open.xid);
            last.into_iter().for_each(|xid| self.commit(xid));
        }
    }

    // ---- clients

    /// Whether the process follows the history that the server is in now.
    fn is_current(&self) -> bool {
        let cluster = self.postgres.cluster.lock();
        cluster.streams == Some((cluster.history, cluster.run))
    }

    /// Whether the process has noticed that the storage was set back. A kill before that is left out: if the copy is
    /// younger than the last note of the LSN that clients have seen, it cannot be told from the history that they know.
    fn is_set_back_noticed(&self) -> bool {
        self.set_back_to.is_none_or(|history| self.postgres.cluster.lock().followed >= history)
    }

    fn join(&mut self) {
        let server = self.server();
        let mut shapes: Vec<_> =
            server.catalog.registry.read().all().filter(|shape| !shape.is_inner()).cloned().collect();
        shapes.sort_unstable_by_key(|shape| shape.number);
        if shapes.is_empty() || self.clients.len() >= 12 {
            return;
        }
        let shape = &shapes[self.upto(shapes.len() as u64) as usize];
        self.clients.extend(Client::begin(&server, shape, place(&shape.family.name.name), self.disturbed));
    }

    fn read(&mut self) {
        let server = self.server();
        let mut clients = std::mem::take(&mut self.clients);
        clients.retain_mut(|client| {
            if !self.one_in(2) {
                return true;
            }
            self.tally.reads += 1;
            client.is_disturbed = self.disturbed;
            match client.read(&server) {
                Seen::Gone => false,
                Seen::UpTo { told, is_at_end, processed } => {
                    if is_at_end && self.is_current() && !self.disturbed {
                        self.compare(client, told, processed);
                    }
                    true
                }
            }
        });
        self.clients = clients;
    }

    /// A client that is up to date has the rows that its definition selects.
    fn compare(&mut self, client: &Client, told: u64, processed: u64) {
        let cluster = self.postgres.cluster.lock();
        let files = &cluster.files;
        let is_nested = client.definition.where_sql.as_deref().is_some_and(predicate::may_have_subqueries);
        if is_nested {
            if told < client.snapshot.lsn {
                return;
            }
            let truth = files.selected(&files.rows_at(told), &client.definition);
            let later = files.committed.iter().filter(|done| done.lsn > told);
            if later.into_iter().any(|done| files.selected(&done.rows, &client.definition) != truth) {
                return;
            }
            self.tally.claims += 1;
            assert_eq!(client.numbers(), truth, "at {told}\n{}", client.log());
            return;
        }
        // The transactions in its rows, and those that have come since.
        let mut rows = vec![Rows::new(); TABLES.len()];
        for done in &files.committed {
            if done.lsn <= processed || client.snapshot.contains(done.xid as u32, done.lsn) {
                done.changes.iter().for_each(|logged| logged.change.apply(&mut rows));
            }
        }
        self.tally.exact += 1;
        let truth = files.selected(&rows, &client.definition);
        assert_eq!(client.numbers(), truth, "at {processed}\n{}", client.log());
    }

    // ---- the whole

    fn check_applier(&self) {
        self.scheduler.check();
        let cluster = self.postgres.cluster.lock();
        if let Some(asked) = cluster.asked
            && cluster.streams.is_some()
        {
            let since = self.scheduler.now().saturating_sub(asked);
            assert!(
                since < APPLIED_WITHIN,
                "the thread that applies changes has not asked for the next one for {since:?}"
            );
        }
    }

    fn pass_time(&self) {
        let time = match self.upto(20) {
            0 => Duration::from_millis(2_500),
            1..4 => Duration::from_millis(self.upto(300)),
            _ => Duration::from_micros(self.upto(4_000)),
        };
        self.scheduler.sleep(time);
    }

    fn step(&mut self) {
        match self.upto(100) {
            0..20 => self.transaction(),
            20..46 => self.progress(),
            46..50 => self.show(false),
            50..52 => self.flush(),
            52..58 => self.make(),
            58..67 => self.join(),
            67..86 => self.read(),
            86..92 => self.write(),
            92..95 => match self.upto(8) {
                0 => self.settle(),
                1 => self.truncate(),
                2..5 => self.lock(),
                5 if self.alters => self.alter(),
                6 => self.show(true),
                _ => self.standby_snapshot(),
            },
            95 if self.one_in(2) => self.rest(),
            96..98 if self.fails => match self.upto(10) {
                0..3 if self.is_set_back_noticed() => {
                    self.crash();
                    // A stop may come before the stream has brought again what was shown, and a failover then.
                    if self.one_in(6) {
                        self.stop_and_start();
                        if self.one_in(2) {
                            self.promote();
                        }
                    }
                }
                3 if self.is_set_back_noticed() => self.stop_and_start(),
                4 | 5 => self.restart_server(),
                6 => self.copy(),
                7 => self.promote(),
                8 if self.is_current() => self.set_back(),
                9 => self.replace(),
                _ => {}
            },
            _ => {}
        }
        if self.one_in(8) {
            self.focus();
        }
        self.pass_time();
        self.check_applier();
    }

    /// Histories with a planted fault have more of the circumstances in which it shows.
    fn focus(&mut self) {
        match self.fault {
            Some(Fault::ApplierWaits) => {
                let mut cluster = self.postgres.cluster.lock();
                let is_read = cluster.readers.values().any(|table| *table == 0);
                if !is_read && !cluster.files.has_writers(0) {
                    let xid = cluster.files.xid();
                    cluster.files.open.push(Open { xid, changes: Vec::new(), is_streamed: false, locks: Some(0) });
                }
            }
            Some(Fault::RecentForgotten) if self.one_in(3) => self.crash(),
            Some(Fault::SetBackUnnoticed) if self.one_in(2) && self.is_current() => self.set_back(),
            // A shape asks for rows; the snapshot of the fetch has the second of two transactions, and not the first.
            Some(Fault::OrderUnnoticed) => {
                self.make();
                self.commit_new(false);
                let is_asked = || {
                    self.scheduler.give_way();
                    self.server().feed.lock().graph.is_waiting()
                };
                if (0..20).any(|_| is_asked()) {
                    self.commit_new(true);
                    self.commit_new(false);
                }
            }
            _ => {}
        }
    }

    pub(super) fn play(&mut self) {
        if self.fails {
            self.copy();
        }
        for _ in 0..200 {
            self.step();
        }
        self.rest();
    }

    /// Lets all work finish; then every shape has the rows that SELECT returns.
    fn rest(&mut self) {
        self.scheduler.say(|| "rest".into());
        self.tally.rests += 1;
        loop {
            let next = {
                let mut cluster = self.postgres.cluster.lock();
                cluster.files.open.retain(|open| open.locks.is_none());
                cluster.files.open.first().map(|open| open.xid)
            };
            match next {
                Some(xid) => self.commit(xid),
                None => break,
            }
        }
        {
            let mut cluster = self.postgres.cluster.lock();
            let count = cluster.files.committed.len();
            (0..count).for_each(|at| cluster.files.show(at));
            cluster.files.flushed = cluster.files.inserted;
        }
        let until = self.scheduler.now() + REST_WITHIN;
        let compared = self.server().lifetime.counters.compared.load(std::sync::atomic::Ordering::Relaxed);
        loop {
            self.scheduler.sleep(Duration::from_millis(50));
            self.write();
            if self.one_in(20) {
                self.standby_snapshot();
            }
            self.check_applier();
            let server = self.server();
            let end = self.postgres.cluster.lock().files.inserted;
            let is_compared =
                server.lifetime.counters.compared.load(std::sync::atomic::Ordering::Relaxed) >= compared + 2;
            let is_quiet = {
                let feed = server.feed.lock();
                !feed.is_waiting() && feed.graph.held().is_empty()
            };
            let lacks = [
                ("a stream", server.source.health() == Health::Active && self.is_current()),
                ("changes", server.watermarks.processed_lsn().0 + 1 >= end),
                ("rows of subqueries", is_quiet && !self.scheduler.is_running("fetch")),
                ("a comparison with the catalog", is_compared || !self.disturbed),
                ("shapes", !self.scheduler.is_running("make")),
            ];
            let lacks: Vec<&str> = lacks.iter().filter(|(_, there)| !there).map(|(what, _)| *what).collect();
            if lacks.is_empty() {
                break;
            }
            assert!(self.scheduler.now() < until, "it does not come to rest, for want of {lacks:?}");
        }
        self.disturbed = false;
        self.check_all();
        self.check_new();
    }

    /// When all work is done, every definition gets a shape soon: clients retry when an answer says so.
    fn check_new(&mut self) {
        let definition = self.definition();
        let text = format!("{} {:?}", definition.table, definition.where_sql);
        let until = self.scheduler.now() + MADE_WITHIN;
        loop {
            let outcome = Arc::new(Mutex::new(None));
            let told = Arc::clone(&outcome);
            self.begin_and(definition.clone(), move |made| *told.lock() = Some(made));
            while outcome.lock().is_none() {
                self.scheduler.sleep(Duration::from_millis(20));
                self.write();
                self.standby_snapshot();
                self.check_applier();
                assert!(self.scheduler.now() < until, "no shape is made of {text}");
            }
            match outcome.lock().take() {
                Some(Err(failure)) if self.scheduler.now() >= until => {
                    panic!("no shape can be made of {text}: {failure:?}");
                }
                Some(Err(Failure::Invalid(invalid))) => panic!("no shape can be made of {text}: {invalid:?}"),
                Some(Err(_)) => self.scheduler.sleep(Duration::from_secs(1)),
                _ => return,
            }
        }
    }

    fn check_all(&mut self) {
        let server = self.server();
        let shapes: Vec<_> = server.catalog.registry.read().all().filter(|shape| !shape.is_inner()).cloned().collect();
        let cluster = Arc::clone(&self.postgres.cluster);
        let cluster = cluster.lock();
        let files = &cluster.files;
        for shape in shapes {
            let Some(mut fresh) = Client::begin(&server, &shape, place(&shape.family.name.name), false) else {
                panic!("{:?} is not live when everything is at rest", shape.definition().where_sql);
            };
            fresh.read(&server);
            let truth = files.selected(&files.visible, &fresh.definition);
            assert_eq!(fresh.numbers(), truth, "at rest\n{}", fresh.log());
            self.tally.compared += 1;
        }
        let mut clients = std::mem::take(&mut self.clients);
        clients.iter_mut().for_each(|client| client.is_disturbed = false);
        clients.retain_mut(|client| match client.read(&server) {
            Seen::Gone => false,
            Seen::UpTo { .. } => {
                let truth = files.selected(&files.visible, &client.definition);
                assert_eq!(client.numbers(), truth, "a client at rest\n{}", client.log());
                client.check_told(&server);
                true
            }
        });
        self.clients = clients;
    }
}

//! One history: a database, a server, shapes, rounds of random transactions with trouble in between, and a comparison
//! after each round.

use crate::clause::{self, Language};
use crate::client::{Client, Definition, Http, Step, brief, clip, subset_rows};
use crate::damage::Damage;
use crate::random::Random;
use crate::report::Report;
use crate::schema::Table;
use crate::server::Server;
use crate::source::Turn;
use crate::truth::{self, Truth, normal};
use crate::writer::{self, Freedom};
use anyhow::{Context, bail};
use std::collections::BTreeSet;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) binary: std::path::PathBuf,
    /// A superuser's address of a cluster, with database `postgres`.
    pub(crate) postgres: String,
    /// A command that restarts the cluster, if it may be restarted.
    pub(crate) restart: Option<String>,
    /// A command that changes the cluster's history ([`crate::source`]), if that may be.
    pub(crate) source: Option<String>,
    pub(crate) settings: Vec<(String, String)>,
    pub(crate) tables: usize,
    pub(crate) shapes: usize,
    pub(crate) rounds: usize,
    pub(crate) writers: usize,
    pub(crate) transactions: usize,
    pub(crate) subqueries: bool,
    pub(crate) conditions: bool,
    pub(crate) partitions: bool,
    pub(crate) trouble: bool,
    pub(crate) freedom: Freedom,
    pub(crate) damage: Option<Damage>,
    pub(crate) patience: Duration,
    /// Where the server's log is kept if something is found.
    pub(crate) keep: Option<std::path::PathBuf>,
}

/// An event for the server or Postgres while writers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    None,
    Kill,
    KillTwice,
    CutReplication,
    CutEverything,
    RestartPostgres,
}

/// Of a hundred rounds, if the history may change.
const TURNS_PERCENT: usize = 35;
/// How soon the server must have noticed that it reads another history.
const NOTICED_WITHIN: Duration = Duration::from_secs(60);
/// A second round of writes is one of another number, for other random values.
const AFTER_TURN: usize = 1000;

type Shared = Arc<Mutex<Client>>;

pub(crate) fn run(plan: &Plan, report: &Arc<Report>) -> anyhow::Result<()> {
    let before = report.violations();
    let database = Database::create(plan)?;
    let folder = tempfile::Builder::new().prefix("thalweg-oracle-").tempdir()?;
    let outcome = History::start(plan, report, &database, folder.path()).and_then(|mut history| {
        let outcome = history.run();
        if report.violations() > before && !report.is_quiet() {
            println!("TABLES of seed {}", plan.seed);
            for table in &history.tables {
                println!("    {}", table.create());
            }
        }
        outcome
    });
    if let (Some(keep), true) = (&plan.keep, report.violations() > before || outcome.is_err()) {
        let _ = std::fs::create_dir_all(keep);
        let _ = std::fs::copy(folder.path().join("server.log"), keep.join(format!("server-{}.log", plan.seed)));
    }
    outcome.with_context(|| format!("seed {}", plan.seed))
}

/// A database for one history; dropped with its slot at the end.
struct Database {
    cluster: String,
    name: String,
    url: String,
}

impl Database {
    fn create(plan: &Plan) -> anyhow::Result<Self> {
        let name = format!("oracle_{}_{}", std::process::id(), plan.seed);
        let (server, _) = plan.postgres.rsplit_once('/').context("the address of a database")?;
        let database = Self { cluster: plan.postgres.clone(), url: format!("{server}/{name}"), name };
        database.make()?;
        Ok(database)
    }

    fn make(&self) -> anyhow::Result<()> {
        let mut client = writer::connect(&self.cluster)?;
        client.batch_execute(&format!("DROP DATABASE IF EXISTS {}", self.name))?;
        client.batch_execute(&format!("CREATE DATABASE {}", self.name))?;
        Ok(())
    }

    fn fill(&self, tables: &[Table], random: &mut Random) -> anyhow::Result<()> {
        let mut db = writer::connect(&self.url)?;
        db.batch_execute("CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy'); CREATE SEQUENCE nonce; CREATE TABLE heartbeat (id int PRIMARY KEY, n int)")?;
        for table in tables {
            db.batch_execute(&table.create())?;
            for _ in 0..3 {
                db.batch_execute(&writer::insert(table, 10, random))?;
            }
        }
        Ok(())
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let Ok(mut client) = writer::connect(&self.cluster) else { return };
        for _ in 0..100 {
            let gone = client.batch_execute(&format!(
                "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = '{0}' AND active;
                 SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = '{0}' AND NOT active",
                self.name
            ));
            if gone.is_ok()
                && client.batch_execute(&format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name)).is_ok()
            {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

struct History<'a> {
    plan: &'a Plan,
    report: &'a Arc<Report>,
    database: &'a Database,
    url: String,
    server: Server,
    http: Http,
    tables: Vec<Table>,
    clients: Vec<Shared>,
    random: Random,
    /// Tables were truncated or altered: a 409 is to be expected.
    round: usize,
}

fn lock(client: &Shared) -> std::sync::MutexGuard<'_, Client> {
    client.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> History<'a> {
    fn start(
        plan: &'a Plan,
        report: &'a Arc<Report>,
        database: &'a Database,
        folder: &std::path::Path,
    ) -> anyhow::Result<Self> {
        let mut random = Random::new(plan.seed, &[0]);
        let mut tables: Vec<Table> = (0..plan.tables).map(|number| Table::random(number, &mut random)).collect();
        for table in &mut tables {
            table.partitioned &= plan.partitions;
        }
        database.fill(&tables, &mut random)?;
        let server = Server::new(&plan.binary, folder, &database.url, &plan.settings)?;
        server.start()?;
        let http = Http::new(server.base());
        let url = database.url.clone();
        let history = Self { plan, report, database, url, server, http, tables, clients: Vec::new(), random, round: 0 };
        history.wait_for_health()?;
        history.heartbeat_shape()?;
        Ok(history)
    }

    fn wait_for_health(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(end) = self.server.ended() {
                bail!("the server ended with {end}");
            }
            match self.http.get("/v1/health", &[]) {
                Ok(answer) if answer.status == 200 => return Ok(()),
                Ok(answer) if Instant::now() > deadline => bail!("never healthy: {} {}", answer.status, answer.text),
                Err(error) if Instant::now() > deadline => bail!("never healthy: {error}"),
                _ => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Its table's writes carry every shape's LSN on.
    fn heartbeat_shape(&self) -> anyhow::Result<()> {
        let query = [("table".to_owned(), "heartbeat".to_owned()), ("offset".to_owned(), "-1".to_owned())];
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            match self.http.get("/v1/shape", &query) {
                Ok(answer) if answer.status == 200 => return Ok(()),
                Ok(answer) if Instant::now() > deadline => bail!("no shape at all: {} {}", answer.status, answer.text),
                Err(error) if Instant::now() > deadline => bail!("no shape at all: {error}"),
                _ => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    fn run(&mut self) -> anyhow::Result<()> {
        let early = self.plan.shapes * 2 / 3;
        for _ in 0..early {
            let client = self.random_client()?;
            self.clients.push(client);
        }
        for round in 0..self.plan.rounds {
            self.round = round;
            let late = (self.plan.shapes - early).div_ceil(self.plan.rounds);
            let mut coming = Vec::new();
            for _ in 0..late.min(self.plan.shapes - self.clients.len()) {
                coming.push(self.random_client()?);
            }
            self.clients.extend(coming);
            let trouble = self.choose_trouble();
            let turn = self.choose_turn();
            if let Some((turn, command)) = &turn {
                turn.prepare(command)?;
                self.wait_for_health()?;
            }
            self.write(trouble)?;
            self.compare()?;
            if let Some((turn, command)) = turn {
                self.turn(turn, &command)?;
                self.round = AFTER_TURN + round;
                self.write(Trouble::None)?;
                self.compare()?;
            }
            if let Some(end) = self.server.ended() {
                bail!("the server ended with {end}");
            }
        }
        Ok(())
    }

    fn random_client(&mut self) -> anyhow::Result<Shared> {
        let mut db = writer::connect(&self.url)?;
        let random = &mut self.random;
        loop {
            let table = random.below(self.tables.len());
            let language = Language { tables: &self.tables, subqueries: self.plan.subqueries, params: true };
            let clause = (self.plan.conditions && !random.percent(8)).then(|| clause::random(language, table, random));
            let all = &self.tables[table];
            let columns = (!all.key.is_empty() && random.percent(25)).then(|| {
                let chosen = all
                    .columns
                    .iter()
                    .enumerate()
                    .filter(|(at, _)| all.key.is_empty() || all.key.contains(at) || random.percent(50));
                chosen.map(|(_, c)| c.name.clone()).collect::<Vec<_>>()
            });
            let subquery = clause.as_ref().is_some_and(|c| c.has_subquery);
            let definition = Definition {
                table,
                name: all.sql(),
                clause,
                columns,
                full: random.percent(30),
                changes_only: !subquery && random.percent(15),
            };
            // What Postgres does not take is no question for the server.
            if truth::select(&mut db, &definition, "", " LIMIT 1").is_err() {
                continue;
            }
            let mut client = Client::new(&Arc::new(definition), &Arc::new(all.clone()), self.report);
            client.damage = self.plan.damage;
            self.report.count("shapes");
            return Ok(Arc::new(Mutex::new(client)));
        }
    }

    fn choose_trouble(&mut self) -> Trouble {
        if !self.plan.trouble {
            return Trouble::None;
        }
        match self.random.below(20) {
            0..=3 => Trouble::Kill,
            4 => Trouble::KillTwice,
            5 | 6 => Trouble::CutReplication,
            7 => Trouble::CutEverything,
            8 if self.plan.restart.is_some() => Trouble::RestartPostgres,
            _ => Trouble::None,
        }
    }

    fn choose_turn(&mut self) -> Option<(Turn, String)> {
        let command = self.plan.source.clone()?;
        self.random.percent(TURNS_PERCENT).then(|| (Turn::random(&mut self.random), command))
    }

    /// Another history begins, while the server runs or while it does not. Everything of the old one was read: the
    /// server must notice.
    fn turn(&mut self, turn: Turn, command: &str) -> anyhow::Result<()> {
        let is_stopped = self.random.percent(50);
        let before = if is_stopped { 0 } else { self.left()? };
        if is_stopped {
            self.server.kill();
        }
        turn.make(command)?;
        if turn == Turn::Replace {
            self.database.make()?;
            self.database.fill(&self.tables, &mut self.random)?;
        }
        if is_stopped {
            self.server.start()?;
        }
        self.report.count(turn.name());
        let deadline = Instant::now() + NOTICED_WITHIN;
        while self.left()? <= before {
            if Instant::now() > deadline {
                bail!(
                    "round {}: the server has not noticed within {NOTICED_WITHIN:?} that the source was {}",
                    self.round,
                    turn.name()
                );
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        // Positions of the old history say nothing of the new one.
        self.clients.iter().for_each(|client| lock(client).lsn = 0);
        self.wait_for_health()?;
        self.heartbeat_shape()
    }

    /// How often the server has left a source since its start.
    fn left(&self) -> anyhow::Result<u64> {
        let page = self.http.get("/metrics", &[])?.text;
        let value = page.lines().find_map(|line| line.strip_prefix("thalweg_shape_source_left_total "));
        value.context("no thalweg_shape_source_left_total")?.parse().context("thalweg_shape_source_left_total")
    }

    /// Writers write, clients read along, and trouble comes in between.
    fn write(&mut self, trouble: Trouble) -> anyhow::Result<()> {
        let done = AtomicBool::new(false);
        let (plan, round, clients, http) = (self.plan, self.round as u64, &self.clients, &self.http);
        let (tables, report, url) = (&self.tables, self.report, &self.url);
        let after = Duration::from_millis(20 + self.random.below(400) as u64);
        let settled = self.random.percent(50);
        self.http.troubled.store(trouble != Trouble::None, Ordering::Relaxed);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..plan.writers as u64)
                .map(|number| {
                    scope.spawn(move || -> anyhow::Result<()> {
                        let mut random = Random::new(plan.seed, &[1, round, number]);
                        let mut db = writer::connect(url)?;
                        for _ in 0..plan.transactions {
                            match writer::transaction(&mut db, tables, &mut random, plan.freedom) {
                                Ok(true) => report.count("transactions"),
                                Ok(false) => report.count("rolled back"),
                                Err(_) => db = writer::connect(url)?,
                            }
                            if random.percent(20) {
                                std::thread::sleep(Duration::from_millis(random.below(20) as u64));
                            }
                        }
                        Ok(())
                    })
                })
                .collect();
            for worker in 0..4_u64 {
                let done = &done;
                scope.spawn(move || {
                    let mut random = Random::new(plan.seed, &[2, round, worker]);
                    while !done.load(Ordering::Relaxed) && !clients.is_empty() {
                        let mut client = lock(random.pick(clients));
                        let live = random.percent(20);
                        if let Step::Down(_) = client.step(http, live) {
                            drop(client);
                            std::thread::sleep(Duration::from_millis(20));
                        }
                    }
                });
            }
            std::thread::sleep(after);
            let made = self.make(trouble);
            let mut outcome = made;
            for writer in writers {
                let ended = writer.join().unwrap_or_else(|_| bail!("a writer panicked"));
                outcome = outcome.and(ended);
            }
            // Sometimes clients get no time to catch up before the comparison.
            if settled {
                std::thread::sleep(Duration::from_millis(100));
            }
            done.store(true, Ordering::Relaxed);
            outcome
        })
    }

    fn make(&self, trouble: Trouble) -> anyhow::Result<()> {
        match trouble {
            Trouble::None => return Ok(()),
            Trouble::Kill => {
                self.server.kill();
                self.server.start()?;
                self.report.count("kills");
            }
            Trouble::KillTwice => {
                for _ in 0..2 {
                    self.server.kill();
                    self.server.start()?;
                    std::thread::sleep(Duration::from_millis(30));
                    self.report.count("kills");
                }
            }
            Trouble::CutReplication => {
                let mut db = writer::connect(&self.url)?;
                db.batch_execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active AND database = current_database()")?;
                self.report.count("cut replications");
            }
            Trouble::CutEverything => {
                let mut db = writer::connect(&self.url)?;
                db.batch_execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")?;
                self.report.count("cut connections");
            }
            Trouble::RestartPostgres => {
                if let Some(command) = &self.plan.restart {
                    let status = Command::new("bash").arg("-c").arg(command).status()?;
                    if !status.success() {
                        bail!("Postgres does not restart: {command} ended with {status}");
                    }
                    self.report.count("Postgres restarts");
                }
            }
        }
        self.wait_for_health()
    }

    /// Every shape must be what Postgres said at one LSN as soon as it claims to be past it, and soon.
    fn compare(&mut self) -> anyhow::Result<()> {
        let mut db = writer::connect(&self.url)?;
        let definitions: Vec<_> = self.clients.iter().map(|client| lock(client).definition.clone()).collect();
        let truth = Truth::read(&mut db, &definitions)?;
        db.batch_execute("INSERT INTO heartbeat VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET n = heartbeat.n + 1")?;
        let beat = Instant::now();
        let gone = Mutex::new(BTreeSet::new());
        let fresh: Vec<bool> = self.clients.iter().map(|_| self.random.percent(25)).collect();
        let this = &*self;
        std::thread::scope(|scope| {
            for (at, client) in this.clients.iter().enumerate() {
                let (rows, gone, fresh) = (&truth.rows[at], &gone, fresh[at]);
                scope.spawn(move || {
                    let mut client = lock(client);
                    if !this.catch_up(&mut client, truth.lsn, beat) {
                        gone.lock().unwrap_or_else(PoisonError::into_inner).insert(at);
                        return;
                    }
                    let Some(rows) = rows else {
                        this.report.count("not evaluable");
                        return;
                    };
                    this.check(&mut client, rows, "comparisons");
                    if fresh {
                        let mut late = Client::new(
                            &client.definition,
                            &Arc::new(this.tables[client.definition.table].clone()),
                            this.report,
                        );
                        if this.catch_up(&mut late, truth.lsn, Instant::now()) {
                            this.check(&mut late, rows, "fresh clients");
                        }
                    }
                });
            }
        });
        self.http.troubled.store(false, Ordering::Relaxed);
        self.check_subsets(&mut db)?;
        let gone = gone.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut at = 0;
        self.clients.retain(|_| {
            at += 1;
            !gone.contains(&(at - 1))
        });
        Ok(())
    }

    /// Reads until past this LSN; false if there is nothing to compare.
    fn catch_up(&self, client: &mut Client, lsn: u64, beat: Instant) -> bool {
        let patience = self.plan.patience;
        let mut refetches = 0;
        let mut last = Step::Read;
        let mut live = false;
        while !(client.is_settled() && client.lsn >= lsn) {
            if beat.elapsed() > patience {
                self.report.violation(format!(
                    "seed {}: late: after {patience:?} a shape is at LSN {} of {lsn} ({last:?})\n    shape: {}\n    handle {:?} offset {}",
                    self.plan.seed,
                    client.lsn,
                    client.definition.describe(),
                    client.handle,
                    client.offset
                ));
                return false;
            }
            last = client.step(&self.http, live);
            // Both ways lead there.
            live = !live && client.up_to_date;
            match &last {
                Step::Read => {}
                Step::Refetch => {
                    refetches += 1;
                    if refetches > 10 {
                        self.report.violation(format!(
                            "seed {}: {refetches} refetches in a row\n    shape: {}",
                            self.plan.seed,
                            client.definition.describe()
                        ));
                        return false;
                    }
                }
                Step::Refused(answer) => {
                    self.report.refused(&client.definition.describe(), answer);
                    return false;
                }
                Step::Down(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
        self.report.late(beat.elapsed());
        true
    }

    fn check(&self, client: &mut Client, expected: &[crate::client::Row], what: &'static str) {
        self.report.count(what);
        let wanted: BTreeSet<String> = expected.iter().map(normal).collect();
        let (mut found, mut told) = (false, false);
        // A self-test need not know what becomes of it.
        let deadline = Instant::now() + Duration::from_secs(if self.report.is_quiet() { 0 } else { 4 });
        loop {
            let got: BTreeSet<String> = client.rows.values().map(normal).collect();
            if got == wanted && client.rows.len() == expected.len() {
                if found {
                    self.report.count("healed later");
                }
                return;
            }
            found = true;
            let over = Instant::now() > deadline;
            // The stream tells of an altered table with its next change; until then, and until the catalog is asked,
            // nobody can know.
            if !told && (over || !self.is_altered(client, expected)) {
                told = true;
                self.tell(client, &wanted, &got, what);
            }
            if over {
                self.report.count("wrong for good");
                return;
            }
            client.step(&self.http, true);
        }
    }

    /// The rows are of other columns than those that were expected.
    fn is_altered(&self, client: &Client, expected: &[crate::client::Row]) -> bool {
        let columns = |row: &crate::client::Row| row.keys().cloned().collect::<Vec<_>>();
        match (client.rows.values().next(), expected.first()) {
            (Some(got), Some(wanted)) => columns(got) != columns(wanted),
            _ => false,
        }
    }

    fn tell(&self, client: &Client, wanted: &BTreeSet<String>, got: &BTreeSet<String>, what: &str) {
        let missing: Vec<_> = wanted.difference(got).take(3).map(|row| brief(row)).collect();
        let extra: Vec<_> = got.difference(wanted).take(3).map(|row| brief(row)).collect();
        let key = client
            .rows
            .iter()
            .find(|(_, row)| extra.first().is_some_and(|e| brief(&normal(row)) == **e))
            .map(|(key, _)| key.clone());
        let mut story = String::new();
        if let Some(key) = &key {
            story = format!("    messages of {key}:\n{}", client.story(key, 12));
        } else if let Some(id) =
            missing.first().and_then(|row| row.split("\"id=").next()).and_then(|_| find_id(&missing[0]))
        {
            story = format!("    messages of id {id}:\n{}", client.story(&format!("\"id\":\"{id}\""), 12));
        }
        self.report.violation(format!(
            "seed {} round {}: {what}: a shape at LSN {} is not what Postgres says: {} rows of {}\n    shape: {}\n    handle {:?} offset {} refetches {}\n    missing {missing:#?}\n    extra {extra:#?}\n{story}",
            self.plan.seed,
            self.round,
            client.lsn,
            got.len(),
            wanted.len(),
            client.definition.describe(),
            client.handle,
            client.offset,
            client.refetches,
        ));
    }

    /// Subsets of some shapes, while nothing changes.
    fn check_subsets(&mut self, db: &mut postgres::Client) -> anyhow::Result<()> {
        for client in &self.clients {
            if !self.random.percent(20) {
                continue;
            }
            let client = lock(client);
            let definition = client.definition.clone();
            let table = &self.tables[definition.table];
            if definition.has_subquery() || table.key.is_empty() || client.handle.is_none() {
                continue;
            }
            let clause = clause::subset(&self.tables, definition.table, &mut self.random);
            let key: Vec<String> = table.key.iter().map(|at| table.columns[*at].sql()).collect();
            let column = self.random.pick(&table.columns);
            let direction = self.random.word(&["", " ASC", " DESC", " DESC NULLS LAST", " NULLS FIRST"]);
            let order = if column.kind.is_ordered() && self.random.percent(60) {
                format!("{}{direction}, {}", column.sql(), key.join(", "))
            } else {
                key.join(", ")
            };
            let (limit, offset) = (1 + self.random.below(20), self.random.below(5));
            let Ok(expected) = truth::select(
                db,
                &definition,
                &clause.inlined(),
                &format!(" ORDER BY {order} LIMIT {limit} OFFSET {offset}"),
            ) else {
                continue;
            };
            let mut query = definition.query();
            query.push(("offset".into(), client.offset.clone()));
            query.push(("handle".into(), client.handle.clone().unwrap_or_default()));
            query.push(("subset__where".into(), clause.text.clone()));
            if !clause.params.is_empty() {
                let params: serde_json::Map<_, _> =
                    clause.params.iter().enumerate().map(|(at, p)| ((at + 1).to_string(), p.clone().into())).collect();
                query.push(("subset__params".into(), serde_json::Value::Object(params).to_string()));
            }
            query.push(("subset__order_by".into(), order.clone()));
            query.push(("subset__limit".into(), limit.to_string()));
            query.push(("subset__offset".into(), offset.to_string()));
            let answer = self.http.get("/v1/shape", &query)?;
            let about = || {
                format!(
                    "    shape: {}\n    subset: {} {:?} ORDER BY {order} LIMIT {limit} OFFSET {offset}",
                    definition.describe(),
                    clause.text,
                    clause.params
                )
            };
            match answer.status {
                200 => {
                    self.report.count("subsets");
                    let got = subset_rows(&answer)?;
                    let spell = |rows: &[crate::client::Row]| rows.iter().map(normal).collect::<Vec<_>>();
                    let (got, wanted) = (spell(&got), spell(&expected));
                    if got != wanted {
                        let text = |rows: &[String]| clip(&rows.join("\n        "));
                        self.report.violation(format!(
                            "seed {}: a subset has {} rows instead of {}, or in another order\n{}\n    got {}\n    wanted {}",
                            self.plan.seed,
                            got.len(),
                            wanted.len(),
                            about(),
                            text(&got),
                            text(&wanted)
                        ));
                    }
                }
                400 => self.report.refused(&about(), &answer.text),
                409 | 503 => {}
                status => self.report.violation(format!(
                    "seed {}: a subset: {status} {}\n{}",
                    self.plan.seed,
                    clip(&answer.text),
                    about()
                )),
            }
        }
        Ok(())
    }
}

fn find_id(row: &str) -> Option<&str> {
    row.split_once("id=Some(\"").or_else(|| row.split_once("id=\"")).and_then(|(_, rest)| rest.split('"').next())
}

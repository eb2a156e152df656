//! An oracle for shapes: random tables, conditions and transactions on a real Postgres; every shape, put together as a
//! client would, must be what a `SELECT` says.
//!
//! A history ([`history`]) is one seed: tables, shapes and what writers do follow from it. After each round of
//! transactions the rows of every shape are read from Postgres in one snapshot with its LSN, and compared with each
//! client as soon as the server claims (`global_last_seen_lsn`) to be past that LSN. In between the server is killed,
//! connections are cut and Postgres is restarted. `--self-test` damages answers on purpose and demands that this is
//! noticed.

mod clause;
mod client;
mod damage;
mod history;
mod random;
mod report;
mod schema;
mod server;
mod source;
mod tags;
mod truth;
mod writer;

use anyhow::Context;
use clap::Parser;
use damage::Damage;
use report::Report;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Compare shapes with Postgres under random transactions and trouble.
#[derive(Parser, Clone)]
struct Args {
    /// The server.
    #[arg(long)]
    binary: PathBuf,
    /// A superuser's address of a cluster with wal_level=logical.
    #[arg(long)]
    postgres: String,
    /// A shell command that stops this cluster at once and starts it again.
    #[arg(long)]
    restart: Option<String>,
    /// A shell command that changes the history of this cluster: it gets keep, set-back, standby, stop-standby, promote
    /// or replace as its last argument.
    #[arg(long)]
    source: Option<String>,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// At most so many seeds.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// Ends when so many comparisons are made.
    #[arg(long, default_value_t = 500)]
    comparisons: u64,
    /// Ends when this time is over, whatever was reached.
    #[arg(long)]
    seconds: Option<u64>,
    #[arg(long, default_value_t = 4)]
    tables: usize,
    #[arg(long, default_value_t = 30)]
    shapes: usize,
    #[arg(long, default_value_t = 8)]
    rounds: usize,
    #[arg(long, default_value_t = 3)]
    writers: usize,
    /// Transactions of each writer in each round.
    #[arg(long, default_value_t = 12)]
    transactions: usize,
    /// Conditions on other tables.
    #[arg(long)]
    subqueries: bool,
    /// No partitioned tables.
    #[arg(long)]
    no_partitions: bool,
    /// Whole tables only.
    #[arg(long)]
    no_where: bool,
    /// No kills, cuts and restarts.
    #[arg(long)]
    calm: bool,
    /// No TRUNCATE.
    #[arg(long)]
    no_truncate: bool,
    /// No ALTER TABLE.
    #[arg(long)]
    no_ddl: bool,
    /// Seconds until a shape must have heard of a commit.
    #[arg(long, default_value_t = 30)]
    patience: u64,
    /// Environment of the server, KEY=VALUE; may be repeated.
    #[arg(long = "set")]
    settings: Vec<String>,
    /// Damages answers of every kind and demands that each is noticed.
    #[arg(long)]
    self_test: bool,
    /// Damages answers in one way.
    #[arg(long)]
    damage: Option<Damage>,
    /// A folder for logs of servers that were found wrong.
    #[arg(long)]
    keep: Option<PathBuf>,
}

impl Args {
    fn plan(&self, seed: u64) -> anyhow::Result<history::Plan> {
        let settings = self
            .settings
            .iter()
            .map(|s| {
                s.split_once('=')
                    .map(|(k, v)| (k.to_owned(), v.to_owned()))
                    .with_context(|| format!("--set {s} is not KEY=VALUE"))
            })
            .collect::<anyhow::Result<_>>()?;
        Ok(history::Plan {
            seed,
            binary: self.binary.clone(),
            postgres: self.postgres.clone(),
            restart: self.restart.clone(),
            source: self.source.clone(),
            settings,
            tables: self.tables,
            shapes: self.shapes,
            rounds: self.rounds,
            writers: self.writers,
            transactions: self.transactions,
            subqueries: self.subqueries,
            conditions: !self.no_where,
            partitions: !self.no_partitions,
            trouble: !self.calm,
            freedom: writer::Freedom { truncate: !self.no_truncate, ddl: !self.no_ddl },
            damage: self.damage,
            patience: Duration::from_secs(self.patience),
            keep: self.keep.clone(),
        })
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = if args.self_test { self_test(&args) } else { search(&args) };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("FAILED {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Histories, one after the other; true if nothing was found.
fn search(args: &Args) -> anyhow::Result<bool> {
    let report = Arc::new(Report::default());
    let began = Instant::now();
    let over = |report: &Report| {
        report.get("comparisons") >= args.comparisons || args.seconds.is_some_and(|s| began.elapsed().as_secs() >= s)
    };
    for seed in args.seed..args.seed + args.seeds {
        let before = report.violations();
        if let Err(error) = history::run(&args.plan(seed)?, &report) {
            report.violation(format!("{error:#}"));
        }
        report.count("seeds");
        if report.violations() > before {
            println!("REPLAY --seed {seed} --seeds 1 (with the same flags)");
        }
        if over(&report) || report.violations() > 200 {
            break;
        }
    }
    println!("{} in {} s", report.summary(), began.elapsed().as_secs());
    if report.get("comparisons") == 0 {
        anyhow::bail!("nothing was compared");
    }
    Ok(report.violations() == 0)
}

/// Each kind of damage must be noticed, and nothing may be found without.
fn self_test(args: &Args) -> anyhow::Result<bool> {
    let mut good = true;
    for kind in std::iter::once(None).chain(damage::ALL.map(Some)) {
        let report = Arc::new(Report::new(kind.is_some()));
        let mut plan = args.plan(args.seed)?;
        (plan.damage, plan.trouble, plan.rounds, plan.subqueries) = (kind, false, 2, false);
        plan.source = None;
        plan.shapes = plan.shapes.min(16);
        plan.freedom = writer::Freedom { truncate: false, ddl: false };
        plan.patience = Duration::from_secs(10);
        history::run(&plan, &report)?;
        let (damages, found) = (report.get("damages"), report.violations());
        match kind {
            None if found > 0 => {
                println!("FAILED without damage there are {found} violations");
                good = false;
            }
            None => println!("ok      without damage nothing is found"),
            Some(kind) if damages == 0 || found == 0 => {
                println!("FAILED {kind:?}: {damages} damages, {found} noticed");
                good = false;
            }
            Some(kind) => println!("ok      {kind:?}: {damages} damages, {found} noticed"),
        }
    }
    Ok(good)
}

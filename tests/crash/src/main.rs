//! Kills the server at random moments and checks it against a model of everything that was acknowledged.
//!
//! Workers ([`owner`], [`shared`], [`race`], [`kept`], [`expiry`], [`subs`], [`backup`]) talk to the server through its
//! protocol and note what it answered. The main thread ([`chaos`]) kills it, also during recovery, and starts it again.
//! After each start, and at the end, what the server says is compared with the notes: an acknowledged operation must be
//! there, one without an answer may be there whole or not at all, and nothing else may be there. `--self-test` spoils
//! the notes or the data on purpose and demands that this is noticed.

mod backup;
mod chaos;
mod content;
mod damage;
mod expiry;
mod http;
mod kept;
mod model;
mod numbered;
mod owner;
mod race;
mod report;
mod server;
mod session;
mod shared;
mod subs;
mod tokens;
mod world;

use anyhow::{Context, bail};
use clap::Parser;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;
use world::{Sabotage, World};

/// Kill the server at random moments; check that nothing acknowledged is lost, doubled or invented.
#[derive(Parser, Clone)]
struct Options {
    /// The server's binary.
    #[arg(long)]
    binary: PathBuf,
    /// How to start it: `thalweg`, or `peer` for the reference server's flags.
    #[arg(long, default_value = "thalweg")]
    kind: server::Kind,
    /// A setting for the server, as KEY=VALUE; repeat it for more (passed as THALWEG_KEY).
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    #[arg(long, default_value_t = 15)]
    kills: u32,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The longest time between two kills, in milliseconds.
    #[arg(long, default_value_t = 4000)]
    calm_ms: u64,
    /// Threads that own streams of their own.
    #[arg(long, default_value_t = 4)]
    owners: u32,
    /// Where data and logs go; a temporary folder if absent. Kept if something is found.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Have the server ask for tokens: every worker has its own, and wrong ones are tried.
    #[arg(long)]
    tokens: bool,
    /// Known faults of a server that are not to be reported (for work on this tool): stale, expiry, producer, fork.
    #[arg(long)]
    tolerate: Vec<String>,
    /// Spoil the notes or the data in one way; this must be noticed.
    #[arg(long)]
    sabotage: Option<Sabotage>,
    /// Run once with each kind of sabotage; succeed only if all of them are noticed.
    #[arg(long)]
    self_test: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let outcome = if options.self_test { self_test(&options) } else { run(&options) };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("crash: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Every sabotage must be found; whether it was.
fn self_test(options: &Options) -> anyhow::Result<bool> {
    let (mut found, mut missed) = (0, 0);
    for sabotage in Sabotage::ALL {
        // A short run may end before there was an opportunity: then another one has to find it.
        let noticed = (0..4).try_fold(false, |noticed, attempt| {
            if noticed {
                return Ok(true);
            }
            let options = Options {
                sabotage: Some(sabotage),
                tokens: options.tokens || sabotage == Sabotage::Trespass,
                kills: 3,
                calm_ms: 1500,
                seed: options.seed + attempt,
                folder: options.folder.as_ref().map(|folder| folder.join(format!("{sabotage:?}-{attempt}"))),
                ..options.clone()
            };
            run(&options).map(|clean| !clean)
        });
        if noticed? {
            found += 1;
            println!("SELF-TEST {sabotage:?}: noticed");
        } else {
            missed += 1;
            println!("SELF-TEST {sabotage:?}: NOT NOTICED");
        }
    }
    println!("SELF-TEST {found} noticed, {missed} not noticed");
    Ok(missed == 0)
}

/// One run; whether everything held.
fn run(options: &Options) -> anyhow::Result<bool> {
    let temporary = match &options.folder {
        Some(folder) => {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
            None
        }
        None => Some(tempfile::Builder::new().prefix("thalweg-crash-").tempdir()?),
    };
    let folder: PathBuf = match (&options.folder, &temporary) {
        (Some(folder), _) => folder.clone(),
        (None, Some(temporary)) => temporary.path().to_owned(),
        (None, None) => bail!("no folder"),
    };
    println!("crash: seed {}, {} kills, in {}", options.seed, options.kills, folder.display());
    let mut spec = server::Spec::new(&options.binary, options.kind, &options.settings, &folder)?;
    let mut tokens = None;
    if options.tokens {
        let made = tokens::Tokens::make(&options.binary, &folder, options.owners)?;
        spec.tokens = Some(made.file.clone());
        tokens = Some(made);
    }
    let world = Arc::new(World::new(spec, tokens, &options.tolerate, options.sabotage));
    let began = Instant::now();
    world.server.start().context("the first start failed")?;

    let mut threads = Vec::new();
    for number in 0..options.owners {
        let (world, seed) = (Arc::clone(&world), options.seed);
        threads.push(std::thread::spawn(move || owner::work(&world, number, seed)));
    }
    threads.extend(shared::start(&world, options.seed));
    let seed = options.seed;
    threads.push(spawn(&world, move |world| expiry::work(world, seed)));
    if options.kind == server::Kind::Thalweg {
        threads.extend(race::start(&world));
        threads.push(spawn(&world, move |world| kept::work(world, seed)));
        let ledger = Arc::new(subs::Ledger::default());
        threads.extend(subs::start(&world, &ledger, seed)?);
        let owners = options.owners;
        threads.push(spawn(&world, move |world| backup::work(world, &ledger, owners, seed)));
    }

    let mut chaos = chaos::Chaos::new(options.seed);
    chaos.run(&world, options);
    world.finish();
    for thread in threads {
        if thread.join().is_err() {
            world.violation("a thread of this tool panicked".to_owned());
        }
    }
    if world.report.clean() {
        match world.server.terminate() {
            Ok(()) => world.report.count("graceful stops"),
            Err(error) => world.violation(format!("the last graceful stop: {error:#}")),
        }
        check_folder(&world, options, &folder);
    } else {
        world.server.kill();
    }

    let clean = world.report.clean();
    println!("{}", world.report.summary());
    println!(
        "CRASH seed={} kills={} restarts={} slowest_restart_ms={} seconds={:.0} {}",
        options.seed,
        world.report.get("kills"),
        world.report.get("restarts"),
        chaos.slowest.as_millis(),
        began.elapsed().as_secs_f64(),
        if clean { "passed" } else { "FAILED" }
    );
    if !clean && options.sabotage.is_none() {
        let kept = temporary.map_or(folder, tempfile::TempDir::keep);
        println!(
            "replay: --seed {} --kills {}{}; data and logs are kept in {}",
            options.seed,
            options.kills,
            if options.tokens { " --tokens" } else { "" },
            kept.display()
        );
    }
    Ok(clean)
}

fn spawn(world: &Arc<World>, work: impl FnOnce(&World) + Send + 'static) -> JoinHandle<()> {
    let world = Arc::clone(world);
    std::thread::spawn(move || work(&world))
}

/// The server's own checker must agree.
fn check_folder(world: &World, options: &Options, folder: &Path) {
    if options.kind != server::Kind::Thalweg {
        return;
    }
    match std::process::Command::new(&options.binary).arg("check").arg(folder.join("data")).output() {
        Ok(output) if output.status.success() => world.report.count("folder checks"),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            world.violation(format!("`check` of the data folder fails: {}", said.trim()));
        }
        Err(error) => world.violation(format!("`check` cannot be run: {error}")),
    }
}

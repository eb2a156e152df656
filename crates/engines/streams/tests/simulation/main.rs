//! The shipping journal, log and streams code on a disk that loses, tears and reorders, against a model of the
//! protocol.
//!
//! One thread plays all parts: clients that create, append, retry, close, fork and delete; the journal's writer, split
//! into its steps; settling, merging and reclaiming, with client requests inside of them; crashes of the machine and of
//! the process at any change of the disk, also during recovery; failing and misdirected IO, a full disk, a clock that
//! jumps. In some histories the disk rots: bits flip and names are lost. Every reply is compared with the model, and
//! after every crash the whole state with the model at the position that the journal recovered: no acknowledged append
//! is lost, none is duplicated, none is invented; damaged content is refused and never served, a scrub finds it, and
//! finds no damage where there is none.
//!
//! `SEED=n` replays one history, `SEEDS=n` says how many are run.

mod client;
mod model;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use world::{Plan, Tally, World};

fn run(seed: u64, plan: Plan) -> u64 {
    played(seed, plan).1
}

/// Counts of events in a history, and a checksum of all results.
fn played(seed: u64, plan: Plan) -> (Tally, u64) {
    let world = World::shared(seed, plan);
    for _ in 0..250 {
        World::step(&world);
    }
    let mut world = world.lock();
    let seen = world.finish();
    (std::mem::take(&mut world.tally), seen)
}

#[test]
fn simulation_of_hostile_histories_equals_the_model() {
    thalweg_sim::histories(300, "thalweg-streams", |seed| {
        run(seed, Plan::default());
    });
}

#[test]
fn one_seed_gives_one_history() {
    assert_eq!(run(11, Plan::default()), run(11, Plan::default()));
}

#[test]
fn histories_reach_what_they_are_for() {
    let mut sum = Tally::default();
    for seed in 0..120 {
        sum.add(&played(seed, Plan::default()).0);
    }
    eprintln!("{sum:?}");
    let Tally {
        losses,
        trimmed,
        crashes_inside,
        crashes_in_recovery,
        meanwhile,
        unsteady,
        rotten,
        refused,
        passes,
        found,
    } = sum;
    for (name, count, least) in [
        ("crashes that took what was acknowledged as buffered", losses, 40),
        ("reads of a trimmed stream", trimmed, 20),
        ("crashes inside of background work", crashes_inside, 100),
        ("crashes in recovery", crashes_in_recovery, 40),
        ("requests inside of background work", meanwhile, 1_000),
        ("reads of a stream that is changing", unsteady, 50),
        ("rotten histories", rotten, 10),
        ("refusals of what has rotted", refused, 5),
        ("passes of the scrub", passes, 200),
        ("passes that found damage", found, 3),
    ] {
        assert!(count >= least, "only {count} {name}");
    }
}

/// A planted fault must be seen within so many histories.
fn caught(plan: Plan) {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let seen = (0..3_000).find(|seed| catch_unwind(AssertUnwindSafe(|| run(*seed, plan))).is_err());
    std::panic::set_hook(hook);
    assert!(seen.is_some(), "no history shows the planted fault {plan:?}");
    eprintln!("{plan:?} is seen by seed {}", seen.unwrap_or_default());
}

#[test]
fn planted_faults_are_caught() {
    for plan in Plan::faulty() {
        caught(plan);
    }
}

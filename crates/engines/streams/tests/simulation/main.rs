//! The shipping journal, log and streams code on a disk that loses, tears and reorders, against a model of the protocol.
//!
//! One thread plays everybody: clients that create, append, retry, close, fork and delete; the journal's writer, taken apart into
//! its steps; settling, merging and reclaiming; crashes of the machine and of the process; failing syncs and a full disk. Every reply is
//! compared with what the model expects, and after every crash the whole state with the model as it was at the position that the
//! journal recovered: nothing acknowledged is lost, nothing is doubled, nothing is invented.
//!
//! `SEED=n` replays one history, `SEEDS=n` says how many are run.

mod client;
mod model;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use world::{Plan, World};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn run(seed: u64, plan: Plan) -> u64 {
    played(seed, plan).1
}

/// The world at its end, and the sum of all that was seen.
fn played(seed: u64, plan: Plan) -> (World, u64) {
    let mut world = World::new(seed, plan);
    for _ in 0..250 {
        world.step();
    }
    let seen = world.finish();
    (world, seen)
}

#[test]
fn simulation_of_hostile_histories_equals_the_model() {
    if let Some(seed) = number("SEED") {
        run(seed, Plan::default());
        return;
    }
    let count = number("SEEDS").unwrap_or(300);
    for seed in 0..count {
        let done = catch_unwind(AssertUnwindSafe(|| run(seed, Plan::default())));
        assert!(
            done.is_ok(),
            "replay with: SEED={seed} cargo test -p thalweg-streams --test simulation --features faults"
        );
    }
    eprintln!("{count} histories agree with the model");
}

#[test]
fn one_seed_gives_one_history() {
    assert_eq!(run(11, Plan::default()), run(11, Plan::default()));
}

#[test]
fn histories_reach_retention() {
    let trimmed = (0..20).filter(|seed| played(*seed, Plan::default()).0.trimmed).count();
    assert!(trimmed > 5, "only {trimmed} of 20 histories read a trimmed stream");
}

#[test]
fn histories_lose_what_was_buffered() {
    let losses: u64 = (0..40).map(|seed| played(seed, Plan::default()).0.losses).sum();
    assert!(losses > 20, "only {losses} crashes took what was acknowledged as buffered");
}

/// A planted fault must be seen within so many histories.
fn caught(plan: Plan) {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let seen = (0..400).find(|seed| catch_unwind(AssertUnwindSafe(|| run(*seed, plan))).is_err());
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

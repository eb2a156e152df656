//! The whole change path on a simulated Postgres, a simulated disk and a clock that stands still, in an order that a
//! seed decides.
//!
//! The shipping code runs: the thread that follows the stream, those that make shapes, fetch rows of subqueries,
//! compare the catalog and make bases, the store, the kernel's journal and logs. One thread plays the world:
//! transactions that begin, stream, hang, abort and commit; tables that are locked, truncated, rewritten and made
//! again; a server that crashes, is promoted, set back or replaced; our own process killed at any place where it waits,
//! with or without the machine. Clients read all the time, across restarts. Their rows are compared with those that
//! their definitions select: for shapes without subqueries at every moment, for others whenever they are told an LSN,
//! and for all when everything has come to rest.
//!
//! `SEED=n` replays one history, `SEEDS=n` says how many are run.

mod client;
mod cluster;
mod postgres;
mod scheduler;
mod world;

use crate::faults::Fault;
use scheduler::silently;
use std::panic::{AssertUnwindSafe, catch_unwind};
use world::{Tally, World};

fn played(seed: u64, fault: Option<Fault>) -> (Tally, u64) {
    let mut world = World::new(seed, fault);
    world.play();
    (std::mem::take(&mut world.tally), world.seen())
}

#[test]
fn simulation_of_the_change_path_equals_what_select_says() {
    thalweg_sim::histories(60, "thalweg-shapes", |seed| {
        played(seed, None);
    });
}

#[test]
fn one_seed_gives_one_history() {
    for seed in 3..9 {
        assert_eq!(played(seed, None).1, played(seed, None).1, "seed {seed}");
    }
}

#[test]
fn histories_reach_what_they_are_for() {
    let mut sum = Tally::default();
    (0..80).for_each(|seed| sum.add(&played(seed, None).0));
    eprintln!("{sum:?}");
    for (name, count, least) in sum.least() {
        assert!(count >= least, "only {count} {name}");
    }
}

/// A planted fault must be seen within so many histories.
fn caught(fault: Fault) {
    let is_seen = |seed: &u64| catch_unwind(AssertUnwindSafe(|| played(*seed, Some(fault)))).is_err();
    let seen = silently(|| (0..3_000).find(is_seen));
    assert!(seen.is_some(), "no history shows the planted fault {fault:?}");
    eprintln!("{fault:?} is seen by seed {}", seen.unwrap_or_default());
}

#[test]
fn planted_faults_are_caught() {
    for fault in [
        Fault::PositionsOutliveHistory,
        Fault::SetBackUnnoticed,
        Fault::ApplierWaits,
        Fault::RecentForgotten,
        Fault::OrderUnnoticed,
        Fault::ListensLate,
    ] {
        caught(fault);
    }
}

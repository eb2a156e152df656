//! Owners that follow each other on the sink in memory.
//!
//! `SEED=n` replays one history, `SEEDS=n` sets how many are run.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use thalweg_journal::owners::{Tally, options_of, play};
use thalweg_journal::{Faults, MemorySink, Network, Options};
use thalweg_sim::Rand64;

fn run(seed: u64, faults: Faults) -> Result<Tally, String> {
    let mut rng = Rand64::new(u128::from(seed) << 3 | 5);
    let mut pick = |n: u64| rng.rand_range(0..n);
    let unkind = pick(3);
    let network = Network::Held { lost: 10 * unkind, unanswered: 10 * unkind, repeated: 15 * pick(3) };
    let sink = MemorySink::new(network, [1, 2, 5, 16][pick(4) as usize], seed, faults);
    play(&sink, seed, Options { faults, ..options_of(seed) }, faults != Faults::default())
}

#[test]
fn simulation_of_owners_of_a_remote_journal_never_acknowledges_what_the_next_owner_lacks() {
    let mut tally = BTreeMap::new();
    thalweg_sim::histories(1000, "thalweg-journal", |seed| {
        let events = run(seed, Faults::default()).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        for (event, n) in events.0 {
            *tally.entry(event).or_insert(0u64) += n;
        }
    });
    println!("{tally:#?}");
    if thalweg_sim::seeds(1000).count() >= 1000 {
        for event in [
            "several in flight",
            "several deposed owners",
            "a deposed owner was stopped",
            "a deposed owner died",
            "an old term was refused",
            "an unacknowledged tail was lost",
            "died while taking over",
            "full",
        ] {
            assert!(tally.contains_key(event), "no seed had the event {event:?}: {tally:#?}");
        }
    }
}

/// How many seeds it takes to notice a planted fault.
fn caught(name: &str, faults: Faults, within: u64) {
    let noticed = |seed| std::panic::catch_unwind(|| run(seed, faults)).unwrap_or_else(|_| Err("it panicked".into()));
    let found = (0..within).find_map(|seed| noticed(seed).err().map(|why| (seed, why)));
    let (seed, why) = found.unwrap_or_else(|| panic!("{name} was not noticed in {within} seeds"));
    println!("{name}: seed {seed}: {why}");
}

#[test]
fn an_acknowledgement_before_an_earlier_batch_is_noticed() {
    caught("early", Faults { acknowledged_before_earlier: true, ..Faults::default() }, 50);
}

#[test]
fn a_stale_term_that_is_accepted_is_noticed() {
    caught("stale term", Faults { stale_term_accepted: true, ..Faults::default() }, 100);
}

#[test]
fn a_tail_that_a_take_over_keeps_is_noticed() {
    caught("kept tail", Faults { tail_kept_on_take_over: true, ..Faults::default() }, 100);
}

//! The journal that ships, on a disk that loses, tears, fails, fills up and rots, against a model of the acknowledged
//! frames.
//!
//! `SEED=n` replays one history, `TRACE=1` prints it, `SEEDS=n` sets how many are run.
#![allow(clippy::unwrap_used)]

mod world;

use thalweg_journal::Faults;
use world::{Plan, run};

#[test]
fn simulation_of_the_journal_keeps_acknowledged_frames_whatever_the_disk_does() {
    let mut tally = std::collections::BTreeMap::new();
    thalweg_sim::histories(600, "thalweg-journal", |seed| {
        let history = run(&Plan::new(seed, Faults::default())).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        for (event, n) in history.events {
            *tally.entry(event).or_insert(0u64) += n;
        }
    });
    println!("{tally:#?}");
    if thalweg_sim::seeds(600).count() >= 600 {
        for event in [
            "power",
            "kill",
            "failed sync",
            "failed write",
            "no space",
            "full",
            "flip",
            "corrupt",
            "unreadable",
            "clean",
            "held",
            "recycled",
            "written only",
            "crash inside a step",
            "misread",
            "lost file",
            "discarded",
            "settled damage",
            "grown",
            "larger than a segment",
        ] {
            assert!(tally.get(event).is_some_and(|n| *n > 0), "no seed had the event {event:?}: {tally:#?}");
        }
    }
}

#[test]
fn one_seed_gives_one_history() {
    for seed in 0..20 {
        let first = run(&Plan::new(seed, Faults::default())).unwrap();
        let second = run(&Plan::new(seed, Faults::default())).unwrap();
        assert_eq!(first.trace, second.trace, "seed {seed}");
        assert_eq!(first.files, second.files, "seed {seed}");
    }
}

/// How many seeds it takes to notice a planted fault.
fn caught(name: &str, faults: Faults, within: u64) {
    let found = (0..within).find_map(|seed| run(&Plan::new(seed, faults)).err().map(|why| (seed, why)));
    let (seed, why) = found.unwrap_or_else(|| panic!("{name} was not noticed in {within} seeds"));
    println!("{name}: seed {seed}: {why}");
}

#[test]
fn a_skipped_sync_is_noticed() {
    caught("sync skipped", Faults { sync_skipped: true, ..Faults::default() }, 100);
}

#[test]
fn an_early_acknowledgement_is_noticed() {
    caught("acknowledged before sync", Faults { acknowledged_before_sync: true, ..Faults::default() }, 200);
}

#[test]
fn batches_that_do_not_know_their_term_are_noticed() {
    caught("no term", Faults { seal_without_term: true, ..Faults::default() }, 3000);
}

#[test]
fn a_torn_tail_taken_for_corruption_is_noticed() {
    caught("torn tail is corruption", Faults { torn_tail_is_corruption: true, ..Faults::default() }, 100);
}

#[test]
fn corruption_taken_for_a_torn_tail_is_noticed() {
    caught("corruption is torn tail", Faults { corruption_is_torn_tail: true, ..Faults::default() }, 500);
}

#[test]
fn a_refusal_of_settled_damage_is_noticed() {
    caught("settled damage refused", Faults { settled_damage_refused: true, ..Faults::default() }, 500);
}

#[test]
fn a_segment_recycled_under_its_reader_is_noticed() {
    caught("recycled under reader", Faults { recycled_under_reader: true, ..Faults::default() }, 1500);
}

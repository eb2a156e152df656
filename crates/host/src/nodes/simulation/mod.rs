//! Three nodes that share a bucket, from a seed.
//!
//! Each node is the core that ships (`nodes/core`) with a shell of simulated threads, the kernel units that ship (root,
//! objects, journal and logs in the bucket) and the engine of streams that ships. The bucket loses requests and answers,
//! delivers them late, and does them twice, also when their sender has given up, died or been deposed. Machines stop,
//! sleep and die; their clocks run differently by up to a tenth and are set; nodes are cut off from the bucket and from
//! each other, drain and stop. Clients append as producers, repeat what was not answered, and read, at any node.
//!
//! `oracle` says what must hold. `SEED=n` replays one history and prints its trace, `SEEDS=n` says how many are run.

mod client;
mod conditions;
mod machine;
mod oracle;
mod owned;
mod world;

use super::faults::Faults;
use conditions::{Focus, Plan};
use std::panic::{AssertUnwindSafe, catch_unwind};
use world::{Tally, play};

#[test]
fn simulation_of_nodes_that_share_a_bucket_loses_doubles_and_mixes_up_nothing() {
    let mut sum = Tally::default();
    thalweg_sim::histories(60, "thalweg-host", |seed| sum.add(&play(seed, Plan::default(), false).tally));
    println!("{:#?}", sum.0);
    if thalweg_sim::seeds(60).count() >= 60 {
        for event in [
            "appends",
            "reads",
            "take-overs",
            "a take-over failed",
            "an append was acknowledged that had been made before",
            "an owner learnt from its journal that it was deposed",
            "upkeep failed",
            "a process was stopped",
            "a machine slept",
            "a process was killed",
            "a node was cut off from the bucket",
            "two nodes were cut off from each other",
            "a node drained",
            "a node stopped",
            "a clock was set",
            "a node got answers late, and was cut off",
        ] {
            assert!(sum.0.contains_key(event), "no history had the event {event:?}");
        }
    }
}

#[test]
fn one_seed_gives_one_history() {
    for seed in [3, 8] {
        let (one, two) = (play(seed, Plan::default(), true), play(seed, Plan::default(), true));
        let differ = one.trace.iter().zip(&two.trace).find(|(one, two)| one != two);
        assert_eq!(differ, None);
        assert!(one == two && one.trace.len() > 100, "{} lines", one.trace.len());
    }
}

/// A planted fault must be seen within so many histories with this focus.
fn caught(plan: Plan, focus: Focus, within: u64) {
    let mut seeds = (0..).filter(|seed| Focus::of(*seed) == focus).take(within as usize);
    let seen = seeds.find_map(|seed| {
        let played = thalweg_sim::silently(|| catch_unwind(AssertUnwindSafe(|| play(seed, plan, false))));
        played.err().map(|why| (seed, why.downcast_ref::<String>().cloned().unwrap_or_default()))
    });
    let Some((seed, why)) = seen else { panic!("no history of {within} shows the planted fault {plan:?}") };
    println!("seed {seed}: {why}");
}

fn of_sink(sink: thalweg_object::Faults) -> Plan {
    Plan { sink, ..Plan::default() }
}

fn of_nodes(nodes: Faults) -> Plan {
    Plan { nodes, ..Plan::default() }
}

#[test]
fn a_journal_key_with_the_epoch_is_seen() {
    caught(of_sink(thalweg_object::Faults { key_with_term: true, ..Default::default() }), Focus::Everything, 100);
}

#[test]
fn a_root_replaced_by_its_content_alone_is_seen() {
    caught(Plan { has_no_nonces: true, ..Plan::default() }, Focus::Doubt, 150);
}

#[test]
fn orphans_cleaned_before_the_fence_are_seen() {
    caught(of_sink(thalweg_object::Faults { cleaned_before_fence: true, ..Default::default() }), Focus::Holes, 400);
}

#[test]
fn an_acknowledgement_before_the_put_is_seen() {
    caught(
        of_sink(thalweg_object::Faults { acknowledged_before_put: true, ..Default::default() }),
        Focus::Everything,
        100,
    );
}

#[test]
fn a_lease_from_the_end_of_its_writing_is_seen() {
    caught(of_nodes(Faults { lease_from_end: true, ..Default::default() }), Focus::LateAnswers, 800);
}

#[test]
fn an_announcement_with_a_number_of_before_is_seen() {
    caught(of_nodes(Faults { number_repeated: true, ..Default::default() }), Focus::LateAnswers, 2_000);
}

#[test]
fn a_gap_between_leases_that_nobody_notices_is_seen() {
    caught(of_nodes(Faults { gap_not_noticed: true, ..Default::default() }), Focus::Everything, 200);
}

#[test]
fn a_unit_served_while_earlier_leases_run_is_seen() {
    caught(of_nodes(Faults { served_at_once: true, ..Default::default() }), Focus::Everything, 100);
}

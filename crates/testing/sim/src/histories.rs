//! Running one simulation with many seeds, in the same way everywhere: `SEEDS=n` says how many, `SEED=n` replays one, and
//! both together say how many from which one on.
//!
//! The test that calls it is named `simulation_...`: the soak finds it by that, and `tests/simulations.sh` sees to it.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// Whether one history is replayed: then it may print a trace.
#[must_use]
pub fn is_replay() -> bool {
    number("SEED").is_some() && number("SEEDS").is_none()
}

/// The seeds to run, if it is to be `default` many unless the environment says otherwise.
#[must_use]
pub fn seeds(default: u64) -> Range<u64> {
    match number("SEED") {
        Some(seed) => seed..seed + number("SEEDS").unwrap_or(1),
        None => 0..number("SEEDS").unwrap_or(default),
    }
}

/// Keeps the calling thread, and threads that it starts from now on, on the core that it runs on.
///
/// For threads that run one at a time: to wake one on the other core takes longer than what most of them do in a turn.
/// Histories take half as long.
pub fn stay_on_this_core() {
    let mut cores = rustix::thread::CpuSet::new();
    cores.set(rustix::thread::sched_getcpu());
    // Where it is not allowed, histories take longer.
    let _ = rustix::thread::sched_setaffinity(None, &cores);
}

/// Runs `history` with every seed. A panic ends the test, and the command that replays it is printed.
///
/// # Panics
///
/// If a history does.
pub fn histories(default: u64, package: &str, mut history: impl FnMut(u64)) {
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    let seeds = seeds(default);
    let count = seeds.end - seeds.start;
    for seed in seeds {
        let done = catch_unwind(AssertUnwindSafe(|| history(seed)));
        assert!(done.is_ok(), "replay with: SEED={seed} cargo test -p {package} {test} -- --nocapture");
    }
    println!("{test}: {count} histories");
}

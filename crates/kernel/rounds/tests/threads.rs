//! The threads that take the turns.
#![allow(clippy::unwrap_used, reason = "a test that fails should say where")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use thalweg_rounds::{Done, Handle, Kind, Next, Options, Rounds};

/// How long a test waits for what must happen.
const PATIENCE: Duration = Duration::from_secs(30);

/// A job that says on `turns` that it has had one, and rests.
fn quiet(rounds: &Rounds, kind: Kind, turns: mpsc::Sender<()>) -> Handle {
    rounds.add("unit", kind, move || {
        let _ = turns.send(());
        Ok(Done::IDLE)
    })
}

/// A job whose turns begin, say so, and last until they are let go.
fn held(rounds: &Rounds, kind: Kind, begun: mpsc::Sender<()>, release: Arc<AtomicBool>) -> Handle {
    rounds.add("unit", kind, move || {
        let _ = begun.send(());
        while !release.load(Ordering::Acquire) {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        Ok(Done::then(Next::Now))
    })
}

#[test]
fn a_thousand_jobs_without_work_wake_no_thread() {
    let rounds = Rounds::start(Options::default()).unwrap();
    let (turns, taken) = mpsc::channel();
    let handles: Vec<_> = (0..1000).map(|n| quiet(&rounds, Kind::ALL[n % 4], turns.clone())).collect();
    (0..1000).for_each(|_| taken.recv_timeout(PATIENCE).unwrap());
    // The last turns end after they have said so.
    while rounds.stats().kinds.iter().map(|kind| kind.turns).sum::<u64>() < 1000 {
        std::thread::yield_now();
    }
    let before = rounds.stats();
    std::thread::sleep(Duration::from_millis(300));
    let after = rounds.stats();
    assert!(
        after.wakes - before.wakes <= before.threads as u64,
        "{} wakes while nothing happens",
        after.wakes - before.wakes
    );
    assert_eq!(after.kinds.map(|kind| kind.turns), before.kinds.map(|kind| kind.turns));
    handles[500].nudge();
    taken.recv_timeout(PATIENCE).unwrap();
    rounds.stop();
}

#[test]
fn what_is_nudged_from_many_threads_has_a_turn_after_the_last_nudge() {
    let rounds = Rounds::start(Options::default()).unwrap();
    let (made, seen) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let job = {
        let (made, seen) = (Arc::clone(&made), Arc::clone(&seen));
        rounds.add("unit", Kind::Settle, move || {
            seen.store(made.load(Ordering::SeqCst), Ordering::SeqCst);
            Ok(Done::IDLE)
        })
    };
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..10_000 {
                    made.fetch_add(1, Ordering::SeqCst);
                    job.nudge();
                }
            });
        }
    });
    let until = std::time::Instant::now() + PATIENCE;
    while seen.load(Ordering::SeqCst) < 80_000 {
        assert!(std::time::Instant::now() < until, "the last nudge was lost at {}", seen.load(Ordering::SeqCst));
        std::thread::yield_now();
    }
    rounds.stop();
}

#[test]
fn segments_and_settling_find_a_thread_beside_long_work() {
    let rounds = Rounds::start(Options::default()).unwrap();
    let (begun, long) = mpsc::channel();
    let release = Arc::new(AtomicBool::new(false));
    let _merges: Vec<_> = (0..50).map(|_| held(&rounds, Kind::Merge, begun.clone(), Arc::clone(&release))).collect();
    long.recv_timeout(PATIENCE).unwrap();
    let (turns, taken) = mpsc::channel();
    for kind in [Kind::Settle, Kind::Segments] {
        quiet(&rounds, kind, turns.clone());
        taken.recv_timeout(PATIENCE).unwrap();
    }
    release.store(true, Ordering::Release);
    rounds.stop();
}

#[test]
fn stopping_and_retiring_wait_for_the_turns_that_run() {
    let rounds = Arc::new(Rounds::start(Options::default()).unwrap());
    let (begun, started) = mpsc::channel();
    let release = Arc::new(AtomicBool::new(false));
    let job = held(&rounds, Kind::Settle, begun.clone(), Arc::clone(&release));
    started.recv_timeout(PATIENCE).unwrap();
    let (done, ended) = mpsc::channel();
    let retiring = {
        let done = done.clone();
        std::thread::spawn(move || {
            job.retire();
            done.send("retired").unwrap();
        })
    };
    assert!(ended.recv_timeout(Duration::from_millis(50)).is_err(), "a turn is under way");
    release.store(true, Ordering::Release);
    assert_eq!(ended.recv_timeout(PATIENCE).unwrap(), "retired");
    retiring.join().unwrap();
    let turns = rounds.stats().kinds[Kind::Settle as usize].turns;

    release.store(false, Ordering::Release);
    held(&rounds, Kind::Merge, begun, Arc::clone(&release));
    while started.try_recv().is_ok() {}
    while rounds.stats().kinds[Kind::Merge as usize].due > 0 {
        std::thread::yield_now();
    }
    let stopping = Arc::clone(&rounds);
    let stop = std::thread::spawn(move || {
        stopping.stop();
        done.send("stopped").unwrap();
    });
    assert!(ended.recv_timeout(Duration::from_millis(50)).is_err(), "a turn is under way");
    release.store(true, Ordering::Release);
    assert_eq!(ended.recv_timeout(PATIENCE).unwrap(), "stopped");
    stop.join().unwrap();
    assert_eq!(rounds.stats().kinds[Kind::Settle as usize].turns, turns, "a retired job has no turn");
}

#[test]
fn a_job_that_fails_holds_up_no_other() {
    let rounds = Rounds::start(Options::default()).unwrap();
    let failing: Vec<_> = (0..100).map(|_| rounds.add("bad", Kind::Settle, || Err("no".into()))).collect();
    let (turns, taken) = mpsc::channel();
    let good = quiet(&rounds, Kind::Settle, turns);
    for _ in 0..10 {
        taken.recv_timeout(PATIENCE).unwrap();
        failing.iter().for_each(Handle::nudge);
        good.nudge();
    }
    let settle = rounds.stats().kinds[Kind::Settle as usize];
    assert!(settle.failed < 1000, "{} failed turns: those that failed did not rest", settle.failed);
    rounds.stop();
}

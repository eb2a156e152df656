//! A remote sink that takes its time, with the writer's thread.
#![allow(clippy::unwrap_used)]

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thalweg_journal::{Bounds, Class, Faults, Journal, MemorySink, Network, Options, Sequencer};

const LATENCY: Duration = Duration::from_millis(50);

/// A journal whose every frame is a batch of its own.
fn open(sink: &MemorySink, term: u64) -> Arc<Sequencer<MemorySink>> {
    let options = Options { batch_bytes: 1, salt: term, ..Options::default() };
    let nothing = &mut |_, _| Ok::<(), Infallible>(());
    Arc::new(Sequencer::take_over(sink.clone(), options, Bounds::default(), term, nothing).unwrap())
}

/// How long it takes until `frames` frames of one batch each are durable.
fn time(frames: usize, in_flight: usize) -> Duration {
    let network = Network::After { delay: LATENCY, spread: LATENCY / 10 };
    let journal = open(&MemorySink::new(network, in_flight, 1, Faults::default()), 1);
    journal.start_writer().unwrap();
    let began = Instant::now();
    for _ in 0..frames {
        journal.append(Class::User, &[b"frame"]).unwrap();
    }
    journal.wait(journal.end()).unwrap();
    let took = began.elapsed();
    assert_eq!(journal.stats().batches, frames as u64);
    journal.close().unwrap();
    took
}

#[test]
fn with_a_slow_sink_appends_per_second_grow_with_the_batches_in_flight() {
    const FRAMES: usize = 16;
    let one = time(FRAMES, 1);
    assert!(one >= LATENCY * FRAMES as u32, "one after the other: {one:?}");
    let four = time(FRAMES, 4);
    let sixteen = time(FRAMES, 16);
    println!("{FRAMES} batches: one at a time {one:?}, four {four:?}, sixteen {sixteen:?}");
    assert!(four * 2 < one, "four in flight: {four:?} against {one:?}");
    assert!(sixteen * 6 < one, "sixteen in flight: {sixteen:?} against {one:?}");
}

#[test]
fn a_batch_gathers_for_the_commit_interval_unless_it_is_full() {
    const INTERVAL: Duration = Duration::from_secs(1);
    let network = Network::After { delay: Duration::from_millis(1), spread: Duration::from_millis(1) };
    let sink = MemorySink::new(network, 8, 1, Faults::default());
    let options = Options { batch_bytes: 10_000, commit_interval: INTERVAL, ..Options::default() };
    let nothing = &mut |_, _| Ok::<(), Infallible>(());
    let journal = Arc::new(Sequencer::take_over(sink, options, Bounds::default(), 1, nothing).unwrap());
    journal.start_writer().unwrap();
    let append = |bytes: usize| {
        let end = journal.append(Class::User, &[&vec![7; bytes]]).unwrap().end;
        journal.kick();
        end
    };
    // The first one finds nothing that was sent a moment ago.
    let began = Instant::now();
    journal.wait(append(1)).unwrap();
    let first = began.elapsed();
    assert!(first < INTERVAL / 2, "{first:?}");
    // Those that follow gather.
    for _ in 0..50 {
        append(1);
        std::thread::sleep(Duration::from_millis(1));
    }
    journal.wait(journal.end()).unwrap();
    assert!(began.elapsed() >= INTERVAL, "{:?}", began.elapsed());
    let batches = journal.stats().batches;
    assert!((2..=3).contains(&batches), "{batches}");
    // A batch that is full goes at once, and what follows it gathers again.
    let began = Instant::now();
    let full = append(20_000);
    append(1);
    journal.wait(full).unwrap();
    let took = began.elapsed();
    assert!(took < INTERVAL / 2, "{took:?}");
    journal.close().unwrap();
}

#[test]
fn a_deposed_owner_says_by_whom_and_acknowledges_nothing_more() {
    let network = Network::After { delay: Duration::from_millis(5), spread: Duration::from_millis(5) };
    let sink = MemorySink::new(network, 4, 1, Faults::default());
    let old = open(&sink, 1);
    old.start_writer().unwrap();
    let kept = old.append(Class::User, &[b"kept"]).unwrap();
    old.wait(kept.end).unwrap();
    let new = open(&sink, 7);
    assert_eq!(new.opened().end, kept.end);
    let late = old.append(Class::User, &[b"late"]).unwrap();
    let stopped = old.wait(late.end).unwrap_err();
    let fenced = stopped.fenced.unwrap();
    assert_eq!((fenced.term, fenced.by), (1, 7));
    assert_eq!(old.durable(), kept.end);
    assert!(stopped.to_string().contains("term 7"), "{stopped}");
    // The next owner writes at that very place.
    new.start_writer().unwrap();
    let next = new.append(Class::User, &[b"next"]).unwrap();
    assert_eq!(next.frame, late.frame);
    new.wait(next.end).unwrap();
    assert_eq!(new.read(&[kept.frame, next.frame]).wait().unwrap(), [&b"kept"[..], b"next"]);
    old.close().unwrap_err();
    new.close().unwrap();
}

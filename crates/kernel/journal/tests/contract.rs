//! The promises of every journal, asked of the one in memory and of the one in files, stepped and with its thread.
//! `kernel/object` asks them of one in a bucket.
#![allow(clippy::unwrap_used)]

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use thalweg_base::Durability;
use thalweg_journal::contract::{QUESTIONS, Subject, options};
use thalweg_journal::{Bounds, Class, FileJournal, Journal, MemoryJournal, Options};
use thalweg_sim::SimDisk;

#[test]
fn a_journal_in_memory_keeps_its_promises() {
    for (promise, ask) in QUESTIONS {
        println!("{promise}");
        let journal = Arc::new(MemoryJournal::new(options()));
        let poisoned = Arc::clone(&journal);
        ask(&Subject { journal, poison: Box::new(move || poisoned.poison("test")) });
    }
}

fn ask_of_files(options: Options, is_threaded: bool) {
    for (promise, ask) in QUESTIONS {
        println!("{promise}");
        let disk = SimDisk::new(1);
        let journal =
            FileJournal::open(Arc::new(disk.clone()), options, Bounds::default(), &mut |_, _| Ok::<(), Infallible>(()));
        let journal = Arc::new(journal.unwrap());
        if is_threaded {
            journal.start_writer().unwrap();
        }
        ask(&Subject { journal: Arc::clone(&journal) as _, poison: Box::new(move || disk.fail_next_sync()) });
        drop(journal.close());
    }
}

#[test]
fn a_stepped_journal_in_files_keeps_its_promises() {
    ask_of_files(options(), false);
}

#[test]
fn a_journal_in_files_keeps_its_promises() {
    ask_of_files(options(), true);
}

#[test]
fn a_journal_in_files_without_a_window_keeps_its_promises() {
    ask_of_files(Options { window_bytes: 0, ..options() }, true);
}

#[test]
fn a_journal_in_files_with_small_batches_keeps_its_promises() {
    ask_of_files(Options { batch_bytes: 100, ..options() }, true);
}

#[test]
fn a_durable_batch_is_told_once_and_a_buffered_one_when_it_is_written() {
    let journal =
        FileJournal::open(
            Arc::new(SimDisk::new(1)),
            options(),
            Bounds::default(),
            &mut |_, _| Ok::<(), Infallible>(()),
        );
    let journal = journal.unwrap();
    let told = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&told);
    journal.subscribe(Arc::new(move || {
        count.fetch_add(1, Ordering::SeqCst);
    }));
    let told = || told.swap(0, Ordering::SeqCst);
    journal.append(Class::User, &[b"opens the segment"]).unwrap();
    while journal.step().unwrap() {}
    told();
    let durable = journal.append(Class::User, &[b"durable"]).unwrap();
    journal.kick();
    assert!(journal.written() < durable.frame.lsn, "a kick leaves it to the writer's thread");
    assert!(journal.begin().unwrap());
    assert_eq!((journal.written(), told()), (durable.end, 0), "nobody waits for that");
    // A buffered frame is written while a sync is under way.
    let buffered = journal.append_as(Durability::Buffered, Class::User, &[b"buffered"]).unwrap();
    assert!(!journal.begin().unwrap());
    journal.kick();
    assert_eq!((journal.written(), told()), (buffered.end, 1));
    assert!(journal.durable() < durable.end);
    assert!(journal.finish().unwrap());
    assert_eq!((journal.durable(), told()), (buffered.end, 1));
    let buffered = journal.append_as(Durability::Buffered, Class::User, &[b"buffered"]).unwrap();
    assert!(journal.begin().unwrap() && !journal.finish().unwrap(), "nobody waits for a sync");
    assert_eq!((journal.written(), told()), (buffered.end, 1));
    assert_eq!(journal.durable_end(), durable.end);
    journal.wait(buffered.end).unwrap();
    assert_eq!(journal.durable(), buffered.end);
}

//! The promises of every journal: the same claims against the one in memory and the one in files, stepped and with its
//! thread.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use thalweg_base::Durability;
use thalweg_journal::{
    AppendError, Appended, Bounds, Class, FileJournal, FrameRef, Journal, MemoryJournal, Options, Poisoned, ReadError,
};
use thalweg_sim::SimDisk;

/// A journal, and the facts of it that a test needs.
struct Subject {
    journal: Arc<dyn Journal>,
    poison: Box<dyn Fn()>,
    close: Box<dyn Fn()>,
}

fn options() -> Options {
    Options { segment_bytes: 16 << 10, bound_bytes: 64 << 10, max_payload: 4 << 10, ..Options::default() }
}

fn memory() -> Subject {
    let journal = Arc::new(MemoryJournal::new(options()));
    let poisoned = Arc::clone(&journal);
    Subject { journal, poison: Box::new(move || poisoned.poison("test")), close: Box::new(|| {}) }
}

fn file(options: Options, threaded: bool) -> Subject {
    let disk = SimDisk::new(1);
    let journal =
        FileJournal::open(Arc::new(disk.clone()), options, Bounds::default(), &mut |_, _| Ok::<(), Infallible>(()));
    let journal = Arc::new(journal.unwrap());
    if threaded {
        journal.start_writer().unwrap();
    }
    let closed = Arc::clone(&journal);
    Subject { journal, poison: Box::new(move || disk.fail_next_sync()), close: Box::new(move || drop(closed.close())) }
}

impl Subject {
    fn append(&self, payload: &[u8]) -> Appended {
        self.journal.append(Class::User, &[payload]).unwrap()
    }

    fn durable(&self, payload: &[u8]) -> Appended {
        let appended = self.append(payload);
        self.journal.wait(appended.end).unwrap();
        appended
    }

    fn read(&self, frames: &[FrameRef]) -> Result<Vec<Bytes>, ReadError> {
        self.journal.read(frames).wait()
    }
}

fn what_is_appended_is_read(s: &Subject) {
    let appended = s.journal.append(Class::User, &[b"he", b"", b"llo"]).unwrap();
    assert_eq!(appended.frame.len, 5);
    s.journal.wait(appended.end).unwrap();
    let empty = s.durable(b"");
    let frames = [appended.frame, empty.frame, appended.frame];
    let want: [&[u8]; 3] = [b"hello", b"", b"hello"];
    assert_eq!(s.read(&frames).unwrap(), want);
    if let Some(read) = s.journal.try_read(&frames) {
        assert_eq!(read.unwrap(), want);
    }
    assert_eq!(s.read(&[]).unwrap(), Vec::<Bytes>::new());
}

fn positions_rise_and_end_follows(s: &Subject) {
    let mut last = s.journal.end();
    for n in 0..200usize {
        let appended = s.append(&vec![n as u8; n]);
        assert!(appended.frame.lsn >= last);
        assert!(appended.end > appended.frame.lsn.plus(n as u64));
        assert_eq!(s.journal.end(), appended.end);
        last = appended.end;
    }
    s.journal.wait(last).unwrap();
    assert!(s.journal.durable() >= last);
}

fn frames_of_all_segments_are_read_back(s: &Subject) {
    let frames: Vec<_> = (0..100u32).map(|n| (s.append(&[n as u8; 400]).frame, vec![n as u8; 400])).collect();
    s.journal.wait(s.journal.end()).unwrap();
    let (refs, want): (Vec<_>, Vec<_>) = frames.into_iter().unzip();
    assert_eq!(s.read(&refs).unwrap(), want);
    let backwards: Vec<_> = refs.iter().rev().copied().collect();
    assert!(s.read(&backwards).unwrap().iter().eq(want.iter().rev()));
}

fn a_payload_over_the_limit_is_refused(s: &Subject) {
    let err = s.journal.append(Class::Upkeep, &[&[0; 4096], b"x"]).unwrap_err();
    assert_eq!(err, AppendError::TooLarge { len: 4097, max: 4096 });
    s.durable(&[0; 4096]);
}

fn subscribers_hear_of_durability(s: &Subject) {
    let heard = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&heard);
    s.journal.subscribe(Arc::new(move || {
        count.fetch_add(1, Ordering::SeqCst);
    }));
    s.durable(b"x");
    // The wait and the subscribers are served one after the other.
    while heard.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
}

fn users_are_refused_at_the_bound_and_upkeep_later(s: &Subject) {
    let fill = |class| loop {
        match s.journal.append(class, &[&[0; 1000]]) {
            Ok(appended) => s.journal.wait(appended.end).unwrap(),
            Err(e) => return e,
        }
    };
    let AppendError::Full { bound, .. } = fill(Class::User) else { panic!() };
    assert_eq!(bound, 64 << 10);
    s.journal.append(Class::Upkeep, &[b"a delete"]).unwrap();
    let AppendError::Full { bound, .. } = fill(Class::Upkeep) else { panic!() };
    assert_eq!(bound, 80 << 10);
    s.journal.wait(s.journal.end()).unwrap();
    s.journal.trim(s.journal.end());
    s.durable(&[0; 1000]);
}

fn trimmed_frames_are_refused(s: &Subject) {
    let first = s.durable(b"first").frame;
    let second = s.durable(b"second").frame;
    s.journal.trim(second.lsn);
    assert_eq!(s.journal.start(), second.lsn);
    assert_eq!(s.read(&[first]), Err(ReadError::Trimmed(first.lsn)));
    assert_eq!(s.read(&[second]).unwrap(), [b"second".as_slice()]);
    s.journal.trim(first.lsn);
    assert_eq!(s.journal.start(), second.lsn, "a trim never goes back");
}

fn what_is_not_durable_cannot_be_trimmed(s: &Subject) {
    let first = s.durable(b"first");
    s.journal.trim(first.end.plus(1 << 30));
    assert!(s.journal.start() <= s.journal.durable());
    let next = s.durable(b"next").frame;
    assert_eq!(s.read(&[next]).unwrap(), [b"next".as_slice()]);
}

fn what_is_not_written_cannot_be_read(s: &Subject) {
    let end = s.durable(b"x").end;
    let beyond = FrameRef { lsn: end.plus(1000), len: 3 };
    assert_eq!(s.read(&[beyond]), Err(ReadError::NotWritten(beyond.lsn)));
}

fn a_wrong_reference_is_an_error(s: &Subject) {
    let frame = s.durable(b"hello").frame;
    s.durable(&[0; 100]);
    for wrong in
        [FrameRef { len: 4, ..frame }, FrameRef { len: 6, ..frame }, FrameRef { lsn: frame.lsn.plus(1), ..frame }]
    {
        assert!(matches!(s.read(&[wrong]), Err(ReadError::Corrupt { .. })), "{wrong:?}");
    }
}

fn a_poisoned_journal_acknowledges_nothing_more(s: &Subject) {
    let durable = s.durable(b"before").end;
    let heard = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&heard);
    s.journal.subscribe(Arc::new(move || {
        count.fetch_add(1, Ordering::SeqCst);
    }));
    (s.poison)();
    if let Ok(appended) = s.journal.append(Class::User, &[b"after"]) {
        s.journal.wait(appended.end).unwrap_err();
    }
    assert!(s.journal.poisoned().is_some());
    assert!(matches!(s.journal.append(Class::Upkeep, &[b"x"]), Err(AppendError::Poisoned(Poisoned { .. }))));
    s.journal.kick();
    s.journal.wait(s.journal.durable().plus(1)).unwrap_err();
    assert!(s.journal.durable().since(durable) <= 24, "nothing but a mark");
    while heard.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    // The word about the batch before may come late.
    assert!(heard.load(Ordering::SeqCst) <= 2, "and says so once");
}

fn many_threads_append_and_wait(s: &Subject) {
    let threads: Vec<_> = (0..4u8)
        .map(|t| {
            let journal = Arc::clone(&s.journal);
            std::thread::spawn(move || {
                for n in 0..50u8 {
                    let appended = journal.append(Class::User, &[&[t, n], &[7; 50]]).unwrap();
                    journal.wait(appended.end).unwrap();
                    let read = journal.read(&[appended.frame]).wait().unwrap();
                    assert_eq!(read[0][..2], [t, n]);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!(s.journal.stats().frames, 200);
}

macro_rules! claims {
    ($($claim:ident),* $(,)?) => {
        claims!(@ memory, super::memory(), $($claim),*);
        claims!(@ stepped, super::file(super::options(), false), $($claim),*);
        claims!(@ threaded, super::file(super::options(), true), $($claim),*);
        claims!(@ without_window, super::file(super::Options { window_bytes: 0, ..super::options() }, true), $($claim),*);
        claims!(@ small_batches, super::file(super::Options { batch_bytes: 100, ..super::options() }, true), $($claim),*);
    };
    (@ $module:ident, $subject:expr, $($claim:ident),*) => {
        mod $module {
            $(#[test] fn $claim() {
                let subject = $subject;
                super::$claim(&subject);
                (subject.close)();
            })*
        }
    };
}

claims!(
    what_is_appended_is_read,
    positions_rise_and_end_follows,
    frames_of_all_segments_are_read_back,
    a_payload_over_the_limit_is_refused,
    subscribers_hear_of_durability,
    users_are_refused_at_the_bound_and_upkeep_later,
    trimmed_frames_are_refused,
    what_is_not_durable_cannot_be_trimmed,
    what_is_not_written_cannot_be_read,
    a_wrong_reference_is_an_error,
    a_poisoned_journal_acknowledges_nothing_more,
    many_threads_append_and_wait,
);

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

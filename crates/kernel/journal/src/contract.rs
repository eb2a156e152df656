//! The promises of every journal, as questions to one that is empty. For the tests of every backend.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that fails should say where")]

use crate::{AppendError, Appended, Class, FrameRef, Journal, Options, Poisoned, ReadError};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A journal with nothing in it, made with [`options`], and the facts of it that the questions need.
pub struct Subject {
    /// The journal.
    pub journal: Arc<dyn Journal>,
    /// Has its device fail, or another owner take it over: it acknowledges nothing more.
    pub poison: Box<dyn Fn()>,
}

/// A question.
pub type Question = fn(&Subject);

/// All questions, by the promise that each asks for.
pub const QUESTIONS: &[(&str, Question)] = &[
    ("what_is_appended_is_read", what_is_appended_is_read),
    ("positions_rise_and_end_follows", positions_rise_and_end_follows),
    ("frames_of_all_segments_are_read_back", frames_of_all_segments_are_read_back),
    ("a_payload_over_the_limit_is_refused", a_payload_over_the_limit_is_refused),
    ("subscribers_hear_of_durability", subscribers_hear_of_durability),
    ("users_are_refused_at_the_bound_and_upkeep_later", users_are_refused_at_the_bound_and_upkeep_later),
    ("trimmed_frames_are_refused", trimmed_frames_are_refused),
    ("what_is_not_durable_cannot_be_trimmed", what_is_not_durable_cannot_be_trimmed),
    ("what_is_not_written_cannot_be_read", what_is_not_written_cannot_be_read),
    ("a_wrong_reference_is_an_error", a_wrong_reference_is_an_error),
    ("a_poisoned_journal_acknowledges_nothing_more", a_poisoned_journal_acknowledges_nothing_more),
    ("many_threads_append_and_wait", many_threads_append_and_wait),
];

/// The options that the questions count on.
#[must_use]
pub fn options() -> Options {
    Options { segment_bytes: 16 << 10, bound_bytes: 64 << 10, max_payload: 4 << 10, ..Options::default() }
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

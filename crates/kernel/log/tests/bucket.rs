//! Logs whose journal, objects and root are in a bucket: in memory, and in every bucket that `THALWEG_TEST_BUCKETS` names
//! (locations, separated by spaces; `tests/bucket/run.sh` starts real ones).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use support::Notes;
use thalweg_base::{LogId, Lsn, Millis, Offset};
use thalweg_journal::{Class, Journal, Options, Sequencer};
use thalweg_log::{Append, Lengths, Logs, LogsOptions, Loss, Op, ReadFrom, UpkeepError, When};
use thalweg_object::{Bucket, BucketOptions, ObjectManifest, ObjectSink, ObjectStorage, SinkOptions};

struct Owner {
    journal: Arc<Sequencer<ObjectSink>>,
    logs: Logs<Notes>,
}

/// Takes the unit over, whatever its owner is doing.
fn open(bucket: &Bucket, unit: &str, salt: u64) -> Owner {
    let storage = Arc::new(ObjectStorage::new(bucket.clone(), unit));
    let manifest = Arc::new(ObjectManifest::new(bucket.clone(), unit, salt << 32));
    let options = LogsOptions { object_bytes: 4096, fan_in: 3, settle_after_ms: 0, ..LogsOptions::default() };
    let mut opening = Logs::begin_above(0, options, storage, manifest, Loss::Nothing).unwrap();
    let (bounds, term) = (opening.bounds(), opening.epoch());
    let journal = Options { salt, term, ..Options::default() };
    let sink = ObjectSink::new(bucket.clone(), unit, SinkOptions::default());
    let journal =
        Sequencer::take_over(sink, journal, bounds, term, &mut |at, bytes| opening.replay(at, &bytes)).unwrap();
    let journal = Arc::new(journal);
    journal.start_writer().unwrap();
    let logs = opening.finish(Arc::clone(&journal) as _).unwrap();
    Owner { journal, logs }
}

impl Owner {
    fn create(&self, name: &str) -> LogId {
        let op = Op::Create { name, note: b"new", origin: None, append: None };
        self.logs.lock(&[name]).commit(Class::User, &[op]).unwrap().created.unwrap()
    }

    fn append(&self, log: LogId, message: &[u8]) -> Lsn {
        let lengths = Lengths::one(message.len() as u32);
        let append = Append::Bytes { parts: &[message], lengths: &lengths };
        let op = Op::Write { log, note: b"", append: Some(append) };
        self.logs.lock_logs(&[log], &[]).commit(Class::User, &[op]).unwrap().end
    }

    fn wait(&self) {
        self.journal.wait(self.journal.end()).unwrap();
    }

    fn settle(&self) {
        while self.logs.settle(Millis(1), When::Now).unwrap() {}
        while self.logs.merge().unwrap() {}
    }

    fn read(&self, name: &str) -> Vec<u8> {
        let (log, upto) = {
            let mut guard = self.logs.lock(&[name]);
            let log = guard.find(name).unwrap();
            (log, guard.view(log).unwrap().tail)
        };
        let (mut bytes, mut from) = (Vec::new(), Offset(0));
        while from < upto {
            let chunk = self.logs.read(ReadFrom { log, from, upto }).unwrap();
            bytes.extend(chunk.parts.concat());
            from = chunk.end;
        }
        bytes
    }
}

#[test]
fn logs_in_a_bucket_are_taken_over_with_all_that_was_acknowledged() {
    let real = std::env::var("THALWEG_TEST_BUCKETS").unwrap_or_default();
    for location in std::iter::once("memory:").chain(real.split_whitespace()) {
        let bucket = Bucket::open(&location.parse().unwrap(), BucketOptions::default()).unwrap();
        let begun = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
        let unit = format!("{begun:x}");
        let mut expected: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let mut before: Option<Owner> = None;
        for term in 1..5u64 {
            let owner = open(&bucket, &unit, term);
            for (name, bytes) in &expected {
                assert_eq!(owner.read(name), *bytes, "{bucket:?}: {name} in term {term}");
            }
            if let Some(deposed) = before.take() {
                // It has not noticed, and its requests arrive: none of them counts.
                let name = expected.keys().next().unwrap();
                let log = deposed.logs.lock(&[name]).find(name).unwrap();
                let end = deposed.append(log, b"late");
                let poisoned = deposed.journal.wait(end).unwrap_err();
                assert!(poisoned.fenced.is_some(), "{bucket:?}: {poisoned}");
                let refused = deposed.logs.settle(Millis(1), When::Now);
                assert!(matches!(refused, Ok(false) | Err(UpkeepError::Journal(_))), "{bucket:?}: {refused:?}");
            }
            let name = format!("log {term}");
            owner.create(&name);
            expected.insert(name, Vec::new());
            for round in 0..20u8 {
                for (name, bytes) in &mut expected {
                    let message = vec![round; 50 + usize::from(round)];
                    let log = owner.logs.lock(&[name]).find(name).unwrap();
                    owner.append(log, &message);
                    bytes.extend(message);
                }
                owner.journal.kick();
                if round % 8 == 7 {
                    owner.wait();
                    owner.settle();
                }
            }
            owner.wait();
            for (name, bytes) in &expected {
                assert_eq!(owner.read(name), *bytes, "{bucket:?}: {name} in term {term}, live");
            }
            before = Some(owner);
        }
    }
}

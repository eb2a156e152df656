//! The promises of storage, manifest and sink, asked of a bucket in memory, of one in a folder, and of every bucket that
//! `THALWEG_TEST_BUCKETS` names: locations, separated by spaces. `tests/bucket/run.sh` starts real ones.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use thalweg_base::{Lsn, ObjectId};
use thalweg_journal::contract::Subject;
use thalweg_journal::{Bounds, Class, Fenced, Journal, Kept, Options, Sequencer, Sink, SinkBatch, SinkError, Term};
use thalweg_manifest::{Manifest, ManifestError};
use thalweg_object::{
    Bucket, BucketError, BucketOptions, Kind, ObjectManifest, ObjectSink, ObjectStorage, SimulatedBucket, SinkOptions,
};
use thalweg_sim::SimDisk;
use thalweg_storage::{CacheOptions, CachedStorage, Storage, StorageError, StoreId};

/// Where the buckets are that need no server: in memory, and in a folder.
fn own_locations(folder: &Path) -> [String; 2] {
    ["memory:".to_owned(), format!("file://{}", folder.display())]
}

/// Where real ones are.
fn real_locations() -> Vec<String> {
    std::env::var("THALWEG_TEST_BUCKETS").unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

/// Each bucket, with small parts where the store allows it, and a name that no other run uses.
fn each_bucket(ask: impl Fn(&str, &Bucket, &dyn Fn() -> String)) {
    let folder = tempfile::tempdir().unwrap();
    for location in own_locations(folder.path()).into_iter().chain(real_locations()) {
        let options = BucketOptions { deadline: Duration::from_secs(20), ..BucketOptions::default() };
        let bucket = Bucket::open(&location.parse().unwrap(), options).unwrap();
        bucket.check().unwrap();
        let begun = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
        let count = std::sync::atomic::AtomicU64::new(0);
        let unit = || format!("{begun:x}-{}", count.fetch_add(1, std::sync::atomic::Ordering::SeqCst));
        println!("{bucket:?}");
        ask(&location, &bucket, &unit);
    }
}

#[test]
fn storage_keeps_its_promises() {
    each_bucket(|name, bucket, unit| {
        for (promise, ask) in thalweg_storage::contract::QUESTIONS {
            println!("{promise}");
            ask(name, &ObjectStorage::new(bucket.clone(), &unit()), true);
            // With the kernel's cache before it, which is smaller than the largest objects.
            let remote = Arc::new(ObjectStorage::new(bucket.clone(), &unit()));
            let options = CacheOptions { threads: 2, ..CacheOptions::new(StoreId([1; 16]), 8 << 20) };
            ask(name, &CachedStorage::open(remote, &SimDisk::new(1), "cache", options).unwrap(), true);
        }
    });
}

#[test]
fn manifest_keeps_its_promises() {
    each_bucket(|name, bucket, unit| {
        for (promise, ask) in thalweg_manifest::contract::QUESTIONS {
            println!("{promise}");
            let manifest: Arc<dyn Manifest> = Arc::new(ObjectManifest::new(bucket.clone(), &unit(), 7));
            ask(name, &manifest);
        }
    });
}

#[test]
fn a_journal_keeps_its_promises() {
    each_bucket(|name, bucket, unit| {
        for (promise, ask) in thalweg_journal::contract::QUESTIONS {
            println!("{promise}");
            let unit = unit();
            let options = thalweg_journal::contract::options();
            let mut nothing = |_, _| Ok::<(), std::convert::Infallible>(());
            let sink_of_it = sink(bucket, &unit);
            let journal = Sequencer::take_over(sink_of_it, options, Bounds::default(), 1, &mut nothing).unwrap();
            let journal = Arc::new(journal);
            journal.start_writer().unwrap();
            // Another owner takes it over.
            let other = sink(bucket, &unit);
            let poison = move || other.fence(term(2)).wait().unwrap();
            ask(&Subject { journal: Arc::clone(&journal) as _, poison: Box::new(poison) });
            let is_poisoned = journal.poisoned().is_some();
            assert_eq!(journal.close().is_err(), is_poisoned, "{name}");
        }
    });
}

#[test]
fn of_many_owners_that_commit_or_acquire_at_once_one_wins() {
    each_bucket(|name, bucket, unit| {
        let unit = unit();
        let manifests: Vec<_> =
            (0..16).map(|n| Arc::new(ObjectManifest::new(bucket.clone(), &unit, n << 32))).collect();
        manifests[0].acquire(0).unwrap();
        let race = |act: fn(&ObjectManifest) -> bool| {
            let racers: Vec<_> = manifests
                .iter()
                .map(|manifest| {
                    let manifest = Arc::clone(manifest);
                    std::thread::spawn(move || act(&manifest))
                })
                .collect();
            racers.into_iter().map(|racer| racer.join().unwrap()).filter(|won| *won).count()
        };
        assert_eq!(race(|manifest| manifest.commit(1, 1, b"body").is_ok()), 1, "{name}");
        let epochs = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let racers: Vec<_> = manifests
            .iter()
            .map(|manifest| {
                let (manifest, epochs) = (Arc::clone(manifest), Arc::clone(&epochs));
                std::thread::spawn(move || epochs.lock().push(manifest.acquire(0).unwrap().epoch))
            })
            .collect();
        racers.into_iter().for_each(|racer| racer.join().unwrap());
        let mut epochs = epochs.lock().clone();
        epochs.sort_unstable();
        assert_eq!(epochs, (2..18).collect::<Vec<u64>>(), "{name}: no two owners have one epoch");
        assert_eq!(race(|manifest| manifest.commit(17, 18, b"last").is_ok()), 1, "{name}");
    });
}

/// The second trap: a store names versions by their content, so equal bodies would be one version.
#[test]
fn a_root_that_was_read_before_it_changed_and_changed_back_is_not_replaced() {
    each_bucket(|name, bucket, unit| {
        let unit = unit();
        let [one, two] = [1, 2].map(|nonce| ObjectManifest::new(bucket.clone(), &unit, nonce << 32));
        one.acquire(0).unwrap();
        one.commit(1, 1, b"same").unwrap();
        // Another owner takes over and leaves the same content.
        let root = two.acquire(0).unwrap();
        assert_eq!((root.body, root.epoch), (Bytes::from_static(b"same"), 2), "{name}");
        two.commit(2, 3, b"same").unwrap();
        assert_eq!(one.commit(1, 2, b"late"), Err(ManifestError::Fenced { epoch: 1, found: 2 }), "{name}");
        assert_eq!(two.load().unwrap().unwrap().body, Bytes::from_static(b"same"));
    });
}

fn batch(term: Term, at: u64, byte: u8, len: usize) -> SinkBatch {
    SinkBatch { at: Lsn(at), term, bytes: vec![byte; len].into() }
}

fn term(number: u64) -> Term {
    Term { number, salt: number * 1_000_003 }
}

fn sink(bucket: &Bucket, unit: &str) -> ObjectSink {
    ObjectSink::new(bucket.clone(), unit, SinkOptions::default())
}

fn pieces(sink: &ObjectSink, from: u64) -> Vec<(u64, Bytes)> {
    sink.read(Lsn(from)..Lsn::MAX).wait().unwrap().into_iter().map(|piece| (piece.at.0, piece.bytes)).collect()
}

#[test]
fn a_sink_keeps_batches_for_the_owner_that_fenced_it_last() {
    each_bucket(|name, bucket, unit| {
        let unit = unit();
        let old = sink(bucket, &unit);
        old.fence(term(3)).wait().unwrap();
        old.fence(term(3)).wait().unwrap();
        assert_eq!(old.append(batch(term(3), 0, 1, 100)).wait(), Ok(Kept::Durable), "{name}");
        assert_eq!(old.append(batch(term(3), 100, 2, 50)).wait(), Ok(Kept::Durable));
        assert_eq!(old.append(batch(term(3), 100, 2, 50)).wait(), Ok(Kept::Durable), "again");
        assert!(matches!(old.append(batch(term(3), 100, 3, 50)).wait(), Err(SinkError::Failed { .. })));
        assert!(matches!(old.append(batch(term(3), 120, 2, 50)).wait(), Err(SinkError::Failed { .. })));
        let new = sink(bucket, &unit);
        for low in [1, 3] {
            let refused = Fenced { term: low, by: 3 };
            let other = Term { number: low, salt: 5 };
            assert_eq!(new.fence(other).wait(), Err(refused.into()), "{name}");
        }
        new.fence(term(4)).wait().unwrap();
        let fenced: SinkError = Fenced { term: 3, by: 4 }.into();
        assert_eq!(old.append(batch(term(3), 150, 3, 10)).wait(), Err(fenced.clone()), "{name}");
        assert_eq!(old.append(batch(term(3), 160, 3, 10)).wait(), Err(fenced), "and from then on");
        assert_eq!(new.append(batch(term(4), 150, 4, 10)).wait(), Ok(Kept::Durable));
        let expected = [(0, vec![1; 100].into()), (100, vec![2; 50].into()), (150, vec![4; 10].into())];
        assert_eq!(pieces(&new, 0), expected, "{name}");
        assert_eq!(pieces(&new, 120)[..], expected[1..]);
        assert_eq!(new.read(Lsn(160)..Lsn::MAX).wait(), Err(SinkError::Missing(Lsn(160))));
    });
}

#[test]
fn a_take_over_ends_while_the_owner_before_writes_as_fast_as_it_can() {
    each_bucket(|name, bucket, unit| {
        let unit = unit();
        let old = sink(bucket, &unit);
        old.fence(term(1)).wait().unwrap();
        let (acknowledged, last) = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let (mut under_way, mut acknowledged) = (std::collections::VecDeque::new(), 0);
                for n in 0.. {
                    under_way.push_back(old.append(batch(term(1), n * 10, 1, 10)));
                    if under_way.len() < 8 {
                        continue;
                    }
                    match under_way.pop_front().unwrap().wait() {
                        Ok(_) => acknowledged += 10,
                        Err(why) => return (acknowledged, why),
                    }
                }
                unreachable!()
            });
            std::thread::sleep(Duration::from_millis(100));
            let new = sink(bucket, &unit);
            new.fence(term(2)).wait().unwrap();
            let (acknowledged, why) = writer.join().unwrap();
            assert_eq!(why, Fenced { term: 1, by: 2 }.into(), "{name}");
            // It goes on, past what stopped the owner before further on.
            let mut last = pieces(&new, 0).last().map_or(0, |(at, _)| at + 10);
            assert!(last >= acknowledged, "{name}: {acknowledged} were acknowledged, and {last} are there");
            for _ in 0..100 {
                assert_eq!(new.append(batch(term(2), last, 2, 10)).wait(), Ok(Kept::Durable), "{name}");
                last += 10;
            }
            (acknowledged, last)
        });
        let next = sink(bucket, &unit);
        next.fence(term(3)).wait().unwrap();
        let mut at = 0;
        while at < last {
            let read = pieces(&next, at);
            assert!(!read.is_empty(), "{name}: the journal ends at {at}, and {last} is its end");
            for (from, bytes) in read {
                assert_eq!(from, at, "{name}: the journal has a hole");
                at += bytes.len() as u64;
            }
        }
        assert!(at == last && acknowledged > 0, "{name}: {acknowledged} acknowledged, {at} of {last} read");
    });
}

#[test]
fn a_cut_takes_what_stands_behind_it_for_every_later_owner() {
    each_bucket(|name, bucket, unit| {
        let unit = unit();
        let old = sink(bucket, &unit);
        old.fence(term(1)).wait().unwrap();
        // A hole at 10: as if its batch were lost.
        for at in [0, 20] {
            old.append(batch(term(1), at, 1, 10)).wait().unwrap();
        }
        let new = sink(bucket, &unit);
        new.fence(term(2)).wait().unwrap();
        new.truncate(Lsn(10), term(2)).wait().unwrap();
        assert_eq!(new.append(batch(term(2), 10, 2, 10)).wait(), Ok(Kept::Durable), "{name}");
        let next = sink(bucket, &unit);
        next.fence(term(3)).wait().unwrap();
        assert_eq!(pieces(&next, 0), [(0, vec![1; 10].into()), (10, vec![2; 10].into())], "{name}");
    });
}

/// The first trap: a number whose object was removed is free again.
#[test]
fn an_owner_that_slept_while_its_successor_trimmed_cannot_append() {
    each_bucket(|name, bucket, unit| {
        let unit = unit();
        let old = sink(bucket, &unit);
        old.fence(term(1)).wait().unwrap();
        old.append(batch(term(1), 0, 1, 10)).wait().unwrap();
        let new = sink(bucket, &unit);
        new.fence(term(2)).wait().unwrap();
        for n in 1..20 {
            new.append(batch(term(2), n * 10, 2, 10)).wait().unwrap();
        }
        new.trim(Lsn(180), Lsn(200));
        new.append(batch(term(2), 200, 2, 10)).wait().unwrap();
        // Objects below the floor go in the background.
        let before = bucket.stats(Kind::Delete).requests;
        for _ in 0..200 {
            if bucket.stats(Kind::Delete).requests > before {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let late = old.append(batch(term(1), 10, 1, 10)).wait();
        assert_eq!(late, Err(Fenced { term: 1, by: 2 }.into()), "{name}");
        let next = sink(bucket, &unit);
        next.fence(term(3)).wait().unwrap();
        assert_eq!(pieces(&next, 180).iter().map(|(at, _)| *at).collect::<Vec<_>>(), [180, 190, 200], "{name}");
        assert_eq!(next.read(Lsn(0)..Lsn(10)).wait(), Err(SinkError::Missing(Lsn(0))), "{name}");
    });
}

/// Takes the journal over, as one that is what its owner needs.
fn own(sink: &ObjectSink, number: u64) {
    sink.fence(term(number)).wait().unwrap();
    sink.accept(term(number)).wait().unwrap();
}

#[test]
fn a_take_over_of_an_idle_unit_reads_little_however_many_there_were() {
    each_bucket(|name, bucket, unit| {
        for batches in [0, 1, 3] {
            let unit = unit();
            let first = sink(bucket, &unit);
            first.fence(term(1)).wait().unwrap();
            for n in 0..batches {
                first.append(batch(term(1), n * 10, 1, 10)).wait().unwrap();
            }
            let kept = if batches > 0 { pieces(&first, 0) } else { Vec::new() };
            for n in 2..60 {
                own(&sink(bucket, &unit), n);
            }
            let last = sink(bucket, &unit);
            let before = bucket.stats(Kind::Get).requests;
            own(&last, 60);
            let reads = bucket.stats(Kind::Get).requests - before;
            // At most 16 fences, what is carried, and as many reads on the way as are sent at the same time.
            assert!(reads < 60, "{name}: {reads} reads for {batches} batches");
            if batches > 0 {
                assert_eq!(pieces(&last, 0), kept, "{name}");
            }
            assert_eq!(last.append(batch(term(60), batches * 10, 60, 10)).wait(), Ok(Kept::Durable), "{name}");
            let next = sink(bucket, &unit);
            next.fence(term(61)).wait().unwrap();
            assert_eq!(pieces(&next, 0).len() as u64, batches + 1, "{name}");
        }
    });
}

#[test]
fn a_journal_lives_in_a_bucket() {
    each_bucket(|name, bucket, unit| {
        let unit = unit();
        let mut frames = Vec::new();
        for term in 1..4u64 {
            let options = Options { salt: term, ..Options::default() };
            let mut replayed = Vec::new();
            let mut replay = |_, payload: Bytes| {
                replayed.push(payload);
                Ok::<(), std::convert::Infallible>(())
            };
            let journal =
                Sequencer::take_over(sink(bucket, &unit), options, Bounds::default(), term, &mut replay).unwrap();
            assert_eq!(replayed, frames, "{name}");
            let journal = Arc::new(journal);
            for n in 0..50u64 {
                let payload = Bytes::from(vec![n as u8; 100 * n as usize]);
                journal.append(Class::User, &[&payload]).unwrap();
                journal.kick();
                frames.push(payload);
            }
            journal.wait(journal.end()).unwrap();
        }
    });
}

#[test]
fn large_objects_go_in_parts_and_one_that_is_given_up_leaves_nothing() {
    each_bucket(|name, bucket, unit| {
        let storage = ObjectStorage::new(bucket.clone(), &unit());
        let mut writer = storage.create(ObjectId(1)).unwrap();
        let piece: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
        for _ in 0..10 {
            writer.write(&piece).unwrap();
        }
        assert_eq!(storage.len(ObjectId(1)), Err(StorageError::Missing(ObjectId(1))), "{name}");
        drop(writer);
        assert_eq!(storage.list(), Ok(vec![]), "{name}");
        let put = bucket.stats(Kind::Put).bytes;
        assert!(put >= 24 << 20, "{name}: parts were sent while it was written: {put} bytes");
    });
}

#[test]
fn a_bucket_that_does_not_exist_and_keys_that_are_refused_are_told_apart() {
    for location in real_locations() {
        let ask = |location: String| {
            let bucket = Bucket::open(&location.parse().unwrap(), BucketOptions::default()).unwrap();
            let began = std::time::Instant::now();
            let error = bucket.check().unwrap_err();
            assert!(began.elapsed() < Duration::from_secs(5), "it is not tried again: {error}");
            error
        };
        let missing = ask(location.replacen("s3://", "s3://no-such-", 1));
        assert!(matches!(missing, BucketError::NoBucket { .. }), "{missing}");
        // moto believes every key.
        if std::env::var("THALWEG_TEST_CHECKS_KEYS").is_ok() {
            let denied = ask(location.replace("secret_access_key=", "secret_access_key=not-"));
            assert!(matches!(denied, BucketError::Denied { .. }), "{denied}");
        }
    }
}

#[test]
fn a_bucket_that_is_away_is_an_error_within_the_deadline() {
    // Nobody listens there.
    let location = "s3://data/x?endpoint=http://127.0.0.1:9&access_key_id=a&secret_access_key=b&region=us-east-1";
    let options = BucketOptions { deadline: Duration::from_millis(400), ..BucketOptions::default() };
    let bucket = Bucket::open(&location.parse().unwrap(), options).unwrap();
    let error = bucket.check().unwrap_err();
    assert!(matches!(error, BucketError::NoAnswer { .. }), "{error}");
    assert!(error.to_string().starts_with("the bucket s3://data/x did not answer listing"), "{error}");
    assert!(bucket.stats(Kind::List).failures >= 2, "it was tried again");
    let sink = sink(&bucket, "u");
    assert!(matches!(sink.fence(term(1)).wait(), Err(SinkError::Failed { .. })));
    let manifest = ObjectManifest::new(bucket, "u", 1);
    assert!(matches!(manifest.acquire(0), Err(ManifestError::Io { .. })));
}

#[test]
fn a_hurried_request_ends_although_nobody_answers() {
    // Connections are taken by the system, and nobody reads them.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let location = format!(
        "s3://data/x?endpoint=http://{}&access_key_id=a&secret_access_key=b&region=us-east-1",
        silent.local_addr().unwrap()
    );
    let bucket = Bucket::open(&location.parse().unwrap(), BucketOptions::default()).unwrap();
    let hurried = bucket.hurried(Duration::from_millis(100), Duration::from_millis(300));
    let began = std::time::Instant::now();
    let error = hurried.read("n/one").unwrap_err();
    assert!(error.to_string().contains("no answer within 100 ms"), "{error}");
    assert!(began.elapsed() < BucketOptions::default().timeout, "{:?}", began.elapsed());
    assert!(bucket.stats(Kind::Get).failures >= 2, "its attempts are counted with those of the bucket");
}

#[test]
fn a_bucket_that_is_away_is_no_damage_of_a_journal() {
    let simulated = SimulatedBucket::new(1, 0, 0, 0);
    let bucket = Bucket::simulated(&simulated, BucketOptions::default(), 1);
    let sink = ObjectSink::new(bucket.clone(), "unit", SinkOptions::default());
    let term = Term { number: 1, salt: 7 };
    sink.fence(term).wait().unwrap();
    let appended = sink.append(SinkBatch { at: Lsn(0), term, bytes: Bytes::from_static(b"batch") });
    while bucket.turn() {}
    assert_eq!(appended.take().ok(), Some(Ok(Kept::Durable)));
    simulated.lose(100);
    let away = sink.read(Lsn(0)..Lsn(5)).wait();
    assert!(matches!(away, Err(SinkError::Failed { .. })), "it may be whole: {away:?}");
    simulated.lose(0);
    assert_eq!(sink.read(Lsn(0)..Lsn(5)).wait().unwrap().len(), 1);
}

//! How much is read, and in how many turns.

use super::*;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use thalweg_base::Ticket;
use thalweg_container::{Need, SharedCache};
use thalweg_storage::{ObjectWriter, StorageError};

/// Numbers as keys, with content that does not compress.
fn large() -> (Arc<dyn Storage>, Object) {
    let storage = memory();
    let mut out = builder(&storage, 1, Options::default());
    let mut noise = 1u64;
    for n in 0..300_000u64 {
        let mut value = Vec::new();
        for _ in 0..4 {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            value.extend_from_slice(&noise.to_be_bytes());
        }
        out.push(&Entry { key: &(n * 2).to_be_bytes(), kind: Kind::Value, value: &value }).unwrap();
    }
    (storage, out.finish().unwrap().object)
}

fn turns(storage: &Arc<dyn Storage>, cache: &dyn BlockCache, object: Object, key: u64) -> (Vec<u64>, Option<Found>) {
    let mut lookup = Lookup::<Pairs>::exact(object, &key.to_be_bytes());
    let (mut turns, mut fed) = (Vec::new(), None);
    loop {
        match lookup.step(cache, fed.take()).unwrap() {
            Need::Done(found) => return (turns, found),
            Need::Range(range) => {
                turns.push(range.end - range.start);
                fed = Some(storage.read(object.id, range).wait().unwrap());
            }
        }
    }
}

#[test]
fn a_cold_lookup_takes_three_reads_and_little_of_the_object() {
    let (storage, object) = large();
    for object in [object, Object::new(object.id, object.bytes)] {
        for key in [0, 1234, 299_998, 599_998] {
            let (turns, found) = turns(&storage, &NoCache, object, key);
            assert!(found.is_some());
            assert_eq!(turns.len(), 3, "{turns:?}");
            assert!(turns.iter().sum::<u64>() < 120 << 10, "{turns:?} of {}", object.bytes);
        }
    }
    assert!(object.tail_bytes < 2 << 10, "the resident part is small: {} of {}", object.tail_bytes, object.bytes);
}

#[test]
fn a_warm_lookup_reads_nothing() {
    let (storage, object) = large();
    let cache = SharedCache::new(4 << 20);
    assert_eq!(turns(&storage, &cache, object, 1000).0.len(), 3);
    let (turns, found) = turns(&storage, &cache, object, 1000);
    assert_eq!((turns, found.is_some()), (vec![], true));
}

/// Notes the longest read.
struct Longest(Arc<dyn Storage>, AtomicU64);

impl Storage for Longest {
    fn create(&self, object: ObjectId) -> Result<Box<dyn ObjectWriter>, StorageError> {
        self.0.create(object)
    }

    fn try_read(&self, object: ObjectId, range: Range<u64>) -> Option<Result<Bytes, StorageError>> {
        self.0.try_read(object, range)
    }

    fn read(&self, object: ObjectId, range: Range<u64>) -> Ticket<Result<Bytes, StorageError>> {
        self.1.fetch_max(range.end - range.start, Ordering::Relaxed);
        self.0.read(object, range)
    }

    fn len(&self, object: ObjectId) -> Result<u64, StorageError> {
        self.0.len(object)
    }

    fn remove(&self, object: ObjectId) -> Result<(), StorageError> {
        self.0.remove(object)
    }

    fn list(&self) -> Result<Vec<ObjectId>, StorageError> {
        self.0.list()
    }
}

#[test]
fn a_scan_reads_a_megabyte_at_a_time_however_long_the_object_is() {
    let (storage, object) = large();
    assert!(object.bytes > 8 << 20);
    let longest = Arc::new(Longest(storage, AtomicU64::new(0)));
    let storage: Arc<dyn Storage> = Arc::clone(&longest) as _;
    let mut scan = Scan::<Pairs>::open(&storage, object).unwrap();
    let mut entries = 0;
    while scan.advance().unwrap() {
        entries += 1;
    }
    assert_eq!(entries, 300_000);
    let read = longest.1.load(Ordering::Relaxed);
    assert!((100 << 10..=1 << 20).contains(&read), "{read}");
}

#[test]
fn a_prefix_that_is_not_there_costs_no_data_block() {
    let storage = memory();
    let model: Model = (0..200u8).map(|n| (vec![n, 2, 3], (Kind::Value, vec![n; 500]))).collect();
    let object = write(&storage, 1, Options::default(), &model).object;
    let denied = (0..200u8).filter(|n| {
        let mut lookup = Lookup::<Pairs>::exact(object, &[*n, 1, 3]);
        let mut steps = 0;
        let found = wait(&storage, object, |fed| lookup.step(&NoCache, fed).inspect(|_| steps += 1)).unwrap();
        assert_eq!(found, None);
        steps == 3
    });
    assert!(denied.count() > 180, "the filter denies nearly all");
}

#[test]
fn a_reader_that_is_fed_wrongly_says_so() {
    let (storage, object) = large();
    let mut lookup = Lookup::<Pairs>::exact(object, &[0; 8]);
    let Need::Range(range) = lookup.step(&NoCache, None).unwrap() else { panic!("it wants the tail") };
    assert_eq!(lookup.step(&NoCache, None), Ok(Need::Range(range.clone())), "asking again changes nothing");
    let short = storage.read(object.id, range.start..range.end - 1).wait().unwrap();
    assert!(matches!(lookup.step(&NoCache, Some(short)), Err(ContainerError::Corrupt { .. })));
}

//! The promises of every storage, as questions to one that is empty. For the tests of every backend.
#![allow(clippy::unwrap_used, reason = "a test that fails should say where")]

use crate::{Storage, StorageError};
use bytes::Bytes;
use thalweg_base::ObjectId;

/// A question: the backend's name, the backend, and whether reads of it may have to wait even for an error.
pub type Question = fn(&str, &dyn Storage, bool);

/// All questions, by the promise that each asks for. Each wants an empty storage.
pub const QUESTIONS: &[(&str, Question)] = &[
    ("what_was_written_is_what_is_read", what_was_written_is_what_is_read),
    ("what_the_device_has_is_what_was_written", what_the_device_has_is_what_was_written),
    ("many_small_writes_are_one_object", many_small_writes_are_one_object),
    ("an_object_does_not_exist_before_it_is_finished", an_object_does_not_exist_before_it_is_finished),
    ("an_unfinished_object_leaves_no_trace", an_unfinished_object_leaves_no_trace),
    ("an_object_is_written_once", an_object_is_written_once),
    ("a_range_outside_is_refused", a_range_outside_is_refused),
    (
        "a_removed_object_is_missing_and_removing_it_again_is_no_error",
        a_removed_object_is_missing_and_removing_it_again_is_no_error,
    ),
    ("objects_are_listed_in_order_of_id", objects_are_listed_in_order_of_id),
];

/// Whether a read that does not wait gives `error`. A storage that is far away may have to wait even for an error.
fn tells(waits: bool, read: Option<Result<Bytes, StorageError>>, error: &StorageError) -> bool {
    read.map_or(waits, |read| read.as_ref() == Err(error))
}

fn put(storage: &dyn Storage, id: u64, pieces: &[&[u8]]) -> Result<u64, StorageError> {
    let mut writer = storage.create(ObjectId(id))?;
    for piece in pieces {
        writer.write(piece)?;
    }
    writer.finish()
}

fn what_was_written_is_what_is_read(name: &str, storage: &dyn Storage, _: bool) {
    let large: Vec<u8> = (0..20_000_000u32).map(|n| (n % 251) as u8).collect();
    let id = ObjectId(7);
    assert_eq!(put(storage, 7, &[b"head", &large, b"tail"]), Ok(20_000_008), "{name}");
    assert_eq!(storage.len(id), Ok(20_000_008));
    assert_eq!(storage.read(id, 0..6).wait().unwrap(), &b"head\0\x01"[..]);
    assert_eq!(storage.read(id, 4..20_000_004).wait().unwrap(), large);
    assert_eq!(storage.read(id, 20_000_004..20_000_008).wait().unwrap(), &b"tail"[..]);
    // It may always have to wait; if it answers, then rightly.
    assert!(storage.try_read(id, 1..3).is_none_or(|read| read.unwrap() == b"ea"[..]), "{name}");
    assert!(storage.read(id, 5..5).wait().unwrap().is_empty());
}

fn what_the_device_has_is_what_was_written(name: &str, storage: &dyn Storage, _: bool) {
    put(storage, 7, &[b"head", b"tail"]).unwrap();
    assert_eq!(storage.len_device(ObjectId(7)), Ok(8), "{name}");
    assert_eq!(storage.read_device(ObjectId(7), 2..6).unwrap(), &b"adta"[..], "{name}");
}

fn many_small_writes_are_one_object(name: &str, storage: &dyn Storage, _: bool) {
    let mut writer = storage.create(ObjectId(1)).unwrap();
    for n in 0..100_000u32 {
        writer.write(&n.to_le_bytes()).unwrap();
    }
    assert_eq!(writer.written(), 400_000, "{name}");
    assert_eq!(writer.finish(), Ok(400_000));
    let bytes = storage.read(ObjectId(1), 0..400_000).wait().unwrap();
    assert!(bytes.chunks(4).enumerate().all(|(n, four)| four == (n as u32).to_le_bytes()));
}

fn an_object_does_not_exist_before_it_is_finished(name: &str, storage: &dyn Storage, waits: bool) {
    let mut writer = storage.create(ObjectId(1)).unwrap();
    writer.write(b"abc").unwrap();
    let missing = StorageError::Missing(ObjectId(1));
    assert_eq!(storage.len(ObjectId(1)), Err(missing.clone()), "{name}");
    assert!(tells(waits, storage.try_read(ObjectId(1), 0..1), &missing), "{name}");
    assert_eq!(storage.read(ObjectId(1), 0..1).wait(), Err(missing));
    assert_eq!(storage.list(), Ok(vec![]));
    writer.finish().unwrap();
    assert_eq!(storage.list(), Ok(vec![ObjectId(1)]));
}

fn an_unfinished_object_leaves_no_trace(name: &str, storage: &dyn Storage, _: bool) {
    let mut writer = storage.create(ObjectId(1)).unwrap();
    writer.write(b"abc").unwrap();
    drop(writer);
    assert_eq!(storage.list(), Ok(vec![]), "{name}");
    assert_eq!(put(storage, 1, &[b"again"]), Ok(5));
}

fn an_object_is_written_once(name: &str, storage: &dyn Storage, _: bool) {
    let exists = StorageError::Exists(ObjectId(1));
    let writer = storage.create(ObjectId(1)).unwrap();
    assert_eq!(storage.create(ObjectId(1)).err(), Some(exists.clone()), "{name}");
    writer.finish().unwrap();
    assert_eq!(storage.create(ObjectId(1)).err(), Some(exists));
    assert_eq!(storage.len(ObjectId(1)), Ok(0));
}

fn a_range_outside_is_refused(name: &str, storage: &dyn Storage, _: bool) {
    put(storage, 1, &[b"abc"]).unwrap();
    #[expect(clippy::reversed_empty_ranges, reason = "a reversed range is one of the questions")]
    for range in [2..4, 4..5, 3..2, u64::MAX..u64::MAX] {
        let refused = StorageError::Range { object: ObjectId(1), start: range.start, end: range.end, len: 3 };
        assert_eq!(storage.read(ObjectId(1), range.clone()).wait(), Err(refused), "{name}");
    }
}

fn a_removed_object_is_missing_and_removing_it_again_is_no_error(name: &str, storage: &dyn Storage, waits: bool) {
    put(storage, 1, &[b"abc"]).unwrap();
    put(storage, 2, &[b"def"]).unwrap();
    assert_eq!(storage.len(ObjectId(1)), Ok(3));
    storage.remove(ObjectId(1)).unwrap();
    storage.remove(ObjectId(1)).unwrap();
    let missing = StorageError::Missing(ObjectId(1));
    assert!(tells(waits, storage.try_read(ObjectId(1), 0..1), &missing), "{name}");
    assert_eq!(storage.read(ObjectId(1), 0..1).wait(), Err(missing.clone()), "{name}");
    assert_eq!(storage.len(ObjectId(1)), Err(missing), "{name}");
    assert_eq!(storage.list(), Ok(vec![ObjectId(2)]));
}

fn objects_are_listed_in_order_of_id(name: &str, storage: &dyn Storage, _: bool) {
    for id in [300, 2, u64::MAX, 17] {
        put(storage, id, &[b"x"]).unwrap();
    }
    assert_eq!(storage.list(), Ok([2, 17, 300, u64::MAX].map(ObjectId).to_vec()), "{name}");
}

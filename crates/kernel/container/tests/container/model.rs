//! Every written entry is found: by key, from a key on, in both directions.

use super::*;
use proptest::prelude::*;
use thalweg_container::{SharedCache, verify};

fn key() -> impl Strategy<Value = Vec<u8>> {
    let short = prop::collection::vec(0..4u8, 0..6);
    prop_oneof![short.clone(), short.prop_map(|short| [&short[..], &[7; 300]].concat())]
}

fn kind() -> impl Strategy<Value = Kind> {
    prop::sample::select(vec![Kind::Value, Kind::Tombstone, Kind::Operand])
}

pub(super) fn model() -> impl Strategy<Value = Model> {
    let value = prop::collection::vec(any::<u8>(), 0..40);
    prop::collection::btree_map(key(), (kind(), value), 0..200)
}

pub(super) fn options() -> impl Strategy<Value = Options> {
    let compression = prop::sample::select(vec![Compression::None, Compression::Lz4, Compression::Zstd]);
    let block_bytes = prop::sample::select(vec![1, 100, 1000, 1 << 20]);
    (block_bytes, compression, any::<[bool; 2]>()).prop_map(|(block_bytes, compression, has)| Options {
        block_bytes,
        compression,
        has_content: has[0],
        has_one_partition: has[1],
    })
}

/// An entry of the model.
type Row<'a> = (&'a Vec<u8>, &'a (Kind, Vec<u8>));

fn same(found: Option<Found>, expected: Option<Row<'_>>) -> Result<(), TestCaseError> {
    let found = found.map(|found| (found.key, found.kind, found.value.to_vec()));
    prop_assert_eq!(found, expected.map(|(key, (kind, value))| (key.clone(), *kind, value.clone())));
    Ok(())
}

proptest! {
    #[test]
    fn what_was_written_is_read_back(model in model(), options in options()) {
        let storage = memory();
        let written = write(&storage, 1, options, &model);
        prop_assert_eq!(storage.len(ObjectId(1)), Ok(written.object.bytes));
        prop_assert_eq!(scan(&storage, written.object), Ok(model.clone()));
        prop_assert_eq!(verify::<Pairs>(&storage, written.object), Ok(written.clone()));
        let guessed = Object::find(&storage, ObjectId(1)).unwrap();
        prop_assert_eq!(scan(&storage, guessed), Ok(model.clone()));
        prop_assert_eq!(written.stats.entries(), model.len() as u64);
        let of = |kind| model.values().filter(|(of, _)| *of == kind).count() as u64;
        prop_assert_eq!(written.stats.entries_of(Kind::Tombstone), of(Kind::Tombstone));
        let measures = model.values().filter_map(|(_, value)| value.first().map(|byte| u64::from(*byte)));
        prop_assert_eq!(written.stats.measures, measures.clone().min().zip(measures.max()));
        prop_assert_eq!(written.stats.first, model.keys().next().cloned().unwrap_or_default());
        prop_assert_eq!(written.stats.last, model.keys().last().cloned().unwrap_or_default());
    }

    #[test]
    fn a_lookup_finds_what_the_model_has(
        model in model(), options in options(), keys in prop::collection::vec(key(), 1..20), cached: bool,
    ) {
        let storage = memory();
        let object = write(&storage, 1, options, &model).object;
        let cache = SharedCache::new(if cached { 1 << 20 } else { 0 });
        for key in keys.iter().chain(model.keys()) {
            same(look_up(&storage, &cache, object, Lookup::exact(object, key)).unwrap(), model.get_key_value(key))?;
            let next = model.range(key.clone()..).next().filter(|(next, _)| Pairs::prefix(next) == Pairs::prefix(key));
            same(look_up(&storage, &cache, object, Lookup::at_or_after(object, key)).unwrap(), next)?;
        }
    }

    #[test]
    fn a_cursor_goes_where_the_model_goes(
        model in model(), options in options(), moves in prop::collection::vec((0..5u8, key()), 1..60), cached: bool,
    ) {
        let storage = memory();
        let object = write(&storage, 1, options, &model).object;
        let cache = SharedCache::new(if cached { 1 << 20 } else { 0 });
        let mut cursor = Cursor::new(object, Pairs::ID);
        let mut at: Option<Vec<u8>> = None;
        for (way, key) in moves {
            let expected = match way {
                0 => { cursor.seek(&key); model.range(key..).next() }
                1 => { cursor.seek_first(); model.iter().next() }
                2 => { cursor.seek_last(); model.iter().next_back() }
                3 => {
                    cursor.next();
                    at.as_ref().and_then(|at| model.range(at.clone()..).nth(1))
                }
                _ => {
                    cursor.previous();
                    at.as_ref().and_then(|at| model.range(..at.clone()).next_back())
                }
            };
            prop_assert_eq!(wait(&storage, object, |fed| cursor.step(&cache, fed)), Ok(expected.is_some()));
            same(cursor.found(), expected)?;
            at = expected.map(|(key, _)| key.clone());
        }
    }

    #[test]
    fn both_directions_meet_all_entries(model in model(), options in options()) {
        let storage = memory();
        let object = write(&storage, 1, options, &model).object;
        let mut cursor = Cursor::new(object, Pairs::ID);
        for is_backward in [false, true] {
            let mut keys = Vec::new();
            if is_backward { cursor.seek_last() } else { cursor.seek_first() }
            while wait(&storage, object, |fed| cursor.step(&NoCache, fed)).unwrap() {
                keys.push(cursor.entry().unwrap().key.to_vec());
                if is_backward { cursor.previous() } else { cursor.next() }
            }
            if is_backward { keys.reverse() }
            prop_assert!(keys.iter().eq(model.keys()));
        }
    }
}

#[test]
fn a_cache_stays_within_its_bound_and_forgets_an_object() {
    let storage = memory();
    let model: Model = (0..5000u32).map(|n| (n.to_be_bytes().to_vec(), (Kind::Value, vec![1; 100]))).collect();
    let options = Options { compression: Compression::None, ..Options::default() };
    let object = write(&storage, 1, options, &model).object;
    let cache = SharedCache::new(100 << 10);
    for key in model.keys() {
        look_up(&storage, &cache, object, Lookup::exact(object, key)).unwrap().unwrap();
        assert!(cache.bytes() <= 100 << 10);
    }
    assert!(cache.bytes() > 50 << 10);
    cache.forget(ObjectId(1));
    assert_eq!(cache.bytes(), 0);
}

#[test]
fn keys_out_of_order_and_over_their_bound_are_refused() {
    let storage = memory();
    let mut out = builder(&storage, 1, Options { block_bytes: 1, ..Options::default() });
    let entry = |key| Entry { key, kind: Kind::Value, value: b"" };
    out.push(&entry(b"b")).unwrap();
    for key in [&b"b"[..], b"a", b""] {
        let (before, key_said) = ("b".to_string(), key.escape_ascii().to_string());
        assert_eq!(out.push(&entry(key)), Err(ContainerError::Order { before, key: key_said }));
    }
    let long = vec![b'c'; thalweg_container::KEY_BYTES_MAX + 1];
    assert!(matches!(out.push(&entry(&long)), Err(ContainerError::TooLarge { .. })));
    out.push(&entry(&long[1..])).unwrap();
    let object = out.finish().unwrap().object;
    assert_eq!(scan(&storage, object).unwrap().len(), 2);
}

//! Merges keep the entries that their rule keeps, and no others.

use super::model::model;
use super::*;
use proptest::prelude::*;
use thalweg_container::{Merge, NewestWins, Rule, Versions, ordered, write_merged};

const OPTIONS: Options =
    Options { block_bytes: 100, compression: Compression::Lz4, has_content: false, has_one_partition: false };

/// Writes each input as a container, merges them, writes the rest as containers cut at `cut` bytes, and reads these.
fn merged(inputs: &[Model], rule: impl Rule, cut: u64) -> Result<Vec<Model>, ContainerError> {
    let storage = memory();
    let objects: Vec<_> =
        inputs.iter().zip(1..).map(|(input, id)| write(&storage, id, OPTIONS, input).object).collect();
    let scans = objects.iter().map(|object| Scan::<Pairs>::open(&storage, *object).unwrap());
    let mut ids = 100..;
    let begin = || Ok(builder(&storage, ids.next().unwrap(), OPTIONS));
    let written = write_merged(&mut Merge::new(scans, rule)?, cut, begin)?;
    written.iter().map(|written| scan(&storage, written.object)).collect()
}

fn joined(models: Vec<Model>) -> Model {
    let last = models.iter().flat_map(Model::keys).collect::<Vec<_>>();
    assert!(last.is_sorted(), "containers follow each other");
    models.into_iter().flatten().collect()
}

/// A key of some, with its version.
fn version(key: u8, version: u64) -> Vec<u8> {
    let mut out = Vec::new();
    ordered::put_bytes(&mut out, &[key]);
    ordered::put_u64_descending(&mut out, version);
    out
}

fn history() -> impl Strategy<Value = BTreeMap<(u8, u64), Kind>> {
    let kind = prop::sample::select(vec![Kind::Value, Kind::Tombstone, Kind::Operand]);
    prop::collection::btree_map((0..4u8, 0..12u64), kind, 0..40)
}

/// The entries that a reader at `at` needs to see a key: entries at or before, newest first, down to one that hides the
/// rest.
fn seen(history: &BTreeMap<(u8, u64), Kind>, key: u8, at: u64) -> Vec<(u64, Kind)> {
    let mut seen = Vec::new();
    for ((_, version), kind) in history.range((key, 0)..=(key, at)).rev() {
        seen.push((*version, *kind));
        if *kind != Kind::Operand {
            break;
        }
    }
    // A tombstone without older entries equals no entries.
    if seen.last().is_some_and(|(_, kind)| *kind == Kind::Tombstone) {
        seen.pop();
    }
    seen
}

proptest! {
    #[test]
    fn of_several_entries_the_newest_counts(inputs in prop::collection::vec(model(), 0..5), drops: bool, cut in 1..3000u64) {
        let mut expected = Model::new();
        inputs.iter().for_each(|input| expected.extend(input.clone()));
        if drops {
            expected.retain(|_, (kind, _)| *kind != Kind::Tombstone);
        }
        prop_assert_eq!(joined(merged(&inputs, NewestWins::new(drops), cut).unwrap()), expected);
    }

    /// Images are values and deltas operands: the same rule merges both.
    #[test]
    fn every_version_that_may_be_read_is_kept(
        history in history(), of in prop::collection::vec(0..3usize, 48), lowest in 0..13u64, drops: bool, cut in 1..500u64,
    ) {
        let mut inputs = vec![Model::new(), Model::new(), Model::new()];
        for ((key, at), kind) in &history {
            inputs[of[usize::from(*key) * 12 + *at as usize]].insert(version(*key, *at), (*kind, vec![*key, *at as u8]));
        }
        let containers = merged(&inputs, Versions::new(lowest, drops), cut).unwrap();
        for (n, container) in containers.iter().enumerate() {
            let users = |model: &Model| model.keys().map(|key| key[..key.len() - 8].to_vec()).collect::<Vec<_>>();
            let other = containers.iter().skip(n + 1).flat_map(users).collect::<Vec<_>>();
            prop_assert!(users(container).iter().all(|key| !other.contains(key)), "a key is in one container");
        }
        let left = joined(containers);
        let left: BTreeMap<_, _> = left.values().map(|(kind, at)| ((at[0], u64::from(at[1])), *kind)).collect();
        for key in 0..4 {
            for at in lowest..13 {
                prop_assert_eq!(seen(&left, key, at), seen(&history, key, at), "key {} at {}", key, at);
            }
            // Entries that no reader sees are left out, except tombstones that may hide entries of other containers.
            let needed: Vec<_> = (lowest..13).flat_map(|at| seen(&history, key, at)).collect();
            let kept = left.range((key, 0)..=(key, lowest)).filter(|(_, kind)| drops || **kind != Kind::Tombstone);
            for ((_, at), kind) in kept {
                prop_assert!(needed.contains(&(*at, *kind)), "key {} keeps {}", key, at);
            }
        }
    }
}

#[test]
fn the_same_version_twice_is_kept_once_from_the_newest_source() {
    let of = |value: u8| Model::from([(version(1, 5), (Kind::Operand, vec![value]))]);
    let left = joined(merged(&[of(1), of(2)], Versions::new(0, false), 1000).unwrap());
    assert_eq!(left, of(2));
}

#[test]
fn output_is_cut_at_a_size() {
    let input: Model = (0..1000u32).map(|n| (n.to_be_bytes().to_vec(), (Kind::Value, vec![n as u8; 100]))).collect();
    let parts = merged(std::slice::from_ref(&input), NewestWins::new(true), 10_000).unwrap();
    let lens: Vec<_> = parts.iter().map(Model::len).collect();
    assert!(lens.len() > 2 && lens.windows(2).all(|two| two[1] <= two[0] + 10), "{lens:?}");
    assert_eq!(joined(parts), input);
}

#[test]
fn an_empty_merge_writes_nothing() {
    let gone = Model::from([(vec![1], (Kind::Tombstone, vec![]))]);
    assert_eq!(merged(&[gone], NewestWins::new(true), 10), Ok(vec![]));
    assert_eq!(merged(&[], NewestWins::new(true), 10), Ok(vec![]));
}

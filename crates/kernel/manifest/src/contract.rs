//! The promises of every manifest, as questions to one without a root. For the tests of every backend.
#![allow(clippy::unwrap_used, reason = "a test that fails should say where")]

use crate::{Manifest, ManifestError, Root};
use std::sync::Arc;

/// A question: the backend's name, and the backend.
pub type Question = fn(&str, &Arc<dyn Manifest>);

/// All questions, by the promise that each asks for. Each wants a manifest without a root.
pub const QUESTIONS: &[(&str, Question)] = &[
    ("an_owner_acquires_what_is_there", an_owner_acquires_what_is_there),
    (
        "a_commit_replaces_the_root_and_its_version_grows_by_one",
        a_commit_replaces_the_root_and_its_version_grows_by_one,
    ),
    (
        "a_commit_on_another_version_is_a_conflict_and_changes_nothing",
        a_commit_on_another_version_is_a_conflict_and_changes_nothing,
    ),
    ("of_two_writers_at_one_version_one_wins", of_two_writers_at_one_version_one_wins),
    (
        "of_those_who_acquire_at_once_each_gets_an_epoch_of_its_own_and_the_last_one_commits",
        of_those_who_acquire_at_once_each_gets_an_epoch_of_its_own_and_the_last_one_commits,
    ),
    (
        "a_deposed_owner_cannot_commit_whatever_version_it_expects",
        a_deposed_owner_cannot_commit_whatever_version_it_expects,
    ),
];

fn root(version: u64, epoch: u64, body: &'static [u8]) -> Root {
    Root { version, epoch, body: body.into() }
}

fn an_owner_acquires_what_is_there(name: &str, manifest: &Arc<dyn Manifest>) {
    assert_eq!((manifest.read(), manifest.load()), (Ok(None), Ok(None)), "{name}");
    assert_eq!(manifest.acquire(0), Ok(root(1, 1, b"")), "{name}");
    assert_eq!(manifest.load(), Ok(Some(root(1, 1, b""))));
    assert_eq!(manifest.commit(1, 1, b"first"), Ok(2));
    assert_eq!(manifest.load(), Ok(Some(root(2, 1, b"first"))));
    assert_eq!(manifest.acquire(0), Ok(root(3, 2, b"first")), "{name}");
    assert_eq!(manifest.acquire(9), Ok(root(4, 10, b"first")), "above what is known to have been given out");
    assert_eq!(manifest.load(), Ok(Some(root(4, 10, b"first"))));
}

fn a_commit_replaces_the_root_and_its_version_grows_by_one(name: &str, manifest: &Arc<dyn Manifest>) {
    manifest.acquire(0).unwrap();
    for version in 1..20 {
        assert_eq!(manifest.commit(1, version, b"body"), Ok(version + 1), "{name}");
    }
    assert_eq!(manifest.commit(1, 20, b""), Ok(21));
    assert_eq!(manifest.load(), Ok(Some(root(21, 1, b""))));
}

fn a_commit_on_another_version_is_a_conflict_and_changes_nothing(name: &str, manifest: &Arc<dyn Manifest>) {
    manifest.acquire(0).unwrap();
    for expected in [0, 2, u64::MAX] {
        let conflict = ManifestError::Conflict { expected, found: 1 };
        assert_eq!(manifest.commit(1, expected, b"other"), Err(conflict), "{name}");
    }
    assert_eq!(manifest.load(), Ok(Some(root(1, 1, b""))));
}

fn of_two_writers_at_one_version_one_wins(name: &str, manifest: &Arc<dyn Manifest>) {
    manifest.acquire(0).unwrap();
    let race = |body: &'static [u8]| {
        let manifest = Arc::clone(manifest);
        std::thread::spawn(move || manifest.commit(1, 1, body))
    };
    let racers = [race(b"a"), race(b"b"), race(b"c"), race(b"d")];
    let won = racers.into_iter().map(|racer| racer.join().unwrap()).filter(Result::is_ok).count();
    assert_eq!(won, 1, "{name}");
}

fn of_those_who_acquire_at_once_each_gets_an_epoch_of_its_own_and_the_last_one_commits(
    name: &str,
    manifest: &Arc<dyn Manifest>,
) {
    let acquire = || {
        let manifest = Arc::clone(manifest);
        std::thread::spawn(move || manifest.acquire(0).unwrap())
    };
    let mut acquired: Vec<Root> = [acquire(), acquire(), acquire()].map(|one| one.join().unwrap()).into();
    acquired.sort_unstable_by_key(|root| root.epoch);
    assert_eq!(acquired.iter().map(|root| root.epoch).collect::<Vec<_>>(), [1, 2, 3], "{name}");
    let commits = acquired.iter().map(|root| manifest.commit(root.epoch, root.version, b"body"));
    let fenced = |epoch| Err(ManifestError::Fenced { epoch, found: 3 });
    assert_eq!(commits.collect::<Vec<_>>(), [fenced(1), fenced(2), Ok(4)], "{name}");
}

fn a_deposed_owner_cannot_commit_whatever_version_it_expects(name: &str, manifest: &Arc<dyn Manifest>) {
    manifest.acquire(0).unwrap();
    manifest.commit(1, 1, b"old").unwrap();
    manifest.acquire(0).unwrap();
    for expected in 0..5 {
        let fenced = ManifestError::Fenced { epoch: 1, found: 2 };
        assert_eq!(manifest.commit(1, expected, b"old"), Err(fenced), "{name}");
    }
    assert_eq!(manifest.commit(2, 3, b"new"), Ok(4));
    assert_eq!(manifest.commit(3, 4, b"never"), Err(ManifestError::Fenced { epoch: 3, found: 2 }), "{name}");
    assert_eq!(manifest.load(), Ok(Some(root(4, 2, b"new"))));
}

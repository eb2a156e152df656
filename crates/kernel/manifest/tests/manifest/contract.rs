//! What every manifest promises, asked of each backend.

use std::sync::Arc;
use thalweg_disk::Disk;
use thalweg_manifest::{FileManifest, Manifest, ManifestError, MemoryManifest, Root};
use thalweg_sim::SimDisk;

fn backends() -> Vec<(&'static str, Arc<dyn Manifest>)> {
    let file = FileManifest::open(Arc::new(SimDisk::new(1)), "MANIFEST").unwrap();
    vec![("memory", Arc::new(MemoryManifest::new())), ("file", Arc::new(file))]
}

fn root(version: u64, body: &'static [u8]) -> Option<Root> {
    Some(Root { version, body: body.into() })
}

#[test]
fn there_is_no_root_before_the_first_commit() {
    for (name, manifest) in backends() {
        assert_eq!(manifest.load(), Ok(None), "{name}");
        assert_eq!(manifest.commit(0, b"first"), Ok(1));
        assert_eq!(manifest.load(), Ok(root(1, b"first")));
    }
}

#[test]
fn a_commit_replaces_the_root_and_its_version_grows_by_one() {
    for (name, manifest) in backends() {
        for version in 0..20 {
            assert_eq!(manifest.commit(version, b"body"), Ok(version + 1), "{name}");
        }
        assert_eq!(manifest.commit(20, b""), Ok(21));
        assert_eq!(manifest.load(), Ok(root(21, b"")));
    }
}

#[test]
fn a_commit_on_another_version_is_a_conflict_and_changes_nothing() {
    for (name, manifest) in backends() {
        manifest.commit(0, b"first").unwrap();
        for expected in [0, 2, u64::MAX] {
            let conflict = ManifestError::Conflict { expected, found: 1 };
            assert_eq!(manifest.commit(expected, b"other"), Err(conflict), "{name}");
        }
        assert_eq!(manifest.load(), Ok(root(1, b"first")));
    }
}

#[test]
fn of_two_writers_at_one_version_one_wins() {
    for (name, manifest) in backends() {
        let race = |body: &'static [u8]| {
            let manifest = Arc::clone(&manifest);
            std::thread::spawn(move || manifest.commit(0, body))
        };
        let racers = [race(b"a"), race(b"b"), race(b"c"), race(b"d")];
        let won = racers.into_iter().map(|racer| racer.join().unwrap()).filter(Result::is_ok).count();
        assert_eq!(won, 1, "{name}");
    }
}

#[test]
fn another_process_that_changed_the_file_is_noticed() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
    let one = FileManifest::open(Arc::clone(&disk), "meta/MANIFEST").unwrap();
    let two = FileManifest::open(Arc::clone(&disk), "meta/MANIFEST").unwrap();
    one.commit(0, b"one").unwrap();
    assert_eq!(two.commit(0, b"two"), Err(ManifestError::Conflict { expected: 0, found: 1 }));
    assert_eq!(two.load(), Ok(root(1, b"one")));
}

#[test]
fn an_owner_of_an_older_epoch_cannot_commit() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
    let old = FileManifest::open_as(Arc::clone(&disk), "MANIFEST", 1, 7).unwrap();
    let new = FileManifest::open_as(Arc::clone(&disk), "MANIFEST", 2, 9).unwrap();
    old.commit(0, b"old").unwrap();
    new.commit(1, b"new").unwrap();
    assert_eq!(old.commit(2, b"old"), Err(ManifestError::Fenced { epoch: 1, found: 2 }));
    assert_eq!(new.commit(2, b"new"), Ok(3));
}

#[test]
fn two_bodies_are_never_equal_by_accident() {
    let disk = SimDisk::new(1);
    let manifest = FileManifest::open_as(Arc::new(disk.clone()), "MANIFEST", 1, 100).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for version in 0..10 {
        manifest.commit(version, b"same").unwrap();
        assert!(seen.insert(disk.durable()["MANIFEST"].clone()));
    }
}

#[test]
fn damage_and_newer_formats_are_refused_on_opening() {
    for (at, newer) in [(0, false), (8, true), (50, false)] {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        FileManifest::open(Arc::clone(&disk), "MANIFEST").unwrap().commit(0, b"body").unwrap();
        disk.open("MANIFEST").unwrap().write_at(&[9], at).unwrap();
        match FileManifest::open(Arc::clone(&disk), "MANIFEST").err() {
            Some(ManifestError::Newer { found: 9, known: 1 }) => assert!(newer),
            Some(ManifestError::Corrupt(_)) => assert!(!newer),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_root_that_rots_under_its_owner_is_written_once_more() {
    for at in [0, 20, 50] {
        let disk = SimDisk::new(1);
        let manifest = FileManifest::open(Arc::new(disk.clone()), "MANIFEST").unwrap();
        manifest.commit(0, b"one").unwrap();
        let rot = || disk.open("MANIFEST").unwrap().write_at(&[9], at).unwrap();
        rot();
        assert!(matches!(manifest.read(), Err(ManifestError::Corrupt(_))), "a reader is told");
        assert_eq!(manifest.load(), Ok(root(1, b"one")));
        assert_eq!(manifest.read(), Ok(root(1, b"one")));
        rot();
        assert_eq!(manifest.commit(1, b"two"), Ok(2));
        // A commit in doubt counts as not made.
        disk.fail_next_dir_sync();
        assert!(matches!(manifest.commit(2, b"three"), Err(ManifestError::Io { .. })));
        rot();
        assert_eq!(manifest.load(), Ok(root(2, b"two")));
        assert_eq!(manifest.commit(2, b"three"), Ok(3));
        disk.crash_power();
        let next = FileManifest::open(Arc::new(disk.clone()), "MANIFEST").unwrap();
        assert_eq!(next.load(), Ok(root(3, b"three")));
        // An owner that finds damage knows nothing better.
        rot();
        assert!(FileManifest::open(Arc::new(disk.clone()), "MANIFEST").is_err());
        // It is not put back where its folder may have been replaced.
        disk.remove("MANIFEST").unwrap();
        assert_eq!(next.load(), Ok(None));
    }
}

#[test]
fn a_full_disk_is_no_space_and_keeps_the_root() {
    let disk = SimDisk::new(1);
    let manifest = FileManifest::open(Arc::new(disk.clone()), "MANIFEST").unwrap();
    manifest.commit(0, b"small").unwrap();
    disk.capacity(2000);
    assert_eq!(manifest.commit(1, &[7; 4000]), Err(ManifestError::NoSpace));
    assert_eq!(manifest.load(), Ok(root(1, b"small")));
    disk.heal();
    assert_eq!(manifest.commit(1, &[7; 4000]), Ok(2));
}

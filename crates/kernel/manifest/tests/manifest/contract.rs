//! The promises of every manifest, tested for each backend.

use std::sync::Arc;
use thalweg_disk::Disk;
use thalweg_manifest::{FileManifest, Manifest, ManifestError, MemoryManifest, Root};
use thalweg_sim::SimDisk;

fn backends() -> Vec<(&'static str, Arc<dyn Manifest>)> {
    vec![("memory", Arc::new(MemoryManifest::new())), ("file", Arc::new(file(&SimDisk::new(1))))]
}

fn file(disk: &SimDisk) -> FileManifest {
    FileManifest::open(Arc::new(disk.clone()), "MANIFEST", 7).unwrap()
}

fn root(version: u64, epoch: u64, body: &'static [u8]) -> Root {
    Root { version, epoch, body: body.into() }
}

#[test]
fn an_owner_acquires_what_is_there() {
    for (name, manifest) in backends() {
        assert_eq!((manifest.read(), manifest.load()), (Ok(None), Ok(None)), "{name}");
        assert_eq!(manifest.acquire(0), Ok(root(1, 1, b"")), "{name}");
        assert_eq!(manifest.load(), Ok(Some(root(1, 1, b""))));
        assert_eq!(manifest.commit(1, 1, b"first"), Ok(2));
        assert_eq!(manifest.load(), Ok(Some(root(2, 1, b"first"))));
        assert_eq!(manifest.acquire(0), Ok(root(3, 2, b"first")), "{name}");
        assert_eq!(manifest.acquire(9), Ok(root(4, 10, b"first")), "above what is known to have been given out");
        assert_eq!(manifest.load(), Ok(Some(root(4, 10, b"first"))));
    }
}

#[test]
fn a_commit_replaces_the_root_and_its_version_grows_by_one() {
    for (name, manifest) in backends() {
        manifest.acquire(0).unwrap();
        for version in 1..20 {
            assert_eq!(manifest.commit(1, version, b"body"), Ok(version + 1), "{name}");
        }
        assert_eq!(manifest.commit(1, 20, b""), Ok(21));
        assert_eq!(manifest.load(), Ok(Some(root(21, 1, b""))));
    }
}

#[test]
fn a_commit_on_another_version_is_a_conflict_and_changes_nothing() {
    for (name, manifest) in backends() {
        manifest.acquire(0).unwrap();
        for expected in [0, 2, u64::MAX] {
            let conflict = ManifestError::Conflict { expected, found: 1 };
            assert_eq!(manifest.commit(1, expected, b"other"), Err(conflict), "{name}");
        }
        assert_eq!(manifest.load(), Ok(Some(root(1, 1, b""))));
    }
}

#[test]
fn of_two_writers_at_one_version_one_wins() {
    for (name, manifest) in backends() {
        manifest.acquire(0).unwrap();
        let race = |body: &'static [u8]| {
            let manifest = Arc::clone(&manifest);
            std::thread::spawn(move || manifest.commit(1, 1, body))
        };
        let racers = [race(b"a"), race(b"b"), race(b"c"), race(b"d")];
        let won = racers.into_iter().map(|racer| racer.join().unwrap()).filter(Result::is_ok).count();
        assert_eq!(won, 1, "{name}");
    }
}

#[test]
fn of_those_who_acquire_at_once_each_gets_an_epoch_of_its_own_and_the_last_one_commits() {
    for (name, manifest) in backends() {
        let acquire = || {
            let manifest = Arc::clone(&manifest);
            std::thread::spawn(move || manifest.acquire(0).unwrap())
        };
        let mut acquired: Vec<Root> = [acquire(), acquire(), acquire()].map(|one| one.join().unwrap()).into();
        acquired.sort_unstable_by_key(|root| root.epoch);
        assert_eq!(acquired.iter().map(|root| root.epoch).collect::<Vec<_>>(), [1, 2, 3], "{name}");
        let commits = acquired.iter().map(|root| manifest.commit(root.epoch, root.version, b"body"));
        let fenced = |epoch| Err(ManifestError::Fenced { epoch, found: 3 });
        assert_eq!(commits.collect::<Vec<_>>(), [fenced(1), fenced(2), Ok(4)], "{name}");
    }
}

#[test]
fn a_deposed_owner_cannot_commit_whatever_version_it_expects() {
    for (name, manifest) in backends() {
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
}

#[test]
fn another_process_that_has_acquired_the_file_is_noticed() {
    let disk = SimDisk::new(1);
    let (one, two) = (file(&disk), file(&disk));
    one.acquire(0).unwrap();
    two.acquire(0).unwrap();
    assert_eq!(one.commit(1, 1, b"one"), Err(ManifestError::Fenced { epoch: 1, found: 2 }));
    assert_eq!(two.commit(2, 2, b"two"), Ok(3));
    assert_eq!(one.load(), Ok(Some(root(3, 2, b"two"))));
}

#[test]
fn a_deposed_owner_whose_last_commit_is_in_doubt_writes_nothing() {
    let disk = SimDisk::new(1);
    let (old, new) = (file(&disk), file(&disk));
    old.acquire(0).unwrap();
    disk.fail_next_dir_sync();
    assert!(matches!(old.commit(1, 1, b"in doubt"), Err(ManifestError::Io { .. })));
    new.acquire(0).unwrap();
    let before = disk.durable()["MANIFEST"].clone();
    let refused = old.commit(1, 1, b"late");
    assert!(matches!(refused, Err(ManifestError::Fenced { epoch: 1, found: 2 })), "{refused:?}");
    assert_eq!(disk.durable()["MANIFEST"], before);
    assert!(!disk.files().contains(&"MANIFEST.tmp".to_owned()));
}

#[test]
fn two_bodies_are_never_equal_by_accident() {
    let disk = SimDisk::new(1);
    let manifest = FileManifest::open(Arc::new(disk.clone()), "MANIFEST", u64::MAX - 3).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    manifest.acquire(0).unwrap();
    for version in 1..10 {
        manifest.commit(1, version, b"same").unwrap();
        assert!(seen.insert(disk.durable()["MANIFEST"].clone()));
    }
    // Two that try for one epoch from the same root write different bytes, too.
    let bytes = [3, 4].map(|nonce| {
        let disk = SimDisk::new(1);
        FileManifest::open(Arc::new(disk.clone()), "MANIFEST", nonce).unwrap().acquire(0).unwrap();
        disk.durable()["MANIFEST"].clone()
    });
    assert_ne!(bytes[0], bytes[1]);
}

#[test]
fn damage_and_newer_formats_are_refused_on_opening() {
    for (at, newer) in [(0, false), (8, true), (50, false)] {
        let disk = SimDisk::new(1);
        file(&disk).acquire(0).unwrap();
        file(&disk).commit(1, 1, b"body").unwrap();
        disk.open("MANIFEST").unwrap().write_at(&[9], at).unwrap();
        match FileManifest::open(Arc::new(disk), "MANIFEST", 8).err() {
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
        let manifest = file(&disk);
        manifest.acquire(0).unwrap();
        manifest.commit(1, 1, b"one").unwrap();
        let rot = || disk.open("MANIFEST").unwrap().write_at(&[9], at).unwrap();
        rot();
        assert!(matches!(manifest.read(), Err(ManifestError::Corrupt(_))), "a reader is told");
        assert_eq!(manifest.load(), Ok(Some(root(2, 1, b"one"))));
        assert_eq!(manifest.read(), Ok(Some(root(2, 1, b"one"))));
        rot();
        assert_eq!(manifest.commit(1, 2, b"two"), Ok(3));
        // A commit in doubt counts as not made.
        disk.fail_next_dir_sync();
        assert!(matches!(manifest.commit(1, 3, b"three"), Err(ManifestError::Io { .. })));
        rot();
        assert_eq!(manifest.load(), Ok(Some(root(3, 1, b"two"))));
        assert_eq!(manifest.commit(1, 3, b"three"), Ok(4));
        disk.crash_power();
        let next = file(&disk);
        assert_eq!(next.load(), Ok(Some(root(4, 1, b"three"))));
        // An owner that finds damage knows nothing better.
        rot();
        assert!(FileManifest::open(Arc::new(disk.clone()), "MANIFEST", 8).is_err());
        // It is not put back where its folder may have been replaced.
        disk.remove("MANIFEST").unwrap();
        assert_eq!(next.load(), Ok(None));
    }
}

#[test]
fn a_full_disk_is_no_space_and_keeps_the_root() {
    let disk = SimDisk::new(1);
    let manifest = file(&disk);
    manifest.acquire(0).unwrap();
    manifest.commit(1, 1, b"small").unwrap();
    disk.capacity(2000);
    assert_eq!(manifest.commit(1, 2, &[7; 4000]), Err(ManifestError::NoSpace));
    assert_eq!(manifest.load(), Ok(Some(root(2, 1, b"small"))));
    disk.heal();
    assert_eq!(manifest.commit(1, 2, &[7; 4000]), Ok(3));
}

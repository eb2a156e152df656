//! The promises of every manifest, asked of each backend here, and those of the file.

use std::sync::Arc;
use thalweg_disk::Disk;
use thalweg_manifest::contract::QUESTIONS;
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
fn every_manifest_keeps_its_promises() {
    for (promise, ask) in QUESTIONS {
        for (name, manifest) in backends() {
            println!("{name}: {promise}");
            ask(name, &manifest);
        }
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

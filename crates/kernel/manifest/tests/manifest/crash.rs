//! After any crash and any failure the old root or the new one is found, and the new one once its commit returned.

use std::sync::Arc;
use thalweg_disk::Disk;
use thalweg_manifest::{FileManifest, Manifest};
use thalweg_sim::{Rand64, SimDisk};

fn body(version: u64) -> Vec<u8> {
    vec![version as u8; 100 + (version as usize * 997) % 9000]
}

/// Commits, fails and crashes for a while.
fn run(seed: u64) {
    let disk = SimDisk::new(seed);
    let mut random = Rand64::new(u128::from(seed));
    // The newest root that is certain.
    let mut certain = 0;
    for _ in 0..40 {
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let manifest = FileManifest::open_as(shared, "MANIFEST", 0, random.rand_u64()).unwrap();
        let found = manifest.load().unwrap();
        let version = found.as_ref().map_or(0, |root| root.version);
        assert!(version == certain || version == certain + 1, "seed {seed}: {version} after {certain}");
        if let Some(root) = found {
            assert_eq!(root.body, body(version), "seed {seed}");
        }
        // What was loaded may be acted upon, so it must not go back.
        certain = version;
        for _ in 0..random.rand_range(0..4) {
            match random.rand_range(0..8) {
                0 => disk.fail_next_sync(),
                1 => disk.fail_next_dir_sync(),
                2 => disk.fail_next_write(),
                _ => {}
            }
            match manifest.commit(certain, &body(certain + 1)) {
                Ok(version) => certain = version,
                Err(_) => break,
            }
        }
        disk.heal();
        match random.rand_range(0..3) {
            0 => disk.crash_kill(),
            _ => disk.crash_power(),
        }
    }
}

#[test]
fn simulation_of_the_manifest_finds_the_old_root_or_the_new_one() {
    thalweg_sim::histories(300, "thalweg-manifest", run);
}

#[test]
fn a_power_cut_during_any_step_of_a_commit_finds_one_of_both() {
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        let manifest = FileManifest::open(Arc::new(disk.clone()), "MANIFEST").unwrap();
        manifest.commit(0, b"old").unwrap();
        match seed % 4 {
            0 => disk.fail_next_sync(),
            1 => disk.fail_next_dir_sync(),
            2 => disk.fail_next_write(),
            _ => {}
        }
        let committed = manifest.commit(1, b"new");
        assert_eq!(committed.is_ok(), seed % 4 == 3);
        disk.heal();
        disk.crash_power();
        let found = FileManifest::open(Arc::new(disk.clone()), "MANIFEST").unwrap().load().unwrap().unwrap();
        let bodies: &[&[u8]] = if committed.is_ok() { &[b"new"] } else { &[b"old", b"new"] };
        assert!(bodies.contains(&&found.body[..]), "seed {seed}");
    }
}

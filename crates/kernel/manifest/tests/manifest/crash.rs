//! After any crash and any failure the old root or the new one is found, and the new one once its commit returned.

use std::sync::Arc;
use thalweg_manifest::{FileManifest, Manifest};
use thalweg_sim::{Rand64, SimDisk};

fn body(version: u64) -> Vec<u8> {
    vec![version as u8; 100 + (version as usize * 997) % 9000]
}

/// Owners acquire, commit, fail and crash for a while; a deposed one tries to go on now and then.
fn run(seed: u64) {
    let disk = SimDisk::new(seed);
    let mut random = Rand64::new(u128::from(seed));
    // The newest version that is certain, the body that it has, and the epoch up to which there were owners.
    let (mut certain, mut content, mut epoch) = (0, 0, 0);
    for _ in 0..40 {
        let fail = |random: &mut Rand64| match random.rand_range(0..8) {
            0 => disk.fail_next_sync(),
            1 => disk.fail_next_dir_sync(),
            2 => disk.fail_next_write(),
            _ => {}
        };
        let open = |nonce| FileManifest::open(Arc::new(disk.clone()), "MANIFEST", nonce).unwrap();
        let manifest = open(random.rand_u64());
        let found = manifest.load().unwrap().unwrap_or_default();
        assert!(
            found.version >= certain && found.version <= certain + 1,
            "seed {seed}: {} after {certain}",
            found.version
        );
        if !found.body.is_empty() {
            assert!([content, content + 1].map(body).contains(&found.body.to_vec()), "seed {seed}");
            content = if found.body == body(content) { content } else { content + 1 };
        }
        // An owner may act on a root that it loaded, so the root must not go back.
        (certain, epoch) = (found.version, found.epoch.max(epoch));
        fail(&mut random);
        let mut alive = false;
        match manifest.acquire(0) {
            Ok(root) => {
                assert!(root.epoch > epoch, "seed {seed}: two owners of epoch {}", root.epoch);
                assert_eq!(root.body, found.body, "seed {seed}");
                (certain, epoch, alive) = (root.version, root.epoch, true);
            }
            Err(_) if random.rand_range(0..2) == 0 => {
                // No owner has the epoch that was tried: it may be used again.
                disk.heal();
            }
            Err(_) => {}
        }
        for _ in 0..if alive { random.rand_range(0..4) } else { 0 } {
            fail(&mut random);
            match manifest.commit(epoch, certain, &body(content + 1)) {
                Ok(version) => (certain, content) = (version, content + 1),
                Err(_) => break,
            }
            let deposed = open(random.rand_u64()).commit(epoch - 1, certain, b"of a deposed owner");
            assert!(deposed.is_err(), "seed {seed}: an owner of epoch {} commits", epoch - 1);
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
        let manifest = FileManifest::open(Arc::new(disk.clone()), "MANIFEST", 1).unwrap();
        manifest.acquire(0).unwrap();
        manifest.commit(1, 1, b"old").unwrap();
        match seed % 4 {
            0 => disk.fail_next_sync(),
            1 => disk.fail_next_dir_sync(),
            2 => disk.fail_next_write(),
            _ => {}
        }
        let committed = manifest.commit(1, 2, b"new");
        assert_eq!(committed.is_ok(), seed % 4 == 3);
        disk.heal();
        disk.crash_power();
        let found = FileManifest::open(Arc::new(disk.clone()), "MANIFEST", 2).unwrap().load().unwrap().unwrap();
        let bodies: &[&[u8]] = if committed.is_ok() { &[b"new"] } else { &[b"old", b"new"] };
        assert!(bodies.contains(&&found.body[..]), "seed {seed}");
    }
}

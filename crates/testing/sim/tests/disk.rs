//! The failures that the simulated disk may have, and those that it may not.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use thalweg_disk::{Disk, File};
use thalweg_sim::{Rand64, SimDisk};

fn file_with(disk: &SimDisk, path: &str, bytes: &[u8]) -> Arc<dyn File> {
    let file = disk.create(path).unwrap();
    file.write_at(bytes, 0).unwrap();
    file.sync().unwrap();
    disk.sync_dir("d").unwrap();
    file
}

/// Many operations whose outcome depends on every coin there is.
fn history(seed: u64) -> std::collections::BTreeMap<String, Vec<u8>> {
    let disk = SimDisk::new(seed);
    let mut rng = Rand64::new(7);
    for round in 0..20u64 {
        for n in 0..4 {
            let path = format!("d/{n}");
            let file = disk.open(&path).or_else(|_| disk.create(&path)).unwrap();
            let bytes = vec![round as u8 + 1; rng.rand_range(1..3000) as usize];
            file.write_at(&bytes, rng.rand_range(0..5000)).unwrap();
            match rng.rand_range(0..6) {
                0 => file.sync().unwrap(),
                1 => disk.rename(&path, &format!("d/{}", (n + 1) % 4)).unwrap(),
                2 => disk.sync_dir("d").unwrap(),
                3 => {
                    disk.fail_next_sync();
                    file.sync().unwrap_err();
                }
                _ => {}
            }
        }
        if round % 3 == 0 {
            disk.crash_power();
        }
    }
    disk.cached()
}

#[test]
fn one_seed_gives_one_history() {
    assert_eq!(history(5), history(5));
    assert_ne!(history(5), history(6));
}

#[test]
fn synced_bytes_and_names_survive() {
    for seed in 0..50 {
        let disk = SimDisk::new(seed);
        file_with(&disk, "d/a", &[7; 5000]);
        disk.crash_power();
        assert_eq!(disk.cached()["d/a"], [7; 5000]);
    }
}

#[test]
fn unsynced_sectors_are_lost_torn_and_reordered() {
    let (mut all, mut none, mut torn, mut reordered) = (0, 0, 0, 0);
    for seed in 0..400 {
        let disk = SimDisk::new(seed);
        let file = file_with(&disk, "d/a", &[0; 8192]);
        file.write_at(&[1; 4096], 0).unwrap();
        file.write_at(&[2; 4096], 4096).unwrap();
        disk.crash_power();
        let bytes = &disk.cached()["d/a"];
        for sector in bytes.chunks(512) {
            assert!(sector.iter().all(|b| *b == sector[0]), "a sector is never torn");
        }
        let (first, second) =
            (bytes[..4096].iter().filter(|b| **b == 1).count(), bytes[4096..].iter().filter(|b| **b == 2).count());
        match (first, second) {
            (4096, 4096) => all += 1,
            (0, 0) => none += 1,
            (0, 4096) => reordered += 1,
            (4096, 0) => {}
            _ => torn += 1,
        }
    }
    assert!(all > 20 && none > 20 && torn > 20 && reordered > 20, "{all} {none} {torn} {reordered}");
}

#[test]
fn an_unsynced_name_may_be_lost_and_changes_survive_in_order() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..60 {
        let disk = SimDisk::new(seed);
        file_with(&disk, "d/a", b"1");
        disk.rename("d/a", "d/b").unwrap();
        disk.create("d/c").unwrap();
        disk.crash_power();
        seen.insert(disk.files());
    }
    let want = [vec!["d/a"], vec!["d/b"], vec!["d/b", "d/c"]];
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), want);
}

#[test]
fn a_move_between_folders_never_loses_the_file() {
    for seed in 0..60 {
        let disk = SimDisk::new(seed);
        file_with(&disk, "d/a", b"1");
        disk.rename("d/a", "e/a").unwrap();
        if seed % 2 == 0 {
            disk.sync_dir("d").unwrap();
        }
        disk.crash_power();
        assert!(!disk.files().is_empty());
        assert!(seed % 2 == 1 || disk.files() == ["e/a"]);
    }
}

#[test]
fn a_kill_keeps_the_cache_but_not_the_handles() {
    let disk = SimDisk::new(1);
    let file = disk.create("d/a").unwrap();
    file.write_at(b"hello", 0).unwrap();
    disk.crash_kill();
    assert!(file.read_at(&mut [0], 0).is_err());
    assert!(file.write_at(&[0], 0).is_err() && file.sync().is_err() && file.len().is_err());
    assert_eq!(disk.cached()["d/a"], b"hello");
    assert!(disk.durable().is_empty(), "nothing became durable");
}

#[test]
fn what_a_failed_sync_dropped_is_never_written_by_a_later_one() {
    let mut lost = 0;
    for seed in 0..50 {
        let disk = SimDisk::new(seed);
        let file = file_with(&disk, "d/a", &[0; 4096]);
        file.write_at(&[1; 4096], 0).unwrap();
        disk.fail_next_sync();
        assert!(file.sync().is_err());
        assert!(file.sync().is_ok());
        assert_eq!(disk.cached()["d/a"], [1; 4096], "reads go on showing it");
        lost += usize::from(disk.durable()["d/a"] != [1; 4096]);
        // Written again, it is dirty again.
        file.write_at(&[1; 4096], 0).unwrap();
        file.sync().unwrap();
        assert_eq!(disk.durable()["d/a"], [1; 4096]);
    }
    assert!(lost > 25, "{lost}");
}

#[test]
fn a_lying_sync_makes_nothing_durable() {
    let disk = SimDisk::new(1);
    let file = file_with(&disk, "d/a", &[0; 512]);
    disk.lie_on_sync(true);
    file.write_at(&[1; 512], 0).unwrap();
    file.sync().unwrap();
    assert_eq!(disk.durable()["d/a"], [0; 512]);
}

#[test]
fn space_runs_out_and_comes_back() {
    let disk = SimDisk::new(1);
    disk.capacity(1000);
    let file = disk.create("d/a").unwrap();
    file.allocate(900).unwrap();
    assert_eq!(disk.free().unwrap(), 100);
    assert_eq!(file.write_at(&[1; 200], 850).unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    assert_eq!(file.allocate(2000).unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    file.write_at(&[1; 100], 800).unwrap();
    disk.remove("d/a").unwrap();
    assert_eq!(disk.free().unwrap(), 1000);
}

#[test]
fn a_flipped_bit_is_one_bit_of_durable_data() {
    let disk = SimDisk::new(1);
    let mut rng = Rand64::new(1);
    let file = file_with(&disk, "d/a", &[0; 2048]);
    file.write_at(&[1; 512], 0).unwrap();
    for _ in 0..20 {
        assert!(disk.flip_bit("d/a", &mut rng).unwrap() >= 512, "what is on its way is not durable");
    }
    disk.crash_power();
    let ones: u32 = disk.cached()["d/a"][512..].iter().map(|b| b.count_ones()).sum();
    assert!(ones > 0 && ones <= 20);
    assert_eq!(disk.flip_bit("d/none", &mut rng), None);
}

#[test]
fn a_fork_goes_its_own_way() {
    let disk = SimDisk::new(1);
    file_with(&disk, "d/a", b"1");
    let fork = disk.fork();
    fork.remove("d/a").unwrap();
    assert_eq!(disk.files(), ["d/a"]);
    assert!(fork.files().is_empty());
}

#[test]
fn a_process_dies_at_the_change_it_was_told_to_and_nothing_happens_after() {
    for k in 0..6 {
        let disk = SimDisk::new(k);
        disk.stop_after(k);
        let done = (|| {
            let file = disk.create("d/a")?;
            file.write_at(&[1; 4000], 0)?;
            file.sync()?;
            disk.rename("d/a", "d/b")?;
            disk.sync_dir("d")?;
            disk.remove("d/b")
        })();
        assert!(done.is_err() && disk.is_stopped(), "change {k}");
        disk.list("d").unwrap_err();
        disk.create("d/c").err().unwrap();
        disk.crash_kill();
        assert_eq!(disk.changes(), k + 1);
        let files = disk.cached();
        let names: Vec<&str> = files.keys().map(String::as_str).collect();
        let expected: &[&str] = match k {
            0 => &[],
            1..4 => &["d/a"],
            _ => &["d/b"],
        };
        assert_eq!(names, expected, "change {k}");
        if k == 1 {
            assert!(files["d/a"].len() <= 4000 && files["d/a"].iter().all(|b| *b == 1), "a part of the write");
        }
    }
}

#[test]
fn names_that_a_failed_sync_dropped_are_not_durable_after_the_next_one() {
    let mut lost = 0;
    for seed in 0..40 {
        let disk = SimDisk::new(seed);
        file_with(&disk, "d/old", b"old");
        disk.rename("d/old", "d/new").unwrap();
        disk.fail_next_dir_sync();
        disk.sync_dir("d").unwrap_err();
        disk.sync_dir("d").unwrap();
        assert!(disk.cached().contains_key("d/new"), "the cache shows it");
        disk.crash_power();
        let found = disk.cached();
        assert!(found.contains_key("d/new") != found.contains_key("d/old"), "never both, never none");
        lost += usize::from(found.contains_key("d/old"));
        if found.contains_key("d/old") {
            disk.rename("d/old", "d/new").unwrap();
            disk.sync_dir("d").unwrap();
            disk.crash_power();
            assert!(disk.cached().contains_key("d/new"), "a rename after it is durable as ever");
        }
    }
    assert!((5..35).contains(&lost), "{lost} of 40");
}

#[test]
fn misreads_fail_or_give_bytes_of_another_place_or_time() {
    let disk = SimDisk::new(1);
    let content: Vec<u8> = (0..20_000u32).map(|n| (n / 100) as u8).collect();
    let file = file_with(&disk, "d/a", &vec![255; 20_000]);
    file.write_at(&content, 0).unwrap();
    disk.misreads(1.0);
    let (mut failed, mut stale, mut moved) = (0, 0, 0);
    for _ in 0..200 {
        let mut buf = vec![0; 1000];
        match file.read_at(&mut buf, 8192) {
            Err(_) => failed += 1,
            Ok(_) if buf.contains(&255) => stale += 1,
            Ok(n) if buf[..n] != content[8192..9192] => moved += 1,
            Ok(_) => {}
        }
    }
    assert!(failed > 20 && stale > 20 && moved > 20, "{failed} {stale} {moved}");
    disk.heal();
    let mut buf = vec![0; 20_000];
    file.read_at(&mut buf, 0).unwrap();
    assert_eq!(buf, content, "the medium holds what it held");
}

#[test]
fn a_lost_name_is_gone_for_good() {
    let disk = SimDisk::new(1);
    file_with(&disk, "d/a", b"a");
    assert!(disk.lose("d/a") && !disk.lose("d/a"));
    disk.sync_dir("d").unwrap();
    disk.crash_power();
    assert!(disk.files().is_empty());
}

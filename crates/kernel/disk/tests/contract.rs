//! The promises of every disk: the same claims against the operating system's and the simulated one.
#![allow(clippy::unwrap_used)]

use std::io::ErrorKind;
use thalweg_disk::{Disk, RealDisk};
use thalweg_sim::SimDisk;

fn contents(disk: &dyn Disk, path: &str) -> Vec<u8> {
    let file = disk.open(path).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
    bytes
}

fn what_is_written_is_read(disk: &dyn Disk) {
    let file = disk.create("a/b/one").unwrap();
    file.write_at(b"hello", 3).unwrap();
    file.sync().unwrap();
    assert_eq!(contents(disk, "a/b/one"), b"\0\0\0hello");
}

fn a_read_past_the_end_is_short(disk: &dyn Disk) {
    let file = disk.create("one").unwrap();
    assert!(file.is_empty().unwrap());
    file.write_at(b"hello", 0).unwrap();
    let mut buf = [0; 8];
    assert_eq!(file.read_at(&mut buf, 2).unwrap(), 3);
    assert_eq!(&buf[..3], b"llo");
    assert_eq!(file.read_at(&mut buf, 5).unwrap(), 0);
    assert_eq!(file.read_at(&mut buf, 500).unwrap(), 0);
}

fn a_read_that_need_not_wait_gives_the_same_or_nothing(disk: &dyn Disk) {
    let file = disk.create("one").unwrap();
    file.write_at(b"hello", 0).unwrap();
    for (at, want) in [(0, &b"hello"[..]), (2, b"llo"), (5, b"")] {
        let mut buf = [0; 8];
        if let Some(n) = file.try_read_at(&mut buf, at).unwrap() {
            assert_eq!(&buf[..n], want);
        }
    }
}

fn a_second_create_fails(disk: &dyn Disk) {
    disk.create("d/one").unwrap();
    assert_eq!(disk.create("d/one").err().unwrap().kind(), ErrorKind::AlreadyExists);
}

fn a_missing_file_is_not_found(disk: &dyn Disk) {
    assert_eq!(disk.open("one").err().unwrap().kind(), ErrorKind::NotFound);
    assert_eq!(disk.remove("one").err().unwrap().kind(), ErrorKind::NotFound);
    assert_eq!(disk.rename("one", "two").err().unwrap().kind(), ErrorKind::NotFound);
}

fn rename_replaces(disk: &dyn Disk) {
    disk.create("d/one").unwrap().write_at(b"1", 0).unwrap();
    disk.create("d/two").unwrap().write_at(b"2", 0).unwrap();
    disk.rename("d/one", "d/two").unwrap();
    assert_eq!(disk.list("d").unwrap(), ["two"]);
    assert_eq!(contents(disk, "d/two"), b"1");
    disk.sync_dir("d").unwrap();
}

fn an_open_file_outlives_its_name(disk: &dyn Disk) {
    let file = disk.create("one").unwrap();
    file.write_at(b"hello", 0).unwrap();
    disk.remove("one").unwrap();
    let mut buf = [0; 5];
    assert_eq!(file.read_at(&mut buf, 0).unwrap(), 5);
    assert!(disk.list("").unwrap().is_empty());
}

fn lists_are_sorted_and_hold_files_only(disk: &dyn Disk) {
    for path in ["d/b", "d/a", "d/sub/c", "e"] {
        disk.create(path).unwrap();
    }
    assert_eq!(disk.list("d").unwrap(), ["a", "b"]);
    assert_eq!(disk.list("").unwrap(), ["e"]);
    assert!(disk.list("nowhere").unwrap().is_empty());
}

fn paths_cannot_lead_out(disk: &dyn Disk) {
    for path in ["/etc/hostname", "../x", "a/../../x", "", "a//b"] {
        assert_eq!(disk.create(path).err().unwrap().kind(), ErrorKind::InvalidInput, "{path:?}");
        assert_eq!(disk.open(path).err().unwrap().kind(), ErrorKind::InvalidInput, "{path:?}");
    }
}

fn lengths_grow_with_zeros_and_shrink(disk: &dyn Disk) {
    let file = disk.create("one").unwrap();
    file.write_at(b"hello", 0).unwrap();
    file.allocate(1000).unwrap();
    assert_eq!(file.len().unwrap(), 1000);
    file.allocate(10).unwrap();
    assert_eq!(file.len().unwrap(), 1000, "reserving less does not shrink");
    file.set_len(3).unwrap();
    file.set_len(6).unwrap();
    assert_eq!(contents(disk, "one"), b"hel\0\0\0");
    file.sync().unwrap();
}

fn free_space_is_known(disk: &dyn Disk) {
    assert!(disk.free().unwrap() > 0);
}

macro_rules! claims {
    ($($claim:ident),* $(,)?) => {
        mod real {
            $(#[test] fn $claim() {
                let dir = tempfile::tempdir().unwrap();
                super::$claim(&super::RealDisk::open(&dir.path().join("data")).unwrap());
            })*
        }
        mod sim {
            $(#[test] fn $claim() {
                super::$claim(&super::SimDisk::new(1));
            })*
        }
    };
}

claims!(
    what_is_written_is_read,
    a_read_past_the_end_is_short,
    a_read_that_need_not_wait_gives_the_same_or_nothing,
    a_second_create_fails,
    a_missing_file_is_not_found,
    rename_replaces,
    an_open_file_outlives_its_name,
    lists_are_sorted_and_hold_files_only,
    paths_cannot_lead_out,
    lengths_grow_with_zeros_and_shrink,
    free_space_is_known,
);

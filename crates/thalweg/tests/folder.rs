//! A data folder that is incomplete, or accessible to others: a start refuses it with an explanation, and changes
//! nothing.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::hash::Hasher;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{Server, path, said, thalweg};

/// Sizes by which a few appends fill several segments and settle at once.
const SMALL: [&str; 6] = ["--settle-bytes", "16KiB", "--settle-after", "100ms", "--journal-segment-bytes", "1MiB"];

/// Every file below a folder, with its bytes.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() { all.extend(files(&path)) } else { drop(all.insert(path.clone(), fs::read(path).unwrap())) }
    }
    all
}

/// Every file of which a start that is refused changes nothing, with a digest: neither `LOCK`, where it notes its
/// process, nor the root, with which it claims the folder.
fn contents(dir: &Path) -> BTreeMap<PathBuf, u64> {
    let mut all = files(dir);
    all.retain(|file, _| !file.ends_with("LOCK") && !file.ends_with("manifest/root"));
    all.into_iter().map(|(file, bytes)| (file, digest(&bytes))).collect()
}

/// A CRC would not do: that of a file that ends with its own is always the same.
fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// Message of a start that the folder makes fail.
fn refused(data: &Path) -> String {
    let output = thalweg(&["serve", "--listen", "127.0.0.1:0", "--data", path(data)]);
    assert!(!output.status.success(), "the start is refused");
    said(&output)
}

/// A stream `a` in objects, and its last line in the journal.
fn fill(server: &Server) -> String {
    server.create("a");
    let mut all = String::new();
    for at in 0..40 {
        let line = format!("{at:0>8000}\n");
        server.append("a", line.as_bytes());
        all.push_str(&line);
    }
    while !String::from_utf8(server.get("/metrics").1).unwrap().contains("\nthalweg_settle_lag_bytes 0\n") {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    server.append("a", b"last\n");
    all + "last\n"
}

#[test]
fn a_folder_that_lost_its_root_or_manifest_is_refused_and_nothing_in_it_is_removed() {
    let work = tempfile::tempdir().unwrap();
    let data = work.path().join("data");
    let server = Server::start(&data, &SMALL);
    let all = fill(&server);
    server.kill();
    let (root, away) = (data.join("manifest/root"), work.path().join("away"));

    fs::rename(&root, &away).unwrap();
    let before = contents(&data);
    for _ in 0..2 {
        let message = refused(&data);
        assert!(message.contains("root"), "the message names the missing part: {message}");
        assert_eq!(contents(&data), before, "objects and segments stay");
    }
    fs::remove_dir(data.join("manifest")).unwrap();
    refused(&data);
    assert!(before.keys().all(|file| file.exists()), "objects and segments stay");

    fs::create_dir_all(data.join("manifest")).unwrap();
    fs::rename(&away, &root).unwrap();
    assert!(Server::start(&data, &SMALL).read("a") == all, "with its root the folder is whole");
}

#[test]
fn a_journal_that_lost_bytes_after_a_clean_stop_is_refused() {
    let work = tempfile::tempdir().unwrap();
    let data = work.path().join("data");
    let server = Server::start(&data, &SMALL);
    let all = fill(&server);
    server.stop();
    let segment = files(&data.join("journal"))
        .into_iter()
        .filter(|(_, bytes)| bytes.windows(5).any(|at| at == b"last\n"))
        .map(|(file, _)| file)
        .next_back()
        .unwrap();
    let whole = fs::read(&segment).unwrap();
    let last = whole.windows(5).position(|at| at == b"last\n").unwrap();

    let mut flipped = whole.clone();
    flipped[last] ^= 1;
    let mut emptied = whole.clone();
    emptied[4096..].fill(0);
    for (damaged, what) in [(Some(flipped), "flipped"), (Some(emptied), "emptied"), (None, "removed")] {
        match &damaged {
            Some(bytes) => fs::write(&segment, bytes).unwrap(),
            None => fs::remove_file(&segment).unwrap(),
        }
        let before = contents(&data);
        let message = refused(&data);
        assert!(message.contains("journal"), "{what}: {message}");
        assert_eq!(contents(&data), before, "{what}: no data is changed");
    }
    fs::write(&segment, &whole).unwrap();
    assert!(Server::start(&data, &SMALL).read("a") == all, "with its bytes back the journal is whole");
}

#[test]
fn what_a_start_after_a_crash_discards_is_said_with_its_position_and_size() {
    // An idle journal notes within moments how far it is durable. If that comes before the kill, the damage is refused
    // as such.
    assert!((0..20).any(|_| discarded()), "the kill came before the journal was idle");
}

/// Damages the last append of a server that was killed. Whether the next start discarded it; else it was refused.
fn discarded() -> bool {
    let work = tempfile::tempdir().unwrap();
    let data = work.path().join("data");
    let server = Server::start(&data, &["--settle-after", "1h"]);
    server.create("a");
    server.append("a", b"first\n");
    server.append("a", b"last\n");
    server.kill();
    let (segment, mut bytes) =
        files(&data.join("journal")).into_iter().find(|(_, bytes)| bytes.windows(5).any(|at| at == b"last\n")).unwrap();
    let last = bytes.windows(5).position(|at| at == b"last\n").unwrap();
    bytes[last] ^= 1;
    fs::write(&segment, &bytes).unwrap();

    let check = thalweg(&["check", path(&data)]);
    if String::from_utf8_lossy(&check.stdout).contains("durable") || said(&check).contains("durable") {
        assert!(refused(&data).contains("which was durable"));
        return false;
    }
    let (server, log) = Server::start_logged(&data, &["--settle-after", "1h"]);
    assert_eq!(server.read("a"), "first\n");
    let log = log();
    let line = log.lines().find(|line| line.contains("recovery discards the torn end of the journal")).expect(&log);
    assert!(line.contains("WARN") && line.contains("at=") && line.contains("bytes="), "{line}");
    true
}

#[test]
fn without_word_of_how_the_last_server_ran_no_old_offset_is_taken() {
    for said in [None, Some(""), Some("sideways\n")] {
        let work = tempfile::tempdir().unwrap();
        let data = work.path().join("data");
        let server = Server::start(&data, &[]);
        server.create("a");
        server.append("a", b"one");
        let offset = server.next_offset("a");
        server.kill();
        match said {
            Some(text) => fs::write(data.join("RUN"), text).unwrap(),
            None => fs::remove_file(data.join("RUN")).unwrap(),
        }
        let server = Server::start(&data, &[]);
        let (status, body) = server.get(&format!("/v1/stream/a?offset={offset}"));
        let body = String::from_utf8(body).unwrap();
        assert!(status == 400 && body.contains("stale_offset"), "RUN is {said:?}: {status} {body}");
        assert_eq!(server.read("a"), "one");
    }
}

#[test]
fn a_folder_in_use_is_refused_by_every_command_and_a_server_that_ends_is_waited_for() {
    let work = tempfile::tempdir().unwrap();
    let data = work.path().join("data");
    let server = Server::start(&data, &[]);
    server.create("a");
    // Without its file the folder is locked as well.
    fs::remove_file(data.join("LOCK")).unwrap();
    assert!(refused(&data).contains("is in use by another thalweg process"));
    let check = thalweg(&["check", path(&data)]);
    assert!(said(&check).contains("is in use by another thalweg process"), "{}", said(&check));

    let mut next = Command::new(support::THALWEG);
    next.args(["serve", "--listen", "127.0.0.1:0", "--log", "error", "--reserve-bytes", "0", "--data"]).arg(&data);
    let ready = work.path().join("ready");
    let mut next = next.arg("--ready-file").arg(&ready).stdout(std::process::Stdio::null()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(next.try_wait().unwrap().is_none() && !ready.exists(), "it waits");
    server.kill();
    while !ready.exists() {
        assert!(next.try_wait().unwrap().is_none(), "it goes on when the folder is free");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    next.kill().unwrap();
    next.wait().unwrap();
}

#[test]
fn data_and_backups_are_for_their_owner_alone() {
    let work = tempfile::tempdir().unwrap();
    let (data, backups, back) = (work.path().join("x/data"), work.path().join("y/backups"), work.path().join("z/back"));
    let server = Server::start(&data, &SMALL);
    fill(&server);
    let backup = thalweg(&["backup", "--to", path(&backups), "--server", &server.url]);
    assert!(backup.status.success(), "{}", said(&backup));
    server.stop();
    let restore = thalweg(&["restore", path(&backups), "--data", path(&back)]);
    assert!(restore.status.success(), "{}", said(&restore));
    for top in ["x", "y", "z"] {
        private(&work.path().join(top));
    }
}

fn private(path: &Path) {
    if path.extension().is_some_and(|extension| extension == "ready") {
        return;
    }
    let about = fs::metadata(path).unwrap();
    let expected = if about.is_dir() { 0o700 } else { 0o600 };
    assert_eq!(about.mode() & 0o777, expected, "{}", path.display());
    if about.is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| private(&entry.unwrap().path()));
    }
}

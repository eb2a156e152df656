//! Backup and restore, on the binary: consistent under load, incremental, refused when damaged, harmless when
//! abandoned.
//!
//! `ROUNDS` (2) is the number of backups under load; `tests/soak.sh` raises it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::{Server, agent, ask, path, said, thalweg};

/// Small, so that segments are recycled and data settles many times within a test.
const SMALL: [&str; 10] = [
    "--journal-segment-bytes",
    "256KiB",
    "--journal-bound-bytes",
    "8MiB",
    "--settle-bytes",
    "64KiB",
    "--settle-after",
    "100ms",
    "--purge-after",
    "1s",
];
const PAIRS: usize = 3;

fn backup(server: &Server, to: &Path) {
    let done = thalweg(&["backup", "--server", &server.url, "--to", path(to)]);
    assert!(done.status.success(), "{}", said(&done));
}

fn generations(of: &Path) -> Vec<PathBuf> {
    let mut found: Vec<_> =
        fs::read_dir(of).unwrap().map(|e| e.unwrap().path()).filter(|p| p.join("BACKUP").is_file()).collect();
    found.sort();
    found
}

/// Appends consecutive numbers to `NAME-first` and then `NAME-second`, until `stop` or a lost connection; counts those
/// that are acknowledged in both.
fn write(url: &str, name: &str, acknowledged: &AtomicU64, stop: &AtomicBool) {
    let agent = agent();
    for n in 0u64.. {
        for stream in ["first", "second"] {
            let body = format!("{n:08} {:>200}\n", "");
            let path = format!("/v1/stream/{name}-{stream}");
            match ask(&agent, url, "POST", &path, &[("content-type", "text/plain")], body.as_bytes()) {
                Ok((head, _)) if head.status().is_success() => {}
                _ => return,
            }
        }
        acknowledged.store(n + 1, Ordering::SeqCst);
        if stop.load(Ordering::SeqCst) {
            return;
        }
    }
}

/// How many numbers a stream has; they must be 0, 1, 2 and so on, whole.
fn count(server: &Server, name: &str) -> u64 {
    let content = server.read(name);
    assert!(content.is_empty() || content.ends_with('\n'));
    for (n, line) in content.lines().enumerate() {
        assert_eq!(line, format!("{n:08} {:>200}", ""), "{name}");
    }
    content.lines().count() as u64
}

/// Waits until the journal has nothing left to settle.
fn settled(server: &Server) {
    let began = Instant::now();
    while !String::from_utf8_lossy(&server.get("/metrics").1).contains("\nthalweg_settle_lag_bytes 0\n") {
        assert!(began.elapsed() < Duration::from_secs(30), "settling does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_backup_of_a_busy_server_is_everything_up_to_one_moment() {
    let rounds: usize = std::env::var("ROUNDS").map_or(2, |n| n.parse().unwrap());
    let work = tempfile::tempdir().unwrap();
    let (data, target) = (work.path().join("data"), work.path().join("backups"));
    let mut flags = SMALL.to_vec();
    flags.extend(["--merge-fan-in", "64"]);
    let server = Server::start(&data, &flags);
    fs::write(data.join("keys.toml"), "secret = 1\n").unwrap();
    for pair in 0..PAIRS {
        server.create(&format!("{pair}-first"));
        server.create(&format!("{pair}-second"));
    }
    // Content that stays as it is: the second backup shares its object.
    server.create("big");
    (0..32).for_each(|_| server.append("big", &[b'x'; 128 << 10]));
    settled(&server);
    let counts: Arc<Vec<AtomicU64>> = Arc::new((0..PAIRS).map(|_| AtomicU64::new(0)).collect());
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..PAIRS)
        .map(|pair| {
            let (url, counts, stop) = (server.url.clone(), Arc::clone(&counts), Arc::clone(&stop));
            std::thread::spawn(move || write(&url, &pair.to_string(), &counts[pair], &stop))
        })
        .collect();
    let acknowledged = || -> Vec<u64> { counts.iter().map(|n| n.load(Ordering::SeqCst)).collect() };
    let mut before = Vec::new();
    for _ in 0..rounds {
        let (began, least) = (Instant::now(), acknowledged().iter().sum::<u64>() + 60);
        while acknowledged().iter().sum::<u64>() < least {
            assert!(began.elapsed() < Duration::from_secs(60), "the writers do not get on");
            std::thread::sleep(Duration::from_millis(10));
        }
        before.push(acknowledged());
        backup(&server, &target);
    }
    let beyond = server.next_offset("0-first");
    server.kill();
    stop.store(true, Ordering::SeqCst);
    writers.into_iter().for_each(|writer| writer.join().unwrap());

    let found = generations(&target);
    assert_eq!(found.len(), rounds);
    let shared = |dir: &PathBuf| {
        fs::read_dir(dir.join("objects"))
            .unwrap()
            .filter(|e| e.as_ref().unwrap().metadata().unwrap().nlink() > 1)
            .count()
    };
    assert!(found.iter().skip(1).any(|dir| shared(dir) > 0), "no backup shares anything with the one before");
    for (generation, (from, before)) in found.iter().zip(&before).enumerate() {
        let fresh = work.path().join(format!("restored-{generation}"));
        let done = thalweg(&["restore", path(from), "--data", path(&fresh)]);
        assert!(done.status.success(), "{}", said(&done));
        assert!(thalweg(&["check", path(&fresh)]).status.success());
        assert_eq!(fs::read_to_string(fresh.join("keys.toml")).unwrap(), "secret = 1\n");
        let server = Server::start(&fresh, &SMALL);
        for (pair, acknowledged) in before.iter().enumerate() {
            let (first, second) = (count(&server, &format!("{pair}-first")), count(&server, &format!("{pair}-second")));
            assert!(second >= *acknowledged, "{acknowledged} were acknowledged before the backup, {second} are there");
            assert!(first == second || first == second + 1, "not one moment: {first} and then {second}");
        }
        assert_eq!(server.read("big").len(), 4 << 20);
        // A position of the lost history is refused, also once new content covers that position.
        let position = |offset: &str| offset.split_once('_').unwrap().1.parse::<u64>().unwrap();
        let refusal = |code: &str| {
            let (status, body) = server.get(&format!("/v1/stream/0-first?offset={beyond}"));
            let body = String::from_utf8(body).unwrap();
            assert!(status == 400 && body.contains(code), "{body}");
        };
        if position(&server.next_offset("0-first")) < position(&beyond) {
            refusal("offset_beyond_tail");
        }
        while position(&server.next_offset("0-first")) <= position(&beyond) {
            server.append("0-first", &[b'y'; 10_000]);
        }
        refusal("stale_offset");
        let incarnation = server.next_offset("0-first");
        server.kill();
        // From its second start on, a restored folder is like any other.
        let server = Server::start(&fresh, &SMALL);
        assert_eq!(server.next_offset("0-first"), incarnation);
    }
}

#[test]
fn two_restores_of_one_backup_never_give_out_the_same_offset() {
    let work = tempfile::tempdir().unwrap();
    let (data, target) = (work.path().join("data"), work.path().join("backups"));
    let server = Server::start(&data, &SMALL);
    server.create("a");
    server.append("a", b"one");
    server.kill();
    assert!(thalweg(&["backup", "--from", path(&data), "--to", path(&target)]).status.success());
    let offset = |name: &str| {
        let fresh = work.path().join(name);
        assert!(thalweg(&["restore", path(&target), "--data", path(&fresh)]).status.success());
        let server = Server::start(&fresh, &SMALL);
        assert_eq!(server.read("a"), "one");
        server.create("b");
        (server.next_offset("a"), server.next_offset("b"))
    };
    let (one, other) = (offset("one"), offset("other"));
    assert!(one.0 != other.0 && one.1 != other.1, "{one:?} {other:?}");
}

fn object_names(data: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(data.join("objects")) else { return Vec::new() };
    entries.map(|e| e.unwrap().file_name().into_string().unwrap()).filter(|name| name.ends_with(".obj")).collect()
}

#[test]
fn a_silent_client_loses_its_hold_and_the_space_comes_back() {
    let work = tempfile::tempdir().unwrap();
    let data = work.path().join("data");
    let mut flags = SMALL.to_vec();
    flags.extend(["--backup-idle", "2s", "--merge-fan-in", "2"]);
    let server = Server::start(&data, &flags);
    server.create("a");
    let work_on = |server: &Server| {
        server.append("a", &[b'x'; 100_000]);
        std::thread::sleep(Duration::from_millis(50));
    };
    let listing = loop {
        work_on(&server);
        let (head, body) = server.ask("POST", "/v1/admin/backup", &[], b"");
        assert_eq!(head.status(), 200);
        let listing: serde_json::Value = serde_json::from_slice(&body).unwrap();
        if listing["files"]
            .as_array()
            .unwrap()
            .iter()
            .any(|file| file["path"].as_str().unwrap().starts_with("objects/"))
        {
            break listing;
        }
        let end = format!("/v1/admin/backup/{}", listing["backup"].as_str().unwrap());
        assert_eq!(server.ask("DELETE", &end, &[], b"").0.status(), 204);
    };
    let id = listing["backup"].as_str().unwrap();
    let held: Vec<&str> = listing["files"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|f| f["path"].as_str()?.strip_prefix("objects/"))
        .collect();
    assert!(!held.is_empty());
    let (second, _) = server.ask("POST", "/v1/admin/backup", &[], b"");
    assert_eq!(second.status(), 409, "one at a time");

    // Each request keeps the hold, and held objects survive merges.
    let kept = |server: &Server| server.get(&format!("/v1/admin/backup/{id}/objects/{}?at=0", held[0])).0;
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(3) {
        work_on(&server);
        assert_eq!(kept(&server), 200);
        assert!(held.iter().all(|name| object_names(&data).iter().any(|there| there == name)));
    }
    for (path, status) in
        [("objects/00000000000fffff.obj", 404), ("../FORMAT", 404), ("RUN", 404), ("manifest/root?at=x", 400)]
    {
        assert_eq!(server.get(&format!("/v1/admin/backup/{id}/{path}")).0, status, "{path}");
    }
    assert_eq!(server.ask("PUT", "/v1/admin/backup", &[], b"").0.status(), 405);

    // From here on the client is silent.
    let began = Instant::now();
    while object_names(&data).iter().any(|name| held.contains(&name.as_str())) {
        assert!(began.elapsed() < Duration::from_secs(20), "held objects are not freed");
        work_on(&server);
    }
    assert_eq!(kept(&server), 404);
    backup(&server, &work.path().join("backups"));
    assert_eq!(server.get("/health").0, 200);
}

#[test]
fn a_client_that_is_killed_leaves_no_backup_and_the_next_one_works() {
    let work = tempfile::tempdir().unwrap();
    let (data, target) = (work.path().join("data"), work.path().join("backups"));
    let mut flags = SMALL.to_vec();
    flags.extend(["--backup-idle", "1s"]);
    let server = Server::start(&data, &flags);
    server.create("a");
    (0..160).for_each(|_| server.append("a", &[b'x'; 200_000]));
    let mut client = std::process::Command::new(support::THALWEG)
        .args(["backup", "--server", &server.url, "--to", path(&target)])
        .spawn()
        .unwrap();
    let began = Instant::now();
    while !target.join("unfinished/objects").exists() {
        assert!(began.elapsed() < Duration::from_secs(20), "the backup does not begin");
        std::thread::yield_now();
    }
    client.kill().unwrap();
    client.wait().unwrap();
    assert!(generations(&target).is_empty());
    assert!(!thalweg(&["restore", path(&target), "--data", path(&work.path().join("no"))]).status.success());
    let began = Instant::now();
    loop {
        server.append("a", b"served all the while");
        let done = thalweg(&["backup", "--server", &server.url, "--to", path(&target)]);
        if done.status.success() {
            break;
        }
        assert!(said(&done).contains("a backup is under way"), "{}", said(&done));
        assert!(began.elapsed() < Duration::from_secs(20), "the hold of a dead client is not dropped");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(generations(&target).len(), 1);
    assert!(!target.join("unfinished").exists());
}

#[test]
fn a_damaged_backup_is_refused_and_nothing_is_restored() {
    let work = tempfile::tempdir().unwrap();
    let (data, target) = (work.path().join("data"), work.path().join("backups"));
    let server = Server::start(&data, &SMALL);
    server.create("a");
    server.append("a", &[b'x'; 200_000]);
    settled(&server);
    assert!(!object_names(&data).is_empty());
    server.append("a", b"and the journal");
    backup(&server, &target);
    server.kill();
    let from = generations(&target).pop().unwrap();
    let fresh = work.path().join("fresh");
    let files = |dir: &str| fs::read_dir(from.join(dir)).unwrap().map(|e| e.unwrap().path()).collect::<Vec<_>>();
    let mut all = vec![from.join("BACKUP"), from.join("manifest/root")];
    all.extend(files("objects"));
    all.extend(files("journal"));
    assert!(all.len() >= 4, "{all:?}");
    for file in &all {
        let whole = fs::read(file).unwrap();
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 4;
        for damaged in [Some(flipped.as_slice()), Some(&whole[..whole.len() - 1]), None] {
            match damaged {
                Some(bytes) => fs::write(file, bytes).unwrap(),
                None => fs::remove_file(file).unwrap(),
            }
            let refused = thalweg(&["restore", path(&from), "--data", path(&fresh)]);
            assert!(!refused.status.success(), "{} may be damaged", file.display());
            assert!(!fresh.join("FORMAT").exists());
            assert!(!fresh.join("manifest/root").exists(), "an unfinished restore is removed");
        }
        fs::write(file, &whole).unwrap();
    }
    // A backup is not a data folder: no server can open it by mistake, and spoil it.
    let refused = thalweg(&["serve", "--listen", "127.0.0.1:0", "--data", path(&from)]);
    assert!(said(&refused).contains("not a whole data folder"), "{}", said(&refused));
    assert!(thalweg(&["restore", path(&from), "--data", path(&fresh)]).status.success());
    let refused = thalweg(&["restore", path(&from), "--data", path(&fresh)]);
    assert!(said(&refused).contains("is not empty"), "{}", said(&refused));
}

#[test]
fn old_backups_go_when_only_some_are_kept_and_the_rest_stays_whole() {
    let work = tempfile::tempdir().unwrap();
    let (data, target) = (work.path().join("data"), work.path().join("backups"));
    let server = Server::start(&data, &SMALL);
    server.create("a");
    server.append("a", b"one");
    server.kill();
    for _ in 0..4 {
        let done = thalweg(&["backup", "--from", path(&data), "--to", path(&target), "--keep", "2"]);
        assert!(done.status.success(), "{}", said(&done));
    }
    let left = generations(&target);
    assert_eq!(left.len(), 2);
    for (n, from) in left.iter().enumerate() {
        let fresh = work.path().join(n.to_string());
        assert!(thalweg(&["restore", path(from), "--data", path(&fresh)]).status.success());
    }
}

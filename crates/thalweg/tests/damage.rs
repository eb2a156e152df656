//! Damage to stored data is found by the scrub, named to administrators only, and affects no other data.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "support/mod.rs"]
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use support::{Server, path, said, thalweg};

const SCRUBBED: [&str; 6] = ["--scrub-every", "200ms", "--chunk-cache-bytes", "0", "--window-bytes", "64KiB"];

/// Settles at once.
fn settling(data: &Path) -> Server {
    let flags = ["--settle-after", "50ms", "--purge-after", "200ms", "--journal-segment-bytes", "256KiB"];
    Server::start(data, &[&SCRUBBED[..], &flags].concat())
}

/// Keeps everything in the journal until it has a megabyte.
fn gathering(data: &Path) -> Server {
    let flags = ["--settle-after", "1h", "--settle-bytes", "1MiB", "--journal-segment-bytes", "64KiB"];
    Server::start(data, &[&SCRUBBED[..], &flags, &["--journal-bound-bytes", "4MiB"]].concat())
}

/// Content in which every part is unique.
fn content(word: &str) -> Vec<u8> {
    (0..8_000).flat_map(|n| format!("{word} {n:05}\n").into_bytes()).collect()
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < Duration::from_secs(60), "it is not so that {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn metric(server: &Server, name: &str) -> f64 {
    let page = String::from_utf8(server.get("/metrics").1).unwrap();
    let line = page.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
    line.unwrap_or_else(|| panic!("no metric {name}")).rsplit(' ').next().unwrap().parse().unwrap()
}

fn health(server: &Server) -> String {
    let (status, body) = server.get("/health");
    assert_eq!(status, 200, "the rest is served");
    String::from_utf8(body).unwrap()
}

/// Flips a bit of the first byte of `word` in the file of a folder that has it; returns the file.
fn flip(folder: &Path, word: &str) -> PathBuf {
    for entry in fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        let bytes = fs::read(&file).unwrap();
        if let Some(at) = memchr::memmem::find(&bytes, word.as_bytes()) {
            use std::os::unix::fs::FileExt;
            let open = fs::File::options().write(true).open(&file).unwrap();
            open.write_all_at(&[bytes[at] ^ 1], at as u64).unwrap();
            return file;
        }
    }
    panic!("no file of {} holds {word}", folder.display());
}

fn file_name(file: &Path) -> &str {
    file.file_name().unwrap().to_str().unwrap()
}

/// Output of `thalweg check`, and whether it found no damage.
fn check(args: &[&str]) -> (bool, String) {
    let output = thalweg(&[&["check"], args].concat());
    let words = format!("{}{}", String::from_utf8_lossy(&output.stdout), said(&output));
    (output.status.success(), words)
}

/// A read of the damaged stream is refused with its name and position; the other stream is served, and takes appends.
fn assert_only_that_is_refused(server: &Server, damaged: &str, whole: &str, words: &mut Vec<u8>) {
    let (status, body) = server.get(&format!("/v1/stream/{damaged}?offset=-1"));
    let body = String::from_utf8_lossy(&body).into_owned();
    assert_eq!(status, 500, "{body}");
    assert!(body.contains(r#""code":"corrupt""#), "{body}");
    assert!(body.contains(&format!("`{damaged}` is damaged from ")), "{body}");
    let behind = body.split(" to ").nth(1).and_then(|rest| rest.split(':').next()).unwrap();
    let (status, _) = server.get(&format!("/v1/stream/{damaged}?offset={behind}"));
    assert_eq!(status, 200, "content behind {behind} is served");
    server.append(whole, b"and more\n");
    words.extend(b"and more\n");
    assert_eq!(server.read(whole).into_bytes(), *words);
}

#[test]
fn damage_of_an_object_is_found_unasked_named_and_gone_with_its_stream() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = settling(&data);
    let mut words = content("whole");
    for (name, content) in [("secret-name", content("rotten")), ("other", words.clone())] {
        server.create(name);
        server.append(name, &content);
    }
    until("everything is settled", || metric(&server, "thalweg_settle_lag_bytes") == 0.0);
    assert_eq!(health(&server), "ok\n");
    let file = flip(&data.join("objects"), "rotten 04000");

    until("the scrub finds it unasked", || health(&server).starts_with("degraded: "));
    assert!(!health(&server).contains("secret-name"), "clients without a right to a stream do not learn its name");
    until("it is the object's", || metric(&server, "thalweg_damage{kind=\"object\"}") == 1.0);
    assert!(metric(&server, "thalweg_scrub_bytes_total") > 0.0);
    assert_only_that_is_refused(&server, "secret-name", "other", &mut words);
    let (whole, said) = check(&["--server", &server.url]);
    assert!(!whole && said.contains(file_name(&file)) && said.contains("stream `secret-name`"), "{said}");
    assert!(!said.contains("`other`"), "{said}");

    let (head, _) = server.ask("DELETE", "/v1/stream/secret-name", &[], b"");
    assert!(head.status().is_success());
    until("the damage went with its stream", || health(&server) == "ok\n");
    assert_eq!(metric(&server, "thalweg_damage{kind=\"object\"}"), 0.0);
    until("nothing holds it any longer", || check(&["--server", &server.url]).0);
    assert_eq!(server.read("other").into_bytes(), words);
}

#[test]
fn a_stopped_folder_is_checked_to_its_end_and_all_damage_is_listed() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = settling(&data);
    for name in ["first", "second", "third"] {
        server.create(name);
        server.append(name, &content(name));
    }
    until("everything is settled", || metric(&server, "thalweg_settle_lag_bytes") == 0.0);
    server.kill();
    assert!(check(&[path(&data)]).0);
    let files = [flip(&data.join("objects"), "first 03000"), flip(&data.join("objects"), "third 04000")];
    let (whole, said) = check(&[path(&data)]);
    assert!(!whole && said.contains("is damaged at 2 places"), "{said}");
    for file in &files {
        assert!(said.contains(file_name(file)), "{said}");
    }
    assert!(said.contains("stream `first`") && said.contains("stream `third`"), "{said}");
    assert!(!said.contains("stream `second`"), "{said}");
}

#[test]
fn damage_of_the_journal_is_found_unasked_named_and_gone_with_its_stream() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = gathering(&data);
    server.create("rots");
    server.create("other");
    let mut words = Vec::new();
    for n in 0..20 {
        server.append("rots", format!("rotten {n:05} {}\n", "x".repeat(10_000)).as_bytes());
    }
    for _ in 0..10 {
        let more = "y".repeat(20_000);
        server.append("other", more.as_bytes());
        words.extend(more.into_bytes());
    }
    let file = flip(&data.join("journal"), "rotten 00002");

    until("the scrub finds it unasked", || health(&server).starts_with("degraded: "));
    assert!(metric(&server, "thalweg_damage{kind=\"journal\"}") >= 1.0);
    assert_only_that_is_refused(&server, "rots", "other", &mut words);
    let (whole, said) = check(&["--server", &server.url]);
    assert!(!whole && said.contains(file_name(&file)) && said.contains("stream `rots`"), "{said}");
    assert!(!said.contains("`other`"), "{said}");

    let (head, _) = server.ask("DELETE", "/v1/stream/rots", &[], b"");
    assert!(head.status().is_success());
    // Once the stream is deleted, the frame is not needed, so settling continues and frees its segment.
    for _ in 0..100 {
        let more = "z".repeat(20_000);
        server.append("other", more.as_bytes());
        words.extend(more.into_bytes());
    }
    until("the damage went with its segment", || health(&server) == "ok\n");
    assert!(check(&["--server", &server.url]).0);
    assert_eq!(server.read("other").into_bytes(), words);
}

#[test]
fn a_damaged_segment_of_a_stopped_folder_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = gathering(&data);
    server.create("rots");
    for n in 0..20 {
        server.append("rots", format!("rotten {n:05} {}\n", "x".repeat(10_000)).as_bytes());
    }
    server.kill();
    assert!(check(&[path(&data)]).0);
    let file = flip(&data.join("journal"), "rotten 00002");
    let (whole, said) = check(&[path(&data)]);
    assert!(!whole && said.contains(file_name(&file)) && said.contains("at byte "), "{said}");
}

#[test]
fn a_lost_object_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = settling(&data);
    let mut words = content("whole");
    server.create("lost");
    server.append("lost", &content("lost"));
    until("everything is settled", || metric(&server, "thalweg_settle_lag_bytes") == 0.0);
    let file = flip(&data.join("objects"), "lost 00000");
    server.create("other");
    server.append("other", &words);
    until("everything is settled", || metric(&server, "thalweg_settle_lag_bytes") == 0.0);
    fs::remove_file(&file).unwrap();
    until("the scrub finds it unasked", || health(&server).starts_with("degraded: "));
    let (whole, said) = check(&["--server", &server.url]);
    assert!(!whole && said.contains(file_name(&file)) && said.contains("stream `lost`"), "{said}");
    words.extend(b"and more\n");
    server.append("other", b"and more\n");
    assert_eq!(server.read("other").into_bytes(), words);
}

/// Makes a token and appends its lines to the file.
fn token(file: &Path, name: &str, scope: &str) -> String {
    use std::io::Write;
    let made = thalweg(&["token", "new", "--name", name, scope, "*"]);
    fs::File::options().create(true).append(true).open(file).unwrap().write_all(&made.stdout).unwrap();
    said(&made).lines().last().unwrap().to_owned()
}

#[test]
fn only_administrators_ask_for_a_check_and_learn_names() {
    let dir = tempfile::tempdir().unwrap();
    let (data, tokens) = (dir.path().join("data"), dir.path().join("tokens.toml"));
    let (reader, admin) = (token(&tokens, "reader", "--read"), token(&tokens, "admin", "--admin"));
    let server = Server::start(&data, &["--tokens", path(&tokens), "--auth", "on", "--scrub-rate", "0"]);
    for (method, secret, status) in [
        ("GET", None, 401),
        ("POST", None, 401),
        ("GET", Some(&reader), 403),
        ("POST", Some(&reader), 403),
        ("GET", Some(&admin), 200),
        ("POST", Some(&admin), 202),
        ("DELETE", Some(&admin), 405),
    ] {
        let bearer = secret.map(|secret| format!("Bearer {secret}"));
        let headers: Vec<_> = bearer.iter().map(|bearer| ("authorization", bearer.as_str())).collect();
        let (head, body) = server.ask(method, "/v1/admin/check", &headers, b"");
        assert_eq!(head.status(), status, "{method} {}", String::from_utf8_lossy(&body));
    }
    assert_eq!(server.get("/health"), (200, b"ok\n".to_vec()), "for everybody");
    assert!(!check(&["--server", &server.url, "--token", &reader]).0);
    // It is read although nothing is read unasked.
    let (whole, said) = check(&["--server", &server.url, "--token", &admin]);
    assert!(whole, "{said}");
}

//! A slow or missing reader of the log does not disturb the server: it continues, and obeys signals.

use crate::rig::{Rig, eventually, token};
use rustix::fs::{OFlags, fcntl_setfl};
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

/// A pipe that is full, and has no reader.
fn stalled() -> (std::io::PipeReader, Stdio) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    while writer.write(&[b'.'; 1024]).is_ok() {}
    while writer.write(b".").is_ok() {}
    fcntl_setfl(&writer, OFlags::empty()).unwrap();
    (reader, writer.into())
}

/// A pipe whose reader is gone.
fn gone() -> Stdio {
    std::io::pipe().unwrap().1.into()
}

fn dropped_lines(rig: &Rig, token: &str) -> u64 {
    let page = rig.raw(b"GET /metrics", &[&format!("Authorization: Bearer {token}")], "").1;
    let line = page.lines().find_map(|line| line.strip_prefix("thalweg_log_lines_dropped_total "));
    line.unwrap_or_else(|| panic!("{page}")).parse().unwrap()
}

#[test]
fn a_log_that_nobody_reads_delays_neither_a_revocation_nor_a_stop() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens.toml");
    let (admin, leaked) = (token(&file, "admin", &["--admin", "*"]), token(&file, "leaked", &["--read", "*"]));
    let (reader, error) = stalled();
    let (out_reader, out) = stalled();
    let mut rig = Rig::start_with(folder, &["--tokens", "$/tokens.toml"], out, error);
    assert_eq!(rig.ask(&admin, "PUT /v1/stream/a", "x"), 201);
    // Each is a line of the log, as the first one at the start was.
    rig.signal("-HUP");
    assert_eq!(rig.ask(&leaked, "GET /v1/stream/a", ""), 200);
    let kept = fs::read_to_string(&file).unwrap();
    fs::write(&file, &kept[..kept.rfind("[[token]]").unwrap()]).unwrap();
    eventually(|| rig.ask(&leaked, "GET /v1/stream/a", "") == 401);
    assert_eq!(rig.ask(&admin, "POST /v1/stream/a", "y"), 204);
    assert_eq!(dropped_lines(&rig, &admin), 0, "few lines wait until somebody reads");
    rig.signal("-TERM");
    assert_eq!(rig.ended(), Some(0));
    drop((reader, out_reader));
}

#[test]
fn a_server_whose_output_nobody_can_read_serves_and_stops() {
    let mut rig = Rig::start_with(tempfile::tempdir().unwrap(), &[], gone(), gone());
    assert_eq!(rig.raw(b"GET /health", &[], "").0, 200);
    rig.signal("-PIPE");
    assert_eq!(rig.raw(b"PUT /v1/stream/a", &[], "x").0, 201);
    rig.signal("-TERM");
    assert_eq!(rig.ended(), Some(0));
}

#[test]
fn a_terminal_that_goes_away_ends_no_server() {
    let mut rig = Rig::start(tempfile::tempdir().unwrap(), &[]);
    assert_eq!(rig.raw(b"PUT /v1/stream/a", &[], "x").0, 201);
    for _ in 0..3 {
        rig.signal("-HUP");
        assert_eq!(rig.raw(b"POST /v1/stream/a", &["content-type: application/octet-stream"], "y").0, 204);
    }
    rig.signal("-TERM");
    assert_eq!(rig.ended(), Some(0));
}

#[test]
fn a_start_that_fails_says_so_without_anybody_to_hear_it() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut refused = Command::new(crate::rig::BINARY)
        .args(["serve", "--listen", "0.0.0.0:0", "--data", data.to_str().unwrap()])
        .env_clear()
        .stdout(gone())
        .stderr(gone())
        .spawn()
        .unwrap();
    assert_eq!(refused.wait().unwrap().code(), Some(1));
}

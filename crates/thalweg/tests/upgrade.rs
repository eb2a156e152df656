//! Data folders of earlier versions open, and answer as they did; folders of a later one are refused.
//!
//! Each `tests/upgrade/format-N.txt` is a folder and the answers that its own version gave, written by
//! `tests/upgrade/make.py`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use support::{Server, path, said, thalweg};

const FORMAT_1: &str = include_str!("../../../tests/upgrade/format-1.txt");
const FORMAT_2: &str = include_str!("../../../tests/upgrade/format-2.txt");
const FORMAT_3: &str = include_str!("../../../tests/upgrade/format-3.txt");
const FORMAT_4: &str = include_str!("../../../tests/upgrade/format-4.txt");

fn unhex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2), "{text}");
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// The lines after the comments, as first word and rest.
fn lines(vector: &str) -> impl Iterator<Item = (&str, &str)> {
    vector.lines().filter(|line| !line.starts_with('#')).map(|line| line.split_once(' ').unwrap_or((line, "")))
}

fn unpack(vector: &str, data: &Path) {
    let mut file = None;
    for (word, rest) in lines(vector) {
        match word {
            "file" => {
                let (name, bytes) = rest.rsplit_once(' ').unwrap();
                let to = data.join(name);
                fs::create_dir_all(to.parent().unwrap()).unwrap();
                let made = fs::File::create(to).unwrap();
                made.set_len(bytes.parse().unwrap()).unwrap();
                file = Some(made);
            }
            "at" => {
                let (at, hex) = rest.split_once(' ').unwrap();
                file.as_ref().unwrap().write_all_at(&unhex(hex), at.parse().unwrap()).unwrap();
            }
            _ => {}
        }
    }
}

#[derive(Default, Debug)]
struct Question<'a> {
    method: &'a str,
    path: &'a str,
    send: Vec<(&'a str, &'a str)>,
    with: Vec<u8>,
    status: u16,
    headers: Vec<(&'a str, &'a str)>,
    body: Option<Vec<u8>>,
}

fn questions(vector: &str) -> Vec<Question<'_>> {
    let mut asked: Vec<Question> = Vec::new();
    for (word, rest) in lines(vector) {
        if word == "ask" {
            let (method, path) = rest.split_once(' ').unwrap();
            asked.push(Question { method, path, ..Question::default() });
        }
        let Some(last) = asked.last_mut() else { continue };
        match word {
            "send" => last.send.push(rest.split_once(": ").unwrap()),
            "with" => last.with = unhex(rest),
            "status" => last.status = rest.parse().unwrap(),
            "header" => last.headers.push(rest.split_once(": ").unwrap()),
            "body" => last.body = Some(unhex(rest)),
            _ => {}
        }
    }
    asked
}

#[test]
fn a_folder_of_format_1_answers_as_it_did() {
    answers_as_it_did(FORMAT_1);
}

#[test]
fn a_folder_of_format_2_answers_as_it_did() {
    answers_as_it_did(FORMAT_2);
}

#[test]
fn a_folder_of_format_3_answers_as_it_did() {
    answers_as_it_did(FORMAT_3);
}

#[test]
fn a_folder_of_format_4_answers_as_it_did() {
    answers_as_it_did(FORMAT_4);
}

fn answers_as_it_did(vector: &str) {
    let work = tempfile::tempdir().unwrap();
    let data = work.path().join("data");
    unpack(vector, &data);
    let checked = thalweg(&["check", path(&data)]);
    assert!(checked.status.success(), "{}", said(&checked));
    let questions = questions(vector);
    assert!(questions.len() > 40, "the vector is whole");
    let server = Server::start(&data, &["--settle-after", "1h"]);
    for question in &questions {
        let (head, body) = server.ask(question.method, question.path, &question.send, &question.with);
        assert_eq!(head.status().as_u16(), question.status, "{question:?}");
        for (name, value) in &question.headers {
            let found = head.headers().get(*name).map(|v| v.to_str().unwrap());
            assert_eq!(found, Some(*value), "{name} of {question:?}");
        }
        // The text of a refusal may change.
        if let Some(wanted) = question.body.as_ref().filter(|_| question.status < 400) {
            assert_eq!(&body, wanted, "{question:?}");
        }
    }
    // Killed and settled by this version, it is still the same.
    server.kill();
    let server = Server::start(&data, &["--settle-after", "50ms"]);
    let unsettled = || server.get("/metrics").1;
    let settled = |page: Vec<u8>| String::from_utf8(page).unwrap().contains("\nthalweg_settle_lag_bytes 0\n");
    let began = std::time::Instant::now();
    while !settled(unsettled()) {
        assert!(began.elapsed() < std::time::Duration::from_secs(30), "settling does not end");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(server.read("text"), "süß, unsettled, and new");
    assert_eq!(server.read("fork"), "source 0, source 1, source 2, source 3, source 4, of its own");
    assert_eq!(server.read("heir"), "kept by its fork, and on");
}

#[test]
fn a_folder_of_a_later_version_is_refused_and_left_alone() {
    let work = tempfile::tempdir().unwrap();
    let data = work.path().join("data");
    unpack(FORMAT_1, &data);
    fs::write(data.join("FORMAT"), "9\n").unwrap();
    let before = fs::read(data.join("manifest/root")).unwrap();
    for args in [
        ["serve", "--listen", "127.0.0.1:0", "--data", path(&data)].as_slice(),
        &["check", path(&data)],
        &["backup", "--from", path(&data), "--to", path(&work.path().join("backups"))],
    ] {
        let refused = thalweg(args);
        assert!(!refused.status.success());
        assert!(
            said(&refused).contains("has format 9") && said(&refused).contains("use a newer thalweg"),
            "{}",
            said(&refused)
        );
    }
    assert_eq!(fs::read(data.join("manifest/root")).unwrap(), before);
    assert_eq!(fs::read_to_string(data.join("FORMAT")).unwrap(), "9\n");
}

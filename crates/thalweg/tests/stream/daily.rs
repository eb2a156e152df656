//! Promises of each command without accidents.

use crate::rig::{Rig, command, finish, said};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

#[test]
fn a_stream_lives_from_create_to_delete() {
    let rig = Rig::start();
    assert!(said(&rig.run("create notes --content-type text/plain", "")).contains("created"));
    assert!(said(&rig.run("create notes --content-type text/plain", "")).contains("exists already"));
    assert!(rig.fails("create notes --json", 4).contains("exists_differently"));
    rig.ok("append notes", "one\r\ntwo");
    rig.ok("append notes --close", "\rthree\n");
    assert_eq!(rig.ok("read notes", ""), "one\r\ntwo\rthree\n", "every byte as it was");
    assert_eq!(rig.ok("tail notes --from -1", ""), "one\r\ntwo\rthree\n", "a closed stream has an end");
    assert_eq!(rig.ok("tail notes", ""), "");
    let refused = rig.fails("append notes", 4);
    assert!(refused.contains("409 closed"), "{refused}");
    rig.ok("close notes", "");
    rig.ok("delete notes", "");
    assert!(rig.fails("read notes", 3).contains("not_found"));
    rig.fails("delete notes", 3);
    rig.ok("delete notes --if-exists", "");
}

#[test]
fn a_stream_is_as_durable_as_it_is_asked_for() {
    let rig = Rig::start();
    rig.ok("create tokens --json --durability buffered", "");
    rig.ok("create tokens --json --durability buffered", "");
    assert!(rig.fails("create tokens --json", 4).contains("Stream-Durability differs"));
    assert!(said(&rig.run("create other --durability fast", "")).contains("`durable`, `buffered`"));
    assert!(rig.ok("ls --json", "").contains("\"durability\":\"buffered\""));
}

#[test]
fn json_goes_in_and_comes_out_one_message_per_line() {
    let rig = Rig::start();
    rig.ok("create events --json", "");
    rig.ok("append events --lines --batch 2", "{\"n\":1}\n\n[2, 3]\n\"four\"\n");
    rig.ok("append events --json", "[{\"n\":\n5},6.10]");
    let lines = "{\"n\":1}\n[2, 3]\n\"four\"\n{\"n\":5}\n6.10\n";
    assert_eq!(rig.ok("read events", ""), lines);
    rig.ok("close events", "");
    assert_eq!(rig.ok("tail events --from -1", ""), lines);
}

#[test]
fn a_line_that_is_no_message_is_named() {
    let rig = Rig::start();
    rig.ok("create events --json", "");
    let output = rig.run("append events --lines", "1\n2],[3\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("line 2 is not one JSON value"), "{}", said(&output));
}

#[test]
fn a_name_may_hold_anything_and_a_stream_may_be_made_by_its_first_append() {
    let rig = Rig::start();
    let mut append = rig.command("append --create --content-type text/plain");
    append.arg("a b/ü%?#");
    assert!(finish(append, "x").status.success());
    let mut read = rig.command("read");
    read.arg("a b/ü%?#");
    assert_eq!(finish(read, "").stdout, b"x");
    let refused = rig.fails("append nowhere", 3);
    assert!(refused.contains("--create"), "{refused}");
}

#[test]
fn reading_goes_on_where_it_ended() {
    let rig = Rig::start();
    rig.ok("append big --create --lines", &"0123456789abcdef\n".repeat(300_000));
    let copy = rig.path("copy");
    let output = rig.run(&format!("read big --show-offset --output {}", copy.display()), "");
    assert_eq!(std::fs::metadata(&copy).unwrap().len(), 17 * 300_000, "several pages");
    let offset = said(&output).trim().to_owned();
    assert_eq!(rig.ok(&format!("read big --offset {offset}"), ""), "");
    rig.fails(&format!("read nowhere --output {}", copy.display()), 3);
    assert_eq!(std::fs::metadata(&copy).unwrap().len(), 17 * 300_000, "left alone");
    rig.ok("append big", "more");
    assert_eq!(rig.ok(&format!("read big --offset {offset}"), ""), "more");
    assert_eq!(rig.ok("read big --offset now", ""), "");
    assert!(rig.fails("read big --offset nonsense", 5).contains("bad_offset"));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let rig = Rig::start();
    rig.ok("append big --create --lines", &"0123456789abcdef\n".repeat(100_000));
    let mut read = rig.command("read big").spawn().unwrap();
    let mut first = [0; 16];
    let mut out = read.stdout.take().unwrap();
    out.read_exact(&mut first).unwrap();
    drop(out);
    let output = read.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(said(&output), "");
}

#[test]
fn a_fork_begins_as_its_source() {
    let rig = Rig::start();
    rig.ok("create a/source --json", "");
    rig.ok("append a/source --lines", "1\n2\n3\n");
    rig.ok("fork a/source whole", "");
    rig.ok("fork a/source part --offset -1 --sub-offset 2", "");
    rig.ok("append part --lines", "9\n");
    assert_eq!(rig.ok("read whole", ""), "1\n2\n3\n");
    assert_eq!(rig.ok("read part", ""), "1\n2\n9\n");
    rig.fails("fork nowhere other", 3);
}

#[test]
fn ls_gives_names_that_other_commands_take() {
    let rig = Rig::start();
    for name in ["b", "a/2", "a/1"] {
        rig.ok(&format!("append {name} --create --content-type text/plain"), name);
    }
    let mut create = rig.command("append --create --content-type text/plain");
    create.arg("a/with space");
    assert!(finish(create, "odd").status.success());
    rig.ok("close a/2", "");
    assert_eq!(rig.ok("ls", ""), "a/1\na/2\na/with%20space\nb\n");
    assert_eq!(rig.ok("ls --prefix a/ --limit 2", ""), "a/1\na/2\n");
    assert_eq!(rig.ok("ls --after a/2", ""), "a/with%20space\nb\n");
    assert_eq!(rig.ok("read a/with%20space", ""), "odd");
    let long = rig.ok("ls --long --prefix a/2", "");
    let (header, row) = long.split_once('\n').unwrap();
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(header), ["NAME", "SIZE", "TYPE", "STATE", "KEEPS"]);
    assert_eq!(words(row), ["a/2", "3", "B", "text/plain", "closed", "all"]);
    let json: serde_json::Value = serde_json::from_str(&rig.ok("ls --json --prefix b", "")).unwrap();
    assert_eq!((&json["name"], &json["closed"]), (&"b".into(), &false.into()));
}

#[test]
fn what_a_stream_keeps_can_be_said_when_it_is_made() {
    let rig = Rig::start();
    rig.ok("create log --retention-bytes 1MiB --retention-age 1h", "");
    assert!(said(&rig.run("create log --retention-bytes 1MiB --retention-age 1h", "")).contains("exists already"));
    rig.fails("create log --retention-bytes 2MiB", 4);
}

#[test]
fn tail_shows_what_comes_and_ends_by_ctrl_c() {
    let rig = Rig::start();
    rig.ok("append log --create --content-type text/plain", "before\n");
    let mut tail = rig.command("tail log --from -1").spawn().unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "before");
    rig.ok("append log", "while it watches\n");
    assert_eq!(lines.next().unwrap().unwrap(), "while it watches");
    kill_process(Pid::from_child(&tail), Signal::INT).unwrap();
    assert_eq!(tail.wait().unwrap().code(), Some(0));
    assert!(lines.next().is_none());
}

#[test]
fn lines_are_sent_while_their_source_goes_on() {
    let rig = Rig::start();
    rig.ok("create log --content-type text/plain", "");
    let mut tail = rig.command("tail log --from -1").spawn().unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    let mut append = rig.command("append log --lines --close").stdout(Stdio::null()).spawn().unwrap();
    let mut input = append.stdin.take().unwrap();
    for n in 0..3 {
        input.write_all(format!("line {n}\n").as_bytes()).unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), format!("line {n}"));
    }
    drop(input);
    assert!(append.wait().unwrap().success());
    assert!(lines.next().is_none());
    assert!(tail.wait().unwrap().success(), "the stream is closed");
}

#[test]
fn progress_is_for_a_person_at_a_terminal() {
    let rig = Rig::start();
    rig.ok("create log --content-type text/plain", "");
    // Long enough to need a progress message.
    let line = format!("(echo one; sleep 1.3; echo two) | {} stream append log --lines", env!("CARGO_BIN_EXE_thalweg"));
    let quiet = Command::new("sh").args(["-c", &line]).env("THALWEG_SERVER", rig.url()).output().unwrap();
    assert!(quiet.status.success() && quiet.stderr.is_empty(), "{}", said(&quiet));
    let shown =
        Command::new("script").args(["-qec", &line, "/dev/null"]).env("THALWEG_SERVER", rig.url()).output().unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("8 B  ") && shown.contains(" B/s"), "{shown:?}");
    assert!(shown.contains("log: 2 lines appended (8 B); it ends at "), "{shown:?}");
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let output = finish(command(&format!("http://{free}"), "read x --retry-for 200ms"), "");
    assert_eq!(output.status.code(), Some(6));
    assert!(said(&output).contains(&free.to_string()), "{}", said(&output));
    assert!(said(&output).contains("trying again"), "{}", said(&output));
}

#[test]
fn help_teaches_by_examples() {
    for verb in ["", "create", "append", "read", "tail", "close", "delete", "fork", "ls"] {
        let output = finish(command("http://127.0.0.1:1", &format!("{verb} --help")), "");
        let help = String::from_utf8(output.stdout).unwrap();
        assert!(help.contains("\nExamples:\n") && help.contains(&format!("thalweg stream {verb}")), "{help}");
        assert!(help.contains("THALWEG_SERVER"), "{help}");
    }
}

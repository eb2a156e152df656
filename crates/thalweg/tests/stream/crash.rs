//! `kill -9` of the server while a command is at work.

use crate::rig::{Rig, said};
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

const KILLS: usize = 3;
const LINES: usize = 6_000;

/// Lines numbered from a range.
fn numbered(lines: std::ops::Range<usize>) -> String {
    lines.map(|n| format!("{{\"n\":{n}}}\n")).collect()
}

#[test]
fn lines_are_neither_lost_nor_doubled_when_the_server_is_killed() {
    let mut rig = Rig::start();
    rig.ok("create events --json", "");
    let mut append = rig.command("append events --lines --batch 1 --retry-for 1min").spawn().unwrap();
    let mut input = append.stdin.take().unwrap();
    // The last lines wait for the last kill, however fast the machine is.
    let (killed, last) = std::sync::mpsc::channel();
    let feed = std::thread::spawn(move || {
        input.write_all(numbered(0..LINES - 100).as_bytes())?;
        let _ = last.recv();
        input.write_all(numbered(LINES - 100..LINES).as_bytes())
    });
    for kill in 1..=KILLS {
        // In the midst of it: some of the lines are in, and some are not.
        crate::rig::until("lines arrive", || {
            let there = rig.ok("read events", "").lines().count();
            (there >= kill * LINES / (KILLS + 2)).then_some(())
        });
        rig.kill();
        rig.start_again();
    }
    killed.send(()).unwrap();
    let output = append.wait_with_output().unwrap();
    feed.join().unwrap().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("trying again"), "it noticed nothing: {}", said(&output));
    assert!(rig.ok("read events", "") == numbered(0..LINES), "lines are lost, doubled or out of order");
}

#[test]
fn a_named_producer_goes_on_where_an_earlier_run_was_broken_off() {
    let rig = Rig::start();
    rig.ok("create events --json", "");
    rig.ok("append events --lines --batch 10 --producer import", &numbered(0..50));
    let output = rig.run("append events --lines --batch 10 --producer import", &numbered(0..100));
    assert!(said(&output).contains("50 lines appended; 50 were there"), "{}", said(&output));
    assert!(rig.ok("read events", "") == numbered(0..100));
    // The same lines once more, on purpose.
    rig.ok("append events --lines --batch 10 --producer import --epoch 1", &numbered(0..1));
    assert_eq!(rig.ok("read events", "").lines().count(), 101);
    assert!(rig.fails("append events --json --producer import", 4).contains("stale_epoch"));
}

#[test]
fn tail_lives_through_a_restart_and_shows_every_line_once() {
    let mut rig = Rig::start();
    rig.ok("create events --json", "");
    let mut tail = rig.command("tail events --from now").stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    // It has begun once it shows something.
    let mut first = 0;
    let mut shown = Vec::new();
    std::thread::scope(|scope| {
        let (rig, first) = (&rig, &mut first);
        let (begun, wait) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || {
            while wait.try_recv().is_err() {
                rig.ok("append events --json", &format!("{{\"n\":{first}}}"));
                *first += 1;
            }
        });
        shown.push(lines.next().unwrap().unwrap());
        begun.send(()).unwrap();
    });
    for _ in 0..2 {
        rig.kill();
        rig.start_again();
        rig.ok("append events --lines", &numbered(first..first + 50));
        first += 50;
    }
    rig.ok("close events", "");
    shown.extend(lines.map(Result::unwrap));
    assert!(tail.wait().unwrap().success());
    let all = rig.ok("read events", "");
    let rest: Vec<_> = all.lines().skip_while(|line| *line != shown[0]).collect();
    assert_eq!(shown, rest);
    assert!(rest.len() > 100);
}

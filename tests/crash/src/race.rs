//! Writers that race for the tail of one stream with `If-Match`: of those that expect the same tail one wins.
//!
//! Every line says which tail its writer expected. So the stream itself tells whether each condition held: the next
//! line expects the end of the one before it.

use crate::content::filler;
use crate::http::Request;
use crate::session::{Down, Session};
use crate::world::{Sabotage, World};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

const WRITERS: u64 = 3;
const ATTEMPTS: u64 = 60;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Unknown,
    /// It ends there.
    Taken(String),
    Refused,
}

struct Track {
    path: String,
    /// Writers that are not through.
    racing: AtomicUsize,
    outcomes: Mutex<BTreeMap<(u64, u64), Outcome>>,
}

impl Track {
    fn new(number: u64) -> Arc<Self> {
        Arc::new(Self {
            path: format!("/v1/stream/crash/race/{number}"),
            racing: AtomicUsize::new(usize::try_from(WRITERS).unwrap_or(0)),
            outcomes: Mutex::default(),
        })
    }

    fn note(&self, writer: u64, number: u64, outcome: Outcome) {
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner).insert((writer, number), outcome);
    }
}

pub(crate) fn start(world: &Arc<World>) -> Vec<JoinHandle<()>> {
    let current = Arc::new(Mutex::new(Track::new(0)));
    let now = |current: &Mutex<Arc<Track>>| Arc::clone(&current.lock().unwrap_or_else(PoisonError::into_inner));
    let run = move |world: &World, current: &Mutex<Arc<Track>>, writer: u64| {
        let mut session = Session::new(world, "race");
        let mut rounds = 0;
        while !world.over() {
            let track = now(current);
            race(&mut session, &track, writer);
            track.racing.fetch_sub(1, Ordering::AcqRel);
            rounds += 1;
            if writer == 0 {
                while track.racing.load(Ordering::Acquire) > 0 && world.report.clean() {
                    std::thread::sleep(Duration::from_millis(3));
                }
                if !audit(&mut session, &track) {
                    return;
                }
                *current.lock().unwrap_or_else(PoisonError::into_inner) = Track::new(rounds);
            }
            while !world.over() && Arc::ptr_eq(&track, &now(current)) {
                std::thread::sleep(Duration::from_millis(3));
            }
        }
    };
    let spawn = |writer| {
        let (world, current) = (Arc::clone(world), Arc::clone(&current));
        std::thread::spawn(move || run(&world, &current, writer))
    };
    (0..WRITERS).map(spawn).collect()
}

/// All attempts of one writer.
fn race(session: &mut Session<'_>, track: &Track, writer: u64) {
    let world = session.world;
    let mut expected = None;
    let mut number = 0;
    while number < ATTEMPTS && world.report.clean() {
        let step = attempt(session, track, writer, &mut number, &mut expected);
        if step.is_err() {
            expected = None;
            if !session.revive() {
                return;
            }
        }
    }
}

fn attempt(
    session: &mut Session<'_>,
    track: &Track,
    writer: u64,
    number: &mut u64,
    expected: &mut Option<String>,
) -> Result<(), Down> {
    let world = session.world;
    let Some(tail) = expected.take() else {
        let answer = session.call(&Request::new("PUT", &track.path, &[("content-type", "text/plain")], &[]))?;
        match answer.status {
            200 | 201 => *expected = answer.position(),
            429 | 503 => {}
            status => world.violation(format!("PUT {}: {status} {:?}", track.path, answer.text())),
        }
        return Ok(());
    };
    let (mine, body) = (*number, line(writer, *number, &tail));
    *number += 1;
    let tag = format!("\"{tail}\"");
    let mut headers = vec![("content-type", "text/plain")];
    // Only where another one has won already is it seen that the condition is missing.
    if mine < 20 || !world.sabotage(Sabotage::Unconditional) {
        headers.push(("if-match", tag.as_str()));
    } else {
        let other = Request::new("POST", &track.path, &headers, &line(writer, ATTEMPTS, &tail));
        track.note(writer, ATTEMPTS, Outcome::Unknown);
        session.call(&other)?;
    }
    track.note(writer, mine, Outcome::Unknown);
    let answer = session.call(&Request::new("POST", &track.path, &headers, &body))?;
    match answer.status {
        200 | 204 => {
            let end = answer.position().unwrap_or_default();
            if answer.header("etag").map(|tag| tag.trim_matches('"')) != Some(end.as_str()) {
                world.violation(format!("{}: the tag after {tail} is {:?}", track.path, answer.header("etag")));
            }
            world.report.count("conditional appends taken");
            track.note(writer, mine, Outcome::Taken(end.clone()));
            *expected = Some(end);
        }
        412 => {
            let end = answer.position().unwrap_or_default();
            if end <= tail {
                world.violation(format!("{}: 412 for {tail}, but the tail is {end:?}", track.path));
            }
            world.report.count("conditional appends refused");
            track.note(writer, mine, Outcome::Refused);
            *expected = Some(end);
        }
        429 | 503 => {
            track.note(writer, mine, Outcome::Refused);
            *expected = Some(tail);
        }
        status => world.violation(format!("POST {}: {status} {:?}", track.path, answer.text())),
    }
    Ok(())
}

fn line(writer: u64, number: u64, expected: &str) -> Vec<u8> {
    let mut out = format!("{writer} {number} {expected} ").into_bytes();
    filler(writer * 131 + number, usize::try_from(number * 37 % 400).unwrap_or(0), true, &mut out);
    out.push(b'\n');
    out
}

/// Whether to go on.
fn audit(session: &mut Session<'_>, track: &Track) -> bool {
    let world = session.world;
    let content = loop {
        match read(session, &track.path) {
            Ok(content) => break content,
            Err(Down) if !session.revive() => return false,
            Err(Down) => {}
        }
    };
    let outcomes = track.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
    match compare(&outcomes, &content) {
        Ok(()) => world.report.count("races compared"),
        Err(what) => world.violation(format!("{}: {what}", track.path)),
    }
    world.report.clean()
}

fn read(session: &mut Session<'_>, path: &str) -> Result<Vec<u8>, Down> {
    let (mut content, mut at) = (Vec::new(), "-1".to_owned());
    loop {
        let answer = session.call(&Request::get(&format!("{path}?offset={at}")))?;
        match answer.status {
            200 => content.extend_from_slice(&answer.body),
            // No writer got as far as to create it.
            404 => return Ok(content),
            status => {
                session.world.violation(format!("GET {path}: {status} {:?}", answer.text()));
                return Err(Down);
            }
        }
        if answer.is_true("stream-up-to-date") {
            return Ok(content);
        }
        at = answer.position().unwrap_or_default();
    }
}

/// Every line stands where its writer expected to, all that were taken are there, and none that was refused.
fn compare(outcomes: &BTreeMap<(u64, u64), Outcome>, content: &[u8]) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    let mut tails = BTreeSet::new();
    let mut tail: Option<String> = None;
    for stored in content.split_inclusive(|byte| *byte == b'\n') {
        let text = String::from_utf8_lossy(stored);
        let mut parts = text.split(' ');
        let mut number = || parts.next().and_then(|part| part.parse::<u64>().ok());
        let (Some(writer), Some(number)) = (number(), number()) else {
            return Err(format!("a line that nobody wrote: {text:?}"));
        };
        let expected = parts.next().unwrap_or_default();
        if stored != line(writer, number, expected) {
            return Err(format!("line {number} of writer {writer} is not as it was sent"));
        }
        if tail.as_ref().is_some_and(|tail| tail != expected) {
            return Err(format!("line {number} of writer {writer} expected {expected}, and stands at {tail:?}"));
        }
        if !tails.insert(expected.to_owned()) {
            return Err(format!("two writers that expected {expected} won, the second is {writer}"));
        }
        tail = match outcomes.get(&(writer, number)) {
            Some(Outcome::Taken(end)) => Some(end.clone()),
            Some(Outcome::Unknown) => None,
            other => return Err(format!("line {number} of writer {writer} is there, but was {other:?}")),
        };
        seen.insert((writer, number));
    }
    match outcomes.iter().find(|(at, outcome)| matches!(outcome, Outcome::Taken(_)) && !seen.contains(at)) {
        Some(((writer, number), _)) => Err(format!("line {number} of writer {writer} was taken, but is not there")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(end: &str) -> Outcome {
        Outcome::Taken(end.to_owned())
    }

    fn content(lines: &[(u64, u64, &str)]) -> Vec<u8> {
        lines.iter().flat_map(|(writer, number, expected)| line(*writer, *number, expected)).collect()
    }

    #[test]
    fn lines_stand_where_they_were_expected_to_and_those_in_doubt_may_be_missing() {
        let outcomes = BTreeMap::from([
            ((0, 0), taken("b")),
            ((1, 0), Outcome::Refused),
            ((1, 1), Outcome::Unknown),
            ((0, 1), taken("d")),
        ]);
        compare(&outcomes, &content(&[(0, 0, "a"), (1, 1, "b"), (0, 1, "c")])).unwrap();
        compare(&outcomes, &content(&[(0, 0, "a"), (0, 1, "b")])).unwrap();
    }

    #[test]
    fn two_winners_a_lost_winner_and_a_refused_line_are_found() {
        let outcomes = BTreeMap::from([((0, 0), taken("b")), ((1, 0), taken("c")), ((2, 0), Outcome::Refused)]);
        for lines in [&[(0, 0, "a"), (1, 0, "a")][..], &[(0, 0, "a")], &[(0, 0, "a"), (1, 0, "b"), (2, 0, "c")]] {
            assert!(compare(&outcomes, &content(lines)).is_err(), "{lines:?}");
        }
        compare(&outcomes, &content(&[(0, 0, "a"), (1, 0, "b")])).unwrap();
    }
}

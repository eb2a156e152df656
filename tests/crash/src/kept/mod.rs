//! A worker with streams that keep only their newest content: by bytes, by age, by both.
//!
//! Trimmed content never comes back, content above it is whole, a read below it is refused, and nothing is trimmed that
//! is still to be kept. At the end of a run, without writers, everything beyond the bounds goes.

mod forks;

use crate::http::Request;
use crate::numbered::{self, Numbered, Read};
use crate::session::{Down, Session};
use crate::world::{Sabotage, World};
use forks::Fork;
use std::time::{Duration, Instant};

const LIVE: usize = 6;
/// Lines after which a stream is deleted, so that its notes stay small.
const LINES_MAX: u64 = 6_000;
/// Between the server's clock for ages and ours.
const MARGIN: Duration = Duration::from_millis(500);
/// How long giving up may take once it is due.
const PATIENCE: Duration = Duration::from_secs(40);
/// The longest line, in bytes.
const LINE_MAX: u64 = 4_000;

struct Kept {
    lines: Numbered,
    bytes: Option<u64>,
    age: Option<Duration>,
    /// The first line that the last read still found: it only grows.
    floor: u64,
    floor_offset: String,
    /// Its deletion was asked for. If the answer was lost, it may have happened.
    leaving: bool,
}

pub(crate) fn work(world: &World, seed: u64) {
    let rng = oorandom::Rand64::new(u128::from(seed) + 515_151);
    let mut keeper =
        Keeper { session: Session::new(world, "kept"), rng, names: 0, streams: Vec::new(), forks: Vec::new() };
    let mut last = false;
    while world.report.clean() {
        let over = world.over();
        if over && last {
            keeper.wind_down();
            return;
        }
        last = over;
        let outcome = if over { keeper.check_all() } else { keeper.step() };
        if outcome.is_err() && !keeper.session.revive() {
            return;
        }
        if outcome.is_err() {
            last = false;
        }
        std::thread::sleep(Duration::from_millis(8));
    }
}

/// Deletes a stream, or asks again whether it is deleted: the answer to an earlier attempt may be lost. Whether it is
/// gone.
fn delete(session: &mut Session<'_>, path: &str, leaving: &mut bool) -> Result<bool, Down> {
    let was_leaving = std::mem::replace(leaving, true);
    let status = session.call(&Request::new("DELETE", path, &[], &[]))?.status;
    let absent = matches!(status, 404 | 410);
    if absent && was_leaving {
        session.world.report.count("deletes whose answer was lost had happened");
    } else if absent {
        session.world.violation(format!("{path} is {status}, and nobody has deleted it"));
    }
    Ok(status == 204 || absent)
}

struct Keeper<'a> {
    session: Session<'a>,
    rng: oorandom::Rand64,
    names: u64,
    streams: Vec<Kept>,
    forks: Vec<Fork>,
}

impl Keeper<'_> {
    fn step(&mut self) -> Result<(), Down> {
        if self.streams.len() < LIVE {
            self.names += 1;
            let bytes = [Some(20_000), None, Some(150_000), Some(60_000)][usize::try_from(self.names % 4).unwrap_or(0)];
            let seconds = if bytes.is_none() || self.names % 8 == 2 { Some(self.rng.rand_range(2..7)) } else { None };
            let mut headers = Vec::new();
            headers.extend(bytes.map(|bytes: u64| ("stream-retention-bytes", bytes.to_string())));
            headers.extend(seconds.map(|seconds| ("stream-retention-seconds", seconds.to_string())));
            self.streams.push(Kept {
                lines: Numbered::new(format!("/v1/stream/crash/kept/{}", self.names), headers),
                bytes,
                age: seconds.map(Duration::from_secs),
                floor: 0,
                floor_offset: String::new(),
                leaving: false,
            });
        }
        let which = usize::try_from(self.rng.rand_range(0..self.streams.len() as u64)).unwrap_or(0);
        if self.streams[which].lines.next > LINES_MAX {
            return self.leave(which);
        }
        match self.rng.rand_range(0..20) {
            0 => self.fork(which),
            1 => {
                let fork = self.rng.rand_range(0..self.forks.len().max(1) as u64);
                self.check_fork(usize::try_from(fork).unwrap_or(0))
            }
            2..14 => {
                let many = self.rng.rand_range(1..30);
                self.streams[which].lines.write(&mut self.session, many)
            }
            14..18 => self.check(which).map(drop),
            _ => self.read_from_the_middle(which),
        }
    }

    fn leave(&mut self, which: usize) -> Result<(), Down> {
        let stream = &mut self.streams[which];
        if delete(&mut self.session, &stream.lines.path, &mut stream.leaving)? {
            self.streams.remove(which);
        }
        Ok(())
    }

    fn check_all(&mut self) -> Result<(), Down> {
        // Those that leave go from both lists on the way.
        (0..self.forks.len()).rev().try_for_each(|which| self.check_fork(which))?;
        for which in (0..self.streams.len()).rev() {
            if self.streams[which].leaving {
                self.leave(which)?;
            } else {
                self.check(which)?;
            }
        }
        Ok(())
    }

    /// The content must be a whole end of the written lines, and begin no earlier than before. Its size in bytes, if it
    /// could be had.
    fn check(&mut self, which: usize) -> Result<u64, Down> {
        let stream = &mut self.streams[which];
        stream.lines.write(&mut self.session, 0)?;
        if stream.lines.acknowledged < stream.lines.next {
            return Ok(u64::MAX);
        }
        let world = self.session.world;
        let path = stream.lines.path.clone();
        let (span, bytes) = match numbered::read(&mut self.session, &path, "-1")? {
            Read::Lines(span, bytes) => (span, bytes),
            // A page was given up before it was read.
            Read::Refused(answer) if answer.status == 410 => return Ok(u64::MAX),
            Read::Refused(answer) => {
                world.violation(format!("{path} from its start: {} {:?}", answer.status, answer.text()));
                return Err(Down);
            }
        };
        let read_at = Instant::now();
        let next = stream.lines.next;
        let (first, end) = span.unwrap_or((next, next));
        if first + 1 < next && world.sabotage(Sabotage::Regrown) {
            stream.floor = first + 1;
        }
        if end != next {
            world.violation(format!("{path}: {next} lines are acknowledged, but the last is {end}"));
        }
        if first < stream.floor {
            world.violation(format!("{path}: line {first} is there again, {} was the first one before", stream.floor));
        }
        stream.floor = stream.floor.max(first);
        if let (Some(bound), None) = (stream.bytes, stream.age)
            && first > 0
            && bytes < bound
        {
            world.violation(format!("{path}: {bytes} bytes are left of the {bound} to be kept, from line {first}"));
        }
        if let (Some(age), None) = (stream.age, stream.bytes)
            && let Some(gone) = usize::try_from(first).ok().and_then(|first| first.checked_sub(1))
            && let Some((sent, _)) = stream.lines.sent.get(gone)
            && read_at.duration_since(*sent) + MARGIN < age
        {
            world
                .violation(format!("{path}: line {gone} is gone after {:?} of {age:?}", read_at.duration_since(*sent)));
        }
        let head = self.session.call(&Request::new("HEAD", &path, &[], &[]))?;
        let earliest = head.header("stream-earliest-offset").unwrap_or_default();
        if earliest < stream.floor_offset.as_str() || (first > 0 && earliest.is_empty()) {
            world.violation(format!(
                "{path}: it begins at {earliest:?} with line {first}, at {:?} before",
                stream.floor_offset
            ));
        }
        earliest.clone_into(&mut stream.floor_offset);
        world.report.count("retained streams compared");
        Ok(bytes)
    }

    /// Reads from a position: what follows it, whole, or that it is given up.
    fn read_from_the_middle(&mut self, which: usize) -> Result<(), Down> {
        let world = self.session.world;
        let stream = &mut self.streams[which];
        let at = self.rng.rand_range(0..stream.lines.acknowledged.max(1));
        let Some((_, Some(from))) = usize::try_from(at).ok().and_then(|at| stream.lines.sent.get(at)).cloned() else {
            return Ok(());
        };
        let path = stream.lines.path.clone();
        match numbered::read(&mut self.session, &path, &from)? {
            Read::Lines(Some((first, _)), _) if first != at + 1 => {
                world.violation(format!("{path} from {from}: line {first} instead of {}", at + 1));
            }
            Read::Lines(..) if at + 1 < stream.floor => {
                world.violation(format!("{path} from {from}: line {} was gone, and is there again", at + 1));
            }
            Read::Lines(..) => world.report.count("reads above what is given up"),
            Read::Refused(answer) if answer.status == 410 => {
                let earliest = answer.header("stream-earliest-offset").unwrap_or_default();
                if earliest <= from.as_str() || earliest < stream.floor_offset.as_str() {
                    world.violation(format!(
                        "{path} from {from}: given up, but it begins at {earliest:?}, at {:?} before",
                        stream.floor_offset
                    ));
                }
                earliest.clone_into(&mut stream.floor_offset);
                // The line there is gone for ever.
                stream.floor = stream.floor.max(at + 2);
                world.report.count("reads below what is given up refused");
            }
            Read::Refused(answer) => {
                world.violation(format!("{path} from {from}: {} {:?}", answer.status, answer.text()));
            }
        }
        Ok(())
    }

    /// Without further appends: content beyond the bounds must be removed.
    fn wind_down(&mut self) {
        let world = self.session.world;
        let began = Instant::now();
        while !world.is_sabotaged() && world.report.clean() {
            let mut beyond = None;
            for which in 0..self.streams.len() {
                let Ok(bytes) = self.check(which) else { return };
                let stream = &self.streams[which];
                let bound = match (stream.bytes, stream.age) {
                    (_, Some(_)) => 0,
                    (Some(bound), None) => bound + bound / 8 + LINE_MAX,
                    (None, None) => u64::MAX,
                };
                if bytes > bound {
                    beyond = Some(format!("{}: {bytes} bytes are left, {bound} should be", stream.lines.path));
                }
            }
            match beyond {
                None => return world.report.count("retentions in force at the end"),
                Some(what) if began.elapsed() > PATIENCE => return world.violation(what),
                Some(_) => std::thread::sleep(Duration::from_millis(300)),
            }
        }
    }
}

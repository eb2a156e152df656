//! Closes what writers left, and compares it with what they noted.

use super::{ROUND, ROUND_BYTES, Round, Stream, ensure, line, parse};
use crate::http::Request;
use crate::model::difference;
use crate::session::Session;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

pub(super) struct Auditor<'w> {
    pub(super) session: Session<'w>,
    /// Audited streams and their content, to be found unchanged after later crashes.
    pub(super) kept: Vec<(Arc<Stream>, Vec<u8>)>,
}

impl Auditor<'_> {
    pub(super) fn work(&mut self, round: &Round) {
        let world = self.session.world;
        let mut number = 0;
        while !world.over() {
            let stream = round.current();
            let old = stream.born.elapsed() > ROUND || stream.bytes.load(Ordering::Relaxed) > ROUND_BYTES;
            if !old {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            }
            number += 1;
            *round.current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(Stream::new(number));
            if !self.audit(&stream) || !self.check_one_again(number) {
                return;
            }
        }
        // The last stream, and all that were kept.
        let stream = round.current();
        let all = self.audit(&stream);
        for which in 0..self.kept.len() {
            if !all || !self.check_one_again(which as u64) {
                return;
            }
        }
    }

    /// Whether to go on.
    fn audit(&mut self, stream: &Arc<Stream>) -> bool {
        let world = self.session.world;
        stream.retired.store(true, Ordering::Release);
        while stream.writers.load(Ordering::Acquire) > 0 {
            if !world.report.clean() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let close = Request::new("POST", &stream.path, &[("stream-closed", "true")], &[]);
        while ensure(&mut self.session, stream).is_err() || self.session.call(&close).is_err() {
            if !self.session.revive() {
                return false;
            }
        }
        let Some(content) = self.read(stream) else { return false };
        if let Err(what) = compare(stream, &content) {
            world.violation(format!("{}: {what}", stream.path));
            return false;
        }
        // At the end of a run readers leave where they are.
        let patience = Instant::now() + Duration::from_secs(20);
        while stream.readers.load(Ordering::Acquire) > 0 && Instant::now() < patience && world.report.clean() {
            std::thread::sleep(Duration::from_millis(5));
        }
        for (kind, seen, ended) in stream.seen.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let expected = if ended { &content[..] } else { &content[..seen.len().min(content.len())] };
            if seen != expected {
                world.violation(format!(
                    "{}: a {kind} reader: {}",
                    stream.path,
                    difference("what it saw", expected, &seen)
                ));
                return false;
            }
            world.report.count(if ended { "live readers compared to the end" } else { "live readers compared" });
        }
        world.report.count("shared streams compared");
        self.kept.push((Arc::clone(stream), content));
        if self.kept.len() > 12 {
            let (oldest, _) = self.kept.remove(0);
            let _ = self.session.call(&Request::new("DELETE", &oldest.path, &[], &[]));
        }
        true
    }

    fn check_one_again(&mut self, number: u64) -> bool {
        let Some((stream, expected)) = self.kept.get(usize::try_from(number).unwrap_or(0) % self.kept.len().max(1))
        else {
            return true;
        };
        let (stream, expected) = (Arc::clone(stream), expected.clone());
        let Some(content) = self.read(&stream) else { return false };
        if content != expected {
            let what = difference("settled content", &expected, &content);
            self.session.world.violation(format!("{}: {what}", stream.path));
            return false;
        }
        self.session.world.report.count("old shared streams found unchanged");
        true
    }

    fn read(&mut self, stream: &Stream) -> Option<Vec<u8>> {
        let (mut content, mut at) = (Vec::new(), "-1".to_owned());
        loop {
            let path = format!("{}?offset={at}", stream.path);
            let Ok(answer) = self.session.call(&Request::get(&path)) else {
                if self.session.revive() {
                    continue;
                }
                return None;
            };
            let read = match answer.status {
                200 => stream.format.normalise(&answer.body, &mut content),
                status => Err(format!("{status} {:?}", String::from_utf8_lossy(&answer.body))),
            };
            if let Err(error) = read {
                self.session.world.violation(format!("GET {path}: {error}"));
                return None;
            }
            if answer.is_true("stream-up-to-date") {
                return Some(content);
            }
            answer.header("stream-next-offset").unwrap_or("-1").clone_into(&mut at);
        }
    }
}

/// Every writer's lines, in order, none twice, none missing that was acknowledged, none invented.
fn compare(stream: &Stream, content: &[u8]) -> Result<(), String> {
    let lines = stream.lines.lock().unwrap_or_else(PoisonError::into_inner);
    let mut found: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for stored in content.split_inclusive(|b| *b == b'\n') {
        let Some((writer, number)) = parse(stream.format, stored) else {
            return Err(format!(
                "a line that nobody wrote: {:?}",
                String::from_utf8_lossy(&stored[..stored.len().min(60)])
            ));
        };
        if lines.get(&writer).is_none_or(|mine| number >= mine.len()) {
            return Err(format!("line {number} of writer {writer} was never sent"));
        }
        if stored != line(stream.format, writer, number) {
            return Err(format!("line {number} of writer {writer} is not as it was sent ({} bytes)", stored.len()));
        }
        let mine = found.entry(writer).or_default();
        if mine.last().is_some_and(|last| *last >= number) {
            return Err(format!("line {number} of writer {writer} stands after its line {:?}", mine.last()));
        }
        mine.push(number);
    }
    for (writer, acknowledged) in lines.iter() {
        let there = found.get(writer).map_or(&[][..], Vec::as_slice);
        for (number, _) in acknowledged.iter().enumerate().filter(|(_, acknowledged)| **acknowledged) {
            if there.binary_search(&number).is_err() {
                return Err(format!("line {number} of writer {writer} was acknowledged, but is not there"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Format;

    fn stream(number: u64) -> Stream {
        let stream = Stream::new(number);
        stream.lines.lock().unwrap().insert(1, vec![true, true, false]);
        stream.lines.lock().unwrap().insert(2, vec![true]);
        stream
    }

    fn content(format: Format, lines: &[(u64, usize)]) -> Vec<u8> {
        lines.iter().flat_map(|(writer, number)| line(format, *writer, *number)).collect()
    }

    #[test]
    fn lines_may_interleave_and_those_in_doubt_may_be_missing() {
        for number in 0..3 {
            let stream = stream(number);
            for lines in [&[(1, 0), (2, 0), (1, 1)][..], &[(1, 0), (1, 1), (2, 0)], &[(2, 0), (1, 0), (1, 1), (1, 2)]] {
                compare(&stream, &content(stream.format, lines)).unwrap();
            }
        }
    }

    #[test]
    fn missing_doubled_reordered_and_invented_lines_are_found() {
        for number in 0..3 {
            let stream = stream(number);
            for lines in [
                &[(1, 0), (2, 0)][..],
                &[(1, 0), (1, 0), (1, 1), (2, 0)],
                &[(1, 1), (1, 0), (2, 0)],
                &[(1, 0), (1, 1), (2, 0), (3, 0)],
                &[(1, 0), (1, 1), (1, 2), (1, 3), (2, 0)],
            ] {
                assert!(compare(&stream, &content(stream.format, lines)).is_err(), "{lines:?}");
            }
            let whole = content(stream.format, &[(1, 0), (1, 1), (2, 0)]);
            assert!(compare(&stream, &whole[..whole.len() - 1]).is_err());
        }
    }
}

//! A stream of numbered lines from one idempotent producer: its content can be checked from any piece.

use crate::content::filler;
use crate::http::Request;
use crate::session::{Down, Session};
use std::time::{Duration, Instant};

/// Line `number` as it is sent and stored.
pub(crate) fn line(number: u64, out: &mut Vec<u8>) {
    let len = if number % 40 == 7 { 3_000 } else { number.wrapping_mul(7_919) % 120 };
    out.extend_from_slice(format!("{number} ").as_bytes());
    filler(number, usize::try_from(len).unwrap_or(0), true, out);
    out.push(b'\n');
}

/// The number of the first line and of the one after the last, if the lines are whole and follow each other; none if
/// there are none.
pub(crate) fn parse(content: &[u8]) -> Result<Option<(u64, u64)>, String> {
    let number = |line: &[u8]| std::str::from_utf8(line).ok()?.split_once(' ')?.0.parse::<u64>().ok();
    let mut span: Option<(u64, u64)> = None;
    let mut expected = Vec::new();
    for stored in content.split_inclusive(|byte| *byte == b'\n') {
        let next = match span {
            Some((_, next)) => next,
            None => number(stored).ok_or_else(|| format!("it begins with no line: {:?}", shown(stored)))?,
        };
        expected.clear();
        line(next, &mut expected);
        if stored != expected {
            return Err(format!("line {next} is expected, there is {:?} of {} bytes", shown(stored), stored.len()));
        }
        span = Some((span.map_or(next, |(first, _)| first), next + 1));
    }
    Ok(span)
}

fn shown(line: &[u8]) -> String {
    String::from_utf8_lossy(&line[..line.len().min(30)]).into_owned()
}

/// Content from a place to the end.
pub(crate) enum Read {
    /// The lines there, as [`parse`] says, and how many bytes they have.
    Lines(Option<(u64, u64)>, u64),
    /// The status, and what else the answer said.
    Refused(crate::http::Answer),
}

pub(crate) struct Numbered {
    pub(crate) path: String,
    created: bool,
    headers: Vec<(&'static str, String)>,
    /// The next line that was never sent.
    pub(crate) next: u64,
    /// All lines below it are there.
    pub(crate) acknowledged: u64,
    /// Of each acknowledged line: when it was first sent, and the position after it, if the server said it.
    pub(crate) sent: Vec<(Instant, Option<String>)>,
}

impl Numbered {
    /// `headers` go with its creation.
    pub(crate) fn new(path: String, headers: Vec<(&'static str, String)>) -> Self {
        Self { path, created: false, headers, next: 0, acknowledged: 0, sent: Vec::new() }
    }

    /// Sends lines in doubt again, then `more` new lines, and records the answers.
    pub(crate) fn write(&mut self, session: &mut Session<'_>, more: u64) -> Result<(), Down> {
        if !self.created {
            let mut headers = vec![("content-type", "text/plain")];
            headers.extend(self.headers.iter().map(|(name, value)| (*name, value.as_str())));
            let answer = session.call(&Request::new("PUT", &self.path, &headers, &[]))?;
            match answer.status {
                200 | 201 => self.created = true,
                429 | 503 => return Ok(()),
                status => session.world.violation(format!("PUT {}: {status} {:?}", self.path, answer.text())),
            }
        }
        for _ in 0..more {
            self.sent.push((Instant::now(), None));
        }
        self.next += more;
        let mut requests = Vec::new();
        for number in self.acknowledged..self.next {
            let mut body = Vec::new();
            line(number, &mut body);
            let seq = number.to_string();
            let headers = [
                ("content-type", "text/plain"),
                ("producer-id", "n"),
                ("producer-epoch", "0"),
                ("producer-seq", seq.as_str()),
            ];
            requests.push(Request::new("POST", &self.path, &headers, &body));
        }
        let (answers, down) = session.pipeline(&requests);
        for (answer, request) in answers.iter().zip(&requests) {
            match answer.status {
                200 | 204 => {
                    if let Ok(at) = usize::try_from(self.acknowledged)
                        && let Some((_, end)) = self.sent.get_mut(at)
                        && answer.status == 200
                    {
                        *end = answer.position();
                    }
                    self.acknowledged += 1;
                    session.world.report.count("numbered lines acknowledged");
                }
                // Later ones must wait for it.
                429 | 503 | 507 => {
                    session.world.report.count("refused for now");
                    std::thread::sleep(Duration::from_millis(20));
                    break;
                }
                status => {
                    session.world.violation(format!(
                        "{} line {}: {status} {:?}",
                        request.line,
                        self.acknowledged,
                        answer.text()
                    ));
                    return Err(Down);
                }
            }
        }
        down.map_or(Ok(()), Err)
    }
}

/// Reads from a place to the end that there is.
pub(crate) fn read(session: &mut Session<'_>, path: &str, from: &str) -> Result<Read, Down> {
    let (mut content, mut at) = (Vec::new(), from.to_owned());
    loop {
        let answer = session.call(&Request::get(&format!("{path}?offset={at}")))?;
        match answer.status {
            200 => content.extend_from_slice(&answer.body),
            429 | 503 => {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            }
            _ => return Ok(Read::Refused(answer)),
        }
        if answer.is_true("stream-up-to-date") {
            break;
        }
        at = answer.position().unwrap_or_default();
    }
    match parse(&content) {
        Ok(span) => Ok(Read::Lines(span, content.len() as u64)),
        Err(what) => {
            session.world.violation(format!("{path} from {from}: {what}"));
            Err(Down)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(numbers: impl IntoIterator<Item = u64>) -> Vec<u8> {
        let mut out = Vec::new();
        numbers.into_iter().for_each(|number| line(number, &mut out));
        out
    }

    #[test]
    fn any_piece_of_whole_lines_tells_which_they_are() {
        assert_eq!(parse(b""), Ok(None));
        assert_eq!(parse(&lines(0..3)), Ok(Some((0, 3))));
        assert_eq!(parse(&lines(5..60)), Ok(Some((5, 60))));
    }

    #[test]
    fn a_gap_a_repetition_and_a_piece_of_a_line_are_found() {
        for numbers in [&[1, 3][..], &[1, 1], &[2, 1]] {
            assert!(parse(&lines(numbers.iter().copied())).is_err());
        }
        let whole = lines(0..9);
        assert!(parse(&whole[1..]).is_err());
        assert!(parse(&whole[..whole.len() - 1]).is_err());
    }
}

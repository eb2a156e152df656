//! Lines of standard input in batches: one append each.

use super::messages;
use crate::failure::Failure;
use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

const BATCH_BYTES: usize = 1 << 20;
/// The longest JSON message. Content of other types has no line structure, and is split at this length.
const LINE_BYTES_MAX: u64 = 16 << 20;
/// Lines read ahead while an append is under way.
const AHEAD: usize = 4_096;
/// How long an incomplete batch waits for the next line.
const LINGER: Duration = Duration::from_millis(5);

/// How lines become the body of an append.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    /// Each line is a message; else the content is the lines as they are.
    pub(crate) json: bool,
    /// Lines of one append, at most.
    pub(crate) lines_max: usize,
    /// Equal input must make equal batches, however slowly it comes.
    pub(crate) repeatable: bool,
}

pub(crate) struct Batches {
    lines: Receiver<std::io::Result<Vec<u8>>>,
    shape: Shape,
    line: u64,
    ended: bool,
    /// Read already, and for the next batch.
    ahead: Option<Vec<u8>>,
}

pub(crate) struct Batch {
    pub(crate) body: Vec<u8>,
    pub(crate) lines: usize,
}

impl Batches {
    pub(crate) fn new(input: impl Read + Send + 'static, shape: Shape) -> Self {
        let (sender, lines) = sync_channel(AHEAD);
        // Ends with its input, or with the process: reading standard input cannot be broken off.
        std::thread::spawn(move || read_lines(input, &sender));
        Self { lines, shape, line: 0, ended: false, ahead: None }
    }

    /// The next batch, or `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Batch>, Failure> {
        let mut batch = Batch { body: Vec::new(), lines: 0 };
        while !self.ended && batch.lines < self.shape.lines_max {
            let line = match self.ahead.take() {
                Some(line) => line,
                None => match self.receive(batch.lines > 0)? {
                    Received::Line(line) => line,
                    Received::Nothing => break,
                    Received::End => {
                        self.ended = true;
                        break;
                    }
                },
            };
            if batch.lines > 0 && batch.body.len() + line.len() > BATCH_BYTES {
                self.ahead = Some(line);
                break;
            }
            self.add(&mut batch, &line)?;
        }
        if self.shape.json && batch.lines > 0 {
            batch.body.push(b']');
        }
        Ok((batch.lines > 0).then_some(batch))
    }

    fn receive(&mut self, begun: bool) -> Result<Received, Failure> {
        let received = if begun && !self.shape.repeatable {
            self.lines.recv_timeout(LINGER)
        } else {
            self.lines.recv().map_err(|_| RecvTimeoutError::Disconnected)
        };
        match received {
            Ok(line) => Ok(Received::Line(line?)),
            Err(RecvTimeoutError::Timeout) => Ok(Received::Nothing),
            Err(RecvTimeoutError::Disconnected) => Ok(Received::End),
        }
    }

    fn add(&mut self, batch: &mut Batch, line: &[u8]) -> Result<(), Failure> {
        self.line += 1;
        if self.shape.json {
            if line.len() as u64 > LINE_BYTES_MAX {
                return Err(Failure::Local(format!("line {} is longer than 16 MiB", self.line)));
            }
            let line = line.trim_ascii();
            if line.is_empty() {
                return Ok(());
            }
            let wrong = |error| Failure::Local(format!("line {} is not one JSON value: {error}", self.line));
            messages::is_message(line).map_err(wrong)?;
            batch.body.push(if batch.lines == 0 { b'[' } else { b',' });
            batch.body.extend_from_slice(line);
        } else {
            batch.body.extend_from_slice(line);
        }
        batch.lines += 1;
        Ok(())
    }
}

enum Received {
    Line(Vec<u8>),
    Nothing,
    End,
}

fn read_lines(input: impl Read, lines: &SyncSender<std::io::Result<Vec<u8>>>) {
    let mut input = BufReader::with_capacity(1 << 20, input);
    loop {
        let mut line = Vec::new();
        // One byte beyond the limit shows that the line is too long.
        match input.by_ref().take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line) {
            Ok(0) => return,
            Ok(_) => {
                if lines.send(Ok(line)).is_err() {
                    return;
                }
            }
            Err(error) => {
                let _ = lines.send(Err(error));
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bodies(input: &'static str, json: bool, lines_max: usize) -> Result<Vec<String>, Failure> {
        let shape = Shape { json, lines_max, repeatable: true };
        let mut batches = Batches::new(input.as_bytes(), shape);
        let mut bodies = Vec::new();
        while let Some(batch) = batches.next()? {
            bodies.push(String::from_utf8(batch.body).unwrap());
        }
        Ok(bodies)
    }

    #[test]
    fn json_lines_become_arrays_and_empty_ones_nothing() {
        assert_eq!(bodies("1\n\n {\"a\":2} \n[3]\n", true, 2).unwrap(), ["[1,{\"a\":2}]", "[[3]]"]);
        assert!(bodies("\n\n", true, 2).unwrap().is_empty());
        let wrong = bodies("1\n2],[3\n", true, 9).unwrap_err().to_string();
        assert!(wrong.contains("line 2"), "{wrong}");
    }

    #[test]
    fn other_lines_stay_as_they_are() {
        assert_eq!(bodies("a\r\n\nb", false, 2).unwrap(), ["a\r\n\n", "b"]);
    }

    #[test]
    fn a_batch_ends_before_it_is_too_large() {
        let long: &'static str = Box::leak(format!("{}\n", "x".repeat(700_000)).repeat(3).into_boxed_str());
        let sizes: Vec<_> = bodies(long, false, 99).unwrap().iter().map(String::len).collect();
        assert_eq!(sizes, [700_001; 3]);
    }
}

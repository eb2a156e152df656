//! The last lines of a stream. The protocol cannot read backwards from the end, so the whole content passes through
//! here.

use crate::failure::Failure;
use std::collections::VecDeque;
use std::io::{self, Write};

/// Memory for the last lines or messages, at most.
const BYTES_MAX: usize = 256 << 20;

/// Keeps the last lines. JSON messages are written one per line.
pub(super) struct Last {
    lines: VecDeque<Vec<u8>>,
    count: usize,
    bytes: usize,
    bytes_max: usize,
}

impl Last {
    pub(super) fn new(count: u32) -> Self {
        Self { lines: VecDeque::new(), count: count as usize, bytes: 0, bytes_max: BYTES_MAX }
    }

    /// Writes the kept lines.
    pub(super) fn write(self, out: &mut impl Write) -> Result<(), Failure> {
        for line in &self.lines {
            out.write_all(line)?;
        }
        Ok(out.flush()?)
    }

    fn add(&mut self, part: &[u8]) {
        self.bytes += part.len();
        match self.lines.back_mut() {
            Some(line) if !line.ends_with(b"\n") => line.extend_from_slice(part),
            _ => self.lines.push_back(part.to_vec()),
        }
        while self.lines.len() > self.count {
            self.bytes -= self.lines.pop_front().map_or(0, |line| line.len());
        }
    }
}

impl Write for Last {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        bytes.split_inclusive(|byte| *byte == b'\n').for_each(|part| self.add(part));
        if self.bytes > self.bytes_max {
            return Err(io::Error::other(format!("the last {} lines are more than 256 MiB", self.count)));
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(count: u32, parts: &[&str]) -> String {
        let mut last = Last::new(count);
        for part in parts {
            last.write_all(part.as_bytes()).unwrap();
        }
        let mut out = Vec::new();
        last.write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_last_lines_are_kept_however_they_come() {
        assert_eq!(last(2, &["1\n2\n", "3\n4\n"]), "3\n4\n");
        assert_eq!(last(2, &["1\n2", "2\n3", "3"]), "22\n33", "an unfinished line is one");
        assert_eq!(last(9, &["1\n"]), "1\n");
        assert_eq!(last(1, &["", "\n", "\n"]), "\n");
    }

    #[test]
    fn lines_without_end_are_refused() {
        let mut last = Last { bytes_max: 10, ..Last::new(1) };
        assert!(last.write_all(&[b'x'; 10]).is_ok());
        assert!(last.write_all(b"x").is_err());
    }
}

//! Rows in the text format of COPY (Postgres documentation, COPY, "Text Format").

use crate::row::Row;

/// NULL among the spans of a row.
const NULL: (u32, u32) = (u32::MAX, u32::MAX);

/// One decoded row; decoding the next one reuses its memory.
#[derive(Debug, Default)]
pub struct CopyRow {
    bytes: Vec<u8>,
    spans: Vec<(u32, u32)>,
}

/// The bytes are not a row of this format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CopyError {
    /// The row has this many bytes, 4 GiB or more.
    #[error("a row of {0} bytes is too long")]
    TooLong(usize),
    /// The row ends within an escape sequence.
    #[error("a row ends within an escape")]
    Truncated,
}

impl CopyRow {
    /// Takes one row as COPY sends it, with or without the line feed at its end.
    #[inline]
    pub fn decode(&mut self, line: &[u8]) -> Result<(), CopyError> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        self.bytes.clear();
        self.spans.clear();
        if line.len() >= u32::MAX as usize {
            return Err(CopyError::TooLong(line.len()));
        }
        if memchr::memchr(b'\\', line).is_none() {
            self.bytes.extend_from_slice(line);
            let mut from = 0;
            for end in memchr::memchr_iter(b'\t', line).chain([line.len()]) {
                self.spans.push((from as u32, end as u32));
                from = end + 1;
            }
            return Ok(());
        }
        let mut from = 0;
        for end in memchr::memchr_iter(b'\t', line).chain([line.len()]) {
            self.cell(&line[from..end])?;
            from = end + 1;
        }
        Ok(())
    }

    /// The number of columns; a row without columns looks the same as one with a single empty column.
    #[must_use]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there are no columns.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    fn cell(&mut self, mut rest: &[u8]) -> Result<(), CopyError> {
        if rest == b"\\N" {
            self.spans.push(NULL);
            return Ok(());
        }
        let from = self.bytes.len();
        while let Some(at) = memchr::memchr(b'\\', rest) {
            self.bytes.extend_from_slice(&rest[..at]);
            let (byte, used) = unescape(&rest[at + 1..]).ok_or(CopyError::Truncated)?;
            self.bytes.push(byte);
            rest = &rest[at + 1 + used..];
        }
        self.bytes.extend_from_slice(rest);
        self.spans.push((from as u32, self.bytes.len() as u32));
        Ok(())
    }
}

impl Row for CopyRow {
    #[inline]
    fn cell(&self, at: usize) -> Option<&[u8]> {
        match self.spans.get(at) {
            None | Some(&NULL) => None,
            Some((from, to)) => self.bytes.get(*from as usize..*to as usize),
        }
    }
}

/// The byte that the escape after a backslash means, and the escape's length.
fn unescape(text: &[u8]) -> Option<(u8, usize)> {
    let digits = |from: usize, max: usize, radix: u32| {
        let mut value = 0_u32;
        let mut used = 0;
        while let Some(digit) = text.get(from + used).and_then(|b| char::from(*b).to_digit(radix)) {
            if used == max {
                break;
            }
            value = value * radix + digit;
            used += 1;
        }
        (value as u8, used)
    };
    Some(match *text.first()? {
        b'b' => (0x08, 1),
        b'f' => (0x0c, 1),
        b'n' => (b'\n', 1),
        b'r' => (b'\r', 1),
        b't' => (b'\t', 1),
        b'v' => (0x0b, 1),
        b'0'..=b'7' => digits(0, 3, 8),
        b'x' => match digits(1, 2, 16) {
            (_, 0) => (b'x', 1),
            (value, used) => (value, used + 1),
        },
        other => (other, 1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decoded(line: &[u8]) -> Vec<Option<Vec<u8>>> {
        let mut row = CopyRow::default();
        row.decode(line).unwrap();
        (0..row.len()).map(|at| row.cell(at).map(<[u8]>::to_vec)).collect()
    }

    fn some(text: &[u8]) -> Option<Vec<u8>> {
        Some(text.to_vec())
    }

    #[test]
    fn columns_stand_between_tabs_and_null_is_a_word() {
        assert_eq!(decoded(b"1\t\\N\t\tx\n"), [some(b"1"), None, some(b""), some(b"x")]);
        assert_eq!(decoded(b"1\t\tx"), [some(b"1"), some(b""), some(b"x")]);
    }

    #[test]
    fn a_backslash_and_an_n_that_are_data_are_not_null() {
        assert_eq!(decoded(b"\\\\N\ta\\N"), [some(b"\\N"), some(b"aN")]);
    }

    #[test]
    fn escapes_are_those_of_copy() {
        assert_eq!(decoded(b"\\b\\f\\n\\r\\t\\v\\\\\t\\\\x00ff"), [some(b"\x08\x0c\n\r\t\x0b\\"), some(b"\\x00ff")]);
        assert_eq!(decoded(b"\\101\\1018\\x41\\x4g\\xg\\q"), [some(b"AA8A\x04gxgq")]);
    }

    #[test]
    fn a_row_that_ends_within_an_escape_is_refused() {
        assert_eq!(CopyRow::default().decode(b"1\tab\\"), Err(CopyError::Truncated));
    }

    /// Encodes a row as Postgres does.
    fn encoded(cells: &[Option<Vec<u8>>]) -> Vec<u8> {
        let mut out = Vec::new();
        for (at, cell) in cells.iter().enumerate() {
            if at > 0 {
                out.push(b'\t');
            }
            let Some(text) = cell else {
                out.extend_from_slice(b"\\N");
                continue;
            };
            for byte in text {
                match byte {
                    b'\n' => out.extend_from_slice(b"\\n"),
                    b'\t' => out.extend_from_slice(b"\\t"),
                    b'\r' => out.extend_from_slice(b"\\r"),
                    b'\\' => out.extend_from_slice(b"\\\\"),
                    other => out.push(*other),
                }
            }
        }
        out.push(b'\n');
        out
    }

    proptest! {
        #[test]
        fn a_row_is_read_back_as_it_was_written(
            cells in prop::collection::vec(prop::option::of(prop::collection::vec(any::<u8>(), 0..40)), 1..8),
        ) {
            prop_assert_eq!(decoded(&encoded(&cells)), cells);
        }

        #[test]
        fn garbage_does_no_harm(line in prop::collection::vec(prop_oneof![Just(b'\\'), Just(b'\t'), any::<u8>()], 0..60)) {
            let mut row = CopyRow::default();
            let _ = row.decode(&line);
            (0..10).for_each(|at| { let _ = row.cell(at); });
        }
    }
}

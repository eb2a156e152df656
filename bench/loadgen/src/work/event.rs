//! Events with their send time and number, so that a reader can measure delays and detect missing events.

use crate::drive::Nanos;
use crate::http::digits;
use memchr::memchr;

/// `@T`, 19 digits of nanoseconds, `S`, 10 digits of the event's number.
pub(crate) const MARK_BYTES: usize = 32;

/// Puts an event of `size` bytes at the end of `out`: text without line ends.
pub(crate) fn write(sent: Nanos, number: u64, size: usize, out: &mut Vec<u8>) {
    let end = out.len() + size.max(MARK_BYTES);
    out.extend_from_slice(b"@T");
    digits(out, sent, 19);
    out.push(b'S');
    digits(out, number, 10);
    out.resize(end, b'x');
}

/// Finds the events of a text that comes in pieces.
#[derive(Debug, Default)]
pub(crate) struct Scanner {
    /// The beginning of a mark at the end of the last piece.
    partial: Vec<u8>,
}

impl Scanner {
    pub(crate) fn feed(&mut self, piece: &[u8], mut found: impl FnMut(Nanos, u64)) {
        let mut rest = piece;
        if !self.partial.is_empty() {
            let missing = (MARK_BYTES - self.partial.len()).min(rest.len());
            self.partial.extend_from_slice(&rest[..missing]);
            rest = &rest[missing..];
            if self.partial.len() < MARK_BYTES {
                return;
            }
            if let Some((sent, number)) = mark(&self.partial) {
                found(sent, number);
            }
            self.partial.clear();
        }
        while let Some(at) = memchr(b'@', rest) {
            rest = &rest[at..];
            if rest.len() < MARK_BYTES {
                self.partial.extend_from_slice(rest);
                return;
            }
            if let Some((sent, number)) = mark(rest) {
                found(sent, number);
                rest = &rest[MARK_BYTES..];
            } else {
                rest = &rest[1..];
            }
        }
    }

    /// Another text begins.
    pub(crate) fn clear(&mut self) {
        self.partial.clear();
    }
}

fn mark(bytes: &[u8]) -> Option<(Nanos, u64)> {
    let bytes = bytes.get(..MARK_BYTES)?.strip_prefix(b"@T")?;
    let number = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse().ok();
    (bytes[19] == b'S').then_some(())?;
    Some((number(&bytes[..19])?, number(&bytes[20..])?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_however_the_text_is_cut() {
        let mut text = b"noise@".to_vec();
        text.resize(60, b'.');
        (0..3).for_each(|number| write(1_000_000 + number, number, 50, &mut text));
        for cut in 0..text.len() {
            let (mut scanner, mut found) = (Scanner::default(), Vec::new());
            scanner.feed(&text[..cut], |sent, number| found.push((sent, number)));
            scanner.feed(&text[cut..], |sent, number| found.push((sent, number)));
            assert_eq!(found, [(1_000_000, 0), (1_000_001, 1), (1_000_002, 2)], "{cut}");
        }
    }
}

//! Finds the end of a request's head, resumably, and holds its lines to CR LF.

use super::refusal::Refusal;
use memchr::memchr;

const TLS_HANDSHAKE: u8 = 22;

/// How far a head has been scanned. Offsets count from the first byte of the request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Scan {
    next: usize,
    line: usize,
    /// Lines seen, the request line included.
    pub(super) lines: usize,
}

impl Scan {
    /// Continues the scan in `bytes`, which begin at the same byte as before. Returns the length of the head once its
    /// empty line is found.
    pub(super) fn end_of_head(&mut self, bytes: &[u8], limit: usize) -> Result<Option<usize>, Refusal> {
        let window = &bytes[..bytes.len().min(limit)];
        loop {
            if self.lines == 0 {
                match window.get(self.line) {
                    // The first record of every TLS session (RFC 8446, section 5.1).
                    Some(&TLS_HANDSHAKE) => return Err(Refusal::TLS),
                    Some(&first) if first != b'\r' && !is_token(first) => {
                        return Err(Refusal::bad("a request does not begin with a method"));
                    }
                    _ => {}
                }
            }
            let Some(found) = memchr(b'\n', &window[self.next..]) else {
                self.next = window.len();
                return match (bytes.len() >= limit, self.lines) {
                    (false, _) => Ok(None),
                    (true, 0) => Err(Refusal::TARGET_TOO_LONG),
                    (true, _) => Err(Refusal::HEAD_TOO_LARGE),
                };
            };
            let at = self.next + found;
            if at == self.line || window[at - 1] != b'\r' {
                return Err(Refusal::bad("a line ends in a bare LF"));
            }
            let (empty, first) = (at == self.line + 1, self.line == 0);
            (self.next, self.line) = (at + 1, at + 1);
            match (empty, self.lines) {
                // RFC 9112 §2.2: one empty line before the request line is let pass.
                (true, 0) if first => {}
                (true, 0) => return Err(Refusal::bad("the request line is empty")),
                (true, _) => return Ok(Some(at + 1)),
                (false, _) => self.lines += 1,
            }
        }
    }
}

/// RFC 9110 §5.6.2.
pub(super) const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~')
}

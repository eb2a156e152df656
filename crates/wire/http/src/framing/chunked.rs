//! Takes the chunked transfer coding off a body, in place (RFC 9112 §7.1).
//!
//! Extensions and trailers are skipped, but must keep to their grammar's bytes and to a bound: requests are smuggled
//! through lenient readers.

use super::refusal::Refusal;
use super::scan::is_token;

/// A decoder between two reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunked {
    at: At,
    /// Bytes of the current chunk that are still to come.
    left: u64,
    digits: u8,
    /// Bytes of extensions and trailers so far.
    extra: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Size,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    Line,
    Name,
    Value,
    ValueLf,
    EndLf,
    End,
}

/// The end of a pass over the buffer: decoded bytes end at `write`, parsed raw bytes at `read`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pass {
    pub(super) write: usize,
    pub(super) read: usize,
    pub(super) whole: bool,
}

impl Chunked {
    pub(super) const fn new() -> Self {
        Self { at: At::Size, left: 0, digits: 0, extra: 0 }
    }

    /// Decodes `buf[read..]` to `buf[write..]`; `write` is at most `read`. Accepts at most `room` more bytes of body,
    /// and at most `extra_max` bytes of extensions and trailers.
    pub(super) fn decode(
        &mut self,
        buf: &mut [u8],
        mut write: usize,
        mut read: usize,
        room: usize,
        extra_max: usize,
    ) -> Result<Pass, Refusal> {
        let body_end = write.saturating_add(room);
        while self.at != At::End && read < buf.len() {
            if self.at == At::Data {
                let take = usize::try_from(self.left).unwrap_or(usize::MAX).min(buf.len() - read);
                if take > body_end - write {
                    return Err(Refusal::BODY_TOO_LARGE);
                }
                if write != read {
                    buf.copy_within(read..read + take, write);
                }
                (write, read, self.left) = (write + take, read + take, self.left - take as u64);
                if self.left == 0 {
                    self.at = At::DataCr;
                }
                continue;
            }
            let byte = buf[read];
            read += 1;
            self.at = self.step(byte)?;
            if self.at == At::Data && self.left > (body_end - write) as u64 {
                return Err(Refusal::BODY_TOO_LARGE);
            }
            if self.extra > extra_max {
                return Err(Refusal::HEAD_TOO_LARGE);
            }
        }
        Ok(Pass { write, read, whole: self.at == At::End })
    }

    /// One byte that is not data.
    fn step(&mut self, byte: u8) -> Result<At, Refusal> {
        const BAD_SIZE: Refusal = Refusal::bad("a chunk's size is malformed");
        const BAD_LINE: Refusal = Refusal::bad("a chunk does not end in CR LF");
        const BAD_TRAILER: Refusal = Refusal::bad("a trailer field is malformed");
        Ok(match (self.at, byte) {
            (At::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                if self.digits == 16 {
                    return Err(BAD_SIZE);
                }
                self.digits += 1;
                self.left = self.left << 4 | u64::from((byte as char).to_digit(16).ok_or(BAD_SIZE)?);
                At::Size
            }
            (At::Size, b'\r' | b';') if self.digits > 0 => {
                self.digits = 0;
                if byte == b';' { At::Extension } else { At::SizeLf }
            }
            (At::Extension, b'\r') => At::SizeLf,
            (At::Extension, b'\t' | b' '..=b'~' | 0x80..) => {
                self.extra += 1;
                At::Extension
            }
            (At::Size | At::Extension, _) => return Err(BAD_SIZE),
            (At::SizeLf, b'\n') if self.left > 0 => At::Data,
            (At::SizeLf, b'\n') => At::Line,
            (At::DataCr, b'\r') => At::DataLf,
            (At::DataLf, b'\n') => At::Size,
            (At::SizeLf | At::DataCr | At::DataLf, _) => return Err(BAD_LINE),
            (At::Line, b'\r') => At::EndLf,
            (At::Line | At::Name, byte) if is_token(byte) => {
                self.extra += 1;
                At::Name
            }
            (At::Name, b':') => At::Value,
            (At::Value, b'\r') => At::ValueLf,
            (At::Value, b'\t' | b' '..=b'~' | 0x80..) => {
                self.extra += 1;
                At::Value
            }
            (At::ValueLf, b'\n') => At::Line,
            (At::EndLf, b'\n') => At::End,
            (At::Line | At::Name | At::Value | At::ValueLf | At::EndLf | At::Data | At::End, _) => {
                return Err(BAD_TRAILER);
            }
        })
    }
}

//! Header fields that determine a request's length, and their valid values (RFC 9112 §6).

use super::refusal::Refusal;

/// How the end of the body is determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyLength {
    Known(u64),
    Chunked,
}

/// Framing of a message, from its header fields.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) body: BodyLength,
    pub(super) keep_alive: bool,
    pub(super) expects_continue: bool,
}

impl Message {
    /// `minor` is the version's: 0 or 1.
    pub(super) fn read(minor: u8, fields: &[(&str, &[u8])]) -> Result<Self, Refusal> {
        let (mut length, mut coding, mut hosts) = (None, false, 0_u32);
        let (mut close, mut keep, mut expects_continue) = (false, false, false);
        for &(name, value) in fields {
            // The length of the name rules out nearly every other field before a letter is compared.
            match name.len() {
                4 if name.eq_ignore_ascii_case("host") => {
                    hosts += 1;
                    check_host(value)?;
                }
                6 if name.eq_ignore_ascii_case("expect") => {
                    if !value.eq_ignore_ascii_case(b"100-continue") {
                        return Err(Refusal::new(417, "only 100-continue can be expected"));
                    }
                    expects_continue = minor == 1;
                }
                10 if name.eq_ignore_ascii_case("connection") => {
                    for option in value.split(|b| *b == b',').map(<[u8]>::trim_ascii) {
                        close |= option.eq_ignore_ascii_case(b"close");
                        keep |= option.eq_ignore_ascii_case(b"keep-alive");
                    }
                }
                14 if name.eq_ignore_ascii_case("content-length") => {
                    let before = length.replace(content_length(value)?);
                    if before.is_some() {
                        return Err(Refusal::bad("more than one Content-Length"));
                    }
                }
                17 if name.eq_ignore_ascii_case("transfer-encoding") => {
                    if std::mem::replace(&mut coding, true) {
                        return Err(Refusal::bad("more than one Transfer-Encoding"));
                    }
                    if !value.eq_ignore_ascii_case(b"chunked") {
                        return Err(Refusal::new(501, "no transfer coding but chunked is understood"));
                    }
                }
                _ => {}
            }
        }
        if hosts > 1 || (hosts == 0 && minor == 1) {
            return Err(Refusal::bad("exactly one Host is needed"));
        }
        let body = match (coding, length) {
            (true, Some(_)) => return Err(Refusal::bad("both Content-Length and Transfer-Encoding")),
            (true, None) if minor == 0 => return Err(Refusal::bad("HTTP/1.0 has no transfer codings")),
            (true, None) => BodyLength::Chunked,
            (false, length) => BodyLength::Known(length.unwrap_or(0)),
        };
        Ok(Self { body, keep_alive: !close && (minor == 1 || keep), expects_continue })
    }
}

fn content_length(value: &[u8]) -> Result<u64, Refusal> {
    const BAD: Refusal = Refusal::bad("Content-Length is not a number");
    if value.is_empty() {
        return Err(BAD);
    }
    value.iter().try_fold(0_u64, |sum, digit| match digit {
        b'0'..=b'9' => sum.checked_mul(10).and_then(|sum| sum.checked_add(u64::from(digit - b'0'))).ok_or(BAD),
        _ => Err(BAD),
    })
}

/// Rejects only values from which two readers could take different hosts, or a host although there is none.
fn check_host(value: &[u8]) -> Result<(), Refusal> {
    const PLAIN: [bool; 256] = {
        let (mut plain, mut b) = ([false; 256], 0_u8);
        while b < 128 {
            plain[b as usize] =
                b.is_ascii_graphic() && !matches!(b, b',' | b'/' | b'?' | b'#' | b'@' | b'\\' | b'<' | b'>' | b'"');
            b += 1;
        }
        plain
    };
    if value.iter().all(|b| PLAIN[usize::from(*b)]) { Ok(()) } else { Err(Refusal::bad("Host is malformed")) }
}

//! Reads a whole head: request line, target, header fields.

use super::body::Message;
use super::refusal::Refusal;
use crate::Method;
use memchr::memchr;
use std::mem::MaybeUninit;

/// A head that was found to be well-formed.
pub(super) struct Head<'a> {
    pub(super) method: Method<'a>,
    pub(super) path: &'a str,
    pub(super) query: Option<&'a str>,
    pub(super) fields: &'a [(&'a str, &'a [u8])],
    pub(super) minor: u8,
    pub(super) message: Message,
}

/// The usual number of fields, which needs little of the stack, and the largest accepted number.
const FEW: usize = 16;
const MANY: usize = 128;

/// Reads `bytes`, which end with the empty line and have this many lines, and gives the head to `f`.
pub(super) fn read<T>(bytes: &[u8], lines: usize, f: impl FnOnce(&Head<'_>) -> T) -> Result<T, Refusal> {
    match lines.saturating_sub(1) {
        fields if fields <= FEW => read_up_to::<FEW, T>(bytes, f),
        fields if fields <= MANY => read_up_to::<MANY, T>(bytes, f),
        _ => Err(Refusal::new(431, "too many header fields")),
    }
}

fn read_up_to<const N: usize, T>(bytes: &[u8], f: impl FnOnce(&Head<'_>) -> T) -> Result<T, Refusal> {
    let mut raw = [const { MaybeUninit::uninit() }; N];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(bytes, &mut raw) {
        Ok(httparse::Status::Complete(read)) if read == bytes.len() => {}
        Ok(_) => return Err(Refusal::bad("the head is malformed")),
        Err(error) => return Err(refusal(error)),
    }
    let (Some(method), Some(target), Some(minor)) = (request.method, request.path, request.version) else {
        return Err(Refusal::bad("the request line is malformed"));
    };
    let method = match method {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "PUT" => Method::Put,
        "POST" => Method::Post,
        "DELETE" => Method::Delete,
        "OPTIONS" => Method::Options,
        other => Method::Other(other),
    };
    let (path, query) = split_target(method, target)?;
    let mut fields = [("", &b""[..]); N];
    let fields = &mut fields[..request.headers.len()];
    for (field, header) in fields.iter_mut().zip(request.headers.iter()) {
        *field = (header.name, header.value);
    }
    let message = Message::read(minor, fields)?;
    Ok(f(&Head { method, path, query, fields, minor, message }))
}

/// Origin-form, absolute-form (reduced to it), or `*` for OPTIONS (RFC 9112 §3.2).
fn split_target<'a>(method: Method<'_>, target: &'a str) -> Result<(&'a str, Option<&'a str>), Refusal> {
    const BAD: Refusal = Refusal::bad("the request target is malformed");
    // Visible ASCII but for `#`. Without a way out of the loop it is done many bytes at a time.
    if target.bytes().fold(false, |bad, b| bad | !(b'!'..=b'~').contains(&b) | (b == b'#')) {
        return Err(BAD);
    }
    if target == "*" && method == Method::Options {
        return Ok((target, None));
    }
    let origin = if target.starts_with('/') { target } else { without_authority(target).ok_or(BAD)? };
    let (path, query) = match memchr(b'?', origin.as_bytes()) {
        Some(at) => (&origin[..at], Some(&origin[at + 1..])),
        None => (origin, None),
    };
    Ok((if path.is_empty() { "/" } else { path }, query))
}

fn without_authority(target: &str) -> Option<&str> {
    let (scheme, rest) = target.split_once("://")?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return None;
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    (end > 0).then(|| &rest[end..])
}

fn refusal(error: httparse::Error) -> Refusal {
    match error {
        httparse::Error::Version => Refusal::new(505, "only HTTP/1.1 and HTTP/1.0 are spoken here"),
        httparse::Error::TooManyHeaders => Refusal::new(431, "too many header fields"),
        httparse::Error::HeaderName => Refusal::bad("a header field's name is malformed"),
        httparse::Error::HeaderValue => Refusal::bad("a header field's value is malformed"),
        httparse::Error::NewLine => Refusal::bad("a line ends in a bare CR"),
        httparse::Error::Token | httparse::Error::Status => Refusal::bad("the request line is malformed"),
    }
}

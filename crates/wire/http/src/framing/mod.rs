//! HTTP/1.1 framing without sockets: bytes in, whole requests out.
//!
//! Finds the end of each request. The result does not depend on how the bytes were split into reads, bytes that two
//! readers could understand differently are refused, and no input panics. Knows nothing of sockets, time or the meaning
//! of requests.

mod body;
mod chunked;
mod fuzz;
mod head;
mod refusal;
mod scan;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod refused;

pub use fuzz::fuzz_framing;
pub(crate) use refusal::Refusal;

use crate::{Headers, Method, Request};
use body::BodyLength;
use chunked::Chunked;
use head::Head;
use scan::Scan;

/// Bounds on the size of a request, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) head: usize,
    pub(crate) body: usize,
}

/// Properties of a request that the connection needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Manner {
    pub(crate) keep_alive: bool,
    pub(crate) http11: bool,
    /// The answer has no body, whatever the service returns.
    pub(crate) bodiless: bool,
}

/// Result of a step.
#[derive(Debug)]
pub(crate) enum Step<T> {
    /// The request is not whole yet. If known: how many bytes it has in all.
    More(Option<usize>),
    /// The client waits for `100 Continue`, and the server accepts its body. Step again for the rest.
    Continue,
    /// A request, this many bytes long, was handled, with this result.
    Request(usize, Manner, T),
    /// The request was answered by its head alone. Its body is not read, so the start of the next request is unknown.
    Turned(Manner, T),
}

/// Progress of one request between two reads.
#[derive(Debug)]
pub(crate) struct Framer {
    scan: Scan,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Head,
    /// The length of the head, and of the whole request.
    Body {
        head: usize,
        whole: usize,
    },
    Chunks {
        head: usize,
        decoded: usize,
        chunked: Chunked,
    },
}

/// Result of reading a head.
enum Opened<T> {
    Done(usize, Manner, T),
    Turned(Manner, T),
    Stage(Stage, bool),
}

impl Framer {
    pub(crate) fn new() -> Self {
        Self { scan: Scan::default(), stage: Stage::Head }
    }

    /// The head is complete, only (more of) the body is missing.
    pub(crate) fn in_body(&self) -> bool {
        !matches!(self.stage, Stage::Head)
    }

    /// Parses `buf[at..]`, where the request begins. `f` gets a complete request; a body that arrived in one piece is a
    /// slice of `buf`. If more than the head is expected, `judge` gets the head once, without a body, and may answer
    /// it: before any refusal of the body, such as one for its size. Chunked bodies are decoded in place, which may
    /// shorten `buf` behind `at`. After `Request`, `Turned` or an error, a new framer is needed.
    pub(crate) fn step<T>(
        &mut self,
        buf: &mut Vec<u8>,
        at: usize,
        limits: Limits,
        judge: impl FnOnce(&Request<'_>) -> Option<T>,
        f: impl FnOnce(&Request<'_>, Manner) -> T,
    ) -> Result<Step<T>, Refusal> {
        let mut f = Some(f);
        if let Stage::Head = self.stage {
            let Some(end) = self.scan.end_of_head(&buf[at..], limits.head)? else { return Ok(Step::More(None)) };
            let bytes = &buf[at..];
            let opened =
                head::read(&bytes[..end], self.scan.lines, |head| open(head, bytes, end, limits, judge, &mut f))??;
            match opened {
                Opened::Done(used, manner, out) => return Ok(Step::Request(used, manner, out)),
                Opened::Turned(manner, out) => return Ok(Step::Turned(manner, out)),
                Opened::Stage(stage, wants_continue) => {
                    self.stage = stage;
                    if wants_continue && bytes.len() == end {
                        return Ok(Step::Continue);
                    }
                }
            }
        }
        let (head, body_end, used) = match &mut self.stage {
            Stage::Head => return Ok(Step::More(None)),
            Stage::Body { head, whole } => {
                if buf.len() - at < *whole {
                    return Ok(Step::More(Some(*whole)));
                }
                (*head, at + *whole, *whole)
            }
            Stage::Chunks { head, decoded, chunked } => {
                let from = at + *head + *decoded;
                let pass = chunked.decode(buf, from, from, limits.body - *decoded, limits.head)?;
                *decoded = pass.write - at - *head;
                if !pass.whole {
                    buf.truncate(pass.write);
                    return Ok(Step::More(None));
                }
                (*head, pass.write, pass.read - at)
            }
        };
        let Some(f) = f.take() else { return Ok(Step::More(None)) };
        let body = &buf[at + head..body_end];
        let (manner, out) = head::read(&buf[at..at + head], self.scan.lines, |head| hand_over(head, body, f))?;
        Ok(Step::Request(used, manner, out))
    }
}

/// Decides how the body is read, and handles the request if the body is complete.
fn open<T, F: FnOnce(&Request<'_>, Manner) -> T>(
    head: &Head<'_>,
    bytes: &[u8],
    end: usize,
    limits: Limits,
    judge: impl FnOnce(&Request<'_>) -> Option<T>,
    f: &mut Option<F>,
) -> Result<Opened<T>, Refusal> {
    let length = match head.message.body {
        BodyLength::Chunked => None,
        BodyLength::Known(length) => Some(usize::try_from(length).unwrap_or(usize::MAX)),
    };
    let fitting = length.filter(|length| *length <= limits.body);
    if let Some(length) = fitting
        && let Some(body) = bytes.get(end..end + length)
    {
        let Some(f) = f.take() else { return Err(Refusal::bad("the head is malformed")) };
        let (manner, out) = hand_over(head, body, f);
        return Ok(Opened::Done(end + length, manner, out));
    }
    let (manner, out) = hand_over(head, b"", |request, manner| (manner, judge(request))).1;
    if let Some(out) = out {
        return Ok(Opened::Turned(Manner { keep_alive: false, ..manner }, out));
    }
    let stage = match (length, fitting) {
        (None, _) => Stage::Chunks { head: end, decoded: 0, chunked: Chunked::new() },
        (Some(_), None) => return Err(Refusal::BODY_TOO_LARGE),
        (Some(_), Some(length)) => Stage::Body { head: end, whole: end + length },
    };
    Ok(Opened::Stage(stage, head.message.expects_continue))
}

fn hand_over<T>(head: &Head<'_>, body: &[u8], f: impl FnOnce(&Request<'_>, Manner) -> T) -> (Manner, T) {
    let manner =
        Manner { keep_alive: head.message.keep_alive, http11: head.minor == 1, bodiless: head.method == Method::Head };
    let request =
        Request { method: head.method, path: head.path, query: head.query, headers: Headers(head.fields), body };
    (manner, f(&request, manner))
}

//! Replies of one connection, in the order of their requests.

use super::clock::Clock;
use super::output::Gather;
use super::status;
use super::timers::{NEVER, Tick};
use crate::framing::Manner;
use crate::{Body, BodySource, Pending, Response};
use std::collections::VecDeque;
use thalweg_base::Until;

/// Framing of a body that is made while it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    Chunked,
    /// The body has an announced length, or ends with the connection.
    Plain,
}

/// The place of one reply in the order.
pub(super) struct Slot {
    pub(super) state: State,
    /// When to call the pending answer or the body source.
    pub(super) deadline: Tick,
    pub(super) manner: Manner,
    /// The body source is to be called: it was woken, or has more.
    pub(super) due: bool,
    /// The client is to be shown out after this answer, since where its next request begins is not known.
    pub(super) refusal: bool,
}

pub(super) enum State {
    Ready(Response),
    /// Until when, and since when ([`Clock::micros`]).
    Held(Until, u32, Response),
    Later(Box<dyn Pending>),
    /// The head is sent, the body is under way, in chunks or as it is.
    Streaming(Box<dyn BodySource>, Coding),
    /// `100 Continue`.
    Interim,
}

impl Slot {
    pub(super) const fn new(state: State, manner: Manner) -> Self {
        Self { state, deadline: NEVER, manner, due: false, refusal: false }
    }

    /// A client waits for an event that may never come.
    pub(super) const fn is_pending(&self) -> bool {
        matches!(self.state, State::Later(_) | State::Streaming(..))
    }
}

/// The replies that are not sent yet. The first is in place: most connections never have two.
#[derive(Default)]
pub(super) struct Replies {
    first: Option<Slot>,
    #[expect(clippy::box_collection, reason = "an empty one takes 8 bytes rather than 32 of every connection")]
    rest: Option<Box<VecDeque<Slot>>>,
}

impl Replies {
    pub(super) fn push(&mut self, slot: Slot) {
        match &mut self.first {
            None => self.first = Some(slot),
            Some(_) => self.rest.get_or_insert_default().push_back(slot),
        }
    }

    pub(super) fn pop(&mut self) -> Option<Slot> {
        let popped = self.first.take();
        if let Some(rest) = &mut self.rest {
            self.first = rest.pop_front();
            if rest.is_empty() {
                self.rest = None;
            }
        }
        popped
    }

    /// Returns the slot that was popped last.
    pub(super) fn push_first(&mut self, slot: Slot) {
        if let Some(second) = self.first.replace(slot) {
            self.rest.get_or_insert_default().push_front(second);
        }
    }

    pub(super) fn first(&mut self) -> Option<&mut Slot> {
        self.first.as_mut()
    }

    /// The length of the first body, as far as it is known before sending.
    pub(super) fn first_len(&self) -> u64 {
        match &self.first {
            Some(Slot { state: State::Ready(response) | State::Held(_, _, response), .. }) => {
                response.body.len().unwrap_or(0)
            }
            _ => 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.as_ref().map_or(0, |rest| rest.len())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.first.iter().chain(self.rest.iter().flat_map(|rest| rest.iter()))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.first.iter_mut().chain(self.rest.iter_mut().flat_map(|rest| rest.iter_mut()))
    }
}

/// Browsers take a body for nothing but the type it was given.
const TYPED: &[u8] = b"x-content-type-options: nosniff\r\n";
/// Content of unknown authors may be displayed but must not act: a document gets an origin of its own, in which it
/// loads, runs, opens and sends nothing, whether it is HTML, SVG, XML with a style sheet or any format that browsers
/// will render one day (CSP3, sections 6.1 and 6.5).
const DATA_ONLY: &[u8] = b"content-security-policy: default-src 'none'; sandbox\r\n";

/// Policy of answers for pages of every origin, or of the server's own only (Fetch, section 3.7).
const CROSS_ORIGIN: &[u8] = b"cross-origin-resource-policy: cross-origin\r\n";
const SAME_ORIGIN: &[u8] = b"cross-origin-resource-policy: same-origin\r\n";

/// The lines of a head, but for pages of the server's own origin.
fn push_same_origin(text: &mut Vec<u8>, head: &[u8]) {
    for line in head.split_inclusive(|byte| *byte == b'\n') {
        text.extend_from_slice(if line.eq_ignore_ascii_case(CROSS_ORIGIN) { SAME_ORIGIN } else { line });
    }
}

/// Puts a response into `out`. A body that is made while it is sent is given back, and is still to be sent.
pub(super) fn render(
    response: Response,
    manner: Manner,
    close: bool,
    clock: &Clock,
    same_origin: bool,
    out: &mut Gather,
) -> Option<(Box<dyn BodySource>, Coding)> {
    let Response { status, head, body, page, .. } = response;
    let text = out.text();
    match status::line(status) {
        Some(line) => text.extend_from_slice(line),
        None => {
            text.extend_from_slice(b"HTTP/1.1 ");
            text.extend_from_slice(itoa::Buffer::new().format(status.clamp(200, 999)).as_bytes());
            text.extend_from_slice(b" \r\n");
        }
    }
    if same_origin {
        push_same_origin(text, &head);
    } else {
        text.extend_from_slice(&head);
    }
    text.extend_from_slice(clock.date_line());
    if close {
        text.extend_from_slice(b"connection: close\r\n");
    } else if !manner.http11 {
        text.extend_from_slice(b"connection: keep-alive\r\n");
    }
    // RFC 9110 §8.6: these two have no body, and so no length either.
    let never = matches!(status, 204 | 304);
    text.extend_from_slice(TYPED);
    if !page && !never {
        text.extend_from_slice(DATA_ONLY);
    }
    match body.len() {
        _ if never => {}
        Some(len) => {
            text.extend_from_slice(b"content-length: ");
            text.extend_from_slice(itoa::Buffer::new().format(len).as_bytes());
            text.extend_from_slice(b"\r\n");
        }
        None if manner.http11 => text.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        None => {}
    }
    text.extend_from_slice(b"\r\n");
    if never || manner.bodiless {
        return None;
    }
    match body {
        Body::Empty => {}
        Body::Bytes(bytes) => out.push(bytes),
        Body::Parts(parts) => parts.into_iter().for_each(|part| out.push(part)),
        Body::Stream(source) => return Some((source, if manner.http11 { Coding::Chunked } else { Coding::Plain })),
        Body::Sized(_, source) => return Some((source, Coding::Plain)),
    }
    None
}

/// Puts the output of a body source into `out`: one chunk, if the body is sent in chunks.
pub(super) fn render_parts(parts: &mut Vec<bytes::Bytes>, len: usize, coding: Coding, out: &mut Gather) {
    let chunked = coding == Coding::Chunked;
    if len > 0 && chunked {
        let mut hex = [0_u8; 18];
        let (mut at, mut rest) = (hex.len() - 2, len);
        hex[at..].copy_from_slice(b"\r\n");
        while rest > 0 {
            at -= 1;
            hex[at] = b"0123456789abcdef"[rest % 16];
            rest /= 16;
        }
        out.text().extend_from_slice(&hex[at..]);
    }
    parts.drain(..).for_each(|part| out.push(part));
    if len > 0 && chunked {
        out.text().extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_every_page_may_embed_can_be_kept_for_those_of_the_servers_own() {
        let mut text = Vec::new();
        push_same_origin(&mut text, b"A: cross-origin\r\nCross-Origin-Resource-Policy: cross-origin\r\nB: c\r\n");
        assert_eq!(text, b"A: cross-origin\r\ncross-origin-resource-policy: same-origin\r\nB: c\r\n");
    }
}

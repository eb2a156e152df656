//! Content page by page, from an offset on. A page that was cut off is requested again, and the part that was already
//! written is skipped: bytes between two offsets never change.

use super::last::Last;
use super::messages;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::server::{Answer, Call, Patience, Server};
use std::io::{Read, Write};
use ureq::http::Method;

/// The largest page of a JSON stream that the client accepts: it keeps such a page whole in memory.
const JSON_PAGE_MAX: u64 = 1 << 30;

pub(crate) struct Pages<'a> {
    server: &'a Server,
    url: String,
    live: bool,
    /// The start of the next page.
    offset: String,
    cursor: Option<String>,
    /// Bytes of the page at `offset` that were written before the page was cut off.
    written: u64,
    patience: Patience,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// More content follows.
    Page,
    /// The present end of an open stream.
    Tail,
    /// The end of a closed stream.
    Closed,
}

impl<'a> Pages<'a> {
    /// `live`: a page after the end is waited for.
    pub(crate) fn new(server: &'a Server, name: &str, offset: &str, live: bool) -> Self {
        let patience = server.patience();
        Self { server, url: server.stream(name), live, offset: offset.to_owned(), cursor: None, written: 0, patience }
    }

    pub(crate) fn offset(&self) -> &str {
        &self.offset
    }

    /// Skips the stream's present content: the next page begins at the present end.
    pub(crate) fn skip_to_tail(&mut self) -> Result<After, Failure> {
        let answer = self.server.ask(&Call::new(Method::GET, format!("{}?offset=now", self.url)))?;
        self.turn(&answer)
    }

    /// Writes the next page, as soon as one exists.
    pub(crate) fn next(&mut self, out: &mut impl Write, progress: &mut Progress) -> Result<After, Failure> {
        loop {
            match self.page(out, progress) {
                Ok(after) => {
                    self.patience.restore();
                    return Ok(after);
                }
                Err(failure) => self.patience.wait(failure)?,
            }
        }
    }

    /// Reads to the present end and writes the last lines of it, or JSON messages.
    pub(crate) fn write_last(&mut self, count: u32, out: &mut impl Write) -> Result<After, Failure> {
        let mut last = Last::new(count);
        let mut progress = Progress::new(None, false);
        let after = loop {
            match self.next(&mut last, &mut progress)? {
                After::Page => {}
                after => break after,
            }
        };
        drop(progress);
        last.write(out)?;
        Ok(after)
    }

    fn page(&mut self, out: &mut impl Write, progress: &mut Progress) -> Result<After, Failure> {
        // Parameters in the order of their names, so that caches see one URL.
        let mut query = String::new();
        if self.live {
            if let Some(cursor) = &self.cursor {
                query = format!("cursor={cursor}&");
            }
            query.push_str("live=long-poll&");
        }
        let url = format!("{}?{query}offset={}", self.url, self.offset);
        let mut answer = self.server.ask_once(&Call::new(Method::GET, url))?;
        if answer.status() != 204 {
            let json = answer.header("content-type").is_some_and(is_json);
            if json {
                self.messages(&mut answer, out, progress)?
            } else {
                self.bytes(&mut answer, out, progress)?
            }
            out.flush()?;
        }
        self.turn(&answer)
    }

    fn messages(&self, answer: &mut Answer, out: &mut impl Write, progress: &mut Progress) -> Result<(), Failure> {
        let mut array = Vec::new();
        answer.body().take(JSON_PAGE_MAX + 1).read_to_end(&mut array).map_err(|error| self.cut(&error))?;
        if array.len() as u64 > JSON_PAGE_MAX {
            return Err(Failure::Strange("a page of more than 1 GiB".to_owned()));
        }
        progress.add(array.len() as u64);
        Ok(out.write_all(&messages::lines(&array)?)?)
    }

    fn bytes(&mut self, answer: &mut Answer, out: &mut impl Write, progress: &mut Progress) -> Result<(), Failure> {
        let mut body = answer.body();
        let again = std::io::copy(&mut body.by_ref().take(self.written), &mut std::io::sink());
        again.map_err(|error| self.cut(&error))?;
        let mut buffer = vec![0; 64 << 10];
        loop {
            let read = body.read(&mut buffer).map_err(|error| self.cut(&error))?;
            if read == 0 {
                return Ok(());
            }
            out.write_all(&buffer[..read])?;
            self.written += read as u64;
            progress.add(read as u64);
        }
    }

    fn cut(&self, error: &std::io::Error) -> Failure {
        Failure::Unreachable { server: self.url.clone(), why: format!("the answer was cut off: {error}") }
    }

    /// Moves on to the page after an answer.
    fn turn(&mut self, answer: &Answer) -> Result<After, Failure> {
        let next = answer.header("stream-next-offset");
        self.offset = next.ok_or_else(|| Failure::Strange("it has no Stream-Next-Offset".to_owned()))?.to_owned();
        self.cursor = answer.header("stream-cursor").map(str::to_owned).or(self.cursor.take());
        self.written = 0;
        Ok(match (answer.says("stream-closed"), answer.says("stream-up-to-date")) {
            (true, _) => After::Closed,
            (false, true) => After::Tail,
            (false, false) => After::Page,
        })
    }
}

/// Whether the media type is JSON. As in the protocol, parameters do not count.
pub(crate) fn is_json(content_type: &str) -> bool {
    content_type.split(';').next().is_some_and(|media| media.trim().eq_ignore_ascii_case("application/json"))
}

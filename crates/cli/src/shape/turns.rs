//! Reads a shape's log, one request after the other, as a client of the public API does.

use super::definition::DefinitionArgs;
use crate::failure::Failure;
use crate::server::{Answer, Call, Patience, Server};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::io::Read;
use ureq::http::Method;

/// The largest accepted answer: it is held whole.
const ANSWER_MAX: u64 = 1 << 30;

/// A reader's position in a shape's log.
pub(super) struct Turns<'a> {
    server: &'a Server,
    definition: &'a DefinitionArgs,
    offset: String,
    handle: Option<String>,
    cursor: Option<String>,
    /// An expired handle: sent with the next request, so that caches do not repeat its answers.
    expired: Option<String>,
    /// The schema of the latest answer that carried one.
    pub(super) schema: Option<String>,
    up_to_date: bool,
    patience: Patience,
}

/// Outcome of one request.
pub(super) enum Turn {
    /// Messages as they were sent, control messages among them.
    Messages(Vec<Box<RawValue>>),
    /// The shape was replaced: all earlier messages are void.
    MustRefetch,
}

/// The fields of a message that the client reads.
#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    headers: Headers<'a>,
}

#[derive(Deserialize)]
struct Headers<'a> {
    control: Option<&'a str>,
}

/// Whether a message says something of the log rather than of a row.
pub(super) fn is_control(message: &RawValue) -> bool {
    serde_json::from_str::<Message<'_>>(message.get()).is_ok_and(|message| message.headers.control.is_some())
}

impl<'a> Turns<'a> {
    /// `offset`: where to begin; `handle`: the handle that the offset belongs to, unless the offset is -1 or now.
    pub(super) fn new(
        server: &'a Server,
        definition: &'a DefinitionArgs,
        offset: &str,
        handle: Option<String>,
    ) -> Self {
        Self {
            server,
            definition,
            offset: offset.to_owned(),
            handle,
            cursor: None,
            expired: None,
            schema: None,
            up_to_date: false,
            patience: server.patience(),
        }
    }

    pub(super) fn offset(&self) -> &str {
        &self.offset
    }

    pub(super) fn handle(&self) -> &str {
        self.handle.as_deref().unwrap_or_default()
    }

    /// Whether all of the shape's present messages have been delivered.
    pub(super) fn is_up_to_date(&self) -> bool {
        self.up_to_date
    }

    /// Goes back to `offset`, which is -1 or now, in the shape that exists now.
    pub(super) fn restart(&mut self, offset: &str) {
        self.expired = self.handle.take();
        (self.offset, self.cursor, self.up_to_date) = (offset.to_owned(), None, false);
    }

    /// Sends requests until an answer arrives or patience ends. At the end of the log it waits for new messages.
    pub(super) fn next(&mut self) -> Result<Turn, Failure> {
        loop {
            match self.ask() {
                Ok(messages) => {
                    self.patience.restore();
                    return Ok(Turn::Messages(messages));
                }
                Err(Failure::Refused(refusal)) if refusal.status == 409 => {
                    self.patience.restore();
                    return Ok(Turn::MustRefetch);
                }
                Err(failure) => self.patience.wait(failure)?,
            }
        }
    }

    fn ask(&mut self) -> Result<Vec<Box<RawValue>>, Failure> {
        let mut query = vec![("offset", self.offset.as_str())];
        query.extend(self.handle.as_deref().map(|handle| ("handle", handle)));
        query.extend(self.expired.as_deref().map(|handle| ("expired_handle", handle)));
        query.extend(self.server.secret().map(|secret| ("secret", secret)));
        if self.up_to_date {
            query.push(("live", "true"));
            query.extend(self.cursor.as_deref().map(|cursor| ("cursor", cursor)));
        }
        let url = format!("{}?{}", self.server.at("/v1/shape"), self.definition.query(&query));
        let mut answer = self.server.ask_once(&Call::new(Method::GET, url)).map_err(super::is_no_server_of_shapes)?;
        let mut body = Vec::new();
        let read = answer.body().take(ANSWER_MAX + 1).read_to_end(&mut body);
        read.map_err(|error| Failure::Unreachable {
            server: self.server.at(""),
            why: format!("the answer was cut off: {error}"),
        })?;
        if body.len() as u64 > ANSWER_MAX {
            return Err(Failure::Strange("an answer of more than 1 GiB".to_owned()));
        }
        // Some proxies make an empty answer of this.
        let messages = if body.is_empty() { Ok(Vec::new()) } else { serde_json::from_slice(&body) };
        let messages = messages.map_err(|error| Failure::Strange(format!("a shape's messages: {error}")))?;
        self.turn(&answer)?;
        Ok(messages)
    }

    fn turn(&mut self, answer: &Answer) -> Result<(), Failure> {
        let header = |name: &str| {
            let missing = || Failure::Strange(format!("it has no {name}: is there a proxy that drops it?"));
            answer.header(name).map(str::to_owned).ok_or_else(missing)
        };
        let (handle, offset) = (header("electric-handle")?, header("electric-offset")?);
        self.handle = Some(handle);
        self.offset = offset;
        self.expired = None;
        self.cursor = answer.header("electric-cursor").map(str::to_owned);
        self.schema = answer.header("electric-schema").map(str::to_owned).or(self.schema.take());
        self.up_to_date = answer.header("electric-up-to-date").is_some();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_messages_are_told_from_rows() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        assert!(is_control(&raw(r#"{"headers":{"control":"up-to-date","global_last_seen_lsn":"1"}}"#)));
        for row in [
            r#"{"key":"k","value":{"control":"x"},"headers":{"operation":"insert"}}"#,
            r#"{"headers":{"event":"move-in"}}"#,
        ] {
            assert!(!is_control(&raw(row)));
        }
    }
}

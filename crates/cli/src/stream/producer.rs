//! An idempotent producer: every append carries the producer's id and a number, so that it may be sent until it is
//! answered.

use crate::failure::Failure;
use crate::server::{Call, Server, random};
use std::time::{SystemTime, UNIX_EPOCH};
use ureq::http::Method;

/// Number of producers that unnamed runs share, per stream: streams remember every producer, up to a bound.
const SHARED: u64 = 256;
/// How many of them a run tries for one append. A clock that went back meets newer epochs, but hardly with that many.
const TRIES: usize = 16;

pub(crate) struct Producer<'a> {
    server: &'a Server,
    url: String,
    content_type: String,
    id: String,
    epoch: u64,
    /// The number of the next append.
    seq: u64,
    /// The highest number that an earlier run got accepted, as far as is known.
    accepted: Option<u64>,
    named: bool,
    /// The end of the stream after the last answered append.
    tail: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    New,
    /// An earlier run has sent it.
    Known,
}

impl<'a> Producer<'a> {
    /// The producer with this id and epoch. A later run with the same id and epoch repeats the same appends, and adds
    /// only the missing ones.
    pub(crate) fn named(server: &'a Server, name: &str, content_type: String, id: String, epoch: u64) -> Self {
        Self {
            server,
            url: server.stream(name),
            content_type,
            id,
            epoch,
            seq: 0,
            accepted: None,
            named: true,
            tail: None,
        }
    }

    /// A producer id that runs share: the newest run takes it over from the run before.
    pub(crate) fn shared(server: &'a Server, name: &str, content_type: String) -> Self {
        let mut producer = Self::named(server, name, content_type, String::new(), 0);
        producer.named = false;
        producer.take_another();
        producer
    }

    fn take_another(&mut self) {
        self.id = format!("thalweg-stream-append-{}", random() % SHARED);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.epoch = u64::try_from(now.as_micros()).unwrap_or(0);
        self.seq = 0;
    }

    /// Appends, once, however often it has to be sent.
    pub(crate) fn send(&mut self, body: &[u8], close: bool) -> Result<Sent, Failure> {
        if self.accepted.is_some_and(|accepted| self.seq <= accepted) {
            self.seq += 1;
            return Ok(Sent::Known);
        }
        let mut patience = self.server.patience();
        let (mut repeated, mut taken) = (false, 1);
        loop {
            match self.server.ask_once(&self.call(body, close)) {
                Ok(answer) => {
                    // 200 is a new append. 204 is a known append: this run had to send it twice, or an earlier run sent
                    // it.
                    let known = answer.status() == 204 && !repeated;
                    let highest = answer.header("producer-seq").and_then(|seq| seq.parse().ok());
                    self.accepted = if known { highest } else { None };
                    self.tail = answer.header("stream-next-offset").map(str::to_owned).or(self.tail.take());
                    self.seq += 1;
                    return Ok(if known { Sent::Known } else { Sent::New });
                }
                // Another run took over before this append was accepted: another producer id can send it. If the append
                // was sent before, whether it was accepted is unknown.
                Err(Failure::Refused(refusal))
                    if refusal.is("stale_epoch") && !self.named && !repeated && taken < TRIES =>
                {
                    self.take_another();
                    taken += 1;
                }
                Err(failure) => {
                    patience.wait(failure)?;
                    repeated = true;
                }
            }
        }
    }

    /// The stream's end after the last append, if the server sent it.
    pub(crate) fn tail(&self) -> Option<&str> {
        self.tail.as_deref()
    }

    fn call<'b>(&self, body: &'b [u8], close: bool) -> Call<'b> {
        let call = Call::new(Method::POST, self.url.clone())
            .header("content-type", &self.content_type)
            .header("producer-id", &self.id)
            .header("producer-epoch", self.epoch.to_string())
            .header("producer-seq", self.seq.to_string())
            .body(body);
        if close { call.header("stream-closed", "true") } else { call }
    }
}

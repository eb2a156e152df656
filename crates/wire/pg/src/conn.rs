//! One session.

use super::cancel::CancelToken;
use super::config::Config;
use super::connect::{self, Purpose, Target};
use super::error::{DbError, Error};
use super::frame::{Frame, Receiver};
use super::link::{Link, Wait};
use bytes::BytesMut;
use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Bound on the settings that a server reports unasked.
const PARAMETERS_MAX: usize = 256;
/// A send buffer larger than this is freed (bytes).
const OUT_KEPT: usize = 64 * 1024;
/// How long to wait for the last message of a server that has closed.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// A connection to one Postgres server: one user, one database, one thing at a time.
///
/// Dropping it ends the session. After a failure in the middle of something it is poisoned, see the module.
pub struct Conn {
    target: Arc<Target>,
    pub(super) link: Arc<Link>,
    pub(super) receiver: Receiver,
    out: BytesMut,
    wait: Wait,
    parameters: Vec<(String, String)>,
    /// Process and secret, for a cancellation.
    key: Option<(i32, i32)>,
    status: TransactionStatus,
}

/// State of the session, from the server's latest message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransactionStatus {
    /// No transaction is open.
    #[default]
    Idle,
    /// A transaction is open.
    Open,
    /// The transaction has failed and can only be rolled back.
    Failed,
}

/// The version of `server_version_num`: 15.18 is (15, 18); of a beta or a development version, the minor number is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerVersion {
    /// The release, such as 17.
    pub major: u32,
    /// The minor release.
    pub minor: u32,
}

impl fmt::Display for ServerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The next event: a message for the caller, or an error that does not end the session.
pub(super) enum Step {
    Frame(Frame),
    Error(Box<DbError>),
}

impl Conn {
    /// Tries the hosts of `config` in turn.
    pub fn connect(config: &Config) -> Result<Self, Error> {
        connect::connect(config, Purpose::Queries)
    }

    pub(super) fn new(target: Arc<Target>, link: Arc<Link>, receiver: Receiver, wait: Wait) -> Self {
        let (out, parameters) = (BytesMut::new(), Vec::new());
        Self { target, link, receiver, out, wait, parameters, key: None, status: TransactionStatus::Idle }
    }

    /// Authentication is complete; from here on the bounds of queries hold.
    pub(super) fn begin(&mut self, wait: Wait, message_max: usize) {
        self.wait = wait;
        self.receiver.message_max = message_max;
    }

    /// How long each later call waits for a byte from the server; `None`: for ever.
    pub fn set_read_timeout(&mut self, timeout: Option<Duration>) {
        self.wait = Wait::timeout(timeout);
    }

    /// A setting that the server reports: `server_version`, `server_encoding`, `TimeZone`, `in_hot_standby`….
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// All settings that the server reports.
    pub fn parameters(&self) -> impl Iterator<Item = (&str, &str)> {
        self.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// 0.0 if the server does not report it.
    pub fn server_version(&self) -> ServerVersion {
        ServerVersion::read(self.parameter("server_version").unwrap_or_default())
    }

    /// The server's process, as in `pg_stat_activity`.
    pub fn process_id(&self) -> Option<i32> {
        self.key.map(|(process, _)| process)
    }

    /// The state after the last answer.
    pub fn transaction_status(&self) -> TransactionStatus {
        self.status
    }

    /// Whether the connection is encrypted.
    pub fn is_tls(&self) -> bool {
        self.link.is_tls()
    }

    /// Every call fails from now on.
    pub fn is_poisoned(&self) -> bool {
        self.link.is_broken()
    }

    /// Whether the server has sent something between two queries, or closed the connection: it may have ended the
    /// session. Never waits.
    pub fn has_unread(&self) -> bool {
        self.link.has_unread()
    }

    /// A handle with which another thread interrupts a query of this session. `None`: the server gave no key.
    pub fn cancel_token(&self) -> Option<CancelToken> {
        let (process, secret) = self.key?;
        Some(CancelToken::new(self.target.clone(), process, secret))
    }

    pub(super) fn config(&self) -> &Config {
        &self.target.config
    }

    // ---- interface for the other modules

    /// The buffer of messages for [`Conn::flush`].
    pub(super) fn out(&mut self) -> &mut BytesMut {
        &mut self.out
    }

    /// Fails if the connection is poisoned; nothing of an earlier call is left to be sent.
    pub(super) fn check(&mut self) -> Result<(), Error> {
        self.out.clear();
        if self.is_poisoned() { Err(Error::Poisoned) } else { Ok(()) }
    }

    /// Sends the buffered messages.
    pub(super) fn flush(&mut self) -> Result<(), Error> {
        let sent = self.link.send(&self.out);
        self.out.clear();
        if self.out.capacity() > OUT_KEPT {
            self.out = BytesMut::new();
        }
        sent.map_err(|error| self.fail(error))
    }

    /// Poisons the connection; an end without a message gets the server's last message, if one has arrived.
    pub(super) fn fail(&mut self, error: Error) -> Error {
        self.link.break_off();
        match error {
            Error::Closed(None) => Error::Closed(self.receiver.last_words(Wait::Each(LAST_WORDS))),
            error => error,
        }
    }

    /// The next message that belongs to an answer; notices and settings are handled here.
    pub(super) fn step(&mut self) -> Result<Step, Error> {
        self.step_by(self.wait).and_then(|step| match (step, self.wait) {
            (Some(step), _) => Ok(step),
            (None, Wait::Each(timeout)) => Err(self.fail(Error::Timeout(timeout))),
            (None, _) => Err(self.fail(Error::Timeout(Duration::ZERO))),
        })
    }

    fn step_by(&mut self, wait: Wait) -> Result<Option<Step>, Error> {
        loop {
            let frame = match self.receiver.frame(wait) {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok(None),
                Err(error) => return Err(self.fail(error)),
            };
            match self.note(&frame) {
                Ok(true) => {}
                Ok(false) if frame.tag == b'E' => match self.receiver.db_error(&frame) {
                    Ok(error) if error.is_fatal() => return Err(self.fail(Error::Closed(Some(Box::new(error))))),
                    Ok(error) => return Ok(Some(Step::Error(Box::new(error)))),
                    Err(error) => return Err(self.fail(error)),
                },
                Ok(false) => return Ok(Some(Step::Frame(frame))),
                Err(error) => return Err(self.fail(error)),
            }
        }
    }

    /// Whether this is one of the messages that may come at any time.
    pub(super) fn note(&mut self, frame: &Frame) -> Result<bool, Error> {
        match frame.tag {
            b'S' => match self.receiver.message(frame)? {
                Message::ParameterStatus(body) => {
                    let text = |text: std::io::Result<&str>| {
                        text.map(str::to_owned).map_err(|_| Error::Protocol("a setting that is not UTF-8"))
                    };
                    let (name, value) = (text(body.name())?, text(body.value())?);
                    if let Some(known) = self.parameters.iter_mut().find(|(n, _)| *n == name) {
                        known.1 = value;
                    } else if self.parameters.len() < PARAMETERS_MAX {
                        self.parameters.push((name, value));
                    } else {
                        return Err(Error::Protocol("settings without end"));
                    }
                }
                _ => return Err(Error::Protocol("a setting that is none")),
            },
            b'N' => {
                let notice = self.receiver.db_error(frame)?;
                tracing::debug!(code = notice.code, "postgres says: {}", notice.message);
            }
            // Notifications have no listener.
            b'A' => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    pub(super) fn message(&mut self, frame: &Frame) -> Result<Message, Error> {
        self.receiver.message(frame).map_err(|error| self.fail(error))
    }

    /// The server breaks the protocol.
    pub(super) fn unexpected(&mut self, what: &'static str) -> Error {
        self.fail(Error::Protocol(what))
    }

    pub(super) fn await_first_ready(&mut self) -> Result<(), Error> {
        loop {
            match self.step()? {
                Step::Frame(frame) if frame.tag == b'Z' => return self.set_status(&frame),
                Step::Frame(frame) if frame.tag == b'K' => match self.message(&frame)? {
                    Message::BackendKeyData(body) => self.key = Some((body.process_id(), body.secret_key())),
                    _ => return Err(self.unexpected("a key that is none")),
                },
                Step::Frame(_) => return Err(self.unexpected("an answer before the first question")),
                Step::Error(error) => {
                    let error = Error::Server(error);
                    return Err(self.fail(error));
                }
            }
        }
    }

    /// Takes note of `ReadyForQuery`.
    pub(super) fn set_status(&mut self, frame: &Frame) -> Result<(), Error> {
        self.status = match self.receiver.body(frame) {
            b"I" => TransactionStatus::Idle,
            b"T" => TransactionStatus::Open,
            b"E" => TransactionStatus::Failed,
            _ => return Err(self.unexpected("an unknown state of the transaction")),
        };
        Ok(())
    }

    /// Reads to the end of an unwanted answer.
    pub(super) fn skip_to_ready(&mut self) -> Result<(), Error> {
        loop {
            match self.step()? {
                Step::Frame(frame) if frame.tag == b'Z' => return self.set_status(&frame),
                Step::Frame(_) | Step::Error(_) => {}
            }
        }
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        if !self.is_poisoned() {
            self.out.clear();
            frontend::terminate(&mut self.out);
            let _ = self.link.send(&self.out);
        }
        // Closes the socket for holders of the sending half, too.
        self.link.hang_up();
    }
}

impl fmt::Debug for Conn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Conn");
        debug.field("to", &self.target.address.to_string()).field("process", &self.process_id());
        debug.field("status", &self.status).field("poisoned", &self.is_poisoned()).finish()
    }
}

impl ServerVersion {
    fn read(text: &str) -> Self {
        let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>();
        let major = digits(text);
        let minor = text[major.len()..].strip_prefix('.').map(digits).unwrap_or_default();
        Self { major: major.parse().unwrap_or(0), minor: minor.parse().unwrap_or(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_whatever_comes_after_them() {
        let read = |text| (ServerVersion::read(text).major, ServerVersion::read(text).minor);
        assert_eq!(read("15.18 (Debian 15.18-0+deb12u1)"), (15, 18));
        assert_eq!(read("18beta1"), (18, 0));
        assert_eq!(read("19devel"), (19, 0));
        assert_eq!(read(""), (0, 0));
        assert_eq!(read("é"), (0, 0));
        assert!(ServerVersion { major: 16, minor: 0 } > ServerVersion { major: 15, minor: 18 });
    }
}

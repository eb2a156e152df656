//! Failures of a client, whether a retry can help, and the exit code that reports each to scripts.

use std::io;
use std::time::Duration;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The server refused.
    #[error("{0}")]
    Refused(Refusal),
    /// No answer, or not the whole of it: the request may or may not have been served.
    #[error("{server} does not answer: {why}")]
    Unreachable { server: String, why: String },
    /// The name of the server is not known.
    #[error("no host has the name in {server}: check its spelling, or name another --server")]
    UnknownHost { server: String },
    /// Something on this side is not as it must be.
    #[error("{0}")]
    Local(String),
    /// An answer that the protocol does not have.
    #[error("the server's answer cannot be decoded: {0}")]
    Strange(String),
    /// A file or a pipe of this side.
    #[error("{0}")]
    Io(io::Error),
    /// Standard output was closed.
    #[error("the output has no reader")]
    ReaderGone,
}

/// The server's refusal.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status code of HTTP.
    pub status: u16,
    /// Code as in `docs/protocol/refusals.md`; other servers send none.
    pub code: Option<String>,
    /// The server's message, or the first line of its answer.
    pub message: String,
    /// How long the server asks the client to wait.
    pub retry_after: Option<Duration>,
    /// The current shape, if the client must fetch the shape again.
    pub handle: Option<String>,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "refused with {}", self.status)?;
        if let Some(code) = &self.code {
            write!(f, " {code}")?;
        }
        if self.message.is_empty() { Ok(()) } else { write!(f, ": {}", self.message) }
    }
}

impl Refusal {
    /// Reads `{"error":{"code":…,"message":…}}` and the shapes' form of refusals; other text is kept unparsed.
    pub(crate) fn read(status: u16, retry_after: Option<&str>, body: &[u8]) -> Self {
        #[derive(serde::Deserialize)]
        struct Body {
            error: Explained,
        }
        #[derive(serde::Deserialize)]
        struct Explained {
            code: String,
            message: String,
        }
        let (code, message) = match serde_json::from_slice::<Body>(body) {
            Ok(Body { error }) => (Some(error.code), error.message),
            Err(_) => of_shapes(body).unwrap_or_else(|| (None, shown(body))),
        };
        let retry_after = retry_after.and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
        Self { status, code, message, retry_after, handle: None }
    }

    pub(crate) fn is(&self, code: &str) -> bool {
        self.code.as_deref() == Some(code)
    }
}

/// `{"message":…,"errors":{field:[…]}}` or `{"code":…,"error":…}`: the code and the message.
fn of_shapes(body: &[u8]) -> Option<(Option<String>, String)> {
    #[derive(serde::Deserialize)]
    struct Body {
        code: Option<String>,
        message: Option<String>,
        error: Option<String>,
        #[serde(default)]
        errors: serde_json::Map<String, serde_json::Value>,
    }
    let body: Body = serde_json::from_slice(body).ok()?;
    let mut words: Vec<String> = body.message.or(body.error).into_iter().collect();
    for (field, messages) in &body.errors {
        let messages = messages.as_array().into_iter().flatten().filter_map(|message| message.as_str());
        words.extend(messages.map(|message| format!("{field}: {message}")));
    }
    (!words.is_empty()).then(|| (body.code, words.join("; ")))
}

/// The first line of a body of unknown format, such as a proxy's page.
fn shown(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(400)]);
    text.lines().next().unwrap_or_default().trim().chars().filter(|c| !c.is_control()).collect()
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe { Self::ReaderGone } else { Self::Io(error) }
    }
}

impl Failure {
    /// Whether the same request may be answered differently in a while, and how long the server asks to wait.
    pub(crate) fn passes(&self) -> Option<Option<Duration>> {
        match self {
            Self::Unreachable { .. } => Some(None),
            // A stream that has too many producers stays so.
            Self::Refused(refusal) if refusal.is("too_many_producers") => None,
            Self::Refused(refusal) if matches!(refusal.status, 429 | 502 | 503 | 504) => Some(refusal.retry_after),
            _ => None,
        }
    }

    /// Explains the absence of a stream, if the answer had no body.
    pub(crate) fn of_stream(mut self, name: &str, remedy: &str) -> Self {
        if let Self::Refused(refusal) = &mut self
            && refusal.status == 404
            && refusal.message.is_empty()
        {
            refusal.message = format!("there is no stream {name}{remedy}");
        }
        self
    }

    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Refused(refusal) if matches!(refusal.status, 404 | 410))
    }

    /// The exit code that tells scripts of the failure, as the help of the commands lists them.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::ReaderGone => 0,
            Self::Local(_) | Self::Strange(_) | Self::Io(_) => 1,
            Self::Unreachable { .. } | Self::UnknownHost { .. } => 6,
            Self::Refused(refusal) => match refusal.status {
                404 => 3,
                410 if refusal.is("offset_trimmed") => 4,
                410 => 3,
                403 if refusal.is("stale_epoch") => 4,
                401 | 403 => 7,
                409 | 412 => 4,
                429 | 502..=504 => 6,
                400..=499 => 5,
                _ => 1,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, body: &str) -> Failure {
        Failure::Refused(Refusal::read(status, Some("3"), body.as_bytes()))
    }

    #[test]
    fn the_servers_words_and_code_are_shown() {
        let closed = refused(409, r#"{"error":{"code":"closed","message":"the stream is closed"}}"#);
        assert_eq!(closed.to_string(), "refused with 409 closed: the stream is closed");
        assert_eq!(refused(502, "<html>\nx").to_string(), "refused with 502: <html>");
        assert_eq!(refused(404, "").to_string(), "refused with 404");
        let invalid = refused(400, r#"{"message":"Invalid request","errors":{"table":["has no name"]}}"#);
        assert_eq!(invalid.to_string(), "refused with 400: Invalid request; table: has no name");
        let gone = refused(503, r#"{"code":"database_unreachable","error":"Database is unreachable"}"#);
        assert_eq!(gone.to_string(), "refused with 503 database_unreachable: Database is unreachable");
        assert_eq!(refused(500, "a\u{1b}[31mb").to_string(), "refused with 500: a[31mb", "no terminal codes");
    }

    #[test]
    fn asking_again_is_for_what_may_pass() {
        assert_eq!(refused(503, "").passes(), Some(Some(Duration::from_secs(3))));
        assert_eq!(Failure::Unreachable { server: String::new(), why: String::new() }.passes(), Some(None));
        assert_eq!(refused(409, "").passes(), None);
        assert_eq!(refused(429, r#"{"error":{"code":"too_many_producers","message":""}}"#).passes(), None);
    }

    #[test]
    fn every_documented_exit_code_has_its_cause() {
        let code = |status, code: &str| {
            refused(status, &format!(r#"{{"error":{{"code":"{code}","message":""}}}}"#)).exit_code()
        };
        assert_eq!(code(404, "not_found"), 3);
        assert_eq!(code(410, "gone"), 3);
        assert_eq!(code(409, "closed"), 4);
        assert_eq!(code(403, "stale_epoch"), 4);
        assert_eq!(code(413, "too_large"), 5);
        assert_eq!(code(503, "journal_full"), 6);
        assert_eq!(code(401, "no_token"), 7);
        assert_eq!(code(500, "internal"), 1);
    }
}

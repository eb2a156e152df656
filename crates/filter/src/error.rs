//! Why a where clause was refused.

use thiserror::Error;

/// A where clause that cannot be used, worded as Postgres would.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct ParseError {
    /// The reason, in Postgres's words where Postgres would refuse the clause too.
    pub message: String,
    /// Position of the error in characters from the start of the text, from 1, as in Postgres's error field `P`.
    pub position: usize,
    /// The clause exceeds a limit of ours, or may do so while it is parsed: no other parser must get it.
    pub oversized: bool,
}

/// An error while the text is available: `at` counts bytes from 0.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) message: String,
    pub(crate) at: usize,
    pub(crate) oversized: bool,
}

pub(crate) type Parsed<T> = Result<T, Refusal>;

pub(crate) fn refuse<T>(at: usize, message: impl Into<String>) -> Parsed<T> {
    Err(Refusal { message: message.into(), at, oversized: false })
}

/// Refuses a clause that exceeds a limit.
pub(crate) fn refuse_oversized<T>(at: usize, message: impl Into<String>) -> Parsed<T> {
    Err(Refusal { message: message.into(), at, oversized: true })
}

impl Refusal {
    pub(crate) fn locate(self, text: &str) -> ParseError {
        let position = text.char_indices().take_while(|(i, _)| *i < self.at).count() + 1;
        ParseError { message: self.message, position, oversized: self.oversized }
    }
}

//! Errors of decoding.

/// Why a message is malformed. The server or a proxy does not speak pgoutput as we know it; the stream is unusable
/// after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The message ends before its last field.
    #[error("a message ends too early")]
    Short,
    /// This many bytes follow the last field.
    #[error("{0} bytes behind the end of a message")]
    Trailing(usize),
    /// The first byte names no known message.
    #[error("a message of unknown kind {:?}", char::from(*.0))]
    Kind(u8),
    /// The byte is none of the values of the field `what`.
    #[error("{what}: {value} is not one of its values")]
    Value { what: &'static str, value: u8 },
    /// The named text is not UTF-8.
    #[error("{0} is not UTF-8")]
    NotUtf8(&'static str),
    /// The named length or count is negative.
    #[error("{0} is negative")]
    Negative(&'static str),
    /// A block of a streamed transaction begins in another, or ends without a begin; or a message is in the wrong
    /// place.
    #[error("{0} in the wrong place")]
    OutOfPlace(&'static str),
}

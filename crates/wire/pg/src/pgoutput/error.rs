//! Errors of decoding.

/// Why a message is malformed. The server or a proxy does not speak pgoutput as we know it; the stream is unusable
/// after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    #[error("a message ends too early")]
    Short,
    #[error("{0} bytes behind the end of a message")]
    Trailing(usize),
    #[error("a message of unknown kind {:?}", char::from(*.0))]
    Kind(u8),
    #[error("{what}: {value} is not one of its values")]
    Value { what: &'static str, value: u8 },
    #[error("{0} is not UTF-8")]
    NotUtf8(&'static str),
    #[error("{0} is negative")]
    Negative(&'static str),
    /// A block of a streamed transaction begins in another, or ends without a begin; or a message is in the wrong
    /// place.
    #[error("{0} in the wrong place")]
    OutOfPlace(&'static str),
}

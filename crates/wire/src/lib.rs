//! Bytes to types and back. No engine knowledge lives here: a wire crate module knows a protocol's framing, never its meaning.

pub mod clock;
pub mod http;
pub mod pg;

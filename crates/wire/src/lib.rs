//! Bytes to types and back. A module of this crate knows a protocol's framing, and nothing of engines.

pub mod clock;
pub mod http;
pub mod pg;

//! Durable append-only HTTP streams: the Durable Streams protocol.
pub mod format;
pub mod state;

//! Bytes: offsets, and the JSON that clients get.

pub mod offset;

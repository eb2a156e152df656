//! Bytes: everything that is written to disk or sent, and nothing that decides.

pub(crate) mod attachment;
pub mod content_type;
pub mod json;
pub mod note;
pub mod offset;
pub mod sse;
pub mod timestamp;

//! Bytes: offsets, notes and references, and the JSON that clients get.

pub mod copy;
pub mod handle;
pub mod joint;
pub mod json;
pub mod message;
pub mod note;
pub mod offset;
pub mod projection;
pub mod references;
pub mod schema;

//! Bytes: offsets, notes and references, and the JSON that clients get.

pub mod note;
pub mod references;
pub mod shared_rows;

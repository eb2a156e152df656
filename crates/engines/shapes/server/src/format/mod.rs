//! Bytes: offsets, notes and references, and the JSON that clients get.

pub mod joint;
pub mod note;
pub mod references;

//! Selection of the shapes that a changed row may concern.

pub mod ids;
pub mod matching;

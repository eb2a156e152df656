//! Which shapes a changed row may concern.

pub mod matching;

//! Postgres: where rows and changes come from.

pub(crate) mod replicate;
pub(crate) mod spill;

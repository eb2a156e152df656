//! How a transaction of Postgres becomes one frame of the journal. The other decisions are those of
//! `thalweg-shapes-core`.

pub mod transaction;

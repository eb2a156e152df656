//! The promises of runs, asked of whole objects.
#![allow(clippy::unwrap_used, reason = "a test that fails should say where")]

mod corruption;
mod golden;
mod lookup;
mod measure;
mod merging;
mod model;
mod writing;

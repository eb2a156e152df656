//! The promises of the manifest.
#![allow(clippy::unwrap_used, reason = "a test that fails should say where")]

mod contract;
mod crash;

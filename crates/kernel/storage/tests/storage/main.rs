//! The promises of storage.
#![allow(clippy::unwrap_used, reason = "a test that fails should say where")]

mod contract;
mod crash;
mod file;
mod support;

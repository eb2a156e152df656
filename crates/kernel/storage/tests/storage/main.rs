//! The promises of storage.
#![allow(clippy::unwrap_used, reason = "a test that fails should say where")]

mod cache;
mod cache_model;
mod contract;
mod crash;
mod file;
mod support;
mod tiered;

//! Tokens and TLS, on the real server, by raw requests and by curl.

#![allow(clippy::unwrap_used, reason = "helpers of tests are not marked as tests")]

mod logs;
mod origins;
mod paths;
mod reload;
mod rig;
mod start;
mod tls;
mod tokens;

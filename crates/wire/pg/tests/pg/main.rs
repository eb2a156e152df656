//! The Postgres client against real servers of every installed version, and against a fake that breaks the protocol.

#![allow(clippy::unwrap_used, reason = "helpers of tests are not marked as tests")]

mod auth;
mod copy;
mod fake;
mod hostile;
mod queries;
mod rate;
mod replication;
mod restart;
mod streamed;
mod support;
mod tls;

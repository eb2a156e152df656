//! The commands as a person meets them at a shell: pipes that break, servers behind TLS, contexts, terminals, settings.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod config;
mod contexts;
mod errors;
mod manual;
mod pipes;
mod rig;
mod server;
mod terminal;
mod tls;

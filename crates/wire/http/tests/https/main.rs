//! The server's promises over TLS: all of those over plain HTTP, and its own.

#![allow(clippy::unwrap_used, reason = "helpers of tests are not marked as tests")]

pub(crate) const IDENTITY: Option<fn() -> identity::Identity> = Some(identity::own);

#[path = "../http/client.rs"]
mod client;
mod identity;
#[path = "../http/service.rs"]
mod service;

#[path = "../http/bodies.rs"]
mod bodies;
#[path = "../http/bounds.rs"]
mod bounds;
#[path = "../http/disconnects.rs"]
mod disconnects;
#[path = "../http/held.rs"]
mod held;
#[path = "../http/order.rs"]
mod order;
#[path = "../http/pages.rs"]
mod pages;
#[path = "../http/stop.rs"]
mod stop;
#[path = "../http/streams.rs"]
mod streams;
#[path = "../http/timeouts.rs"]
mod timeouts;

mod tls;

//! HTTP: what requests mean, and what answers look like.

pub(crate) mod access;
mod admin;
pub(crate) mod admission;
pub(crate) mod columns;
mod gather;
mod given;
mod identifier;
pub(crate) mod invalid;
pub(crate) mod look;
mod making;
pub(crate) mod params;
mod query;
mod refusal;
mod respond;
mod route;
mod rows;
mod secret;
mod service;
pub(crate) mod settings;
mod sse;
mod subset;

pub use access::{Beyond, Denied, Grant, Granted, Grants};
pub use service::ShapesService;

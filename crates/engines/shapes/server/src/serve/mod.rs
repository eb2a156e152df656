//! HTTP: what requests mean, and what answers look like.

pub(crate) mod access;
mod admin;
pub(crate) mod admission;
mod gather;
pub(crate) mod look;
mod making;
mod refusal;
mod respond;
mod route;
mod rows;
mod secret;
mod service;
pub(crate) mod settings;
mod sse;
mod subset;

pub use access::{Denied, Grant, Granted, Grants};
pub use service::ShapesService;
pub use thalweg_shapes_model::failure::Beyond;

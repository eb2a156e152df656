//! HTTP: the meaning of requests, and the form of answers.

pub(crate) mod access;
mod admin;
pub(crate) mod admission;
mod body;
mod create;
mod create_batcher;
mod in_flight_creates;
pub(crate) mod read_plan;
mod refusal;
mod request_task;
mod respond;
mod route;
mod rows;
mod secret;
mod service;
pub(crate) mod settings;
mod sse;
mod state;
mod subset;

pub use access::{Denied, Grant, Granted, Grants};
pub use service::ShapesService;
pub use thalweg_shapes_model::failure::Beyond;

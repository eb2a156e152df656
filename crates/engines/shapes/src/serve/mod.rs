//! HTTP: what requests mean, and what answers look like.

pub(crate) mod admission;
mod given;
mod identifier;
pub(crate) mod invalid;
pub(crate) mod params;
pub(crate) mod query;
pub(crate) mod refusal;
pub(crate) mod respond;
pub(crate) mod route;
pub(crate) mod secret;
pub(crate) mod settings;

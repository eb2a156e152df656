//! Requests for shapes: raw parameters, and what they mean.

pub mod params;
pub mod query;
pub mod raw_params;

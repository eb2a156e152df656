//! Requests for shapes: raw parameters, and their meaning.

pub mod params;
pub mod query;
pub mod raw_params;

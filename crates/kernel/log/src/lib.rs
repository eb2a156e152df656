//! Under way.

pub mod lengths;

//! HTTP: what requests mean, and what answers look like.

pub(crate) mod look;

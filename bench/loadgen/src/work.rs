//! What is asked of the server, one file per kind of load.

pub(crate) mod append;
pub(crate) mod each;

//! Requests to the server, one file per kind of load.

pub(crate) mod append;
pub(crate) mod each;
pub(crate) mod event;
pub(crate) mod idle;
pub(crate) mod live;
pub(crate) mod replay;
pub(crate) mod shape;
pub(crate) mod weave;
pub(crate) mod writer;

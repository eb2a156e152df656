//! The server's promises, over real sockets.

mod client;
mod service;

mod bodies;
mod bounds;
mod disconnects;
mod held;
mod order;
mod stop;
mod streams;
mod timeouts;

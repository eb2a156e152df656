//! Messages of the output plugin pgoutput, versions 1 and 2 (Postgres documentation, section "Logical Replication
//! Message Formats").
//!
//! [`Decoder::decode`] reads one message in place: names, values and lists are views into it, nothing is copied. A
//! message is validated once, as a whole, so that walking its parts cannot fail; every violation is a [`DecodeError`].
//! [`encode()`] is the inverse, for tests and simulations.

mod decode;
mod encode;
mod error;
mod fuzz;
mod message;
#[cfg(test)]
mod tests;
mod tuple;

pub use decode::Decoder;
pub use encode::encode;
pub use error::DecodeError;
#[doc(hidden)]
pub use fuzz::fuzz_pgoutput;
pub use message::{Column, Columns, Message, OldTuple, Relations, ReplicaIdentity};
pub use tuple::{Tuple, TupleWriter, Value, Values};

//! Ids, positions, checksums, codecs, tickets, and units as people write them.
//!
//! Values and functions of values: no IO, no async, no clock. Nothing here waits but [`Ticket::wait`]. Every other
//! crate may use it.

mod checksum;
mod codec;
mod durability;
mod faults;
mod ids;
mod level;
mod step;
mod ticket;
mod units;

pub use checksum::{Crc, crc};
pub use codec::{DecodeError, Decoder, Encoder};
pub use durability::{Durability, Reached, Until};
pub use ids::{LogId, Lsn, Millis, ObjectId, Offset};
pub use level::Level;
pub use step::Step;
pub use ticket::{Completer, Ticket};
pub use units::{Size, Span};

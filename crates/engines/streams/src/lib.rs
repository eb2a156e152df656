//! Durable append-only HTTP streams: the Durable Streams protocol.
//!
//! [`state`] decides, [`mod@format`] writes bytes, [`serve`] performs, and [`error`] refuses. A stream is one log of
//! `thalweg-log`; the protocol's state of it beyond bytes is the log's attachment, [`state::StreamState`], which
//! changes by notes in the same frames as the content. So an append, its producer's state and the stream's closure
//! become durable together or not at all.
//!
//! No state is shown before it is durable: an answer that follows from newer state is held until the journal has caught
//! up.

pub mod error;
pub mod format;
pub mod serve;
pub mod state;

#[cfg(feature = "faults")]
pub use serve::Faults;
pub use serve::{
    Changes, GRANT, Home, Place, SOURCE_UNIT, Stats, Streams, StreamsConfig, Visible, listed_prefix, normal_name,
    place_of_path,
};
pub use state::StreamState;
pub use state::retention::Retention;

#[doc(hidden)]
pub use format::attachment::fuzz_state;
#[doc(hidden)]
pub use format::json::fuzz_json;
#[doc(hidden)]
pub use serve::fuzz_query_and_headers;

//! Storage, manifest and journal sink in a bucket of an object store: S3 and what speaks like it, Google Cloud Storage,
//! Azure.
//!
//! [`Bucket`] sends requests: with retries, a deadline, and a count of each. [`ObjectStorage`] keeps one object of the
//! bucket per immutable object, [`ObjectManifest`] one per root, [`ObjectSink`] one per batch of a journal; a unit with
//! these has the bucket for its authority. [`Mirror`] keeps the state of a unit whose authority is a data folder. The
//! bucket's conditional writes are the only authority: who writes a key first has it. One assumption about time remains:
//! no owner completes a write seven days after it was deposed, by the bucket's clock.
//! `docs/format/bucket.md` has the keys and their bytes.
//!
//! The client of the object store is asynchronous. Its runtime stays inside this crate: callers block, or hold a
//! [`thalweg_base::Ticket`].

mod beacon;
mod bucket;
mod counts;
mod error;
mod faults;
mod folder;
mod location;
mod manifest;
mod mirror;
mod profile;
#[cfg(feature = "testing")]
mod simulated;
mod sink;
mod storage;

pub use beacon::{Beacon, Seen, Shown};
pub use bucket::{Bucket, BucketOptions, Listed, Usage};
pub use counts::{Kind, RequestStats};
pub use error::{BucketError, LocationError};
#[cfg(feature = "faults")]
pub use faults::Faults;
pub use location::Location;
pub use manifest::ObjectManifest;
#[doc(hidden)]
pub use mirror::fuzz_mirror;
pub use mirror::{Mirror, MirrorError, Mirrored, MirroredTail};
#[cfg(feature = "testing")]
pub use simulated::{SimulatedBucket, Weather};
#[doc(hidden)]
pub use sink::fuzz_record;
pub use sink::{DamagedObject, ObjectSink, SeenJournal, SinkOptions};
pub use storage::ObjectStorage;

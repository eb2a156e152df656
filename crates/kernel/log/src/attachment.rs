//! An engine's state of one log.

use thalweg_base::{DecodeError, Durability, Lsn};

/// An engine's state of one log. It changes only by notes, which the journal holds: live operation and recovery apply
/// the same notes with the same code.
pub trait Attachment: Sized + Send + 'static {
    /// The state of a log just created with `note` in the frame that ends at `at`.
    fn create(note: &[u8], at: Lsn) -> Result<Self, DecodeError>;

    /// Checks that [`Attachment::apply`] would accept `note` in this state. A commit calls it before the note's frame
    /// is in the journal: with an inapplicable note in the journal the unit could never be opened again.
    fn check(&self, note: &[u8]) -> Result<(), DecodeError>;

    /// Applies `note`, which is not empty, to the state.
    fn apply(&mut self, note: &[u8], at: Lsn) -> Result<(), DecodeError>;

    /// The durability that acknowledgements of this log promise; `None` if the log follows
    /// [`crate::LogsOptions::durability`]. It is fixed for the life of the log, and a fork has that of its source.
    fn durability(&self) -> Option<Durability> {
        None
    }

    /// Encodes the state for the checkpoint and for logs at rest. A log that comes to rest loses the state that this
    /// leaves out.
    fn encode(&self, out: &mut Vec<u8>);

    /// The state of an encoded form, see [`Attachment::encode`].
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError>;

    /// Whether the log may rest with its state encoded, while everything below `durable` is durable.
    fn may_rest(&self, durable: Lsn) -> bool;
}

/// No attachment: for units whose logs need no state of an engine, such as those of tests.
impl Attachment for () {
    fn create(_: &[u8], _: Lsn) -> Result<Self, DecodeError> {
        Ok(())
    }

    fn check(&self, _: &[u8]) -> Result<(), DecodeError> {
        Ok(())
    }

    fn apply(&mut self, _: &[u8], _: Lsn) -> Result<(), DecodeError> {
        Ok(())
    }

    fn encode(&self, _: &mut Vec<u8>) {}

    fn decode(_: &[u8]) -> Result<Self, DecodeError> {
        Ok(())
    }

    fn may_rest(&self, _: Lsn) -> bool {
        true
    }
}

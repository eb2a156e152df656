//! An engine's own state of one log.

use thalweg_base::{DecodeError, Durability, Lsn};

/// What an engine keeps with each log. It changes only by notes, which stand in the journal: what recovery does is what
/// happened live, by the same code.
pub trait Attachment: Sized + Send + 'static {
    /// The state of a log just created with `note` in the frame that ends at `at`.
    fn create(note: &[u8], at: Lsn) -> Result<Self, DecodeError>;

    /// Whether [`Attachment::apply`] would take `note` in this state. It is asked before the note's frame is in the
    /// journal: one that cannot be applied then would keep the unit from being opened ever again.
    fn check(&self, note: &[u8]) -> Result<(), DecodeError>;

    /// Changes the state as `note` says. An empty note never comes here.
    fn apply(&mut self, note: &[u8], at: Lsn) -> Result<(), DecodeError>;

    /// What acknowledgements of this log promise; `None` if it follows [`crate::LogsOptions::durability`]. It is the
    /// same for as long as the log lives, and a fork's is its source's.
    fn durability(&self) -> Option<Durability> {
        None
    }

    /// Encodes the state for the checkpoint and for logs at rest. A log that comes to rest loses the state that this
    /// leaves out.
    fn encode(&self, out: &mut Vec<u8>);

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError>;

    /// Whether the state may come to rest in its encoded form, now that everything below `durable` is durable.
    fn may_rest(&self, durable: Lsn) -> bool;
}

/// Nothing is attached to a log: for units whose logs need no state of an engine, such as those of tests.
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

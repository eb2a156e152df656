//! The streams that subscriptions follow: those of this process, or of all nodes.

use crate::glob;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use thalweg_base::LogId;
use thalweg_streams::format::offset::Position;
use thalweg_streams::{Changes, Streams};

/// Names of streams, and patterns of names, that somebody wants to hear of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interest {
    /// Patterns of names, as subscriptions have them.
    pub patterns: Vec<String>,
    /// Names.
    pub names: Vec<String>,
}

impl Interest {
    /// Whether nothing is wanted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty() && self.names.is_empty()
    }

    /// Whether a pattern fits this name.
    #[must_use]
    pub fn fits_pattern(&self, name: &str) -> bool {
        self.patterns.iter().any(|pattern| glob::matches(pattern, name))
    }
}

/// Streams as subscriptions see them: visible ends only, and reports of what has changed.
pub trait Watched: Send + Sync {
    /// Calls `wake` whenever changes may have come, or a mark was passed. Once; it must not block.
    fn observe(&self, wake: Arc<dyn Fn() + Send + Sync>);
    /// Starts or stops the recording of changes. Start before reading streams, so that no change is missed.
    fn turn_observing(&self, on: bool);
    /// Changes since the last call.
    fn take_changes(&self) -> Changes;
    /// Every stream that there is can be found, as far as it was asked for.
    fn is_complete(&self) -> bool;
    /// Visits the names of all streams that may be wanted.
    fn sweep(&self, f: &mut dyn FnMut(&str));
    /// The name of an existing stream.
    fn name_of(&self, log: LogId) -> Option<Box<str>>;
    /// The visible end of a stream, if there is one of that name.
    fn published(&self, name: &str) -> Option<Position>;
    /// The end of a stream that may be noted as acknowledged, if there is one of that name.
    fn end_to_note(&self, name: &str) -> Option<Position>;
    /// Whether nothing that is under way decides if there is a stream of that name.
    fn is_settled(&self, name: &str) -> bool;

    /// Asks for these streams too: the number of the wish. What is known of them is whole once [`Watched::has_answered`]
    /// says so.
    fn want(&self, interest: Interest) -> u64 {
        let _ = interest;
        0
    }

    /// Whether everything is known that was asked for up to a wish.
    fn has_answered(&self, wish: u64) -> bool {
        let _ = wish;
        true
    }

    /// Asks for these streams only, which were asked for before.
    fn keep(&self, interest: Interest) {
        let _ = interest;
    }

    /// Marks this moment: once the mark is passed, everything is known that was visible now.
    fn mark(&self) -> u64 {
        0
    }

    /// The last mark that was passed.
    fn passed(&self) -> u64 {
        u64::MAX
    }
}

/// The streams of this process need no marks: everything is known at once.
impl Watched for Streams {
    fn observe(&self, wake: Arc<dyn Fn() + Send + Sync>) {
        Self::observe(self, wake);
    }

    fn turn_observing(&self, on: bool) {
        Self::turn_observing(self, on);
    }

    fn take_changes(&self) -> Changes {
        Self::take_changes(self)
    }

    fn is_complete(&self) -> bool {
        Self::is_complete(self)
    }

    fn sweep(&self, f: &mut dyn FnMut(&str)) {
        Self::sweep(self, &mut |_, name, stream| {
            if !stream.soft_deleted {
                f(name);
            }
        });
    }

    fn name_of(&self, log: LogId) -> Option<Box<str>> {
        Self::name_of(self, log)
    }

    fn published(&self, name: &str) -> Option<Position> {
        Self::published(self, name)
    }

    fn end_to_note(&self, name: &str) -> Option<Position> {
        Self::end_to_note(self, name)
    }

    fn is_settled(&self, name: &str) -> bool {
        Self::is_settled(self, name)
    }
}

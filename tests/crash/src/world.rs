//! The state that all workers share.

use crate::backup::Snapshots;
use crate::report::Report;
use crate::server::{Server, Spec};
use crate::tokens::Tokens;
use std::sync::atomic::{AtomicBool, Ordering};

/// A way to spoil the notes, the requests or the data, so that a checker that works must notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Sabotage {
    /// The notes hold an append that was never sent: an acknowledged append was lost.
    Lost,
    /// An append was sent twice.
    Doubled,
    /// An append was sent without its last byte: a partial message.
    Torn,
    /// Two appends stand in the wrong order.
    Reordered,
    /// A stream was deleted behind the notes' back.
    Vanished,
    /// The notes hold a delete that was never sent: a deleted stream is there again.
    Revived,
    /// The notes hold a close that was never sent: a closed stream is open again.
    Reopened,
    /// The notes hold a producer's append that was never sent: its retry is taken for new.
    Forgotten,
    /// A position of the living stream is noted as one of its deleted predecessor: an old position is answered with new
    /// bytes.
    Stale,
    /// A shared stream got a line that no writer wrote.
    Invented,
    /// The newest bytes in the data folder are overwritten while the server is down.
    Disk,
    /// A conditional append was sent without its condition: of two writers that expect one tail both win.
    Unconditional,
    /// A retention moved back: content that was reported as trimmed is there again.
    Regrown,
    /// The notes hold a stream that the list cannot show.
    Unlisted,
    /// A compressed answer differs from the plain one.
    Garbled,
    /// The wrong token was the right one.
    Trespass,
    /// The notes hold an append that no subscription was told of.
    Unannounced,
    /// A confirmed acknowledgement of a webhook lay further on: its cursor went back.
    Rewound,
    /// The claim that was taken for a fenced one is the present one: it is not fenced.
    Unfenced,
    /// The notes at a backup's beginning hold an append that was never sent: the backup misses it.
    Unsaved,
}

impl Sabotage {
    pub(crate) const ALL: [Self; 20] = [
        Self::Lost,
        Self::Doubled,
        Self::Torn,
        Self::Reordered,
        Self::Vanished,
        Self::Revived,
        Self::Reopened,
        Self::Forgotten,
        Self::Stale,
        Self::Invented,
        Self::Disk,
        Self::Unconditional,
        Self::Regrown,
        Self::Unlisted,
        Self::Garbled,
        Self::Trespass,
        Self::Unannounced,
        Self::Rewound,
        Self::Unfenced,
        Self::Unsaved,
    ];
}

pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) report: Report,
    /// Present if the server asks for tokens.
    pub(crate) tokens: Option<Tokens>,
    pub(crate) snapshots: Snapshots,
    tolerated: Vec<String>,
    sabotage: Option<Sabotage>,
    done: AtomicBool,
    over: AtomicBool,
}

impl World {
    pub(crate) fn new(spec: Spec, tokens: Option<Tokens>, tolerated: &[String], sabotage: Option<Sabotage>) -> Self {
        Self {
            server: Server::new(spec),
            report: Report::default(),
            tokens,
            snapshots: Snapshots::default(),
            tolerated: tolerated.to_vec(),
            sabotage,
            done: AtomicBool::new(false),
            over: AtomicBool::new(false),
        }
    }

    /// Whether workers stop operating and go over to their last checks.
    pub(crate) fn over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    pub(crate) fn finish(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// Something that must not be. Ends the run.
    pub(crate) fn violation(&self, what: String) {
        self.report.violation(what);
        self.finish();
        self.server.abandon();
    }

    /// Whether the server is one that has only what the protocol says.
    pub(crate) fn is_peer(&self) -> bool {
        self.server.spec.is_peer()
    }

    pub(crate) fn tolerates(&self, what: &str) -> bool {
        self.tolerated.iter().any(|known| known == what)
    }

    /// Whether the sabotage was done: from then on nothing may be deleted that shows it.
    pub(crate) fn is_spoiled(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// Whether this run is there to be found wanting.
    pub(crate) fn is_sabotaged(&self) -> bool {
        self.sabotage.is_some()
    }

    /// Whether this sabotage is still to be done, and an opportunity for it may be made.
    pub(crate) fn plans(&self, kind: Sabotage) -> bool {
        self.sabotage == Some(kind) && !self.is_spoiled()
    }

    /// Whether this sabotage is to be done now; true once.
    pub(crate) fn sabotage(&self, kind: Sabotage) -> bool {
        self.sabotage == Some(kind) && !self.done.swap(true, Ordering::AcqRel)
    }
}

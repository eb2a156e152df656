//! Limits on concurrent requests: above them, clients are asked to retry.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The kinds of requests, by their possible cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It may have to make a shape: it has no handle, or an unknown one.
    Initial,
    /// It reads an existing shape.
    Existing,
}

/// The limit on concurrent requests of this kind is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Concurrent {kind} request limit exceeded (limit: {limit}), please retry")]
pub(crate) struct Overloaded {
    pub(crate) kind: Kind,
    pub(crate) limit: usize,
}

/// Counts the requests that are under way.
#[derive(Debug)]
pub(crate) struct Admission {
    initial: Counter,
    existing: Counter,
}

#[derive(Debug)]
struct Counter {
    now: AtomicUsize,
    limit: usize,
}

/// The right to be answered; given back when it is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct Permit {
    admission: Arc<Admission>,
    kind: Kind,
}

impl Admission {
    pub(crate) fn new(initial_max: usize, existing_max: usize) -> Arc<Self> {
        let counter = |limit| Counter { now: AtomicUsize::new(0), limit };
        Arc::new(Self { initial: counter(initial_max), existing: counter(existing_max) })
    }

    pub(crate) fn enter(self: &Arc<Self>, kind: Kind) -> Result<Permit, Overloaded> {
        let counter = self.counter(kind);
        if counter.take() {
            Ok(Permit { admission: Arc::clone(self), kind })
        } else {
            Err(Overloaded { kind, limit: counter.limit })
        }
    }

    /// How many of this kind are under way.
    #[must_use]
    pub(crate) fn now(&self, kind: Kind) -> usize {
        self.counter(kind).now.load(Ordering::Relaxed)
    }

    fn counter(&self, kind: Kind) -> &Counter {
        match kind {
            Kind::Initial => &self.initial,
            Kind::Existing => &self.existing,
        }
    }
}

impl Counter {
    fn take(&self) -> bool {
        let taken =
            self.now.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| (now < self.limit).then_some(now + 1));
        taken.is_ok()
    }

    fn give(&self) {
        self.now.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Permit {
    /// The shape exists: the request only reads from now on, and makes room for the next one that needs a shape made.
    /// The permit keeps its kind if there are too many readers.
    pub(crate) fn now_reads(&mut self) {
        if self.kind == Kind::Initial && self.admission.existing.take() {
            self.admission.initial.give();
            self.kind = Kind::Existing;
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.admission.counter(self.kind).give();
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Kind::Initial => "initial",
            Kind::Existing => "existing",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn above_the_limit_requests_are_refused_until_one_is_done() {
        let admission = Admission::new(2, 1);
        let first = admission.enter(Kind::Initial).unwrap();
        let _second = admission.enter(Kind::Initial).unwrap();
        let refused = admission.enter(Kind::Initial).unwrap_err();
        assert_eq!(refused.to_string(), "Concurrent initial request limit exceeded (limit: 2), please retry");
        let _other = admission.enter(Kind::Existing).unwrap();
        assert_eq!(admission.enter(Kind::Existing).unwrap_err(), Overloaded { kind: Kind::Existing, limit: 1 });
        drop(first);
        assert_eq!(admission.now(Kind::Initial), 1);
        assert!(admission.enter(Kind::Initial).is_ok());
    }

    #[test]
    fn who_only_reads_makes_room_for_who_needs_a_shape() {
        let admission = Admission::new(1, 1);
        let mut first = admission.enter(Kind::Initial).unwrap();
        first.now_reads();
        assert_eq!((first.kind, admission.now(Kind::Initial), admission.now(Kind::Existing)), (Kind::Existing, 0, 1));
        let mut second = admission.enter(Kind::Initial).unwrap();
        second.now_reads();
        assert_eq!(second.kind, Kind::Initial, "there is no room among readers");
        drop((first, second));
        assert_eq!((admission.now(Kind::Initial), admission.now(Kind::Existing)), (0, 0));
    }

    #[test]
    fn permits_are_neither_lost_nor_doubled() {
        let admission = Admission::new(3, 2);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        if let Ok(mut permit) = admission.enter(Kind::Initial) {
                            assert!(admission.now(Kind::Initial) <= 3);
                            permit.now_reads();
                            assert!(admission.now(Kind::Existing) <= 2);
                        }
                    }
                });
            }
        });
        assert_eq!((admission.now(Kind::Initial), admission.now(Kind::Existing)), (0, 0));
    }
}

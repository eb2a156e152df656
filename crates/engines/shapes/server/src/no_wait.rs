//! The check that a thread does not wait for a device, for Postgres or for time while it holds the feed.

use std::cell::Cell;
use std::marker::PhantomData;

thread_local! {
    static IS_HELD: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, its thread must not wait. It stays on that thread.
pub(crate) struct NoWait(PhantomData<*const ()>);

impl NoWait {
    pub(crate) fn begin() -> Self {
        IS_HELD.set(true);
        Self(PhantomData)
    }
}

impl Drop for NoWait {
    fn drop(&mut self) {
        IS_HELD.set(false);
    }
}

/// Checks, in debug builds, that the calling thread may wait. Every place that waits calls it.
pub(crate) fn assert_may_wait() {
    debug_assert!(!IS_HELD.get(), "a thread is about to wait while it holds the feed");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_thread_that_holds_the_feed_must_not_wait() {
        drop(NoWait::begin());
        assert_may_wait();
        let _held = NoWait::begin();
        std::thread::scope(|scope| scope.spawn(assert_may_wait).join()).expect("another thread may wait");
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "about to wait while it holds the feed")]
    fn waiting_while_the_feed_is_held_is_refused() {
        let _held = NoWait::begin();
        assert_may_wait();
    }
}

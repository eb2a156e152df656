//! The one lock around [`Feed`].

use crate::feed::Feed;
use crate::no_wait::{self, NoWait};
use parking_lot::{Mutex, MutexGuard};
use std::ops::{Deref, DerefMut};

/// A [`Feed`] that threads share.
#[derive(Default)]
pub(crate) struct SharedFeed(Mutex<Feed>);

/// Access to the feed. Its thread must not wait while it lives ([`crate::no_wait`]).
pub(crate) struct FeedGuard<'a> {
    feed: MutexGuard<'a, Feed>,
    _no_wait: NoWait,
}

impl SharedFeed {
    pub(crate) fn lock(&self) -> FeedGuard<'_> {
        // A thread that holds the feed would wait for itself.
        no_wait::assert_may_wait();
        FeedGuard { feed: self.0.lock(), _no_wait: NoWait::begin() }
    }
}

impl Deref for FeedGuard<'_> {
    type Target = Feed;

    fn deref(&self) -> &Feed {
        &self.feed
    }
}

impl DerefMut for FeedGuard<'_> {
    fn deref_mut(&mut self) -> &mut Feed {
        &mut self.feed
    }
}

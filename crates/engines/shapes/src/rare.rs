//! Parts that most shapes do not have.

use std::ops::{Deref, DerefMut};

/// What stands for a part that is not there.
pub(crate) trait Absent: Default + 'static {
    fn absent() -> &'static Self;
}

/// A part for which nothing is allocated until it is changed: there may be a million shapes that nothing has happened to.
#[derive(Debug)]
pub(crate) struct Rare<T>(Option<Box<T>>);

impl<T> Default for Rare<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Absent> Deref for Rare<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or_else(|| T::absent())
    }
}

impl<T: Absent> DerefMut for Rare<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }
}

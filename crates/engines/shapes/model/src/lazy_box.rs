//! Parts that are empty in most shapes.

use std::ops::{Deref, DerefMut};

/// A part with a shared empty value.
pub trait Empty: Default + 'static {
    /// The empty value.
    fn empty() -> &'static Self;
}

/// A part that is allocated when it is first changed: there may be a million shapes without a single change.
#[derive(Debug)]
pub struct LazyBox<T>(Option<Box<T>>);

impl<T> Default for LazyBox<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Empty> Deref for LazyBox<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or_else(|| T::empty())
    }
}

impl<T: Empty> DerefMut for LazyBox<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }
}

//! The locks and atomics that threads of one unit share. With the feature `shuttle` they are those of the checker that
//! runs threads one at a time in an order of its choice: see `crates/kernel/interleave`.

#[cfg(not(feature = "shuttle"))]
pub use parking_lot::{Mutex, MutexGuard, RwLock};
#[cfg(not(feature = "shuttle"))]
pub use std::sync::atomic;

#[cfg(feature = "shuttle")]
pub use checked::{Mutex, RwLock};
#[cfg(feature = "shuttle")]
pub use shuttle::sync::MutexGuard;
#[cfg(feature = "shuttle")]
pub use shuttle::sync::atomic;

#[cfg(feature = "shuttle")]
mod checked {
    use shuttle::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

    /// The checker's lock with the face of the one that ships: a thread that panics ends the run, so there is no
    /// poison.
    #[derive(Debug, Default)]
    pub struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
        }

        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }
    }

    #[derive(Debug, Default)]
    pub struct RwLock<T>(shuttle::sync::RwLock<T>);

    impl<T> RwLock<T> {
        pub fn new(value: T) -> Self {
            Self(shuttle::sync::RwLock::new(value))
        }

        pub fn read(&self) -> RwLockReadGuard<'_, T> {
            self.0.read().unwrap_or_else(std::sync::PoisonError::into_inner)
        }

        pub fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner)
        }
    }
}

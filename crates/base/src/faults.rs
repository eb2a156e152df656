//! Faults that tests plant.

/// Declares a crate's `Faults`: a flag for each, documented, and a method of the same name. They exist only with the
/// crate's feature `faults`, so that a test can prove that it would see such a fault; without the feature every method
/// says that its fault is not planted, and costs nothing.
#[macro_export]
macro_rules! planted_faults {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Planted faults.
        #[cfg(feature = "faults")]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Faults {
            $($(#[$doc])* pub $name: bool,)*
        }

        /// Without the feature `faults` there are none.
        #[cfg(not(feature = "faults"))]
        #[allow(unreachable_pub, reason = "public where other features make it so")]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Faults;

        #[allow(dead_code, reason = "some are for code of other features")]
        impl Faults {
            $(
                #[cfg(feature = "faults")]
                pub(crate) fn $name(self) -> bool {
                    self.$name
                }

                #[cfg(not(feature = "faults"))]
                #[allow(clippy::unused_self)]
                pub(crate) fn $name(self) -> bool {
                    false
                }
            )*
        }
    };
}

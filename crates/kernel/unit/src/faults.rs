//! Planted faults. They exist only with the feature `faults`, so that tests can prove that they would see such a fault.

#[cfg(feature = "faults")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The journal is trimmed to the highest floor and not to the lowest.
    pub trims_to_the_fastest_index: bool,
    /// Every part of a frame is replayed as one of logs.
    pub routes_to_the_first_index: bool,
}

#[cfg(not(feature = "faults"))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults;

macro_rules! planted {
    ($($name:ident),*) => {
        /// Whether each fault is planted: never, without the feature.
        impl Faults {
            $(
                #[cfg(feature = "faults")]
                pub(crate) fn $name(self) -> bool { self.$name }
                #[cfg(not(feature = "faults"))]
                #[allow(clippy::unused_self)]
                pub(crate) fn $name(self) -> bool { false }
            )*
        }
    };
}

planted!(trims_to_the_fastest_index, routes_to_the_first_index);

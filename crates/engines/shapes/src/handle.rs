//! What clients name a shape by: `<checksum>-<microseconds>`, in decimal digits.

use std::fmt;
use std::str::FromStr;

/// A handle; it is never given out twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Handle {
    /// Of what the shape selects.
    pub(crate) sum: u32,
    /// When it was made. Alone it is unique.
    pub(crate) micros: u64,
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.sum, self.micros)
    }
}

/// Not a handle that was ever given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a handle")]
pub(crate) struct NoHandle;

/// Only the one spelling that [`fmt::Display`] has.
impl FromStr for Handle {
    type Err = NoHandle;

    fn from_str(text: &str) -> Result<Self, NoHandle> {
        let (sum, micros) = text.split_once('-').ok_or(NoHandle)?;
        let canonical = |digits: &str| {
            digits.bytes().all(|byte| byte.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'))
        };
        if !canonical(sum) || !canonical(micros) {
            return Err(NoHandle);
        }
        Ok(Self { sum: sum.parse().map_err(|_| NoHandle)?, micros: micros.parse().map_err(|_| NoHandle)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_one_spelling_names_a_handle() {
        assert_eq!("7-12".parse(), Ok(Handle { sum: 7, micros: 12 }));
        assert_eq!("0-0".parse(), Ok(Handle { sum: 0, micros: 0 }));
        for text in [
            "",
            "-",
            "7",
            "7-",
            "-7",
            "07-1",
            "7-01",
            "+7-1",
            "7-1-1",
            "7 -1",
            "4294967296-1",
            "1-18446744073709551616",
        ] {
            assert_eq!(text.parse::<Handle>(), Err(NoHandle), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_handle_is_read_back(sum: u32, micros: u64) {
            let handle = Handle { sum, micros };
            prop_assert_eq!(handle.to_string().parse(), Ok(handle));
        }

        #[test]
        fn whatever_is_read_is_spelled_so(text in "[0-9+-]{0,30}") {
            if let Ok(handle) = text.parse::<Handle>() {
                prop_assert_eq!(handle.to_string(), text);
            }
        }
    }
}

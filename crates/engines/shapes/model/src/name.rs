//! The name that a shape has in all its handles: `<checksum>-<microseconds>`, in decimal digits.

use std::fmt;
use std::str::FromStr;

/// A shape's own name; it is never given out twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Name {
    /// A checksum of the shape's identity.
    pub sum: u32,
    /// The time of its creation; unique by itself.
    pub micros: u64,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.sum, self.micros)
    }
}

/// The text is not the name of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the name of a shape")]
pub struct NoName;

/// Accepts only the spelling of [`fmt::Display`].
impl FromStr for Name {
    type Err = NoName;

    fn from_str(text: &str) -> Result<Self, NoName> {
        let (sum, micros) = text.split_once('-').ok_or(NoName)?;
        let canonical = |digits: &str| {
            digits.bytes().all(|byte| byte.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'))
        };
        if !canonical(sum) || !canonical(micros) {
            return Err(NoName);
        }
        Ok(Self { sum: sum.parse().map_err(|_| NoName)?, micros: micros.parse().map_err(|_| NoName)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_one_spelling_names_a_shape() {
        assert_eq!("7-12".parse(), Ok(Name { sum: 7, micros: 12 }));
        assert_eq!("0-0".parse(), Ok(Name { sum: 0, micros: 0 }));
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
            assert_eq!(text.parse::<Name>(), Err(NoName), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_name_is_read_back(sum: u32, micros: u64) {
            let name = Name { sum, micros };
            prop_assert_eq!(name.to_string().parse(), Ok(name));
        }

        #[test]
        fn whatever_is_read_is_spelled_so(text in "[0-9+-]{0,30}") {
            if let Ok(name) = text.parse::<Name>() {
                prop_assert_eq!(name.to_string(), text);
            }
        }
    }
}

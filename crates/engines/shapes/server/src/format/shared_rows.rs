//! Which shapes have rows of a log `r/<n>`: its attachment.
//!
//! Form, all varints: the count of the shapes and their numbers, ascending: the first as it is, then distances.

use super::references::{numbers, put_numbers};
use thalweg_base::{DecodeError, Decoder};

/// `holders` are numbers of shapes, ascending.
#[must_use]
pub fn encode(holders: &[u64]) -> Vec<u8> {
    let mut out = Vec::with_capacity(2 * holders.len() + 8);
    put_numbers(&mut out, holders);
    out
}

pub fn decode(bytes: &[u8]) -> Result<Vec<u64>, DecodeError> {
    let mut d = Decoder::new(bytes);
    let holders = numbers(&mut d)?;
    d.end()?;
    Ok(holders)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_bytes() {
        assert_eq!(encode(&[7, 8, 300]), [3, 7, 1, 0xa4, 2]);
        assert_eq!(encode(&[]), [0]);
    }

    proptest! {
        #[test]
        fn they_are_read_back_as_they_were_written(holders: std::collections::BTreeSet<u64>) {
            let holders: Vec<u64> = holders.into_iter().collect();
            let bytes = encode(&holders);
            prop_assert_eq!(decode(&bytes), Ok(holders));
            for end in 0..bytes.len() {
                prop_assert!(decode(&bytes[..end]).is_err());
            }
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            let _ = decode(&bytes);
        }
    }
}

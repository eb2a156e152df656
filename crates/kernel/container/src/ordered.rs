//! Encodings of keys whose order as bytes is the order of the encoded values.

use thalweg_base::DecodeError;

const ESCAPED: u8 = 0xff;
const END: u8 = 0;

/// Appends a number: larger ones sort later.
pub fn put_u64(out: &mut Vec<u8>, n: u64) {
    out.extend_from_slice(&n.to_be_bytes());
}

/// Appends a number: larger ones sort earlier, as newer versions do before older ones.
pub fn put_u64_descending(out: &mut Vec<u8>, n: u64) {
    put_u64(out, !n);
}

/// Takes a number off the front.
pub fn take_u64(from: &mut &[u8]) -> Result<u64, DecodeError> {
    let (head, rest) = from.split_first_chunk::<8>().ok_or_else(|| DecodeError::Truncated(8 - from.len()))?;
    *from = rest;
    Ok(u64::from_be_bytes(*head))
}

/// Takes off a number of [`put_u64_descending`].
pub fn take_u64_descending(from: &mut &[u8]) -> Result<u64, DecodeError> {
    take_u64(from).map(|n| !n)
}

/// Numbers below it stand in one byte of the compact encoding.
const COMPACT: u8 = 248;

/// Appends a number in as few bytes as it needs, nine at most: larger ones sort later.
pub fn put_compact(out: &mut Vec<u8>, n: u64) {
    match u8::try_from(n) {
        Ok(short) if short < COMPACT => out.push(short),
        _ => {
            let zeros = n.leading_zeros() as usize / 8;
            let bytes = &n.to_be_bytes()[zeros..];
            out.push(COMPACT - 1 + bytes.len() as u8);
            out.extend_from_slice(bytes);
        }
    }
}

/// Takes off a number of [`put_compact`], still encoded. Prefixes need no more.
pub fn take_encoded_compact<'a>(from: &mut &'a [u8]) -> Result<&'a [u8], DecodeError> {
    let head = *from.first().ok_or(DecodeError::Truncated(1))?;
    let len = 1 + usize::from(head.saturating_sub(COMPACT - 1));
    let (encoded, rest) = from.split_at_checked(len).ok_or_else(|| DecodeError::Truncated(len - from.len()))?;
    *from = rest;
    Ok(encoded)
}

/// Takes off a number of [`put_compact`], and refuses any other form of it: no number has two forms.
pub fn take_compact(from: &mut &[u8]) -> Result<u64, DecodeError> {
    let encoded = take_encoded_compact(from)?;
    let (head, bytes) = encoded.split_first().ok_or(DecodeError::Truncated(1))?;
    if bytes.is_empty() {
        return Ok(u64::from(*head));
    }
    let n = bytes.iter().fold(0, |n, byte| n << 8 | u64::from(*byte));
    let is_short = bytes[0] == 0 || n < u64::from(COMPACT);
    if is_short { Err(DecodeError::Range("compact number")) } else { Ok(n) }
}

/// Appends bytes and an end mark, so that more may follow them in the key: a zero byte becomes two bytes.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    for part in bytes.split_inclusive(|byte| *byte == 0) {
        out.extend_from_slice(part);
        if part.ends_with(&[0]) {
            out.push(ESCAPED);
        }
    }
    out.extend_from_slice(&[0, END]);
}

/// Takes off bytes of [`put_bytes`], still encoded, end mark included. Prefixes need no more.
pub fn take_encoded<'a>(from: &mut &'a [u8]) -> Result<&'a [u8], DecodeError> {
    let mut at = 0;
    while let Some(zero) = from[at..].iter().position(|byte| *byte == 0) {
        at += zero + 2;
        match from.get(at - 1) {
            Some(&ESCAPED) => {}
            Some(&END) => {
                let (bytes, rest) = from.split_at(at);
                *from = rest;
                return Ok(bytes);
            }
            Some(got) => return Err(DecodeError::Unknown { what: "byte after a zero", got: u64::from(*got) }),
            None => break,
        }
    }
    Err(DecodeError::Truncated(1))
}

/// Takes off bytes of [`put_bytes`], decoded.
pub fn take_bytes(from: &mut &[u8]) -> Result<Vec<u8>, DecodeError> {
    let encoded = take_encoded(from)?;
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = &encoded[..encoded.len() - 2];
    while let Some((byte, after)) = rest.split_first() {
        bytes.push(*byte);
        rest = if *byte == 0 { after.get(1..).unwrap_or_default() } else { after };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded((bytes, version): &(Vec<u8>, u64)) -> Vec<u8> {
        let mut out = Vec::new();
        put_bytes(&mut out, bytes);
        put_u64_descending(&mut out, *version);
        out
    }

    fn key() -> impl Strategy<Value = (Vec<u8>, u64)> {
        (prop::collection::vec(prop::sample::select(vec![0, 1, 254, 255]), 0..6), any::<u64>())
    }

    proptest! {
        #[test]
        fn encoded_keys_sort_as_what_they_encode(a in key(), b in key()) {
            let expected = (&a.0, std::cmp::Reverse(a.1)).cmp(&(&b.0, std::cmp::Reverse(b.1)));
            prop_assert_eq!(encoded(&a).cmp(&encoded(&b)), expected);
        }

        #[test]
        fn keys_round_trip(a in key()) {
            let bytes = encoded(&a);
            let mut from = &bytes[..];
            prop_assert_eq!((take_bytes(&mut from), take_u64_descending(&mut from)), (Ok(a.0), Ok(a.1)));
            prop_assert!(from.is_empty());
        }

        #[test]
        fn compact_numbers_sort_as_they_do_and_round_trip(a: u64, b: u64, bits in 0..64u32) {
            let numbers = [a >> bits, b >> bits, (a >> bits).saturating_add(1), 0, 247, 248, 255, 256, u64::MAX];
            for a in numbers {
                let encoded = |n| {
                    let mut out = Vec::new();
                    put_compact(&mut out, n);
                    out
                };
                for b in numbers {
                    prop_assert_eq!(encoded(a).cmp(&encoded(b)), a.cmp(&b));
                }
                let bytes = encoded(a);
                prop_assert_eq!(take_compact(&mut &bytes[..]), Ok(a));
                prop_assert!((0..bytes.len()).all(|cut| take_compact(&mut &bytes[..cut]).is_err()));
            }
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            if let Ok(n) = take_compact(&mut &bytes[..]) {
                let mut again = Vec::new();
                put_compact(&mut again, n);
                prop_assert!(bytes.starts_with(&again), "no number has two forms");
            }
            let _ = take_bytes(&mut &bytes[..]);
            let _ = take_u64(&mut &bytes[..]);
        }
    }
}

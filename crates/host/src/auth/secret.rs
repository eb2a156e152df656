//! Secrets: made at random, kept as hashes, compared in constant time.

use anyhow::anyhow;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use subtle::ConstantTimeEq;

/// A SHA-256 hash. Secrets have 256 bits of their own, so that neither salt nor stretching would add anything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hash([u8; 32]);

impl Hash {
    pub(super) fn of(secret: &[u8]) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, secret).as_ref());
        Self(hash)
    }

    /// Takes as long for a near miss as for any other.
    pub(super) fn matches(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }

    /// From 64 hexadecimal digits.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return None;
        }
        let mut hash = [0; 32];
        for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16);
            *byte = u8::try_from(digit(0)? << 4 | digit(1)?).ok()?;
        }
        Some(Self(hash))
    }

    pub(super) fn text(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// 32 random bytes of the system.
pub(super) fn random() -> anyhow::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    SystemRandom::new().fill(&mut bytes).map_err(|_| anyhow!("the operating system returned no random numbers"))?;
    Ok(bytes)
}

pub(crate) fn text_of(bytes: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

pub(crate) fn bytes_of(text: &str) -> Option<Vec<u8>> {
    BASE64_URL_SAFE_NO_PAD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_reads_back_and_matches_only_itself() {
        let hash = Hash::of(b"a secret");
        assert!(Hash::parse(&hash.text()).unwrap().matches(&hash));
        assert!(!Hash::of(b"another").matches(&hash));
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Hash::of(b"abc").text(), known);
        for bad in ["", "zz", &known[1..], &known.replace('b', "g")] {
            assert!(Hash::parse(bad).is_none());
        }
    }
}

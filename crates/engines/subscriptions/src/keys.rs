//! The keys of webhooks: Ed25519 for signatures, HMAC for the tokens of wakes. They are in one file of the data folder,
//! which the first start that needs it creates, readable by its owner only.
//!
//! One line per key: `ed25519 SEED` (the first signs, all are published) and `token SECRET`, 32 bytes each in
//! base64url.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{Ed25519KeyPair, KeyPair};
use ring::{digest, hmac};
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why the signing keys cannot be used.
#[derive(Debug, Error)]
pub enum KeysError {
    #[error("the keys in {} cannot be read or written: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("line {line} of {} is not a key", path.display())]
    Line { path: PathBuf, line: usize },
    #[error("{} holds no {what} key", path.display())]
    Missing { path: PathBuf, what: &'static str },
    #[error("the operating system returned no random bytes")]
    Random,
}

/// The keys that sign webhooks and callback tokens.
pub struct Keys {
    /// The first one signs.
    signing: Vec<Signing>,
    token: hmac::Key,
}

struct Signing {
    kid: String,
    public: String,
    pair: Ed25519KeyPair,
}

impl Signing {
    fn new(seed: &[u8]) -> Option<Self> {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).ok()?;
        let public = BASE64.encode(pair.public_key().as_ref());
        // The JWK thumbprint (RFC 7638): its members in this order.
        let thumbprint = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{public}"}}"#);
        let kid = format!("ds_{}", BASE64.encode(digest::digest(&digest::SHA256, thumbprint.as_bytes())));
        Some(Self { kid, public, pair })
    }
}

impl Keys {
    /// Reads the file, or makes it.
    pub fn open(path: &Path) -> Result<Self, KeysError> {
        let io = |error| KeysError::Io { path: path.to_owned(), error };
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let text = fresh()?;
                write(path, &text).map_err(io)?;
                text
            }
            Err(error) => return Err(io(error)),
        };
        Self::parse(path, &text)
    }

    /// Keys that are elsewhere than in a file: `place` says where, for errors.
    pub fn of_text(place: &str, text: &str) -> Result<Self, KeysError> {
        Self::parse(Path::new(place), text)
    }

    /// The text of new keys.
    pub fn fresh() -> Result<String, KeysError> {
        fresh()
    }

    fn parse(path: &Path, text: &str) -> Result<Self, KeysError> {
        let (mut signing, mut token) = (Vec::new(), None);
        for (n, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let bad = || KeysError::Line { path: path.to_owned(), line: n + 1 };
            let (kind, secret) = line.trim().split_once(' ').ok_or_else(bad)?;
            let secret = BASE64.decode(secret.trim()).ok().filter(|s| s.len() == 32).ok_or_else(bad)?;
            match kind {
                "ed25519" => signing.push(Signing::new(&secret).ok_or_else(bad)?),
                "token" => token = Some(hmac::Key::new(hmac::HMAC_SHA256, &secret)),
                _ => return Err(bad()),
            }
        }
        let missing = |what| KeysError::Missing { path: path.to_owned(), what };
        if signing.is_empty() {
            return Err(missing("ed25519"));
        }
        Ok(Self { signing, token: token.ok_or_else(|| missing("token"))? })
    }

    /// The key that signs now.
    #[must_use]
    pub fn kid(&self) -> &str {
        &self.signing[0].kid
    }

    /// The public keys as a JWK Set (RFC 7517, RFC 8037).
    #[must_use]
    pub fn jwks(&self) -> serde_json::Value {
        let key = |key: &Signing| {
            serde_json::json!({
                "kty": "OKP", "crv": "Ed25519", "kid": key.kid, "use": "sig", "alg": "EdDSA", "x": key.public,
            })
        };
        serde_json::json!({ "keys": self.signing.iter().map(key).collect::<Vec<_>>() })
    }

    /// The `Webhook-Signature` of a body that is sent at `seconds` since 1970.
    #[must_use]
    pub fn sign(&self, seconds: u64, body: &[u8]) -> String {
        let mut message = format!("{seconds}.").into_bytes();
        message.extend_from_slice(body);
        let signature = BASE64.encode(self.signing[0].pair.sign(&message));
        format!("t={seconds},kid={},ed25519={signature}", self.kid())
    }

    /// The token of one wake of one subscription.
    #[must_use]
    pub fn token(&self, subscription: &str, generation: u64, wake: &str) -> String {
        let tag = hmac::sign(&self.token, &claims(subscription, generation, wake));
        format!("{generation}.{wake}.{}", BASE64.encode(tag))
    }

    /// Generation and wake of a token that is ours and for this subscription.
    #[must_use]
    pub fn read_token<'a>(&self, subscription: &str, token: &'a str) -> Option<(u64, &'a str)> {
        let (generation, rest) = token.split_once('.')?;
        let (wake, tag) = rest.split_once('.')?;
        let generation = generation.parse().ok()?;
        let tag = BASE64.decode(tag).ok()?;
        hmac::verify(&self.token, &claims(subscription, generation, wake), &tag).ok()?;
        Some((generation, wake))
    }
}

fn claims(subscription: &str, generation: u64, wake: &str) -> Vec<u8> {
    // No part but the last can hold a zero byte, so no two lists of claims are the same bytes.
    format!("{generation}\0{wake}\0{subscription}").into_bytes()
}

/// Random bytes as text.
pub(crate) fn random_text<const N: usize>() -> Option<String> {
    Some(BASE64.encode(random::<N>()?))
}

fn random<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(bytes)
}

fn fresh() -> Result<String, KeysError> {
    let mut text = String::new();
    for kind in ["ed25519", "token"] {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{kind} {}", random_text::<32>().ok_or(KeysError::Random)?);
    }
    Ok(text)
}

/// Durable as a whole or not at all, and never readable by others.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let unfinished = path.with_extension("tmp");
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&unfinished, path)?;
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::signature::{ED25519, UnparsedPublicKey};
    use std::os::unix::fs::PermissionsExt;

    const FILE: &str =
        "ed25519 AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\ntoken AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE\n";

    fn keys() -> Keys {
        Keys::parse(Path::new("k"), FILE).unwrap()
    }

    #[test]
    fn keys_outlive_a_restart_and_are_their_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("subscriptions.keys");
        let first = Keys::open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let second = Keys::open(&path).unwrap();
        assert_eq!(first.kid(), second.kid());
        let token = first.token("s", 1, "w");
        assert_eq!(second.read_token("s", &token), Some((1, "w")));
    }

    #[test]
    fn a_signature_verifies_with_the_published_key() {
        let keys = keys();
        let signature = keys.sign(17, b"{}");
        let (head, tag) = signature.rsplit_once(",ed25519=").unwrap();
        assert_eq!(head, format!("t=17,kid={}", keys.kid()));
        let public = BASE64.decode(keys.jwks()["keys"][0]["x"].as_str().unwrap()).unwrap();
        let verified = |message: &[u8]| {
            UnparsedPublicKey::new(&ED25519, &public).verify(message, &BASE64.decode(tag).unwrap()).is_ok()
        };
        assert!(verified(b"17.{}"));
        assert!(!verified(b"18.{}"));
    }

    #[test]
    fn a_token_is_for_one_subscription_and_one_wake() {
        let keys = keys();
        let token = keys.token("s", 7, "w_x");
        assert_eq!(keys.read_token("s", &token), Some((7, "w_x")));
        assert_eq!(keys.read_token("other", &token), None);
        assert_eq!(keys.read_token("s", &token.replace('7', "8")), None);
        for broken in ["", ".", "..", "7.w_x", "7.w_x.", &token[1..], &token[..token.len() - 1]] {
            assert_eq!(keys.read_token("s", broken), None, "{broken}");
        }
    }

    #[test]
    fn the_files_form_is_pinned_and_older_keys_stay_published() {
        assert_eq!(keys().jwks()["keys"][0]["x"], "O2onvM62pC1io6jQKm8Nc2UyFXcd4kOmOsBIoYtZ2ik");
        let two = format!("ed25519 AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE\n{FILE}");
        let rotated = Keys::parse(Path::new("k"), &two).unwrap();
        assert_ne!(rotated.kid(), keys().kid());
        assert_eq!(rotated.jwks()["keys"][1]["kid"], keys().kid());
        for bad in ["", "ed25519 AA", "nonsense", "token AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE"] {
            assert!(Keys::parse(Path::new("k"), bad).is_err(), "{bad}");
        }
    }
}

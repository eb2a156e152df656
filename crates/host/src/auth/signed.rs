//! Signed tokens: short-lived, for one scope over one prefix of streams, for parts of tables, or for both, checked
//! without a list of them.
//!
//! `tws1.CLAIM.MAC`: the claim is JSON in base64url, the MAC is HMAC-SHA256 of all before it, keyed by the server's own
//! key. A signed token names the token that issued it, and becomes invalid with it.

use super::scope::{Prefix, Rights, Scope};
use super::secret;
use anyhow::{Context, bail, ensure};
use ring::hmac;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;
use thalweg_shapes::Grants;

pub(crate) const MARK: &str = "tws1.";
/// A signed token cannot be revoked by itself, so it lives no longer.
pub(crate) const TTL_MAX: Duration = Duration::from_secs(24 * 3600);
pub(crate) const TTL_DEFAULT: Duration = Duration::from_secs(600);

/// A request's head has 16 KiB, and other fields want some.
pub(super) const TOKEN_BYTES_MAX: usize = 8 << 10;

pub const KEY_FILE: &str = "signing.key";

/// Content of a signed token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Right over streams.
    pub streams: Option<(Scope, Prefix)>,
    /// Rights over tables.
    pub shapes: Grants,
    /// Milliseconds since the Unix epoch.
    pub expires: u64,
    /// The issuing token.
    pub parent: Option<String>,
}

impl Claim {
    /// The permissions of the claim itself; its parent may allow less.
    pub fn rights(&self) -> Rights {
        let streams = self.streams.clone().map(|(scope, prefix)| Rights::one(scope, prefix)).unwrap_or_default();
        Rights { shapes: self.shapes.clone(), ..streams }
    }
}

/// The claim as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prefix: Option<String>,
    #[serde(default, skip_serializing_if = "Grants::is_empty")]
    shape: Grants,
    expires: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
}

/// The key that signs; lives in the data folder.
pub struct Key(hmac::Key);

impl Key {
    fn of(bytes: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    /// Loads the key of a data folder. With `make`, a missing key is created.
    pub fn load(data: &Path, make: bool) -> anyhow::Result<Self> {
        let path = data.join(KEY_FILE);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound && make => Self::make(&path)?,
            Err(error) if error.kind() == ErrorKind::NotFound => bail!(
                "there is no key that signs tokens at {}: a server with --tokens or --database-url makes it, and --data names its folder",
                path.display()
            ),
            read => read.with_context(|| format!("cannot read the key that signs tokens, {}", path.display()))?,
        };
        let bytes = bytes_of_key(&text);
        Ok(Self::of(
            &bytes.with_context(|| format!("{} is damaged: remove it, and a new one is made", path.display()))?,
        ))
    }

    /// Takes the key that several servers share into a data folder, which has a key. `settle`: given the folder's key,
    /// returns the one that counts. Returns whether the folder had another one.
    pub fn share(data: &Path, settle: impl FnOnce(String) -> anyhow::Result<String>) -> anyhow::Result<bool> {
        let path = data.join(KEY_FILE);
        let own = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let settled = settle(own.clone())?;
        ensure!(bytes_of_key(&settled).is_some(), "the key that nodes share for signing tokens is damaged");
        if settled != own {
            Self::write(&path, &settled)?;
        }
        Ok(settled != own)
    }

    fn make(path: &Path) -> anyhow::Result<String> {
        let text = format!("{}\n", secret::text_of(&secret::random()?));
        Self::write(path, &text)?;
        Ok(text)
    }

    fn write(path: &Path, text: &str) -> anyhow::Result<()> {
        // Under another name first, so that a crash leaves no half of it.
        let unfinished = path.with_extension("key.new");
        let made = (|| {
            let mut file = fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&unfinished, path)
        })();
        made.with_context(|| format!("cannot write {}", path.display()))
    }

    /// The token of a claim.
    pub fn sign(&self, claim: &Claim) -> String {
        let streams = claim.streams.as_ref();
        let written = Written {
            scope: streams.map(|(scope, _)| scope.name().to_owned()),
            prefix: streams.map(|(_, prefix)| prefix.to_string()),
            shape: claim.shapes.clone(),
            expires: claim.expires,
            parent: claim.parent.clone(),
        };
        let json = serde_json::json!(written).to_string();
        let mut token = format!("{MARK}{}", secret::text_of(json.as_bytes()));
        let mac = hmac::sign(&self.0, token.as_bytes());
        token.push('.');
        token.push_str(&secret::text_of(mac.as_ref()));
        token
    }

    /// The claim of a token that this key signed; whether it has expired is another question.
    pub fn verify(&self, sent: &str) -> Option<Claim> {
        let (signed, mac) = sent.rsplit_once('.')?;
        let claim = signed.strip_prefix(MARK)?;
        // Compares in constant time.
        hmac::verify(&self.0, signed.as_bytes(), &secret::bytes_of(mac)?).ok()?;
        let written: Written = serde_json::from_slice(&secret::bytes_of(claim)?).ok()?;
        let streams = match (written.scope, written.prefix) {
            (Some(scope), Some(prefix)) => Some((scope.parse().ok()?, prefix.parse().ok()?)),
            (None, None) => None,
            _ => return None,
        };
        Some(Claim { streams, shapes: written.shape, expires: written.expires, parent: written.parent })
    }
}

/// The bytes of a key as it is written, if it is one.
fn bytes_of_key(text: &str) -> Option<Vec<u8>> {
    secret::bytes_of(text.trim_end()).filter(|bytes| bytes.len() == 32)
}

/// Refuses a lifetime that no signed token may have: none at all, and more than 24 hours.
pub fn check_ttl(ttl: Duration) -> anyhow::Result<()> {
    ensure!(!ttl.is_zero() && ttl <= TTL_MAX, "a signed token lives for more than 0 and at most 24h");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::PermissionsExt;

    fn claim() -> Claim {
        let streams = Some((Scope::Read, "chat/".parse().unwrap()));
        Claim { streams, shapes: Grants::default(), expires: 9, parent: Some("app".to_owned()) }
    }

    #[test]
    fn the_key_is_made_once_and_only_its_owner_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Key::load(folder.path(), false).is_err());
        let token = Key::load(folder.path(), true).unwrap().sign(&claim());
        assert_eq!(Key::load(folder.path(), false).unwrap().verify(&token), Some(claim()));
        let mode = fs::metadata(folder.path().join(KEY_FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::write(folder.path().join(KEY_FILE), "short").unwrap();
        assert!(Key::load(folder.path(), true).is_err());
    }

    #[test]
    fn the_written_form_stays() {
        let token = Key::of(&[7; 32]).sign(&claim());
        // Made by another implementation of HMAC.
        let claim = "tws1.eyJleHBpcmVzIjo5LCJwYXJlbnQiOiJhcHAiLCJwcmVmaXgiOiJjaGF0LyIsInNjb3BlIjoicmVhZCJ9";
        assert_eq!(token, format!("{claim}.hvX3fLl2UYk_Mo6xPDsXouzA0pPBipKZ8Y_THVyn7fM"));
    }

    #[test]
    fn a_claim_of_tables_reads_back_and_half_a_claim_of_streams_is_none() {
        let key = Key::of(&[7; 32]);
        let shapes = || vec!["table=items&where=owner=$1&params[1]=7".parse().unwrap()].try_into().unwrap();
        for streams in [None, claim().streams] {
            let both = Claim { streams, shapes: shapes(), expires: 9, parent: None };
            assert_eq!(key.verify(&key.sign(&both)), Some(both));
        }
        let signed = |json: &str| {
            let token = format!("{MARK}{}", secret::text_of(json.as_bytes()));
            let mac = hmac::sign(&key.0, token.as_bytes());
            format!("{token}.{}", secret::text_of(mac.as_ref()))
        };
        assert!(key.verify(&signed(r#"{"expires":9}"#)).is_some_and(|claim| claim.rights().is_empty()));
        for wrong in [
            r#"{"expires":9,"scope":"read"}"#,
            r#"{"expires":9,"prefix":"*"}"#,
            r#"{"expires":9,"shape":[{"table":"t","where":"("}]}"#,
            r#"{"expires":9,"shape":[{"table":"t"},{"table":"t"}]}"#,
            r#"{"expires":9,"shapes":[]}"#,
            r#"{"shape":[{"table":"t"}]}"#,
        ] {
            assert_eq!(key.verify(&signed(wrong)), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_changed_token_is_refused(at in 0usize..130, to in "[A-Za-z0-9._-]") {
            let key = Key::of(&[7; 32]);
            let token = key.sign(&claim());
            let at = at % token.len();
            let mut changed = token.clone();
            changed.replace_range(at..=at, &to);
            prop_assert_eq!(key.verify(&changed).is_some(), changed == token);
            prop_assert!(Key::of(&[8; 32]).verify(&token).is_none());
        }

        #[test]
        fn garbage_is_refused(text in "(tws1\\.)?\\PC{0,40}") {
            prop_assert!(Key::of(&[7; 32]).verify(&text).is_none());
        }
    }
}

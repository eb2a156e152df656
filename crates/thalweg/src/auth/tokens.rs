//! The file of tokens: who may do what, with hashes in place of secrets.
//!
//! A token is `tw1.ID.SECRET`. The file has the hash of the whole of it, so that it is no secret itself.

use super::scope::{Prefix, Rights};
use super::secret::{self, Hash};
use anyhow::{Context, bail, ensure};
use std::collections::HashMap;
use std::path::Path;

/// What a token begins with: scanners for leaked secrets can look for it.
pub(crate) const MARK: &str = "tw1.";

const FILE_BYTES_MAX: u64 = 4 << 20;
const ID_BYTES_MAX: usize = 64;

/// What the file says of one token.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    hash: Hash,
    pub(crate) rights: Rights,
    /// Milliseconds since the Unix epoch.
    pub(crate) expires: Option<u64>,
}

impl Token {
    pub(crate) fn expired(&self, now_ms: u64) -> bool {
        self.expires.is_some_and(|at| at <= now_ms)
    }
}

/// All tokens of a file, by id.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tokens(HashMap<Box<str>, Token>);

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    token: Vec<Entry>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    id: String,
    hash: String,
    #[serde(default)]
    read: Vec<String>,
    #[serde(default)]
    write: Vec<String>,
    #[serde(default)]
    admin: Vec<String>,
    expires: Option<toml::Value>,
}

impl Tokens {
    /// Reads a file whole: one wrong line and none of it counts.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let named = || format!("in the file of tokens {}", path.display());
        let len =
            std::fs::metadata(path).with_context(|| format!("cannot read the tokens from {}", path.display()))?.len();
        ensure!(len <= FILE_BYTES_MAX, "{} has {len} bytes, at most {FILE_BYTES_MAX} are read", path.display());
        Self::parse(&std::fs::read_to_string(path).with_context(named)?).with_context(named)
    }

    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let file: File = toml::from_str(text)?;
        let mut tokens = HashMap::with_capacity(file.token.len());
        for entry in file.token {
            let id = entry.id.clone();
            let token = entry.check().with_context(|| format!("token `{id}`"))?;
            if tokens.insert(id.clone().into_boxed_str(), token).is_some() {
                bail!("the token `{id}` is there twice");
            }
        }
        Ok(Self(tokens))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn get(&self, id: &str) -> Option<&Token> {
        self.0.get(id)
    }

    /// The token that was sent, and its id. The id is no secret; what follows it is compared in constant time.
    pub(crate) fn find<'a>(&self, sent: &'a str) -> Option<(&'a str, &Token)> {
        let (id, _) = sent.strip_prefix(MARK)?.split_once('.')?;
        let token = self.0.get(id)?;
        Hash::of(sent.as_bytes()).matches(&token.hash).then_some((id, token))
    }
}

impl Entry {
    fn check(self) -> anyhow::Result<Token> {
        check_id(&self.id)?;
        let hash = self.hash.strip_prefix("sha256:").and_then(Hash::parse);
        let rights =
            Rights { read: prefixes(&self.read)?, write: prefixes(&self.write)?, admin: prefixes(&self.admin)? };
        ensure!(!rights.is_empty(), "it has no scope; give it `read`, `write` or `admin`, such as read = [\"chat/\"]");
        let expires = self.expires.map(|when| expiry(when.as_str().unwrap_or(&when.to_string()))).transpose()?;
        Ok(Token { hash: hash.context("`hash` must be `sha256:` and 64 hexadecimal digits")?, rights, expires })
    }
}

pub(crate) fn check_id(id: &str) -> anyhow::Result<()> {
    let fits = (1..=ID_BYTES_MAX).contains(&id.len());
    ensure!(
        fits && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'),
        "`{id}` is not the name of a token; take 1 to {ID_BYTES_MAX} of letters, digits, `-` and `_`"
    );
    Ok(())
}

fn prefixes(texts: &[String]) -> anyhow::Result<Vec<Prefix>> {
    texts.iter().map(|text| text.parse().map_err(anyhow::Error::msg)).collect()
}

/// An RFC 3339 timestamp as milliseconds since the Unix epoch.
pub(crate) fn expiry(text: &str) -> anyhow::Result<u64> {
    let Ok(when) = text.parse::<jiff::Timestamp>() else {
        bail!("`{text}` is not a time with date, hour and zone; write one such as 2030-01-31T12:00:00Z");
    };
    u64::try_from(when.as_millisecond()).context("`expires` is before 1970")
}

/// A new token, and the lines of the file that make it known.
pub(crate) fn make(id: &str, rights: &Rights, expires: Option<&str>) -> anyhow::Result<(String, String)> {
    check_id(id)?;
    ensure!(!rights.is_empty(), "give it at least one of --read, --write and --admin, such as --read chat/");
    let sent = format!("{MARK}{id}.{}", secret::text_of(&secret::random()?));
    let mut lines = format!("[[token]]\nid = \"{id}\"\nhash = \"sha256:{}\"\n", Hash::of(sent.as_bytes()).text());
    for (scope, prefixes) in [("read", &rights.read), ("write", &rights.write), ("admin", &rights.admin)] {
        if !prefixes.is_empty() {
            let list: Vec<_> =
                prefixes.iter().map(|prefix| toml::Value::from(prefix.to_string()).to_string()).collect();
            lines.push_str(&format!("{scope} = [{}]\n", list.join(", ")));
        }
    }
    if let Some(expires) = expires {
        expiry(expires)?;
        lines.push_str(&format!("expires = \"{expires}\"\n"));
    }
    Ok((sent, lines))
}

#[cfg(test)]
mod tests {
    use super::super::scope::Scope;
    use super::*;

    fn hash() -> String {
        format!("sha256:{}", "0".repeat(64))
    }

    #[test]
    fn a_made_token_is_found_by_its_line() {
        let rights =
            Rights { read: vec!["chat/".parse().unwrap()], admin: vec!["*".parse().unwrap()], ..Rights::default() };
        let (sent, lines) = make("app", &rights, Some("2030-01-31T12:00:00Z")).unwrap();
        let tokens = Tokens::parse(&lines).unwrap();
        let (id, token) = tokens.find(&sent).unwrap();
        assert_eq!((id, &token.rights), ("app", &rights));
        assert!(!token.expired(1_896_091_199_999) && token.expired(1_896_091_200_000));
        assert!(!lines.contains(sent.rsplit('.').next().unwrap()), "the secret is in the file");
    }

    #[test]
    fn another_secret_or_name_finds_nothing() {
        let rights = Rights::one(Scope::Read, Prefix::everything());
        let (sent, lines) = make("app", &rights, None).unwrap();
        let (other, more) = make("ops", &rights, None).unwrap();
        let tokens = Tokens::parse(&format!("{lines}\n{more}")).unwrap();
        assert!(tokens.find(&sent).is_some() && tokens.find(&other).is_some());
        let crossed = sent.replace("app", "ops");
        for wrong in [
            "",
            "tw1.",
            "tw1.app",
            "tw1.app.",
            &sent[..sent.len() - 1],
            &format!("{sent}A"),
            &crossed,
            &sent.to_uppercase(),
        ] {
            assert!(tokens.find(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn a_wrong_file_is_refused_and_says_where() {
        let refused = |text: &str| format!("{:#}", Tokens::parse(text).unwrap_err());
        let entry = |rest: &str| format!("[[token]]\nid = \"a\"\nhash = \"{}\"\n{rest}", hash());
        assert!(refused("tokens = 1").contains("unknown field"));
        assert!(refused(&entry("")).contains("token `a`: it has no scope"));
        assert!(refused(&entry("raed = [\"x\"]")).contains("raed"));
        assert!(refused(&entry("read = [\"\"]")).contains("prefix"));
        assert!(refused(&entry("read = [\"a\"]\nexpires = \"soon\"")).contains("soon"));
        assert!(refused(&format!("{}\n{}", entry("read=[\"a\"]"), entry("read=[\"a\"]"))).contains("twice"));
        assert!(refused("[[token]]\nid = \"a\"\nhash = \"sha256:12\"\nread = [\"a\"]").contains("64 hexadecimal"));
        assert!(refused(&format!("[[token]]\nid = \"a.b\"\nhash = \"{}\"\nread = [\"a\"]", hash())).contains("`a.b`"));
        assert!(
            Tokens::parse(&entry("read = [\"a\"]\nexpires = 2030-01-31T12:00:00Z"))
                .unwrap()
                .get("a")
                .unwrap()
                .expires
                .is_some()
        );
        assert_eq!(Tokens::parse("").unwrap().len(), 0);
    }
}

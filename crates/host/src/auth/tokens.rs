//! The token file: names, rights and hashes of secrets.
//!
//! A token is `tw1.ID.SECRET`. The file has the hash of the whole of it, so that it is no secret itself.

use super::scope::{Prefix, Rights};
use super::secret::{self, Hash};
use anyhow::{Context, bail, ensure};
use std::collections::HashMap;
use std::path::Path;
use thalweg_base::Millis;
use thalweg_base::Span;
use thalweg_shapes::Grants;
use thalweg_streams::format::timestamp;

/// Prefix of every token, by which scanners for leaked secrets recognise it.
pub(crate) const MARK: &str = "tw1.";

const FILE_BYTES_MAX: u64 = 4 << 20;
const ID_BYTES_MAX: usize = 64;

/// One token of the file.
#[derive(Clone, Debug)]
pub(super) struct Token {
    hash: Hash,
    pub rights: Rights,
    /// Milliseconds since the Unix epoch.
    pub expires: Option<u64>,
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
    #[serde(default)]
    shape: Grants,
    expires: Option<toml::Value>,
}

impl Tokens {
    /// Reads a file whole: one wrong line makes all of it invalid.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let named = || format!("in the file of tokens {}", path.display());
        let len =
            std::fs::metadata(path).with_context(|| format!("cannot read the tokens from {}", path.display()))?.len();
        ensure!(len <= FILE_BYTES_MAX, "{} has {len} bytes, at most {FILE_BYTES_MAX} are read", path.display());
        Self::parse(&std::fs::read_to_string(path).with_context(named)?).with_context(named)
    }

    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let file: File = toml::from_str(text)?;
        let mut tokens = HashMap::with_capacity(file.token.len());
        for entry in file.token {
            let id = entry.id.clone();
            let token = entry.check().with_context(|| format!("token `{id}`"))?;
            if let Some(prefix) = token.rights.pattern() {
                tracing::warn!(id, %prefix, "a `*` inside a prefix stands for itself: write `chat/` for all streams below `chat`");
            }
            if tokens.insert(id.clone().into_boxed_str(), token).is_some() {
                bail!("the file has the token `{id}` twice");
            }
        }
        Ok(Self(tokens))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn get(&self, id: &str) -> Option<&Token> {
        self.0.get(id)
    }

    /// Finds the token that was sent, and its id. The id is not secret; the rest is compared in constant time.
    pub(super) fn find<'a>(&self, sent: &'a str) -> Option<(&'a str, &Token)> {
        let (id, _) = sent.strip_prefix(MARK)?.split_once('.')?;
        let token = self.0.get(id)?;
        Hash::of(sent.as_bytes()).matches(&token.hash).then_some((id, token))
    }
}

impl Entry {
    fn check(self) -> anyhow::Result<Token> {
        check_id(&self.id)?;
        let hash = self.hash.strip_prefix("sha256:").and_then(Hash::parse);
        let rights = Rights {
            read: prefixes(&self.read)?,
            write: prefixes(&self.write)?,
            admin: prefixes(&self.admin)?,
            shapes: self.shape,
        };
        ensure!(
            !rights.is_empty(),
            "it has no scope; give it `read`, `write`, `admin` or `shape`, such as read = [\"chat/\"]"
        );
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
pub(super) fn expiry(text: &str) -> anyhow::Result<u64> {
    let when = timestamp::parse(text.as_bytes());
    let at = when.with_context(|| {
        format!("`{text}` is not a time with date, hour and zone; write one such as 2030-01-31T12:00:00Z")
    })?;
    Ok(at.0)
}

/// The end of something that is made now: a time, or how long from now. It must lie in the future.
pub fn end(text: &str, now_ms: u64) -> anyhow::Result<u64> {
    let at = match text.parse::<Span>() {
        Ok(span) => now_ms.saturating_add(u64::try_from(span.0.as_millis())?),
        Err(_) => {
            timestamp::parse(text.as_bytes())
                .with_context(|| {
                    format!(
                        "`{text}` is neither a time with date, hour and zone, such as 2030-01-31T12:00:00Z, nor a length of time, \
                         such as 90d"
                    )
                })?
                .0
        }
    };
    ensure!(at > now_ms, "`{text}` is over already: the token could not be used");
    Ok(at)
}

/// A new token, and the lines of the file that make it known.
pub fn make(id: &str, rights: &Rights, expires: Option<u64>) -> anyhow::Result<(String, String)> {
    check_id(id)?;
    ensure!(!rights.is_empty(), "give it at least one of --read, --write, --admin and --shape, such as --read chat/");
    let sent = format!("{MARK}{id}.{}", secret::text_of(&secret::random()?));
    let mut lines = format!("[[token]]\nid = \"{id}\"\nhash = \"sha256:{}\"\n", Hash::of(sent.as_bytes()).text());
    for (scope, prefixes) in [("read", &rights.read), ("write", &rights.write), ("admin", &rights.admin)] {
        if !prefixes.is_empty() {
            let list: Vec<_> =
                prefixes.iter().map(|prefix| toml::Value::from(prefix.to_string()).to_string()).collect();
            lines.push_str(&format!("{scope} = [{}]\n", list.join(", ")));
        }
    }
    if !rights.shapes.is_empty() {
        let list = rights.shapes.iter().map(|grant| toml::Value::try_from(grant).map(|value| value.to_string()));
        lines.push_str(&format!("shape = [{}]\n", list.collect::<Result<Vec<_>, _>>()?.join(", ")));
    }
    if let Some(expires) = expires {
        lines.push_str(&format!("expires = \"{}\"\n", timestamp::text(Millis(expires))));
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
        let (sent, lines) = make("app", &rights, Some(1_896_091_200_000)).unwrap();
        let tokens = Tokens::parse(&lines).unwrap();
        let (id, token) = tokens.find(&sent).unwrap();
        assert_eq!((id, &token.rights), ("app", &rights));
        assert!(!token.expired(1_896_091_199_999) && token.expired(1_896_091_200_000));
        assert!(!lines.contains(sent.rsplit('.').next().unwrap()), "the secret is in the file");
    }

    #[test]
    fn a_token_of_tables_is_read_from_its_lines() {
        let grant = r#"table=Items&where=owner = $1 AND "Kind" <> 'a"b\c'&params[1]=it's&columns=id,"Ti""tle""#;
        let shapes: Grants = vec![grant.parse().unwrap(), "table=s.tags".parse().unwrap()].try_into().unwrap();
        let (sent, lines) = make("app", &Rights { shapes: shapes.clone(), ..Rights::default() }, None).unwrap();
        assert_eq!(Tokens::parse(&lines).unwrap().find(&sent).unwrap().1.rights.shapes, shapes, "{lines}");
        let entry = |shape: &str| format!("[[token]]\nid = \"a\"\nhash = \"{}\"\n{shape}", hash());
        let by_hand =
            "[[token.shape]]\ntable = \"items\"\nwhere = \"owner = $1\"\nparams = [\"7\"]\ncolumns = [\"id\"]\n";
        assert_eq!(Tokens::parse(&entry(by_hand)).unwrap().get("a").unwrap().rights.shapes.iter().count(), 1);
        for wrong in
            ["shape = [{ where = \"a = 1\" }]", "shape = [{ table = \"t\", where = \"(\" }]", "shape = [\"t\"]"]
        {
            assert!(Tokens::parse(&entry(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_end_is_a_time_or_a_length_of_time_in_the_future() {
        let now = 1_896_091_200_000;
        assert_eq!(end("1h", now).unwrap(), now + 3_600_000);
        assert_eq!(end("90d", now).unwrap(), now + 90 * 86_400_000);
        assert_eq!(end("2030-01-31T12:00:01Z", now).unwrap(), now + 1000);
        assert!(end("9999-12-31T23:59:59Z", now).is_ok());
        for past in ["2030-01-31T12:00:00Z", "2020-01-01T00:00:00Z", "0"] {
            assert!(end(past, now).unwrap_err().to_string().contains("is over already"), "{past}");
        }
        for none in ["tomorrow", "", "2030-01-31", "99999999999999999999d"] {
            let said = format!("{:#}", end(none, now).unwrap_err());
            assert!(said.contains("is neither a time") && !said.contains("parse"), "{said}");
        }
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

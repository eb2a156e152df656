//! Tokens of the workers, each for its own streams only, and tokens that must open nothing.

use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The name of the token that may do everything.
pub(crate) const ADMIN: &str = "admin";

/// Secrets by the name of their holder, and the server's file of tokens.
#[derive(Clone)]
pub(crate) struct Tokens {
    pub(crate) file: PathBuf,
    secrets: BTreeMap<String, String>,
}

/// A credential that must be refused: the value of `Authorization`, if any, and the status that this deserves.
pub(crate) type Trespass = (Option<String>, u16);

impl Tokens {
    /// Has the binary make them.
    pub(crate) fn make(binary: &Path, folder: &Path, owners: u32) -> anyhow::Result<Self> {
        let mut tokens = Self { file: folder.join("tokens.toml"), secrets: BTreeMap::new() };
        let below =
            |prefix: &str| vec!["--read".to_owned(), prefix.to_owned(), "--write".to_owned(), prefix.to_owned()];
        let all = |prefix: &str| vec!["--admin".to_owned(), prefix.to_owned()];
        tokens.add(binary, ADMIN, &all("*"))?;
        for owner in 0..owners {
            tokens.add(binary, &format!("w{owner}"), &all(&format!("crash/w{owner}/")))?;
        }
        for place in ["shared", "race", "hook", "pull"] {
            tokens.add(binary, place, &below(&format!("crash/{place}/")))?;
        }
        for place in ["audit", "ttl", "kept"] {
            let streams = if place == "audit" { "shared" } else { place };
            tokens.add(binary, place, &all(&format!("crash/{streams}/")))?;
        }
        tokens.add(binary, "spy", &["--read".to_owned(), "*".to_owned()])?;
        tokens.add(binary, "dropbox", &["--write".to_owned(), "*".to_owned()])?;
        tokens.add(binary, "stranger", &all("crash/elsewhere/"))?;
        Ok(tokens)
    }

    fn add(&mut self, binary: &Path, name: &str, rights: &[String]) -> anyhow::Result<()> {
        let made = Command::new(binary).args(["token", "new", "--name", name]).args(rights).output()?;
        let said = String::from_utf8_lossy(&made.stderr).into_owned();
        if !made.status.success() {
            bail!("`token new` fails: {said}");
        }
        let secret = said.lines().last().context("`token new` says no secret")?.trim().to_owned();
        std::fs::File::options().append(true).create(true).open(&self.file)?.write_all(&made.stdout)?;
        self.secrets.insert(name.to_owned(), secret);
        Ok(())
    }

    pub(crate) fn secret(&self, name: &str) -> Option<&str> {
        self.secrets.get(name).map(String::as_str)
    }

    /// The value of `Authorization` for the holder of this name.
    pub(crate) fn authorization(&self, name: &str) -> Option<String> {
        self.secret(name).map(|secret| format!("Bearer {secret}"))
    }

    /// One of the ways in which a request to a stream must not succeed.
    pub(crate) fn trespass(&self, changes_something: bool, which: u64) -> Trespass {
        match which % 5 {
            0 => (None, 401),
            1 => (Some("Bearer tw1.admin.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA".to_owned()), 401),
            2 => (Some("Basic YWRtaW46".to_owned()), 401),
            3 => (self.authorization("stranger"), 403),
            _ => (self.authorization(if changes_something { "spy" } else { "dropbox" }), 403),
        }
    }
}

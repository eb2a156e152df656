//! Installations of Postgres on this machine.

use crate::owner::Owner;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The programs of one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    pub bin: PathBuf,
    pub major: u32,
}

/// All installed versions, the newest last. Without any, prints a message and returns none, so that a test does
/// nothing; with `REQUIRE_ALL=1` it fails.
pub fn installations() -> Vec<Installation> {
    let named = std::env::var_os("THALWEG_PG_BINS").unwrap_or_default();
    let named = std::env::split_paths(&named).filter(|folder| !folder.as_os_str().is_empty()).map(|bin| {
        let found = probe(&bin);
        found.unwrap_or_else(|| panic!("THALWEG_PG_BINS names {}, which has no Postgres that runs", bin.display()))
    });
    let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let debian = debian.filter_map(|version| probe(&version.path().join("bin")));
    let mut found = BTreeMap::new();
    for installation in named.chain(debian) {
        found.entry(installation.major).or_insert(installation);
    }
    if found.is_empty() {
        assert_ne!(std::env::var("REQUIRE_ALL").as_deref(), Ok("1"), "Postgres is not here, and REQUIRE_ALL=1");
        eprintln!("skipped: Postgres is not here (package postgresql-15, or THALWEG_PG_BINS)");
    }
    found.into_values().collect()
}

fn probe(bin: &Path) -> Option<Installation> {
    let said = Owner::find().command(bin.join("postgres")).arg("--version").output().ok()?;
    let said = String::from_utf8(said.stdout).ok()?;
    // `postgres (PostgreSQL) 15.18 (Debian …)`, `… 19devel`.
    let version = said.split_whitespace().nth(2)?;
    let digits = version.bytes().take_while(u8::is_ascii_digit).count();
    Some(Installation { bin: bin.to_owned(), major: version[..digits].parse().ok()? })
}

//! `BACKUP`: the file that makes a folder a generation. It has the position of the cut, and the checksum of every file.
//!
//! One line of JSON, then one line with the CRC32C of the first. It is written last: a folder without it is not a
//! backup.

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use thalweg_base::crc;

pub(super) const NAME: &str = "BACKUP";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Description {
    /// The data folder's format.
    pub(super) format: u32,
    /// Version of the program that held the folder.
    pub(super) version: String,
    pub(super) lineage: String,
    /// The journal position that the cut ends at.
    pub(super) position: u64,
    /// When the cut was made, RFC 3339.
    pub(super) made_at: String,
    pub(super) files: Vec<Kept>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) path: String,
    pub(super) bytes: u64,
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub(super) allocated: u64,
    /// CRC32C of the whole file.
    pub(super) crc: u32,
}

impl Description {
    /// Writes it into `dir`, durably.
    pub(super) fn write(&self, dir: &Path) -> anyhow::Result<()> {
        let line = serde_json::to_string(self)?;
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(dir.join(NAME))?;
        write!(file, "{line}\ncrc32c {:08x}\n", crc(line.as_bytes()))?;
        file.sync_all()?;
        Ok(super::sync_folder(dir)?)
    }

    pub(super) fn read(dir: &Path) -> anyhow::Result<Self> {
        let path = dir.join(NAME);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("{} is damaged", path.display()))
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let (line, rest) = text.split_once('\n').context("it has no second line")?;
        if rest != format!("crc32c {:08x}\n", crc(line.as_bytes())) {
            bail!("its checksum does not fit");
        }
        Ok(serde_json::from_str(line)?)
    }
}

/// The generations below a target, oldest first. Their names are times: they sort.
pub(super) fn generations(target: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries = fs::read_dir(target).with_context(|| format!("cannot list {}", target.display()))?;
    for entry in entries {
        let path = entry?.path();
        let named = path
            .file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with(|c: char| c.is_ascii_digit()));
        if named && path.join(NAME).is_file() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_comes_back_and_a_changed_one_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let file = Kept { path: "objects/0000000000000001.obj".into(), bytes: 7, allocated: 0, crc: 9 };
        let description = Description {
            format: 1,
            version: "0.1.0".into(),
            lineage: "ab".into(),
            position: 77,
            made_at: "2026-01-01T00:00:00Z".into(),
            files: vec![file],
        };
        description.write(dir.path()).unwrap();
        assert_eq!(Description::read(dir.path()).unwrap(), description);
        let text = fs::read_to_string(dir.path().join(NAME)).unwrap();
        fs::write(dir.path().join(NAME), text.replace("77", "78")).unwrap();
        assert!(format!("{:#}", Description::read(dir.path()).unwrap_err()).contains("checksum"));
        fs::write(dir.path().join(NAME), &text[..text.len() - 3]).unwrap();
        assert!(Description::read(dir.path()).is_err());
    }
}

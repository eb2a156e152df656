//! The file of contexts: readable for its owner alone, since it holds tokens.

use crate::failure::Failure;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const FILE_BYTES_MAX: u64 = 1 << 20;

/// A server with its credentials, as the file of contexts keeps them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Context {
    pub(crate) server: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ca: Option<PathBuf>,
    /// The secret of shapes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) secret: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Contexts {
    /// The name of the context in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) current: Option<String>,
    #[serde(default, rename = "context")]
    pub(crate) all: BTreeMap<String, Context>,
}

impl Contexts {
    /// Reads all contexts. A missing file has none.
    pub(crate) fn read() -> Result<Self, Failure> {
        path().map_or(Ok(Self::default()), |path| Self::read_from(&path))
    }

    /// Reads, changes and writes them.
    pub(crate) fn change(change: impl FnOnce(&mut Self) -> Result<(), Failure>) -> Result<(), Failure> {
        let path = path().ok_or_else(|| {
            Failure::Local("there is no place for contexts: neither XDG_CONFIG_HOME nor HOME is set".to_owned())
        })?;
        let mut contexts = Self::read_from(&path)?;
        change(&mut contexts)?;
        contexts.write_to(&path).map_err(|error| Failure::Local(format!("cannot write {}: {error}", path.display())))
    }

    pub(crate) fn get(&self, name: &str) -> Result<&Context, Failure> {
        self.all.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.all.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            Failure::Local(format!(
                "there is no context `{name}` (there are: {known}); `thalweg context add` makes one"
            ))
        })
    }

    fn read_from(path: &Path) -> Result<Self, Failure> {
        let wrong = |why: String| Failure::Local(format!("the contexts in {}: {why}", path.display()));
        let about = match fs::metadata(path) {
            Ok(about) => about,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(wrong(error.to_string())),
        };
        if about.mode() & 0o077 != 0 {
            let mode = about.mode() & 0o777;
            return Err(wrong(format!(
                "others may read the tokens (mode {mode:o}); run: chmod 600 {}",
                path.display()
            )));
        }
        if about.len() > FILE_BYTES_MAX {
            return Err(wrong("the file is larger than 1 MiB".to_owned()));
        }
        let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        toml::from_str(&text).map_err(|error| wrong(error.to_string()))
    }

    /// Under another name first, so that no reader finds half of it.
    fn write_to(&self, path: &Path) -> std::io::Result<()> {
        let text = toml::to_string(self).map_err(std::io::Error::other)?;
        let folder = path.parent().unwrap_or(Path::new("."));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let unfinished = path.with_extension(format!("toml.{}", std::process::id()));
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&unfinished, path)
    }
}

fn path() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).filter(|text| !text.is_empty()).map(PathBuf::from);
    let base = folder("XDG_CONFIG_HOME").or_else(|| folder("HOME").map(|home| home.join(".config")))?;
    Some(base.join("thalweg").join("contexts.toml"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn contexts_are_kept_for_their_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/contexts.toml");
        assert_eq!(Contexts::read_from(&path).unwrap(), Contexts::default());
        let mut contexts = Contexts { current: Some("a".to_owned()), ..Contexts::default() };
        let context = Context { server: "https://a".to_owned(), token: Some("t".to_owned()), ..Context::default() };
        contexts.all.insert("a".to_owned(), context);
        contexts.write_to(&path).unwrap();
        assert_eq!(Contexts::read_from(&path).unwrap(), contexts);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let refused = Contexts::read_from(&path).unwrap_err().to_string();
        assert!(refused.contains("chmod 600"), "{refused}");
    }

    #[test]
    fn a_file_that_is_not_understood_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("contexts.toml");
        fs::write(&path, "[context.a]\nservr = \"x\"\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let refused = Contexts::read_from(&path).unwrap_err().to_string();
        assert!(refused.contains("contexts.toml") && refused.contains("servr"), "{refused}");
    }
}

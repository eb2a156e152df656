//! Backup and restore: a cut of a data folder, of a running or a stopped server.
//!
//! A *cut* is one root of the manifest, the objects that it names, and the journal from the root's floor to a position:
//! the state that a crash at that position would have left. A *generation* is one complete cut in a folder of its own
//! below the target; objects that an earlier generation already has are hard links. `docs/ops/backup.md` states the
//! promises to users.

mod description;
mod folder;
mod remote;
mod restore;
mod serve;
mod take;

pub(crate) use restore::restore;
pub(crate) use serve::{Backups, SERVED};
pub(crate) use take::{BackupArgs, backup};

use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::Path;
use thalweg_base::ObjectId;

/// The manifest's body in a listing; in a generation it is the manifest's file.
const ROOT: &str = thalweg_host::kernel::MANIFEST;

/// Files that a source holds ready to be copied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Listing {
    /// Names the hold on a server.
    backup: String,
    /// The data folder's format.
    format: u32,
    /// Version of the program that holds the folder.
    version: String,
    /// Identifies this history of object ids; empty if it has no identity.
    lineage: String,
    /// The journal position that the cut ends at.
    position: u64,
    files: Vec<Listed>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Listed {
    /// Path in the data folder.
    path: String,
    bytes: u64,
    /// Space to allocate for the file; 0: its length.
    #[serde(default, skip_serializing_if = "is_zero")]
    allocated: u64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// The source of a cut.
trait Source {
    /// Takes hold of a cut.
    fn begin(&mut self) -> anyhow::Result<Listing>;
    /// Bytes of a file of the cut from `at` on: some, if `at` is before its end.
    fn read(&mut self, path: &str, at: u64) -> anyhow::Result<Vec<u8>>;
    /// Releases the cut.
    fn end(&mut self);
}

/// The meaning of a path in a cut; no other path is ever written below a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Root,
    Object(ObjectId),
    Segment,
    /// A file of the folder itself, such as keys.
    Extra,
}

/// `None`: no path of a cut.
fn place(path: &str) -> Option<Place> {
    let numbered = |rest: &str, suffix: &str, radix| {
        let digits = rest.strip_suffix(suffix).filter(|d| d.len() == 16)?;
        let plain = digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if plain { u64::from_str_radix(digits, radix).ok() } else { None }
    };
    match path.split_once('/') {
        _ if path == ROOT => Some(Place::Root),
        Some((thalweg_host::kernel::OBJECTS, rest)) => Some(Place::Object(ObjectId(numbered(rest, ".obj", 16)?))),
        Some(("journal", rest)) => numbered(rest, ".seg", 10).map(|_| Place::Segment),
        Some(_) => None,
        None => {
            let is_extra = path != description::NAME && thalweg_host::folder::is_beside(path);
            is_extra.then_some(Place::Extra)
        }
    }
}

fn object_path(object: ObjectId) -> String {
    format!("{}/{:016x}.obj", thalweg_host::kernel::OBJECTS, object.0)
}

fn sync_folder(path: &Path) -> std::io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_a_data_folder_have_a_place() {
        assert_eq!(place("manifest/root"), Some(Place::Root));
        assert_eq!(place("objects/00000000000000ff.obj"), Some(Place::Object(ObjectId(255))));
        assert_eq!(place("journal/0000000000000012.seg"), Some(Place::Segment));
        assert_eq!(place("tokens.toml"), Some(Place::Extra));
        for bad in [
            "",
            "..",
            ".hidden",
            "../x",
            "a/b",
            "/etc/passwd",
            "objects/../../x",
            "objects/ff.obj",
            "journal/1.seg",
            "journal/00000000000000ff.seg",
            "manifest/other",
            "FORMAT",
            "RUN",
            "LOCK",
            "LINEAGE",
            "STORE",
            "FILLING",
            "reserve",
            "BACKUP",
            "x.tmp",
            "a b",
        ] {
            assert_eq!(place(bad), None, "{bad:?}");
        }
        assert_eq!(place(&object_path(ObjectId(255))), Some(Place::Object(ObjectId(255))));
    }
}

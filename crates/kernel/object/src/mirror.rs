//! The mirror of a unit whose authority is a data folder: what a bucket must have so that the unit can be opened
//! without the folder.
//!
//! The owner copies the objects of a root, and the end of the journal that the root needs, and then commits both in one
//! body: whatever a reader finds in the bucket is the state of the folder at one moment. The mirror decides nothing for
//! the folder. It has one owner: acquiring it makes every commit of earlier owners fail, so that an owner that is
//! deposed learns it at its next commit.
//!
//! `docs/format/bucket.md` has the keys and bytes.

use crate::bucket::Bucket;
use crate::manifest::ObjectManifest;
use crate::storage::ObjectStorage;
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use thalweg_base::{DecodeError, Decoder, Encoder, Lsn, ObjectId};
use thalweg_manifest::{Manifest, ManifestError};
use thalweg_storage::{Storage, StorageError};
use thiserror::Error;

/// No root of a unit starts with this byte: roots of units start with their version.
const KIND: u8 = 0xB0;
const VERSION: u8 = 1;

/// The state of a folder at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirrored {
    /// The lineage of the folder.
    pub lineage: String,
    /// Drawn at random by each server that has owned the mirror: an older copy of the folder does not know it.
    pub owner: u64,
    /// The folder was closed in this state: nothing was ever in it that is not here.
    pub is_closed: bool,
    /// The root of the unit; empty before the first copy is whole.
    pub root: Bytes,
    /// The end of the journal, which the root needs; `None` before the first copy is whole.
    pub tail: Option<MirroredTail>,
    /// Small files beside the data, such as keys: their names and contents.
    pub files: Vec<(String, Bytes)>,
}

/// The object that holds the end of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MirroredTail {
    /// The object.
    pub object: ObjectId,
    /// Its length in bytes.
    pub bytes: u64,
    /// The position up to which the journal is in it.
    pub end: Lsn,
}

/// Why a mirror cannot be read or changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MirrorError {
    /// The root in the bucket cannot be read or committed. `Fenced`: another owner has the mirror.
    #[error("the mirror's root: {0}")]
    Root(#[from] ManifestError),
    /// The body of the root is not one of a mirror.
    #[error("the mirror's root cannot be decoded: {0}")]
    Form(DecodeError),
    /// The format of the mirror is above the newest that this program reads.
    #[error("the mirror has format {0}, and this program reads formats up to {VERSION}: use a newer thalweg")]
    Newer(u8),
    /// An object of the mirror cannot be read or written.
    #[error(transparent)]
    Object(#[from] StorageError),
    /// The owner has not acquired the mirror.
    #[error("the mirror is not acquired yet")]
    NotAcquired,
}

impl MirrorError {
    /// Another owner has acquired the mirror: this one is deposed for good.
    #[must_use]
    pub fn is_deposed(&self) -> bool {
        matches!(self, Self::Root(ManifestError::Fenced { .. } | ManifestError::Conflict { .. }))
            && !self.is_root_missing()
    }

    /// There is no root any longer: somebody has removed it, and no owner does that.
    #[must_use]
    pub fn is_root_missing(&self) -> bool {
        matches!(self, Self::Root(ManifestError::Fenced { found: 0, .. }))
    }
}

impl Mirrored {
    /// The state of a folder of which nothing is copied yet.
    #[must_use]
    pub fn nothing_of(lineage: &str) -> Self {
        Self {
            lineage: lineage.to_owned(),
            owner: 0,
            is_closed: false,
            root: Bytes::new(),
            tail: None,
            files: Vec::new(),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = vec![KIND, VERSION, u8::from(self.is_closed)];
        out.put_bytes(self.lineage.as_bytes());
        out.put_u64(self.owner);
        out.put_bytes(&self.root);
        match self.tail {
            None => out.push(0),
            Some(MirroredTail { object, bytes, end }) => {
                out.push(1);
                [object.0, bytes, end.0].into_iter().for_each(|n| out.put_varint(n));
            }
        }
        out.put_varint(self.files.len() as u64);
        for (name, content) in &self.files {
            out.put_bytes(name.as_bytes());
            out.put_bytes(content);
        }
        out
    }

    fn decode(body: &[u8]) -> Result<Self, MirrorError> {
        match body {
            [KIND, VERSION, ..] => Self::fields(&body[2..]).map_err(MirrorError::Form),
            [KIND, version, ..] if *version > VERSION => Err(MirrorError::Newer(*version)),
            [KIND, ..] => Err(MirrorError::Form(DecodeError::Range("version of a mirror"))),
            _ => Err(MirrorError::Form(DecodeError::Range("kind of a mirror"))),
        }
    }

    fn fields(fields: &[u8]) -> Result<Self, DecodeError> {
        let mut d = Decoder::new(fields);
        let is_closed = match d.u8()? {
            0 => false,
            1 => true,
            _ => return Err(DecodeError::Range("whether a mirror is closed")),
        };
        let text = |bytes: &[u8]| {
            std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| DecodeError::Range("text of a mirror"))
        };
        let lineage = text(d.bytes()?)?;
        let owner = d.u64()?;
        let root = Bytes::copy_from_slice(d.bytes()?);
        let tail = match d.u8()? {
            0 => None,
            1 => Some(MirroredTail { object: ObjectId(d.varint()?), bytes: d.varint()?, end: Lsn(d.varint()?) }),
            _ => return Err(DecodeError::Range("tail of a mirror")),
        };
        let mut files = Vec::new();
        for _ in 0..d.varint()? {
            files.push((text(d.bytes()?)?, Bytes::copy_from_slice(d.bytes()?)));
        }
        d.end()?;
        if root.is_empty() != tail.is_none() {
            return Err(DecodeError::Range("a mirror's root without a tail"));
        }
        Ok(Self { lineage, owner, is_closed, root, tail, files })
    }
}

/// The mirror of a unit, in the objects `m/<unit>` and `d/<unit>/…` of a bucket.
pub struct Mirror {
    manifest: ObjectManifest,
    objects: Arc<ObjectStorage>,
    /// The epoch and the version of the root that this owner wrote last.
    owned: Mutex<Option<Owned>>,
}

#[derive(Clone, Copy)]
struct Owned {
    epoch: u64,
    /// `None` if the outcome of a commit is unknown.
    version: Option<u64>,
}

impl Mirror {
    /// The mirror of `unit`. `nonce` must be random. Sends nothing yet.
    #[must_use]
    pub fn new(bucket: Bucket, unit: &str, nonce: u64) -> Self {
        let objects = Arc::new(ObjectStorage::new(bucket.clone(), unit));
        Self { manifest: ObjectManifest::new(bucket, unit, nonce), objects, owned: Mutex::new(None) }
    }

    /// The objects of the mirror.
    #[must_use]
    pub fn objects(&self) -> &Arc<ObjectStorage> {
        &self.objects
    }

    /// The state that the bucket has, with the epoch of its owner. `None`: nobody has mirrored anything yet.
    pub fn read(&self) -> Result<Option<(u64, Option<Mirrored>)>, MirrorError> {
        let Some(root) = self.manifest.read()? else { return Ok(None) };
        let mirrored = (!root.body.is_empty()).then(|| Mirrored::decode(&root.body)).transpose()?;
        Ok(Some((root.epoch, mirrored)))
    }

    /// Makes the caller the owner, with an epoch above `above` and above that of every owner before; the state that the
    /// bucket has.
    pub fn acquire(&self, above: u64) -> Result<Option<Mirrored>, MirrorError> {
        let mut owned = self.owned.lock();
        // An answer that is lost may be that of an acquisition.
        *owned = None;
        let root = self.manifest.acquire(above)?;
        *owned = Some(Owned { epoch: root.epoch, version: Some(root.version) });
        (!root.body.is_empty()).then(|| Mirrored::decode(&root.body)).transpose()
    }

    /// Whether the caller has acquired the mirror.
    #[must_use]
    pub fn is_acquired(&self) -> bool {
        self.owned.lock().is_some()
    }

    /// The owner gives the mirror up, to acquire it again.
    pub fn release(&self) {
        *self.owned.lock() = None;
    }

    /// Puts a state in force, if this owner still is one. All its objects must be there. After an error that is not
    /// [`MirrorError::is_deposed`] the old state or the new one is in force.
    pub fn commit(&self, state: &Mirrored) -> Result<(), MirrorError> {
        let mut owned = self.owned.lock();
        let Some(Owned { epoch, version }) = *owned else { return Err(MirrorError::NotAcquired) };
        let version = match version {
            Some(version) => version,
            None => {
                let found = self.manifest.load()?.unwrap_or_default();
                if found.epoch != epoch {
                    return Err(ManifestError::Fenced { epoch, found: found.epoch }.into());
                }
                found.version
            }
        };
        *owned = Some(Owned { epoch, version: None });
        let version = self.manifest.commit(epoch, version, &state.encode())?;
        *owned = Some(Owned { epoch, version: Some(version) });
        Ok(())
    }

    /// Whether a later owner has acquired the mirror.
    pub fn is_deposed(&self) -> Result<bool, MirrorError> {
        let found = self.manifest.read()?.map_or(0, |root| root.epoch);
        // Looked up after the read: this owner may have acquired the mirror once more meanwhile.
        Ok(self.owned.lock().is_some_and(|owned| found > owned.epoch))
    }

    /// Passes on the bytes of a tail.
    pub fn read_tail<E: From<StorageError>>(
        &self,
        tail: MirroredTail,
        f: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        const PIECE_BYTES: u64 = 4 << 20;
        let mut at = 0;
        while at < tail.bytes {
            let end = tail.bytes.min(at + PIECE_BYTES);
            f(&self.objects.read(tail.object, at..end).wait()?)?;
            at = end;
        }
        Ok(())
    }

    /// Removes every object of the bucket up to `last` that is not in `needed`, which is sorted; how many there were.
    /// Only for the owner, and while nothing is being copied.
    ///
    /// `last` is an id of this owner's own epoch: objects of later owners have higher ids. So an owner that is deposed
    /// between its commit and this call removes nothing that a later one needs.
    pub fn sweep(&self, needed: &[ObjectId], last: ObjectId) -> Result<u64, MirrorError> {
        let mut swept = 0;
        for object in self.objects.list()? {
            if object <= last && needed.binary_search(&object).is_err() {
                self.objects.remove(object)?;
                swept += 1;
            }
        }
        Ok(swept)
    }
}

/// A fuzz target's way in: takes `data` for the body of a mirror's root.
#[doc(hidden)]
pub fn fuzz_mirror(data: &[u8]) {
    for body in [data.to_vec(), [&[KIND, VERSION], data].concat()] {
        if let Ok(state) = Mirrored::decode(&body) {
            assert_eq!(Mirrored::decode(&state.encode()), Ok(state));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BucketOptions, SimulatedBucket};
    use proptest::prelude::*;

    fn sample() -> Mirrored {
        let tail = Some(MirroredTail { object: ObjectId(0x3_0000_0009), bytes: 300, end: Lsn(200) });
        let files = vec![("KEYS".to_owned(), Bytes::from_static(b"k"))];
        Mirrored {
            lineage: "abc".into(),
            owner: 0x1122,
            is_closed: true,
            root: Bytes::from_static(b"\x04root"),
            tail,
            files,
        }
    }

    #[test]
    fn the_form_is_pinned() {
        let hex: String = sample().encode().iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, "b001010361626322110000000000000504726f6f74018980808030ac02c80101044b455953016b");
        let nothing = Mirrored::nothing_of("abc");
        assert_eq!(nothing.encode(), [&[KIND, 1, 0, 3][..], b"abc", &[0; 11]].concat());
        assert_eq!(Mirrored::decode(&nothing.encode()), Ok(nothing));
    }

    #[test]
    fn other_bodies_are_refused_with_the_reason() {
        let other = Err(MirrorError::Form(DecodeError::Range("kind of a mirror")));
        assert_eq!(Mirrored::decode(&[4, 5, 0]), other);
        assert_eq!(Mirrored::decode(&[KIND, 2]), Err(MirrorError::Newer(2)));
        let whole = sample().encode();
        for len in 0..whole.len() {
            assert!(Mirrored::decode(&whole[..len]).is_err(), "{len} bytes");
        }
        assert!(Mirrored::decode(&[&whole[..], &[0]].concat()).is_err());
        assert!(Mirrored::decode(&[KIND, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 7, 0, 0]).is_err(), "a root needs a tail");
    }

    #[test]
    fn a_sweep_leaves_what_later_owners_have_written() {
        let simulated = SimulatedBucket::new(1, 0, 0, 0);
        let mirror = Mirror::new(Bucket::simulated(&simulated, BucketOptions::default(), 1), "main", 1);
        let put = |object| mirror.objects().create(object).unwrap().finish().unwrap();
        // Ids begin with the epoch of the owner that has taken them.
        let (left, named, last, later) =
            (ObjectId(1 << 32 | 9), ObjectId(2 << 32), ObjectId(2 << 32 | 7), ObjectId(3 << 32));
        [left, named, later].into_iter().for_each(|object| assert_eq!(put(object), 0));
        assert_eq!(mirror.sweep(&[named], last), Ok(1));
        assert_eq!(mirror.objects().list().unwrap(), [named, later]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(data: Vec<u8>) {
            fuzz_mirror(&data);
        }
    }
}

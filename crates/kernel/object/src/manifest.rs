//! A root in one object, replaced on the condition that it still has the version that was read.
//!
//! An object store names versions by a hash of their content, so two equal bodies would be one version (the condition
//! would have an ABA hole). Every body has a version that grows and its writer's nonce: no two are equal.

use crate::bucket::{Bucket, Got, PutOver};
use crate::error::BucketError;
use bytes::Bytes;
use object_store::UpdateVersion;
use parking_lot::Mutex;
use thalweg_manifest::{Frame, Manifest, ManifestError, Root, grown, next_version};

/// The root of a unit, in the object `m/<unit>` of a bucket.
pub struct ObjectManifest {
    bucket: Bucket,
    key: String,
    /// Held during a commit: this owner has one under way at a time.
    writer: Mutex<Writer>,
    /// 0 is a planted fault: all bodies have one nonce.
    nonce_step: u64,
}

struct Writer {
    /// The nonce of the next body that is written.
    nonce: u64,
    /// The root that this owner wrote last, and the object's version.
    known: Option<(Frame, UpdateVersion)>,
    /// The root of a commit whose outcome is unknown. It may still arrive.
    in_doubt: Option<Frame>,
}

impl ObjectManifest {
    /// The root of `unit`. The first body that is written carries `nonce`, and each later one the number after; two
    /// owners must start far apart, at random.
    #[must_use]
    pub fn new(bucket: Bucket, unit: &str, nonce: u64) -> Self {
        let writer = Mutex::new(Writer { nonce, known: None, in_doubt: None });
        Self { bucket, key: format!("m/{unit}"), writer, nonce_step: 1 }
    }

    /// A planted fault: all bodies have the same nonce.
    #[cfg(feature = "faults")]
    #[must_use]
    pub fn without_nonces(bucket: Bucket, unit: &str) -> Self {
        Self { nonce_step: 0, ..Self::new(bucket, unit, 0) }
    }

    fn find(&self) -> Result<Option<(Frame, UpdateVersion)>, ManifestError> {
        let (bucket, key) = (self.bucket.clone(), self.key.clone());
        let found = self.bucket.run(async move { bucket.get(&key).await }).wait();
        decoded(found.map_err(|error| failed("reading", &error))?)
    }

    /// Replaces the object of version `before`. Returns what stands there instead if it has another version.
    fn put(
        &self,
        writer: &mut Writer,
        before: Option<UpdateVersion>,
        (version, epoch, body): (u64, u64, Bytes),
    ) -> Result<Result<Root, Option<(Frame, UpdateVersion)>>, ManifestError> {
        let frame = Frame { version, epoch, nonce: writer.nonce, body };
        writer.nonce = writer.nonce.wrapping_add(self.nonce_step);
        // After an error the outcome is unknown: the next commit reads first.
        writer.known = None;
        let (bucket, key, bytes) = (self.bucket.clone(), self.key.clone(), Bytes::from(frame.encode()));
        match self.bucket.run(async move { bucket.put_over(&key, before, bytes, None).await }).wait() {
            Ok(PutOver::Written(version)) => {
                let root = frame.root();
                (writer.known, writer.in_doubt) = (Some((frame, version)), None);
                Ok(Ok(root))
            }
            Ok(PutOver::Changed(found)) => match decoded(found) {
                Ok(found) => Ok(Err(found)),
                // What stands there may have been made from this frame, by a later version of the program.
                Err(error) => {
                    writer.in_doubt = Some(frame);
                    Err(ManifestError::Io { operation: "reading what replaced", cause: error.to_string() })
                }
            },
            Err(error) => {
                writer.in_doubt = Some(frame);
                Err(failed("writing", &error))
            }
        }
    }
}

fn decoded(found: Option<Got>) -> Result<Option<(Frame, UpdateVersion)>, ManifestError> {
    found.map(|found| Ok((Frame::decode(&found.bytes)?, found.version))).transpose()
}

fn failed(operation: &'static str, error: &BucketError) -> ManifestError {
    ManifestError::Io { operation, cause: error.to_string() }
}

impl Manifest for ObjectManifest {
    fn read(&self) -> Result<Option<Root>, ManifestError> {
        Ok(self.find()?.map(|(frame, _)| frame.root()))
    }

    fn load(&self) -> Result<Option<Root>, ManifestError> {
        let mut writer = self.writer.lock();
        loop {
            let found = self.find()?;
            let (Some(doubtful), Some((frame, before))) = (&writer.in_doubt, &found) else {
                return Ok(found.map(|(frame, _)| frame.root()));
            };
            if frame.epoch != doubtful.epoch || frame == doubtful {
                writer.in_doubt = None;
                return Ok(found.map(|(frame, _)| frame.root()));
            }
            // The commit may still be on its way. The root that stands is written again, as another version of the
            // object: the commit finds its condition broken.
            let same = (frame.version, frame.epoch, frame.body.clone());
            let (doubtful, before) = (doubtful.clone(), before.clone());
            match self.put(&mut writer, Some(before), same) {
                Ok(Ok(root)) => return Ok(Some(root)),
                Ok(Err(_)) => writer.in_doubt = Some(doubtful),
                Err(error) => {
                    writer.in_doubt = Some(doubtful);
                    return Err(error);
                }
            }
        }
    }

    fn acquire(&self, above: u64) -> Result<Root, ManifestError> {
        let mut writer = self.writer.lock();
        let mut found = self.find()?;
        loop {
            let (version, epoch, body, before) = match found {
                Some((frame, before)) => (frame.version, frame.epoch, frame.body, Some(before)),
                None => (0, 0, Bytes::new(), None),
            };
            let next = (grown(version)?, grown(epoch.max(above))?, body);
            match self.put(&mut writer, before, next)? {
                Ok(root) => return Ok(root),
                // Others commit or acquire at the same time: one of them has got on.
                Err(other) => found = other,
            }
        }
    }

    fn commit(&self, epoch: u64, expected: u64, body: &[u8]) -> Result<u64, ManifestError> {
        let mut writer = self.writer.lock();
        let known = writer.known.take().filter(|(frame, _)| (frame.epoch, frame.version) == (epoch, expected));
        let found = match known {
            Some(known) => Some(known),
            None => self.find()?,
        };
        let version = next_version(epoch, expected, found.as_ref().map(|(frame, _)| (frame.version, frame.epoch)))?;
        let next = (version, epoch, Bytes::copy_from_slice(body));
        match self.put(&mut writer, found.map(|(_, before)| before), next)? {
            Ok(root) => Ok(root.version),
            Err(other) => {
                let found = other.as_ref().map(|(frame, _)| (frame.version, frame.epoch));
                next_version(epoch, expected, found)?;
                // The root is the expected one, in an object that was written again: it was set back.
                let cause = "the object was replaced by an older one".to_owned();
                Err(ManifestError::Io { operation: "replacing", cause })
            }
        }
    }
}

//! Immutable objects of a unit, one object of the bucket each.
//!
//! Small objects are one request. Larger ones are sent in parts while they are written, a few at a time, and exist from
//! the request that completes them. An object's id holds the epoch of its maker, so two owners never write the same.

use crate::bucket::{Bucket, Part, PutNew};
use crate::error::BucketError;
use bytes::{Bytes, BytesMut};
use object_store::{MultipartUpload, PutPayload};
use parking_lot::Mutex;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use thalweg_base::{ObjectId, Ticket};
use thalweg_storage::{ObjectWriter, Storage, StorageError, check_range};

/// Parts of one object that are on their way at the same time.
const PARTS_AT_ONCE: usize = 4;

/// The objects `d/<unit>/<id, 16 hexadecimal digits>` of a bucket.
pub struct ObjectStorage {
    bucket: Bucket,
    folder: String,
    /// Objects that are being written here.
    unfinished: Arc<Mutex<BTreeSet<ObjectId>>>,
}

impl ObjectStorage {
    /// The objects of `unit`.
    #[must_use]
    pub fn new(bucket: Bucket, unit: &str) -> Self {
        Self { bucket, folder: format!("d/{unit}/"), unfinished: Arc::default() }
    }

    fn key(&self, object: ObjectId) -> String {
        format!("{}{:016x}", self.folder, object.0)
    }

    /// Every finished object, in order of id, with its length in bytes.
    pub fn list_with_bytes(&self) -> Result<Vec<(ObjectId, u64)>, StorageError> {
        let (bucket, folder) = (self.bucket.clone(), self.folder.clone());
        let listed = self.bucket.run(async move { bucket.list(&folder).await }).wait();
        let listed = listed.map_err(|error| StorageError::Folder { operation: "listing", cause: error.to_string() })?;
        let objects = listed.into_iter().filter(|listed| listed.key.len() == 16);
        let mut objects: Vec<(ObjectId, u64)> = objects
            .filter_map(|listed| Some((ObjectId(u64::from_str_radix(&listed.key, 16).ok()?), listed.bytes)))
            .collect();
        objects.sort_unstable();
        Ok(objects)
    }
}

fn failed(object: ObjectId, operation: &'static str) -> impl FnOnce(BucketError) -> StorageError {
    move |error| StorageError::Io { object, operation, cause: error.to_string() }
}

impl Storage for ObjectStorage {
    fn create(&self, object: ObjectId) -> Result<Box<dyn ObjectWriter>, StorageError> {
        if !self.unfinished.lock().insert(object) {
            return Err(StorageError::Exists(object));
        }
        // From here on the writer takes the object out of the set.
        let writer = Box::new(Writer {
            bucket: self.bucket.clone(),
            object,
            key: self.key(object),
            filling: BytesMut::new(),
            written: 0,
            parts: None,
            unfinished: Arc::clone(&self.unfinished),
        });
        let (bucket, key) = (self.bucket.clone(), self.key(object));
        let len = self.bucket.run(async move { bucket.len(&key).await }).wait();
        match len.map_err(failed(object, "creation"))? {
            None => Ok(writer),
            Some(_) => Err(StorageError::Exists(object)),
        }
    }

    fn try_read(&self, _: ObjectId, _: Range<u64>) -> Option<Result<Bytes, StorageError>> {
        None
    }

    fn read(&self, object: ObjectId, range: Range<u64>) -> Ticket<Result<Bytes, StorageError>> {
        let (bucket, key) = (self.bucket.clone(), self.key(object));
        self.bucket.run(async move {
            // No store gives an empty range.
            let part = if range.is_empty() {
                match bucket.len(&key).await.map_err(failed(object, "reading"))? {
                    None => Part::Missing,
                    Some(len) if range.start <= range.end && range.end <= len => Part::Bytes(Bytes::new()),
                    Some(len) => Part::Outside(len),
                }
            } else {
                bucket.get_range(&key, range.clone()).await.map_err(failed(object, "reading"))?
            };
            match part {
                Part::Bytes(bytes) => Ok(bytes),
                Part::Missing => Err(StorageError::Missing(object)),
                Part::Outside(len) => check_range(object, &range, len).map(|()| Bytes::new()),
            }
        })
    }

    fn len(&self, object: ObjectId) -> Result<u64, StorageError> {
        let (bucket, key) = (self.bucket.clone(), self.key(object));
        let len = self.bucket.run(async move { bucket.len(&key).await }).wait();
        len.map_err(failed(object, "measuring"))?.ok_or(StorageError::Missing(object))
    }

    fn remove(&self, object: ObjectId) -> Result<(), StorageError> {
        let (bucket, key) = (self.bucket.clone(), self.key(object));
        let removed = self.bucket.run(async move { bucket.delete(vec![key]).await }).wait();
        removed.map_err(failed(object, "removal"))
    }

    fn list(&self) -> Result<Vec<ObjectId>, StorageError> {
        Ok(self.list_with_bytes()?.into_iter().map(|(object, _)| object).collect())
    }
}

/// An object that is being written.
struct Writer {
    bucket: Bucket,
    object: ObjectId,
    key: String,
    /// Bytes that are not sent yet: fewer than one part.
    filling: BytesMut,
    written: u64,
    /// Set from the first part on.
    parts: Option<Parts>,
    /// [`ObjectStorage::unfinished`].
    unfinished: Arc<Mutex<BTreeSet<ObjectId>>>,
}

struct Parts {
    upload: Box<dyn MultipartUpload>,
    sent: VecDeque<Ticket<Result<(), BucketError>>>,
}

impl Parts {
    /// Waits until at most `left` parts are on their way.
    fn wait(&mut self, left: usize) -> Result<(), BucketError> {
        while self.sent.len() > left
            && let Some(oldest) = self.sent.pop_front()
        {
            oldest.wait()?;
        }
        Ok(())
    }
}

impl Writer {
    /// Sends what is filled as one part.
    fn send_part(&mut self) -> Result<(), BucketError> {
        let (bucket, key) = (self.bucket.clone(), self.key.clone());
        let parts = match &mut self.parts {
            Some(parts) => parts,
            none => {
                let upload = self.bucket.run(async move { bucket.begin_parts(&key).await }).wait()?;
                none.insert(Parts { upload, sent: VecDeque::new() })
            }
        };
        parts.wait(PARTS_AT_ONCE - 1)?;
        let bytes = self.filling.split().freeze();
        let len = bytes.len();
        let request = parts.upload.put_part(PutPayload::from(bytes));
        let (bucket, key) = (self.bucket.clone(), self.key.clone());
        parts.sent.push_back(self.bucket.run(async move { bucket.send_part(&key, len, request).await }));
        Ok(())
    }

    fn finish(&mut self) -> Result<(), StorageError> {
        let object = self.object;
        let (bucket, key) = (self.bucket.clone(), self.key.clone());
        if self.parts.is_none() {
            let bytes = self.filling.split().freeze();
            let put = self.bucket.run(async move { bucket.put_new(&key, bytes).await }).wait();
            return match put.map_err(failed(object, "writing"))? {
                PutNew::Written => Ok(()),
                PutNew::Taken(_) => Err(StorageError::Exists(object)),
            };
        }
        if !self.filling.is_empty() {
            self.send_part().map_err(failed(object, "writing"))?;
        }
        let Some(parts) = &mut self.parts else { return Ok(()) };
        parts.wait(0).map_err(failed(object, "writing"))?;
        let Some(Parts { mut upload, .. }) = self.parts.take() else { return Ok(()) };
        let expected = self.written;
        let done = self.bucket.run(async move {
            let Err(error) = bucket.send_part(&key, 0, upload.complete()).await else { return Ok(()) };
            // The answer may have been lost: the object is there, whole, or it is not.
            if bucket.len(&key).await? == Some(expected) {
                return Ok(());
            }
            drop(upload.abort().await);
            Err(error)
        });
        done.wait().map_err(failed(object, "completion"))
    }
}

impl ObjectWriter for Writer {
    fn write(&mut self, mut bytes: &[u8]) -> Result<(), StorageError> {
        let part_bytes = self.bucket.part_bytes();
        self.written += bytes.len() as u64;
        while self.filling.len() + bytes.len() > part_bytes {
            let (head, tail) = bytes.split_at(part_bytes - self.filling.len());
            self.filling.extend_from_slice(head);
            self.send_part().map_err(failed(self.object, "writing"))?;
            bytes = tail;
        }
        self.filling.extend_from_slice(bytes);
        Ok(())
    }

    fn written(&self) -> u64 {
        self.written
    }

    fn finish(mut self: Box<Self>) -> Result<u64, StorageError> {
        Writer::finish(&mut self)?;
        Ok(self.written)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.unfinished.lock().remove(&self.object);
        // Parts of an object that is not completed cost until they are given up. The bucket's own rules do it should
        // this request be lost.
        if let Some(Parts { mut upload, .. }) = self.parts.take() {
            self.bucket.start(async move { drop(upload.abort().await) });
        }
    }
}

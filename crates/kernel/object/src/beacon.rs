//! Objects by which processes show that they live.
//!
//! A process writes its object again and again. Another one that has seen it unchanged for long *retires* it: replaces it,
//! on the condition that it is unchanged, and then removes it. A removal knows no conditions and may arrive late, so the
//! process never writes an object again that was retired: a beacon under another key takes its place. A removal that
//! arrives late removes nothing that counts.

use crate::bucket::{Bucket, PutOver};
use crate::error::BucketError;
use bytes::Bytes;
use object_store::UpdateVersion;
use parking_lot::Mutex;

/// What a beacon says that was retired.
const RETIRED: &[u8] = b"retired";

/// The longest text. Of a longer one only the beginning is read: somebody else has written it.
const TEXT_BYTES_MAX: u64 = 64 << 10;

/// An object that a process writes again and again, to show that it lives.
pub struct Beacon {
    bucket: Bucket,
    key: String,
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    /// The version that was written, or found.
    version: Option<UpdateVersion>,
    /// The object may have been written.
    is_begun: bool,
}

/// A beacon as others see it: two that differ were written at different times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What the process says of itself.
    pub text: Bytes,
    version: UpdateVersion,
}

impl Seen {
    /// It is about to be removed, and its process writes it no more.
    #[must_use]
    pub fn is_retired(&self) -> bool {
        self.text == RETIRED
    }
}

/// What became of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// The bucket has it.
    Written,
    /// Another process has retired or removed the object: the beacon must not be shown under its key any more.
    Retired,
}

impl Beacon {
    /// The beacon under this key.
    #[must_use]
    pub fn new(bucket: Bucket, key: &str) -> Self {
        Self { bucket, key: key.to_owned(), last: Mutex::default() }
    }

    /// The beacon as it is now.
    pub fn look(&self) -> Result<Option<Seen>, BucketError> {
        let (bucket, key) = (self.bucket.clone(), self.key.clone());
        let found = self.bucket.run(async move { bucket.get_up_to(&key, TEXT_BYTES_MAX).await }).wait()?;
        Ok(found.map(|found| Seen { text: found.bytes, version: found.version }))
    }

    fn replace(&self, by: &Bucket, before: Option<UpdateVersion>, text: Bytes) -> Result<PutOver, BucketError> {
        let (bucket, key) = (by.clone(), self.key.clone());
        by.run(async move { bucket.put_over(&key, before, text, Some(TEXT_BYTES_MAX)).await }).wait()
    }

    /// Writes the beacon. `text` must differ from every text that any process has written. The text of another process
    /// is overwritten.
    pub fn show(&self, text: &Bytes) -> Result<Shown, BucketError> {
        self.show_by(&self.bucket, text)
    }

    /// The same, by requests of `bucket`, which has other limits of time.
    pub fn show_by(&self, bucket: &Bucket, text: &Bytes) -> Result<Shown, BucketError> {
        let mut last = self.last.lock();
        loop {
            let before = match last.version.take() {
                None if last.is_begun => match self.look()? {
                    Some(seen) if !seen.is_retired() => Some(seen.version),
                    _ => return Ok(Shown::Retired),
                },
                before => before,
            };
            last.is_begun = true;
            if let PutOver::Written(version) = self.replace(bucket, before, text.clone())? {
                last.version = Some(version);
                return Ok(Shown::Written);
            }
        }
    }

    /// Removes the beacon of a process that was silent for long, if it has not changed since it was `seen`. Returns
    /// whether it is gone.
    pub fn retire(&self, seen: &Seen) -> Result<bool, BucketError> {
        let is_retired = seen.is_retired()
            || match self.replace(&self.bucket, Some(seen.version.clone()), Bytes::from_static(RETIRED))? {
                PutOver::Written(_) => true,
                PutOver::Changed(found) => found.is_none_or(|found| found.bytes == RETIRED),
            };
        if is_retired {
            self.bucket.remove(&self.key)?;
        }
        Ok(is_retired)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BucketOptions, SimulatedBucket};

    fn bucket() -> Bucket {
        Bucket::simulated(&SimulatedBucket::new(1, 0, 0, 0), BucketOptions::default(), 1)
    }

    fn show(beacon: &Beacon, text: &'static str) -> Shown {
        beacon.show(&Bytes::from_static(text.as_bytes())).unwrap()
    }

    #[test]
    fn a_beacon_of_another_process_is_overwritten() {
        let bucket = bucket();
        let (one, two) = (Beacon::new(bucket.clone(), "b"), Beacon::new(bucket.clone(), "b"));
        assert_eq!(
            (show(&one, "1"), show(&two, "2"), show(&one, "3")),
            (Shown::Written, Shown::Written, Shown::Written)
        );
        assert_eq!(two.look().unwrap().unwrap().text, "3");
    }

    #[test]
    fn a_beacon_that_has_changed_is_not_retired() {
        let bucket = bucket();
        let (own, others) = (Beacon::new(bucket.clone(), "b"), Beacon::new(bucket.clone(), "b"));
        show(&own, "1");
        let seen = others.look().unwrap().unwrap();
        show(&own, "2");
        assert!(!others.retire(&seen).unwrap());
        assert_eq!(show(&own, "3"), Shown::Written);
    }

    #[test]
    fn a_retired_beacon_is_not_written_again() {
        let bucket = bucket();
        let (own, others) = (Beacon::new(bucket.clone(), "b"), Beacon::new(bucket.clone(), "b"));
        show(&own, "1");
        let seen = others.look().unwrap().unwrap();
        // The retiring process dies between its two requests, and another one goes on.
        assert!(matches!(
            others.replace(&bucket, Some(seen.version), Bytes::from_static(RETIRED)),
            Ok(PutOver::Written(_))
        ));
        assert_eq!(show(&own, "2"), Shown::Retired);
        assert!(others.retire(&others.look().unwrap().unwrap()).unwrap());
        assert_eq!((show(&own, "3"), others.look().unwrap()), (Shown::Retired, None));
    }
}

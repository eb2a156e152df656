//! Requests to a bucket: each is repeated until it is answered or its deadline has passed, and counted.
//!
//! A write whose answer did not come may have been made, or may be made later. So every write here is conditional, and
//! the bytes of two writers always differ: whether a write was made is read back and compared.

use crate::counts::{Counts, Kind, RequestStats};
use crate::error::{BucketError, LocationError};
use crate::location::Location;
#[cfg(feature = "testing")]
use crate::simulated::SimulatedBucket;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetRange, GetResult, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload,
    UpdateVersion,
};
use parking_lot::Mutex;
use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use thalweg_base::Ticket;
use tokio::runtime::Runtime;
use tokio::time::Instant;

/// The first pause between two attempts; each later one is twice as long, up to [`BucketOptions::pause_max`].
const PAUSE: Duration = Duration::from_millis(50);

/// How requests are made.
#[derive(Clone, Copy, Debug)]
pub struct BucketOptions {
    /// A request fails when this has passed since its first attempt.
    pub deadline: Duration,
    /// An attempt fails when this has passed.
    pub timeout: Duration,
    /// The longest pause between two attempts.
    pub pause_max: Duration,
    /// Objects above this many bytes are written in parts of it. At least 5 MiB for S3.
    pub part_bytes: usize,
    /// Threads that send requests.
    pub threads: usize,
}

impl Default for BucketOptions {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(30),
            timeout: Duration::from_secs(10),
            pause_max: Duration::from_secs(2),
            part_bytes: 8 << 20,
            threads: 2,
        }
    }
}

/// A bucket, and a prefix in it. Clones share the client, its threads and its counts.
#[derive(Clone)]
pub struct Bucket {
    shared: Arc<Shared>,
    /// How long a request is repeated.
    deadline: Duration,
    /// How long an attempt may take, if that is less than what the client waits.
    timeout: Option<Duration>,
}

struct Shared {
    name: String,
    prefix: Path,
    store: Arc<dyn ObjectStore>,
    options: BucketOptions,
    counts: Counts,
    jitter: Mutex<oorandom::Rand64>,
    /// From then on nothing is repeated.
    end: OnceLock<Instant>,
    runs: Runs,
}

/// How the futures of requests are run.
enum Runs {
    /// On threads. `None` after the end.
    Threads(Option<Runtime>),
    /// Whenever a simulation takes a turn.
    #[cfg(feature = "testing")]
    Turns(Runtime, SimulatedBucket),
    /// Whenever a thread of a simulated process waits for them, or lets its time pass.
    #[cfg(feature = "testing")]
    Process(crate::simulated::Process),
}

impl Drop for Runs {
    fn drop(&mut self) {
        // The last clone may be dropped on one of the threads, which must not wait for itself.
        match self {
            Self::Threads(runtime) => runtime.take().into_iter().for_each(Runtime::shutdown_background),
            #[cfg(feature = "testing")]
            Self::Turns(..) | Self::Process(_) => {}
        }
    }
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shared.name)
    }
}

/// An object that was read, and the version to replace it by.
#[derive(Clone, Debug)]
pub(crate) struct Got {
    pub(crate) bytes: Bytes,
    pub(crate) version: UpdateVersion,
}

/// The outcome of writing an object that must not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PutNew {
    /// The object is there, with the bytes that were sent.
    Written,
    /// An object with other bytes is there.
    Taken(Bytes),
}

/// The outcome of replacing an object.
#[derive(Clone, Debug)]
pub(crate) enum PutOver {
    /// The object has the bytes that were sent; its version.
    Written(UpdateVersion),
    /// The object has another version, or is missing.
    Changed(Option<Got>),
}

/// The outcome of reading a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Bytes(Bytes),
    Missing,
    /// The range is not within the object, which has this many bytes.
    Outside(u64),
}

/// An object of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The key behind the prefix that was listed.
    pub key: String,
    /// When it was written, by the bucket's clock, in milliseconds since 1970.
    pub modified_ms: i64,
    /// Its length.
    pub bytes: u64,
}

/// What a part of a prefix takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Objects of the bucket.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Bucket {
    /// A client of the bucket at `location`. Sends nothing yet.
    pub fn open(location: &Location, options: BucketOptions) -> Result<Self, LocationError> {
        let store = location.client(options.timeout)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(options.threads.max(1))
            .thread_name("bucket")
            .enable_all()
            .build()
            .map_err(|error| LocationError::Settings { location: location.to_string(), cause: error.to_string() })?;
        let runs = Runs::Threads(Some(runtime));
        Ok(Self::new(location.to_string(), location.prefix(), store, options, runs, rand_seed()))
    }

    /// A bucket of a simulation. What it is asked is done when the simulation takes a turn; what must be waited for
    /// takes turns itself.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn simulated(bucket: &SimulatedBucket, options: BucketOptions, seed: u64) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.unwrap_or_else(|error| panic!("a runtime for turns: {error}"));
        let runs = Runs::Turns(runtime, bucket.clone());
        Self::new("simulated".into(), Path::default(), Arc::new(bucket.clone()), options, runs, seed)
    }

    /// The bucket as one of several simulated processes has it. A thread of the process that waits for it calls
    /// `give_way`, which lets others run and returns how much of the process's time is to pass.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn of_process(
        bucket: &SimulatedBucket,
        options: BucketOptions,
        seed: u64,
        give_way: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Self {
        let runs = Runs::Process(crate::simulated::Process::new(give_way));
        Self::new("simulated".into(), Path::default(), Arc::new(bucket.clone()), options, runs, seed)
    }

    /// Lets so much time of the simulated process pass, and everything go on that can.
    #[cfg(feature = "testing")]
    pub fn pass(&self, time: Duration) {
        if let Runs::Process(process) = &self.shared.runs {
            process.pass(time);
        }
    }

    /// Ends the simulated process: nothing that it has asked for goes on. What is on its way still arrives.
    #[cfg(feature = "testing")]
    pub fn end_process(&self) {
        if let Runs::Process(process) = &self.shared.runs {
            process.end();
        }
    }

    fn new(
        name: String,
        prefix: Path,
        store: Arc<dyn ObjectStore>,
        options: BucketOptions,
        runs: Runs,
        seed: u64,
    ) -> Self {
        let jitter = Mutex::new(oorandom::Rand64::new(u128::from(seed)));
        let counts = Counts::default();
        let shared = Shared { name, prefix, store, options, counts, jitter, end: OnceLock::new(), runs };
        Self { shared: Arc::new(shared), deadline: options.deadline, timeout: None }
    }

    /// The bucket for small objects that are of use for a short time only: an attempt fails when `timeout` has passed,
    /// and a request when `deadline` has.
    #[must_use]
    pub fn hurried(&self, timeout: Duration, deadline: Duration) -> Self {
        Self { deadline, timeout: Some(timeout), ..self.clone() }
    }

    /// Whether the bucket exists and can be listed: a location or credentials that are wrong show here.
    pub fn check(&self) -> Result<(), BucketError> {
        let bucket = self.clone();
        let mut question = self.shared.store.list(Some(&self.shared.prefix));
        self.run(async move {
            let mut pace = bucket.pace("listing", "");
            loop {
                match bucket.send(Kind::List, async { question.next().await.transpose() }).await {
                    Ok(_) => return Ok(()),
                    Err(error) if matches!(error, Error::NotFound { .. }) || status(&error) == Some(404) => {
                        return Err(BucketError::NoBucket { bucket: bucket.shared.name.clone() });
                    }
                    Err(error) => pace.again(error).await?,
                }
                question = bucket.shared.store.list(Some(&bucket.shared.prefix));
            }
        })
        .wait()
    }

    /// Writes the object of a key if there is none; returns the bytes that the key has for good. A key that is written
    /// in this way only has one value for everybody.
    pub fn settle_once(&self, key: &str, bytes: Bytes) -> Result<Bytes, BucketError> {
        let (bucket, key) = (self.clone(), key.to_owned());
        self.run(async move {
            if let Some(found) = bucket.get(&key).await? {
                return Ok(found.bytes);
            }
            match bucket.put_new(&key, bytes.clone()).await? {
                PutNew::Written => Ok(bytes),
                PutNew::Taken(found) => Ok(found),
            }
        })
        .wait()
    }

    /// The objects below a prefix of the location, or all of them (`""`), in order of keys; each key without the prefix.
    pub fn objects(&self, prefix: &str) -> Result<Vec<Listed>, BucketError> {
        let (bucket, prefix) = (self.clone(), prefix.to_owned());
        self.run(async move { bucket.list(&prefix).await }).wait()
    }

    /// Removes the object of a key, if there is one.
    pub fn remove(&self, key: &str) -> Result<(), BucketError> {
        let (bucket, key) = (self.clone(), key.to_owned());
        self.run(async move { bucket.delete(vec![key]).await }).wait()
    }

    /// The bytes of a key, if it has an object.
    pub fn read(&self, key: &str) -> Result<Option<Bytes>, BucketError> {
        let (bucket, key) = (self.clone(), key.to_owned());
        Ok(self.run(async move { bucket.get(&key).await }).wait()?.map(|found| found.bytes))
    }

    /// What was sent, of one kind.
    #[must_use]
    pub fn stats(&self, kind: Kind) -> RequestStats {
        self.shared.counts.stats(kind)
    }

    /// Repeats no request any more when this has passed, whatever its deadline is: the process is about to stop.
    pub fn end_within(&self, time: Duration) {
        self.shared.end.get_or_init(|| Instant::now() + time);
    }

    /// Objects above this many bytes are written in parts of it.
    pub(crate) fn part_bytes(&self) -> usize {
        self.shared.options.part_bytes
    }

    /// How long a request is repeated.
    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Does the work of `future` on the bucket's threads.
    pub(crate) fn run<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> Ticket<T> {
        match &self.shared.runs {
            #[cfg(feature = "testing")]
            Runs::Turns(runtime, bucket) => Ticket::ready(runtime.block_on(bucket.while_delivering(future))),
            #[cfg(feature = "testing")]
            Runs::Process(process) => Ticket::ready(process.wait_for(future)),
            Runs::Threads(_) => {
                let (ticket, answer) = Ticket::pending();
                self.start(async move { answer.complete(future.await) });
                ticket
            }
        }
    }

    /// Does the work of `future`, and lets nobody wait for it.
    pub(crate) fn start(&self, future: impl Future<Output = ()> + Send + 'static) {
        match &self.shared.runs {
            #[cfg(feature = "testing")]
            Runs::Turns(runtime, _) => drop(runtime.spawn(future)),
            #[cfg(feature = "testing")]
            Runs::Process(process) => process.start(future),
            Runs::Threads(Some(runtime)) => drop(runtime.spawn(future)),
            Runs::Threads(None) => {}
        }
    }

    /// Delivers one request, or its answer; whether there was one.
    #[cfg(feature = "testing")]
    pub fn turn(&self) -> bool {
        match &self.shared.runs {
            Runs::Turns(runtime, bucket) => runtime.block_on(bucket.turn()),
            Runs::Threads(_) | Runs::Process(_) => false,
        }
    }

    /// Lets everything that was answered go on. `is_idle`: nobody waits for the bucket, and time passes.
    #[cfg(feature = "testing")]
    pub fn go_on(&self, is_idle: bool) {
        if let Runs::Turns(runtime, bucket) = &self.shared.runs {
            runtime.block_on(bucket.go_on(is_idle));
        }
    }

    fn path(&self, key: &str) -> Path {
        if self.shared.prefix.as_ref().is_empty() {
            Path::from(key)
        } else {
            Path::from(format!("{}/{key}", self.shared.prefix))
        }
    }

    fn pace(&self, operation: &'static str, key: &str) -> Pace<'_> {
        let deadline = self.deadline;
        Pace { bucket: &self.shared, operation, key: key.to_owned(), deadline, began: Instant::now(), pause: PAUSE }
    }

    /// One attempt.
    async fn send<T>(
        &self,
        kind: Kind,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> object_store::Result<T> {
        let began = Instant::now();
        let answer = match self.timeout {
            None => request.await,
            Some(timeout) => tokio::time::timeout(timeout, request).await.unwrap_or_else(|_| {
                let cause = format!("there was no answer within {} ms", timeout.as_millis());
                Err(Error::Generic { store: "bucket", source: cause.into() })
            }),
        };
        let failed = matches!(&answer, Err(error) if !is_answer(error));
        self.shared.counts.sent(kind, began.elapsed(), failed);
        answer
    }

    async fn get_with(&self, key: &str, options: GetOptions) -> object_store::Result<(Bytes, GetHead)> {
        let request = async {
            let found = self.shared.store.get_opts(&self.path(key), options).await?;
            let head = GetHead::of(&found);
            Ok((found.bytes().await?, head))
        };
        let (bytes, head) = self.send(Kind::Get, request).await?;
        self.shared.counts.carried(Kind::Get, bytes.len() as u64);
        Ok((bytes, head))
    }

    /// The object of a key, if there is one.
    pub(crate) async fn get(&self, key: &str) -> Result<Option<Got>, BucketError> {
        let mut pace = self.pace("reading", key);
        loop {
            match self.get_with(key, GetOptions::default()).await {
                Ok((bytes, head)) => return Ok(Some(Got { bytes, version: head.version })),
                Err(Error::NotFound { .. }) => return Ok(None),
                Err(error) => pace.again(error).await?,
            }
        }
    }

    /// The first `max` bytes of an object, or all of a shorter one.
    pub(crate) async fn get_up_to(&self, key: &str, max: u64) -> Result<Option<Got>, BucketError> {
        let mut pace = self.pace("reading", key);
        loop {
            let options = GetOptions { range: Some(GetRange::Bounded(0..max)), ..GetOptions::default() };
            match self.get_with(key, options).await {
                Ok((bytes, head)) => return Ok(Some(Got { bytes, version: head.version })),
                Err(Error::NotFound { .. }) => return Ok(None),
                // Nothing has no first byte, and stores refuse that range in their own ways.
                Err(_) if self.len(key).await? == Some(0) => return self.get(key).await,
                Err(error) => pace.again(error).await?,
            }
        }
    }

    /// A range of an object that is not empty.
    pub(crate) async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Part, BucketError> {
        let mut pace = self.pace("reading", key);
        let mut is_within = false;
        loop {
            let options = GetOptions { range: Some(GetRange::Bounded(range.clone())), ..GetOptions::default() };
            match self.get_with(key, options).await {
                // A store gives what there is of a range that begins within the object.
                Ok((_, head)) if range.end > head.size => return Ok(Part::Outside(head.size)),
                Ok((bytes, _)) if bytes.len() as u64 == range.end - range.start => return Ok(Part::Bytes(bytes)),
                Ok((bytes, _)) => {
                    let cause = format!("{} bytes came of the range {range:?}", bytes.len());
                    pace.again(Error::Generic { store: "bucket", source: cause.into() }).await?;
                }
                Err(Error::NotFound { .. }) => return Ok(Part::Missing),
                // Stores refuse a range behind the end in their own ways.
                Err(_) if !is_within => match self.len(key).await? {
                    None => return Ok(Part::Missing),
                    Some(len) if range.end > len => return Ok(Part::Outside(len)),
                    Some(_) => is_within = true,
                },
                Err(error) => pace.again(error).await?,
            }
        }
    }

    /// The length of an object in bytes, if there is one.
    pub(crate) async fn len(&self, key: &str) -> Result<Option<u64>, BucketError> {
        let mut pace = self.pace("measuring", key);
        loop {
            let path = self.path(key);
            let options = GetOptions { head: true, ..GetOptions::default() };
            match self.send(Kind::Head, self.shared.store.get_opts(&path, options)).await {
                Ok(found) => return Ok(Some(found.meta.size)),
                Err(Error::NotFound { .. }) => return Ok(None),
                Err(error) => pace.again(error).await?,
            }
        }
    }

    async fn put(&self, key: &str, bytes: &Bytes, mode: PutMode) -> object_store::Result<UpdateVersion> {
        let path = self.path(key);
        let options = PutOptions { mode, ..PutOptions::default() };
        self.shared.counts.carried(Kind::Put, bytes.len() as u64);
        let written =
            self.send(Kind::Put, self.shared.store.put_opts(&path, PutPayload::from(bytes.clone()), options)).await?;
        Ok(written.into())
    }

    /// Writes an object whose key must be free. The bytes must be this writer's alone: an object with the same ones is
    /// taken for an earlier attempt.
    pub(crate) async fn put_new(&self, key: &str, bytes: Bytes) -> Result<PutNew, BucketError> {
        self.put_new_within(key, bytes, self.deadline).await
    }

    /// The same, with a deadline of its own.
    pub(crate) async fn put_new_within(
        &self,
        key: &str,
        bytes: Bytes,
        deadline: Duration,
    ) -> Result<PutNew, BucketError> {
        let mut pace = Pace { deadline, ..self.pace("writing", key) };
        loop {
            match self.put(key, &bytes, PutMode::Create).await {
                Ok(_) => return Ok(PutNew::Written),
                Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {
                    match self.get(key).await? {
                        Some(found) if found.bytes == bytes => return Ok(PutNew::Written),
                        Some(found) => return Ok(PutNew::Taken(found.bytes)),
                        // Two writers met, or the object was removed meanwhile.
                        None => pace.again(unsettled()).await?,
                    }
                }
                Err(error) => pace.again(error).await?,
            }
        }
    }

    /// Replaces the object of this version; `None`: the key must be free. The bytes must be this writer's alone. Of an object
    /// that is found in its place at most `found_max` bytes are read, if that is given.
    pub(crate) async fn put_over(
        &self,
        key: &str,
        before: Option<UpdateVersion>,
        bytes: Bytes,
        found_max: Option<u64>,
    ) -> Result<PutOver, BucketError> {
        let mut pace = self.pace("replacing", key);
        loop {
            let mode = before.clone().map_or(PutMode::Create, PutMode::Update);
            let error = match self.put(key, &bytes, mode).await {
                Ok(version) => return Ok(PutOver::Written(version)),
                Err(error) => error,
            };
            let is_refused =
                matches!(error, Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotFound { .. });
            if !is_refused {
                pace.again(error).await?;
                continue;
            }
            let found = match found_max {
                Some(max) => self.get_up_to(key, max).await?,
                None => self.get(key).await?,
            };
            match found {
                Some(found) if found.bytes == bytes => return Ok(PutOver::Written(found.version)),
                // Two writers met, and none of them was let through.
                found if found.as_ref().map(|found| &found.version) == before.as_ref() => {
                    pace.again(unsettled()).await?;
                }
                found => return Ok(PutOver::Changed(found)),
            }
        }
    }

    /// Begins an object in parts: see [`crate::storage`].
    pub(crate) async fn begin_parts(&self, key: &str) -> Result<Box<dyn object_store::MultipartUpload>, BucketError> {
        let mut pace = self.pace("writing", key);
        loop {
            let path = self.path(key);
            let begun = self.shared.store.put_multipart_opts(&path, PutMultipartOptions::default());
            match self.send(Kind::Put, begun).await {
                Ok(upload) => return Ok(upload),
                Err(error) => pace.again(error).await?,
            }
        }
    }

    /// Sends one part, or completes the object: once, because a part cannot be sent again by the same upload.
    pub(crate) async fn send_part<T>(
        &self,
        key: &str,
        bytes: usize,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, BucketError> {
        self.shared.counts.carried(Kind::Put, bytes as u64);
        let pace = self.pace("writing", key);
        self.send(Kind::Put, request).await.map_err(|error| pace.failed(&error))
    }

    /// Removes objects; those that are missing are no error.
    pub(crate) async fn delete(&self, keys: Vec<String>) -> Result<(), BucketError> {
        let Some(first) = keys.first() else { return Ok(()) };
        let mut pace = self.pace("removing", first);
        loop {
            let paths: Vec<_> = keys.iter().map(|key| Ok(self.path(key))).collect();
            let removed = self.shared.store.delete_stream(futures_util::stream::iter(paths).boxed());
            let done = removed.try_for_each(|_| std::future::ready(Ok(())));
            match self.send(Kind::Delete, done).await {
                Ok(()) => return Ok(()),
                Err(Error::NotFound { .. }) if keys.len() == 1 => return Ok(()),
                Err(Error::NotFound { .. }) => {
                    // Stores that tell of missing objects stop there.
                    for key in &keys {
                        Box::pin(self.delete(vec![key.clone()])).await?;
                    }
                    return Ok(());
                }
                Err(error) => pace.again(error).await?,
            }
        }
    }

    /// The objects whose keys begin with `prefix`, which ends with a slash, in order of their keys.
    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<Listed>, BucketError> {
        let mut pace = self.pace("listing", prefix);
        let prefix = prefix.trim_end_matches('/');
        let path = if prefix.is_empty() { self.shared.prefix.clone() } else { self.path(prefix) };
        let len = if path.as_ref().is_empty() { 0 } else { path.as_ref().len() + 1 };
        loop {
            let all = self.shared.store.list(Some(&path)).try_collect::<Vec<_>>();
            match self.send(Kind::List, all).await {
                Ok(found) => {
                    let listed = found.into_iter().filter_map(|meta| {
                        let key = meta.location.as_ref().get(len..)?.to_owned();
                        Some(Listed { key, modified_ms: meta.last_modified.timestamp_millis(), bytes: meta.size })
                    });
                    let mut listed: Vec<Listed> = listed.collect();
                    listed.sort_unstable_by(|a, b| a.key.cmp(&b.key));
                    return Ok(listed);
                }
                Err(error) => pace.again(error).await?,
            }
        }
    }
}

/// What a read tells beside the bytes.
struct GetHead {
    version: UpdateVersion,
    size: u64,
}

impl GetHead {
    fn of(found: &GetResult) -> Self {
        let version = UpdateVersion { e_tag: found.meta.e_tag.clone(), version: found.meta.version.clone() };
        Self { version, size: found.meta.size }
    }
}

/// Whether the store answered, although not with what was asked for.
fn is_answer(error: &Error) -> bool {
    matches!(error, Error::NotFound { .. } | Error::AlreadyExists { .. } | Error::Precondition { .. })
}

/// The status of a store's refusal. The client gives it in the text only, except for those that it has a kind for.
fn status(error: &Error) -> Option<u16> {
    let Error::Generic { source, .. } = error else { return None };
    source.to_string().split_once("status code: ")?.1.get(..3)?.parse().ok()
}

/// Whether the same request may be answered otherwise later.
fn is_transient(error: &Error) -> bool {
    match error {
        // Among 4xx: a request that took too long, a conflict with another writer, too many requests.
        Error::Generic { .. } => {
            !matches!(status(error), Some(400..500)) || matches!(status(error), Some(408 | 409 | 429))
        }
        error => matches!(error, Error::JoinError { .. }),
    }
}

/// A condition was refused, and nothing is there that would explain it: to be tried again.
fn unsettled() -> Error {
    Error::Generic { store: "bucket", source: "a condition was refused that holds: other writers were there".into() }
}

/// The attempts of one request.
struct Pace<'a> {
    bucket: &'a Shared,
    operation: &'static str,
    key: String,
    deadline: Duration,
    began: Instant,
    pause: Duration,
}

impl Pace<'_> {
    /// Waits before the next attempt, unless this was the last one.
    async fn again(&mut self, error: Error) -> Result<(), BucketError> {
        let is_ending = self.bucket.end.get().is_some_and(|end| Instant::now() + self.pause > *end);
        if !is_transient(&error) || is_ending || self.began.elapsed() + self.pause > self.deadline {
            return Err(self.failed(&error));
        }
        // Any time up to the pause, so that clients that failed together do not come back together.
        let part = self.bucket.jitter.lock().rand_float();
        tracing::debug!(bucket = self.bucket.name, key = self.key, %error, "{} is tried again", self.operation);
        tokio::time::sleep(self.pause.mul_f64(part)).await;
        self.pause = (self.pause * 2).min(self.bucket.options.pause_max);
        Ok(())
    }

    fn failed(&self, error: &Error) -> BucketError {
        let (bucket, operation, key) = (self.bucket.name.clone(), self.operation, self.key.clone());
        let cause = error.to_string();
        match error {
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
                BucketError::Denied { bucket, operation, key, cause }
            }
            error if matches!(status(error), Some(401 | 403)) => BucketError::Denied { bucket, operation, key, cause },
            error if is_transient(error) => {
                BucketError::NoAnswer { bucket, operation, key, waited: self.began.elapsed(), cause }
            }
            _ => BucketError::Refused { bucket, operation, key, cause },
        }
    }
}

/// Differs between processes.
fn rand_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

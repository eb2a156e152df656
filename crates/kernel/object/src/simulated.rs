//! A bucket in memory whose requests are late, lost and repeated, as a seed decides.
//!
//! Every request is a *message*. When it is delivered, the bucket does what it asks and answers; either may be lost, and
//! a request may be done a second time, or long after its sender has given up or died. Versions are hashes of contents,
//! as object stores have them: equal contents are one version.

mod process;
mod weather;

pub(crate) use process::Process;
pub use weather::Weather;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use oorandom::Rand64;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::hash::{DefaultHasher, Hasher};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// A bucket that several simulated processes share: a clone is the view of another.
#[derive(Clone)]
pub struct SimulatedBucket {
    state: Arc<Mutex<State>>,
    /// Whose requests these are.
    sender: usize,
}

struct State {
    objects: BTreeMap<String, Stored>,
    /// When requests arrive, if the simulation has a clock.
    weather: Option<weather::Sky>,
    messages: Vec<Message>,
    random: Rand64,
    lost: u64,
    unanswered: u64,
    repeated: u64,
    slow: u64,
    /// Counts deliveries: the bucket's clock, in seconds.
    clock: i64,
    /// No write of these senders is done.
    silent: BTreeSet<usize>,
}

#[derive(Clone)]
struct Stored {
    bytes: Bytes,
    written: i64,
}

struct Message {
    sender: usize,
    request: Request,
    /// `None` for one that nobody waits for.
    answer: Option<oneshot::Sender<Result<Reply>>>,
    /// It does not arrive before this moment of the bucket's clock, unless nothing else does.
    due: i64,
}

#[derive(Clone)]
enum Request {
    Put { key: String, bytes: Bytes, mode: PutMode },
    Get { key: String },
    Delete { key: String },
    List { prefix: String },
}

enum Reply {
    Written(String),
    Object(ObjectMeta, Bytes),
    Deleted,
    Listed(Vec<ObjectMeta>),
}

impl State {
    fn new(random: Rand64, (lost, unanswered, repeated): (u64, u64, u64)) -> Self {
        let (objects, messages) = (BTreeMap::new(), Vec::new());
        Self {
            objects,
            weather: None,
            messages,
            random,
            lost,
            unanswered,
            repeated,
            slow: 10,
            clock: 0,
            silent: BTreeSet::new(),
        }
    }

    fn pick(&mut self, n: u64) -> u64 {
        self.random.rand_range(0..n)
    }

    fn send(&mut self, sender: usize, request: Request, answer: Option<oneshot::Sender<Result<Reply>>>) {
        // Some writes take long: their sender may be deposed meanwhile.
        let is_slow = matches!(request, Request::Put { .. }) && self.pick(100) < self.slow;
        let due = if is_slow { self.clock + self.random.rand_range(0..400) as i64 } else { 0 };
        self.messages.push(Message { sender, request, answer, due });
    }

    fn meta(&self, key: &str) -> Option<ObjectMeta> {
        let stored = self.objects.get(key)?;
        Some(ObjectMeta {
            location: Path::from(key),
            last_modified: time(stored.written),
            size: stored.bytes.len() as u64,
            e_tag: Some(tag(&stored.bytes)),
            version: None,
        })
    }

    fn perform(&mut self, request: &Request) -> Result<Reply> {
        self.clock += 1;
        match request {
            Request::Put { key, bytes, mode } => {
                let found = self.objects.get(key).map(|stored| tag(&stored.bytes));
                match mode {
                    PutMode::Overwrite => {}
                    PutMode::Create if found.is_none() => {}
                    PutMode::Create => return Err(Error::AlreadyExists { path: key.clone(), source: "taken".into() }),
                    PutMode::Update(version) if found.is_some() && version.e_tag == found => {}
                    PutMode::Update(_) => {
                        return Err(Error::Precondition { path: key.clone(), source: "another version".into() });
                    }
                }
                self.objects.insert(key.clone(), Stored { bytes: bytes.clone(), written: self.clock });
                Ok(Reply::Written(tag(bytes)))
            }
            Request::Get { key } => {
                let missing = || Error::NotFound { path: key.clone(), source: "missing".into() };
                let meta = self.meta(key).ok_or_else(missing)?;
                Ok(Reply::Object(meta, self.objects[key].bytes.clone()))
            }
            Request::Delete { key } => {
                self.objects.remove(key);
                Ok(Reply::Deleted)
            }
            Request::List { prefix } => {
                let keys = self.objects.keys().filter(|key| key.starts_with(prefix));
                Ok(Reply::Listed(keys.filter_map(|key| self.meta(key)).collect()))
            }
        }
    }

    /// Delivers one message, as the seed decides; whether there was one.
    fn deliver(&mut self) -> bool {
        let waiting = self.messages.len() as u64;
        if waiting == 0 {
            return false;
        }
        let mut chosen = self.pick(waiting) as usize;
        for _ in 0..8 {
            if self.messages[chosen].due <= self.clock {
                break;
            }
            chosen = self.pick(waiting) as usize;
        }
        let Message { sender, request, answer, .. } = self.messages.swap_remove(chosen);
        let is_write = !matches!(request, Request::Get { .. } | Request::List { .. });
        let fate = self.pick(100);
        let reply = match &answer {
            _ if self.silent.contains(&sender) && matches!(request, Request::Put { .. }) => return true,
            Some(_) if fate < self.lost => {
                // Its sender gives up. It may still be on its way.
                if is_write && self.pick(2) == 0 {
                    self.send(sender, request.clone(), None);
                }
                Err(no_answer())
            }
            Some(_) if fate < self.lost + self.unanswered => {
                drop(self.perform(&request));
                Err(no_answer())
            }
            _ => self.perform(&request),
        };
        if is_write && answer.is_some() && self.pick(100) < self.repeated {
            self.send(sender, request, None);
        }
        if let Some(answer) = answer {
            drop(answer.send(reply));
        }
        true
    }
}

fn no_answer() -> Error {
    Error::Generic { store: "simulated", source: "no answer in time".into() }
}

/// A hash of the content. (No CRC: that of contents that end with their own CRC is always the same.)
fn tag(bytes: &Bytes) -> String {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    format!("{:016x}", hasher.finish())
}

fn time<T: From<std::time::SystemTime>>(seconds: i64) -> T {
    (std::time::UNIX_EPOCH + Duration::from_secs(seconds.unsigned_abs())).into()
}

impl SimulatedBucket {
    /// An empty bucket. Of 100 requests `lost` are, or come when their sender has given up; of `unanswered` the answer
    /// is lost; `repeated` are done a second time, at any time later.
    #[must_use]
    pub fn new(seed: u64, lost: u64, unanswered: u64, repeated: u64) -> Self {
        let random = Rand64::new(u128::from(seed));
        let state = State::new(random, (lost, unanswered, repeated));
        Self { state: Arc::new(Mutex::new(state)), sender: 0 }
    }

    /// From now on `lost` of 100 requests are lost.
    pub fn lose(&self, lost: u64) {
        self.state.lock().lost = lost;
    }

    /// From now on `slow` of 100 writes take long.
    pub fn delay(&self, slow: u64) {
        self.state.lock().slow = slow;
    }

    /// The number of requests on their way, those of dead senders included.
    #[must_use]
    pub fn on_their_way(&self) -> usize {
        self.state.lock().messages.len()
    }

    /// The bucket's clock, in seconds.
    #[must_use]
    pub fn clock(&self) -> i64 {
        self.state.lock().clock
    }

    /// Lets time pass, which may be days. Half of the requests that are on their way still are then.
    pub fn pass(&self, seconds: i64) {
        let mut state = self.state.lock();
        for at in 0..state.messages.len() {
            if state.pick(2) == 0 {
                state.messages[at].due += seconds;
            }
        }
        state.clock += seconds;
    }

    /// From now on the bucket does no write of this sender, not even one that is on its way already.
    pub fn silence(&self, sender: usize) {
        self.state.lock().silent.insert(sender);
    }

    /// All keys.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        self.state.lock().objects.keys().cloned().collect()
    }

    /// Puts a request on its way. Returns how long its sender waits, where there is weather.
    fn post(&self, request: Request, answer: oneshot::Sender<Result<Reply>>) -> Option<Duration> {
        let mut state = self.state.lock();
        if state.weather.is_some() {
            return Some(state.send_by(self.sender, request, answer));
        }
        state.send(self.sender, request, Some(answer));
        None
    }

    async fn ask(&self, request: Request) -> Result<Reply> {
        let (answer, reply) = oneshot::channel();
        if let Some(patience) = self.post(request, answer) {
            return weather::wait(patience, reply).await;
        }
        reply.await.unwrap_or_else(|_| Err(no_answer()))
    }

    /// Delivers one message, and lets its receiver go on.
    pub(crate) async fn turn(&self) -> bool {
        settle().await;
        let delivered = self.state.lock().deliver();
        self.go_on(!delivered).await;
        delivered
    }

    pub(crate) async fn go_on(&self, is_idle: bool) {
        if is_idle {
            // Pauses between attempts pass.
            tokio::time::sleep(Duration::from_secs(3)).await;
        }
        settle().await;
    }

    /// Delivers messages until `future` is done.
    pub(crate) async fn while_delivering<T>(&self, future: impl Future<Output = T>) -> T {
        let deliver = async {
            loop {
                self.turn().await;
            }
        };
        tokio::select! {
            biased;
            done = future => done,
            () = deliver => unreachable!("deliveries never end"),
        }
    }
}

/// Lets every task run until it waits.
async fn settle() {
    for _ in 0..32 {
        tokio::task::yield_now().await;
    }
}

impl fmt::Debug for SimulatedBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("simulated bucket")
    }
}

impl fmt::Display for SimulatedBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[async_trait]
impl ObjectStore for SimulatedBucket {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let request = Request::Put { key: location.to_string(), bytes: payload.into(), mode: options.mode };
        match self.ask(request).await? {
            Reply::Written(tag) => Ok(PutResult { e_tag: Some(tag), version: None, extensions: Default::default() }),
            _ => Err(no_answer()),
        }
    }

    async fn put_multipart_opts(&self, location: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Ok(Box::new(Upload { bucket: self.clone(), key: location.to_string(), parts: Arc::default(), count: 0 }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let Reply::Object(meta, bytes) = self.ask(Request::Get { key: location.to_string() }).await? else {
            return Err(no_answer());
        };
        let range: Range<u64> = match options.range {
            Some(GetRange::Bounded(range)) if range.start < meta.size => range.start..range.end.min(meta.size),
            Some(_) => return Err(Error::Generic { store: "simulated", source: "range not satisfiable".into() }),
            None => 0..meta.size,
        };
        let part = if options.head { Bytes::new() } else { bytes.slice(range.start as usize..range.end as usize) };
        Ok(GetResult {
            payload: GetResultPayload::Stream(stream::once(async move { Ok(part) }).boxed()),
            meta,
            range,
            attributes: Attributes::default(),
            extensions: Default::default(),
        })
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let bucket = self.clone();
        let delete = move |location: Result<Path>| {
            let bucket = bucket.clone();
            async move {
                let location = location?;
                bucket.ask(Request::Delete { key: location.to_string() }).await?;
                Ok(location)
            }
        };
        locations.then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let prefix = prefix.map(|prefix| format!("{prefix}/")).unwrap_or_default();
        let bucket = self.clone();
        let listed = async move {
            match bucket.ask(Request::List { prefix }).await {
                Ok(Reply::Listed(all)) => all.into_iter().map(Ok).collect(),
                Ok(_) => Vec::new(),
                Err(error) => vec![Err(error)],
            }
        };
        stream::once(listed).flat_map(stream::iter).boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        Err(Error::NotImplemented { operation: "list_with_delimiter".into(), implementer: self.to_string() })
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(Error::NotImplemented { operation: "copy".into(), implementer: self.to_string() })
    }
}

/// An object in parts: they are kept here, and the completion is one write.
#[derive(Debug)]
struct Upload {
    bucket: SimulatedBucket,
    key: String,
    parts: Arc<Mutex<BTreeMap<usize, Bytes>>>,
    count: usize,
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (at, parts) = (self.count, Arc::clone(&self.parts));
        self.count += 1;
        Box::pin(async move {
            parts.lock().insert(at, data.into());
            Ok(())
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let bytes: Vec<u8> = self.parts.lock().values().flat_map(|part| part.iter().copied()).collect();
        self.bucket.put_opts(&Path::from(self.key.as_str()), PutPayload::from(bytes), PutOptions::default()).await
    }

    async fn abort(&mut self) -> Result<()> {
        Ok(())
    }
}

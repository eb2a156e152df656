//! The server's side: `/v1/admin/backup`.
//!
//! | request | answer |
//! |---|---|
//! | `POST /v1/admin/backup` | holds a cut: 200 and its listing; 409 while another one is held |
//! | `GET /v1/admin/backup/ID/PATH?at=N` | 200 and at most 1 MiB of a file of the cut |
//! | `DELETE /v1/admin/backup/ID` | lets go of it: 204 |
//!
//! One thread owns the cut and does all work that waits for a disk; reactors only queue requests for it, few at a time.
//! The client pulls, so a slow client costs nothing but the hold. A client without a request for `idle` loses the hold,
//! and so does one whose hold keeps a full disk full. Nothing here outlives the process: after a restart the client
//! learns that its backup is over.

use super::folder::{self, READ_BYTES};
use super::{Listed, Listing, Place, place};
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::json;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thalweg_base::ObjectId;
use thalweg_host::folder::FORMAT;
use thalweg_http::{Context, Method, Pending, Poll, Reply, Request, Response, Waker};
use thalweg_journal::{FileJournal, HeldSegments, Journal};
use thalweg_log::{FileUnit, HeldCut, Logs};
use thalweg_streams::StreamState;

/// The path of these requests.
pub(crate) const SERVED: &str = "/v1/admin/backup";

/// Requests that wait for the thread; one more is refused.
const WAITING_MAX: usize = 16;
/// How often the thread checks whether the hold is still needed.
const CHECK_EVERY: Duration = Duration::from_millis(500);
/// How often to retry when settling removes a root before the journal is held.
const HOLD_TRIES: usize = 100;

/// A refusal: status, code, message.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Refused(u16, &'static str, String);

impl Refused {
    fn response(&self) -> Response {
        let Self(status, code, message) = self;
        let body = json!({"error": {"code": code, "message": message}}).to_string();
        let response = plain(*status, "application/json").body(body);
        match *status {
            405 => response.header("allow", "POST, GET, DELETE"),
            409 | 503 => response.header("retry-after", "1"),
            _ => response,
        }
    }
}

/// Answers without access-control headers: they are not for pages of other origins.
fn plain(status: u16, content_type: &str) -> Response {
    Response::new(status)
        .header("content-type", content_type)
        .header("cache-control", "no-store")
        .header("cross-origin-resource-policy", "same-origin")
}

enum Ask {
    Begin,
    Read { id: String, path: String, at: u64 },
    End { id: String },
    Stop,
}

type Answer = Result<Response, Refused>;

/// Holds an answer for the reactor that waits for it.
#[derive(Default)]
struct Slot {
    answer: Option<Answer>,
    waker: Option<Waker>,
}

type SharedSlot = Arc<Mutex<Slot>>;

struct Waiting(SharedSlot);

impl Pending for Waiting {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll {
        let mut slot = self.0.lock();
        match slot.answer.take() {
            Some(Ok(response)) => Poll::Ready(Reply::Now(response)),
            Some(Err(refused)) => Poll::Ready(Reply::Now(refused.response())),
            None => {
                slot.waker = Some(cx.waker());
                Poll::Wait
            }
        }
    }
}

/// Serves backups of a running server.
pub(crate) struct Backups {
    asks: SyncSender<(Ask, SharedSlot)>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Backups {
    /// Starts the thread. `lineage` names this history of object ids; a client that asks for nothing for `idle` loses
    /// its hold.
    pub(crate) fn start(
        kernel: &FileUnit<StreamState>,
        folder: PathBuf,
        lineage: String,
        idle: Duration,
    ) -> std::io::Result<Self> {
        let (asks, asked) = sync_channel(WAITING_MAX);
        let mut holder = Holder {
            journal: Arc::clone(&kernel.journal),
            logs: Arc::clone(&kernel.logs),
            folder,
            lineage,
            idle,
            begun: 0,
            held: None,
        };
        let thread = std::thread::Builder::new().name("backup".into()).spawn(move || holder.run(&asked))?;
        Ok(Self { asks, thread: Mutex::new(Some(thread)) })
    }

    /// Ends a backup that is under way.
    pub(crate) fn stop(&self) {
        let Some(thread) = self.thread.lock().take() else { return };
        // An error says that the thread is gone already.
        let _ = self.asks.send((Ask::Stop, SharedSlot::default()));
        if thread.join().is_err() {
            tracing::error!("the thread for backups has panicked");
        }
    }

    /// Answers requests for [`SERVED`] and paths below it. Never waits.
    pub(crate) fn handle(&self, request: &Request<'_>) -> Reply {
        let ask = match parse(request) {
            Ok(ask) => ask,
            Err(refused) => return Reply::Now(refused.response()),
        };
        let slot = SharedSlot::default();
        match self.asks.try_send((ask, Arc::clone(&slot))) {
            Ok(()) => Reply::Later(Box::new(Waiting(slot))),
            Err(TrySendError::Full(_)) => {
                let message = format!("{WAITING_MAX} requests of backups wait already");
                Reply::Now(Refused(503, "backup_busy", message).response())
            }
            Err(TrySendError::Disconnected(_)) => {
                Reply::Now(Refused(503, "backup_stopping", "the server is stopping".into()).response())
            }
        }
    }
}

fn parse(request: &Request<'_>) -> Result<Ask, Refused> {
    let rest = request.path.strip_prefix(SERVED).unwrap_or_default().trim_start_matches('/');
    match (&request.method, rest.split_once('/')) {
        (Method::Post, None) if rest.is_empty() => Ok(Ask::Begin),
        (Method::Delete, None) if !rest.is_empty() => Ok(Ask::End { id: rest.to_owned() }),
        (Method::Get, Some((id, path))) => {
            let at = request.query.unwrap_or("at=0").strip_prefix("at=").and_then(|at| at.parse().ok());
            let at = at.ok_or_else(|| Refused(400, "bad_position", "`at` is not a whole number".into()))?;
            Ok(Ask::Read { id: id.to_owned(), path: path.to_owned(), at })
        }
        _ => {
            let message = "POST begins a backup, GET reads a file of it, DELETE ends it";
            Err(Refused(405, "method_not_allowed", message.into()))
        }
    }
}

/// The thread's own: the cut that is held, if any.
struct Holder {
    journal: Arc<FileJournal>,
    logs: Arc<Logs<StreamState>>,
    folder: PathBuf,
    lineage: String,
    idle: Duration,
    /// How many backups were begun.
    begun: u64,
    held: Option<Held>,
}

struct Held {
    id: String,
    cut: HeldCut,
    /// Objects of the cut, with their lengths in bytes.
    objects: HashMap<ObjectId, u64>,
    segments: HeldSegments,
    extras: Vec<(String, Bytes)>,
    /// When the client sent its last request.
    asked: Instant,
    began: Instant,
}

impl Holder {
    fn run(&mut self, asked: &Receiver<(Ask, SharedSlot)>) {
        loop {
            match asked.recv_timeout(CHECK_EVERY) {
                Ok((Ask::Stop, _)) | Err(RecvTimeoutError::Disconnected) => return,
                Ok((ask, slot)) => {
                    let answer = self.answer(ask);
                    let waker = {
                        let mut slot = slot.lock();
                        slot.answer = Some(answer);
                        slot.waker.take()
                    };
                    if let Some(waker) = waker {
                        waker.wake();
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.check_hold();
        }
    }

    /// Releases an abandoned cut, or one whose space is needed.
    fn check_hold(&mut self) {
        let Some(held) = &self.held else { return };
        if held.asked.elapsed() >= self.idle {
            tracing::warn!(backup = held.id, idle = ?self.idle, "a backup's client is silent: its hold is dropped");
        } else if self.logs.is_low_on_space() {
            tracing::warn!(backup = held.id, "the disk is full: a backup's hold is dropped");
        } else {
            return;
        }
        self.held = None;
    }

    fn answer(&mut self, ask: Ask) -> Answer {
        match ask {
            Ask::Begin => self.begin(),
            Ask::Read { id, path, at } => {
                let bytes = self.held(&id)?.read(&path, at)?;
                Ok(plain(200, "application/octet-stream").body(bytes))
            }
            Ask::End { id } => {
                let held = self.held(&id)?;
                tracing::info!(backup = held.id, seconds = held.began.elapsed().as_secs(), "a backup is done");
                self.held = None;
                Ok(plain(204, "text/plain"))
            }
            Ask::Stop => Err(Refused(503, "backup_stopping", "the server is stopping".into())),
        }
    }

    fn held(&mut self, id: &str) -> Result<&mut Held, Refused> {
        let held = self.held.as_mut().filter(|held| held.id == id);
        let held = held.ok_or_else(|| {
            let message = "this backup is over: its client was silent for too long, the disk is full, or the server was restarted";
            Refused(404, "no_such_backup", message.into())
        })?;
        held.asked = Instant::now();
        Ok(held)
    }

    fn begin(&mut self) -> Answer {
        self.check_hold();
        if let Some(held) = &self.held {
            let message = format!("a backup is under way since {} s; one at a time", held.began.elapsed().as_secs());
            return Err(Refused(409, "backup_running", message));
        }
        if self.logs.is_low_on_space() {
            return Err(Refused(503, "disk_full", "a backup would hold space that a full disk needs".into()));
        }
        let failed = |what: String| Refused(503, "backup_failed", what);
        // The cut contains everything that was acknowledged before now, at either durability.
        self.journal.wait_unless_full(self.journal.written()).map_err(|e| failed(e.to_string()))?;
        let (cut, segments) =
            self.hold().ok_or_else(|| failed("settling is faster than the hold; try again".into()))?;
        let extras = folder::extras(&self.folder).map_err(|e| failed(format!("{e:#}")))?;
        let mut files = folder::listed(&cut.cut, &extras);
        files.extend(segments.files().map(|file| Listed {
            path: file.path.clone(),
            bytes: file.bytes,
            allocated: file.allocated,
        }));
        self.begun += 1;
        // Must differ from ids of an earlier server.
        let id = format!("{}x{}", thalweg_host::background::now().0, self.begun);
        let listing = Listing {
            backup: id.clone(),
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            lineage: self.lineage.clone(),
            position: segments.end().0,
            files,
        };
        let body = serde_json::to_vec(&listing).map_err(|e| failed(e.to_string()))?;
        tracing::info!(backup = id, position = listing.position, files = listing.files.len(), "a backup begins");
        let now = Instant::now();
        let objects = cut.cut.objects.iter().copied().collect();
        self.held = Some(Held { id, cut, objects, segments, extras, asked: now, began: now });
        Ok(plain(200, "application/json").body(body))
    }

    /// A root with its objects, and the journal from its floor on: a round that ends between the two may trim that
    /// away.
    fn hold(&self) -> Option<(HeldCut, HeldSegments)> {
        (0..HOLD_TRIES).find_map(|_| {
            let cut = self.logs.hold_sealed();
            let segments = self.journal.hold_from(cut.cut.journal.floor)?;
            folder::reaches(&cut.cut, segments.end()).then_some((cut, segments))
        })
    }
}

impl Held {
    fn read(&self, path: &str, at: u64) -> Result<Bytes, Refused> {
        let missing = || Refused(404, "no_such_file", format!("{path:?} is not in this backup"));
        let failed = |error: String| Refused(503, "backup_failed", format!("reading {path}: {error}"));
        match place(path).ok_or_else(missing)? {
            Place::Root => Ok(folder::piece(&self.cut.cut.root, at)),
            Place::Object(object) => {
                let bytes = *self.objects.get(&object).ok_or_else(missing)?;
                let from = at.min(bytes);
                let upto = bytes.min(from + READ_BYTES as u64);
                self.cut.read(object, from..upto).map_err(|e| failed(e.to_string()))
            }
            Place::Segment => self.segments.read(path, at, READ_BYTES).map_err(|e| match e.kind() {
                std::io::ErrorKind::NotFound => missing(),
                _ => failed(e.to_string()),
            }),
            Place::Extra => {
                let known = self.extras.iter().find(|(name, _)| name == path);
                Ok(folder::piece(&known.ok_or_else(missing)?.1, at))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_host::config::{Settings, load};
    use thalweg_host::folder::Folder;
    use thalweg_http::Headers;

    fn request<'a>(method: Method<'a>, path: &'a str, query: Option<&'a str>) -> Request<'a> {
        Request { method, path, query, headers: Headers(&[]), body: b"" }
    }

    fn now(reply: Reply) -> Option<u16> {
        match reply {
            Reply::Now(response) => Some(response.status),
            _ => None,
        }
    }

    #[test]
    fn too_many_requests_are_refused_and_so_are_all_when_the_server_stops() {
        let (asks, asked) = sync_channel(WAITING_MAX);
        let backups = Backups { asks, thread: Mutex::new(None) };
        for _ in 0..WAITING_MAX {
            assert_eq!(now(backups.handle(&request(Method::Post, SERVED, None))), None, "it waits for the thread");
        }
        assert_eq!(now(backups.handle(&request(Method::Post, SERVED, None))), Some(503));
        drop(asked);
        assert_eq!(now(backups.handle(&request(Method::Post, SERVED, None))), Some(503));
        // Malformed requests never reach the thread.
        let read = format!("{SERVED}/1x1/RUN");
        assert_eq!(now(backups.handle(&request(Method::Get, &read, Some("at=-1")))), Some(400));
        assert_eq!(now(backups.handle(&request(Method::Get, SERVED, None))), Some(405));
        assert_eq!(now(backups.handle(&request(Method::Delete, SERVED, None))), Some(405));
    }

    #[test]
    fn a_full_disk_ends_a_hold_and_refuses_another() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::take(dir.path()).unwrap();
        let mut config = load(Settings::default(), None).unwrap();
        config.journal_segment_bytes.0 = 64 << 10;
        let (kernel, _) = thalweg_host::kernel::open::<StreamState>(&folder, &config).unwrap();
        let mut holder = Holder {
            journal: Arc::clone(&kernel.journal),
            logs: Arc::clone(&kernel.logs),
            folder: dir.path().to_owned(),
            lineage: folder.lineage(),
            idle: Duration::from_secs(60),
            begun: 0,
            held: None,
        };
        assert!(holder.begin().is_ok());
        assert_eq!(holder.begin().err().unwrap().1, "backup_running");
        holder.check_hold();
        assert!(holder.held.is_some());
        kernel.logs.set_low_on_space(true);
        holder.check_hold();
        assert!(holder.held.is_none());
        assert_eq!(holder.begin().err().unwrap().1, "disk_full");
        kernel.logs.set_low_on_space(false);
        holder.idle = Duration::ZERO;
        assert!(holder.begin().is_ok());
        holder.check_hold();
        assert_eq!(holder.held("any").err().unwrap().1, "no_such_backup");
        kernel.journal.close().unwrap();
    }
}

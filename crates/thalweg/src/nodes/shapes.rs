//! The unit of shapes on nodes. One node at a time has it and follows the database; all send it their requests.
//!
//! | state of [`ShapesHome`] | what is there | next |
//! |---|---|---|
//! | absent | nothing | *opening* |
//! | opening | a thread takes the unit over and restores the shapes | *open*, or *absent* if that fails |
//! | open | the shapes follow the database; requests are answered while the node has the unit's lease | *closing* |
//! | closing | a thread ends requests, follower, jobs and unit, in this order | *absent* |

use super::Served;
use super::keeper::CLOSE_WITHIN;
use super::route::{Door, not_here, unconfirmed};
use crate::engines::shapes::{Access, settings};
use anyhow::Context as _;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use thalweg_disk::{Disk, RealDisk};
use thalweg_host::bucket_unit::{BucketUnit, Prefix, Which};
use thalweg_host::config::{Config, Switch};
use thalweg_host::nodes::OwnedRequest;
use thalweg_host::{Boot, Jobs, Keeping, Unit, keep};
use thalweg_http::{
    Body, BodySource, Context, Method, Pending, Poll, Pull, Reply, Request, Response, SharedPages, Sink, Waker,
};
use thalweg_journal::Journal;
use thalweg_object::Bucket;
use thalweg_rounds::Rounds;
use thalweg_shapes::{LogState, Ownership, Shapes, ShapesService};

/// How long giving the unit up waits for the follower and for the bucket. A thread goes on with it after that.
const GIVE_UP_WITHIN: Duration = Duration::from_secs(6);
/// Parts of the service that [`Open`] has: its own, and that of the shapes.
const USERS_AT_LAST: usize = 2;
/// The part of `cache_bytes` that is for this unit.
const CACHE_PART: u64 = 4;

/// The shapes of a node that reaches their database, whether it has their unit or not.
pub(crate) struct ShapesHome {
    config: Config,
    disk: RealDisk,
    /// For transactions that are in progress.
    spill: PathBuf,
    bucket: Bucket,
    prefix: Prefix,
    pages: SharedPages,
    access: Access,
    rounds: OnceLock<Arc<Rounds>>,
    state: Mutex<State>,
}

enum State {
    Absent,
    Opening,
    Open(Arc<Open>),
    Closing,
}

/// The unit and its shapes while this node has them.
pub(crate) struct Open {
    pub(crate) kernel: Arc<BucketUnit<LogState>>,
    pub(crate) service: ShapesService,
    shapes: Mutex<Shapes>,
    jobs: Jobs,
    /// Leases of owners before have ended.
    is_serving: AtomicBool,
    waits: Arc<Waits>,
}

impl ShapesHome {
    pub(crate) fn new(boot: Boot<'_>, bucket: &Bucket, prefix: &Prefix, access: Access) -> anyhow::Result<Self> {
        let path = boot.folder.path();
        Ok(Self {
            config: boot.config.clone(),
            disk: RealDisk::open(path)?,
            spill: path.join("spill"),
            bucket: bucket.clone(),
            prefix: prefix.clone(),
            pages: boot.pages.clone(),
            access,
            rounds: OnceLock::new(),
            state: Mutex::new(State::Absent),
        })
    }

    pub(super) fn use_rounds(&self, rounds: Arc<Rounds>) {
        let _ = self.rounds.set(rounds);
    }

    /// Takes the unit over, restores its shapes and follows the database; the epoch of the new owner.
    pub(super) fn take(&self) -> anyhow::Result<u64> {
        {
            let mut state = self.state.lock();
            anyhow::ensure!(matches!(*state, State::Absent), "the unit of shapes is still being closed");
            *state = State::Opening;
        }
        let opened = self.open();
        let mut state = self.state.lock();
        *state = State::Absent;
        let open = opened?;
        let epoch = open.kernel.epoch();
        *state = State::Open(Arc::new(open));
        Ok(epoch)
    }

    fn open(&self) -> anyhow::Result<Open> {
        let rounds = self.rounds.get().context("no thread for the jobs of the unit of shapes")?;
        let (disk, cache_bytes): (&dyn Disk, u64) = (&self.disk, cache_bytes(&self.config));
        let kernel = BucketUnit::open(&self.bucket, &self.prefix, Which::Shapes, (disk, cache_bytes), &self.config)?;
        let kernel = Arc::new(kernel);
        let pages = self.pages.clone();
        kernel.logs.prepare_shared(move |bytes| pages.hold(bytes));
        let of_host = Unit::in_bucket(&kernel);
        let reserve = of_host.hold_back()?;
        let settles = self.config.settle == Switch::On;
        let bound_bytes = self.config.journal_bound_bytes.0;
        let jobs = keep(rounds, &of_host, Keeping { reserve, settles, bound_bytes });
        let asked = Arc::downgrade(&kernel);
        let ownership = Ownership::shared(move || asked.upgrade().is_some_and(|kernel| is_held(&kernel)));
        let config = settings(&self.config, self.spill.clone())?.on_nodes(self.prefix.stack(), ownership);
        match Shapes::open(Arc::clone(&kernel.logs), config) {
            Ok(shapes) => Ok(Open {
                service: shapes.service(),
                kernel,
                shapes: Mutex::new(shapes),
                jobs,
                is_serving: AtomicBool::new(false),
                waits: Arc::default(),
            }),
            Err(error) => {
                jobs.retire();
                close(&kernel);
                Err(anyhow::Error::new(error).context("cannot open the shapes"))
            }
        }
    }

    pub(super) fn still_owns(&self) -> anyhow::Result<bool> {
        self.now().map_or(Ok(false), |open| open.kernel.still_owned())
    }

    pub(super) fn serve(&self) {
        if let Some(open) = self.now() {
            open.is_serving.store(true, Ordering::Release);
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.now().is_none_or(|open| open.kernel.is_lost())
    }

    /// Ends the requests for shapes, stops following, and closes the unit.
    pub(super) fn give_up(self: &Arc<Self>) {
        let open = {
            let mut state = self.state.lock();
            match std::mem::replace(&mut *state, State::Closing) {
                State::Open(open) => open,
                other => {
                    *state = other;
                    return;
                }
            }
        };
        open.waits.end();
        let (done, closed) = std::sync::mpsc::channel::<()>();
        let home = Arc::clone(self);
        let closing = move || {
            open.shapes.lock().stop();
            open.jobs.retire();
            close(&open.kernel);
            *home.state.lock() = State::Absent;
            drop((done, home));
            // The event loops, which drop requests, must not be those who wait for the threads of the service.
            while Arc::strong_count(&open) > 1 || open.service.users() > USERS_AT_LAST {
                std::thread::sleep(Duration::from_millis(200));
            }
        };
        match std::thread::Builder::new().name("shapes-close".into()).spawn(closing) {
            Ok(_) => {
                if closed.recv_timeout(GIVE_UP_WITHIN) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                    tracing::warn!("the shapes are not closed yet: their next owner replays more");
                }
            }
            Err(error) => tracing::error!(%error, "no thread closes the shapes: they stay open, unserved"),
        }
    }

    /// The unit, if this node has it.
    pub(crate) fn now(&self) -> Option<Arc<Open>> {
        match &*self.state.lock() {
            State::Open(open) => Some(Arc::clone(open)),
            State::Absent | State::Opening | State::Closing => None,
        }
    }

    /// The refusal of a request of which there is only the head, if this node serves the shapes.
    pub(crate) fn on_head(&self, head: &Request<'_>, now_ms: u64) -> Option<Response> {
        let open = self.now().filter(|open| open.is_serving.load(Ordering::Acquire))?;
        open.service.on_head(head, self.access.of(head, now_ms), now_ms)
    }
}

/// Bytes of `cache_bytes` that are for the unit of shapes.
pub(super) fn cache_bytes(config: &Config) -> u64 {
    (config.cache_bytes.0 / CACHE_PART).max(8 << 20)
}

/// Whether the bucket says that the unit is still this owner's. While it says nothing, it may be another one's.
fn is_held(kernel: &BucketUnit<LogState>) -> bool {
    kernel.journal.poisoned().is_none()
        && kernel.still_owned().unwrap_or_else(|error| {
            tracing::warn!(error = format!("{error:#}"), "the bucket does not say whose the shapes are");
            false
        })
}

fn close(kernel: &BucketUnit<LogState>) {
    if kernel.journal.poisoned().is_some() {
        return;
    }
    if let Err(error) = kernel.close_within(CLOSE_WITHIN) {
        tracing::warn!(error = format!("{error:#}"), "the unit of shapes was not closed: its next owner replays more");
    }
}

/// The door of shapes.
pub(crate) struct ToShapes {
    pub(crate) home: Option<Arc<ShapesHome>>,
    pub(crate) served: Arc<Served>,
}

impl Door for ToShapes {
    fn handle_in(&self, unit: u64, request: &Request<'_>, cx: &mut Context<'_>) -> Option<Reply> {
        let home = self.home.as_ref()?;
        let open = home.now().filter(|open| open.is_serving.load(Ordering::Acquire))?;
        let reply = if request.path.starts_with(ShapesService::ADMIN) {
            open.service.admin(request, cx)
        } else {
            open.service.handle_as(request, home.access.of(request, cx.now_ms), cx)
        };
        let fence = Fence { waits: Arc::clone(&open.waits), served: Arc::clone(&self.served), unit, place: None };
        let is_read = !matches!(request.method, Method::Delete | Method::Put);
        Some(match reply {
            Reply::Now(response) => Reply::Now(fence.around(response)),
            Reply::Later(inner) => Reply::Later(Box::new(Fenced { inner, fence, is_read })),
            held @ Reply::Held(..) => held,
        })
    }

    /// A POST asks for a part of a shape.
    fn is_read(&self, request: &OwnedRequest) -> bool {
        !request.is_delete() && !request.is_put()
    }
}

/// The requests that wait in a unit: they are woken when the node gives it up.
#[derive(Default)]
struct Waits {
    has_ended: AtomicBool,
    wakers: Mutex<HashMap<u64, Waker>>,
    next: AtomicU64,
}

impl Waits {
    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    fn end(&self) {
        let waiting = {
            let mut wakers = self.wakers.lock();
            self.has_ended.store(true, Ordering::Release);
            std::mem::take(&mut *wakers)
        };
        waiting.values().for_each(Waker::wake);
    }
}

/// What a request may go on with: the unit that it was let into, while this node has a lease of it.
struct Fence {
    waits: Arc<Waits>,
    served: Arc<Served>,
    unit: u64,
    /// Its place among the waits.
    place: Option<u64>,
}

impl Fence {
    fn holds(&self) -> bool {
        !self.waits.has_ended() && self.served.serves(self.unit)
    }

    /// Has the request woken when the unit is given up.
    fn wait(&mut self, cx: &Context<'_>) {
        if self.place.is_some() {
            return;
        }
        let place = self.waits.next.fetch_add(1, Ordering::Relaxed);
        let mut wakers = self.waits.wakers.lock();
        if self.waits.has_ended() {
            drop(wakers);
            return cx.waker().wake();
        }
        wakers.insert(place, cx.waker());
        self.place = Some(place);
    }

    /// Lets a live answer go on only as long as the fence holds. What others have in one piece has been read already.
    fn around(self, mut response: Response) -> Response {
        response.body = match response.body {
            Body::Stream(inner) => Body::Stream(Box::new(FencedBody { inner, fence: self })),
            body => body,
        };
        response
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.waits.wakers.lock().remove(&place);
        }
    }
}

/// A request that waits. A read is asked for again, of the next owner, if this node's lease has ended before its answer
/// is there.
struct Fenced {
    inner: Box<dyn Pending>,
    fence: Fence,
    is_read: bool,
}

impl Pending for Fenced {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll {
        loop {
            // The lease is looked at after the answer was made: it held then, if it holds now.
            let polled = self.inner.poll(cx);
            if self.is_read && !self.fence.holds() {
                return Poll::Ready(Reply::Now(not_here()));
            }
            match polled {
                Poll::Wait if self.fence.waits.has_ended() => return Poll::Ready(Reply::Now(unconfirmed())),
                Poll::Wait => {
                    self.fence.wait(cx);
                    return Poll::Wait;
                }
                Poll::Ready(Reply::Later(next)) => self.inner = next,
                Poll::Ready(Reply::Now(response) | Reply::Held(_, response)) => {
                    let fence = Fence {
                        waits: Arc::clone(&self.fence.waits),
                        place: None,
                        served: Arc::clone(&self.fence.served),
                        unit: self.fence.unit,
                    };
                    return Poll::Ready(Reply::Now(fence.around(response)));
                }
            }
        }
    }
}

/// A live answer. It ends with the lease, and its client asks again.
struct FencedBody {
    inner: Box<dyn BodySource>,
    fence: Fence,
}

impl BodySource for FencedBody {
    fn pull(&mut self, cx: &mut Context<'_>, sink: &mut Sink<'_>) -> Pull {
        if !self.fence.holds() {
            return Pull::End;
        }
        let pulled = self.inner.pull(cx, sink);
        if matches!(pulled, Pull::Wait) {
            self.fence.wait(cx);
        }
        pulled
    }
}

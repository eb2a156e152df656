//! The streams of all nodes, as the subscriptions of one node see them.
//!
//! Each node has a [`Desk`]: the names of streams of its units that have changed lately. Every node with subscriptions
//! follows the desks of all nodes, its own included: one thread for each (`follow`) asks for news, and for all wanted
//! streams of a unit when the unit is new there. What it learns goes into one table (`table`), which the driver of
//! the subscriptions reads as it reads the streams of one process ([`Watched`]).
//!
//! A desk answers for units that its node serves by a lease, and with visible ends as of the answer; a thread applies
//! the answers of one desk in order, and the table takes nothing of an owner once a later one has answered. So an entry
//! of the table never goes back, and once every unit was asked after a mark, the table has everything that was visible
//! at the mark.

mod desk;
mod follow;
mod table;
#[cfg(test)]
mod tests;
mod wire;

pub use desk::{Desk, LOOK_EVERY, Served};
pub use wire::{Change, News, NewsRequest, Page, PageRequest};

use crate::watched::{Interest, Watched};
use follow::Follower;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;
use table::Table;
use thalweg_base::LogId;
use thalweg_streams::Changes;
use thalweg_streams::format::offset::Position;

/// How often it is looked which nodes live.
const NODES_EVERY: Duration = Duration::from_millis(100);

/// A node's desk, here or elsewhere.
pub trait Source: Send + Sync {
    /// Changes after those of the last answer; waits for some as long as the request says. `None`: interrupted.
    fn news(&self, request: &NewsRequest) -> Result<Option<News>, String>;
    /// Some of the streams of a unit.
    fn page(&self, request: &PageRequest) -> Result<Page, String>;
    /// Ends the wait of the present call of [`Source::news`], or of the next one if there is none.
    fn interrupt(&self);
}

/// The nodes that live.
pub trait Cluster: Send + Sync {
    /// Their desks, each by a name that no other process has.
    fn sources(&self) -> Vec<(String, Arc<dyn Source>)>;
}

/// The table of all nodes' streams, and the threads that fill it.
pub struct Spread {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    table: Mutex<Table>,
    marks: AtomicU64,
    wake: OnceLock<Arc<dyn Fn() + Send + Sync>>,
    followers: Mutex<BTreeMap<String, Arc<dyn Source>>>,
    is_observing: AtomicBool,
    stopping: Mutex<bool>,
    stopped: Condvar,
}

impl Shared {
    fn wake(&self) {
        self.wake.get().iter().for_each(|wake| wake());
    }

    fn interrupt(&self) {
        let followers: Vec<Arc<dyn Source>> = self.followers.lock().values().cloned().collect();
        followers.iter().for_each(|source| source.interrupt());
    }

    /// Sleeps; whether to stop.
    fn sleep(&self, time: Duration) -> bool {
        let mut stopping = self.stopping.lock();
        if !*stopping {
            self.stopped.wait_for(&mut stopping, time);
        }
        *stopping
    }
}

impl Spread {
    /// Follows the nodes of `cluster`, which share so many units, once something is wanted.
    pub fn start(units: u64, cluster: Arc<dyn Cluster>) -> std::io::Result<Arc<Self>> {
        let shared = Arc::new(Shared {
            table: Mutex::new(Table::new(units)),
            marks: AtomicU64::new(0),
            wake: OnceLock::new(),
            followers: Mutex::default(),
            is_observing: AtomicBool::new(false),
            stopping: Mutex::new(false),
            stopped: Condvar::new(),
        });
        let kept = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("spread".into()).spawn(move || keep(&kept, &*cluster))?;
        Ok(Arc::new(Self { shared, thread: Mutex::new(Some(thread)) }))
    }

    /// Ends its threads.
    pub fn stop(&self) {
        *self.shared.stopping.lock() = true;
        self.shared.stopped.notify_all();
        self.shared.interrupt();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that follows other nodes has panicked");
        }
    }
}

impl Drop for Spread {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Has one thread follow each node that lives.
fn keep(shared: &Arc<Shared>, cluster: &dyn Cluster) {
    let mut followers: BTreeMap<String, Follower> = BTreeMap::new();
    while !shared.sleep(NODES_EVERY) {
        let is_wanted = shared.is_observing.load(Ordering::Acquire);
        let sources = if is_wanted { cluster.sources() } else { Vec::new() };
        followers.retain(|name, follower| {
            let lives = sources.iter().any(|(live, _)| live == name) && !follower.is_finished();
            if !lives {
                follower.stop();
                shared.followers.lock().remove(name);
                shared.table.lock().forget(name);
            }
            lives
        });
        for (name, source) in sources {
            if followers.contains_key(&name) {
                continue;
            }
            match Follower::start(shared, name.clone(), Arc::clone(&source)) {
                Ok(follower) => {
                    shared.followers.lock().insert(name.clone(), source);
                    followers.insert(name, follower);
                }
                Err(error) => tracing::warn!(%error, "no thread to follow the streams of a node; it is tried again"),
            }
        }
    }
    followers.values_mut().for_each(Follower::stop);
}

impl Watched for Spread {
    fn observe(&self, wake: Arc<dyn Fn() + Send + Sync>) {
        let _ = self.shared.wake.set(wake);
    }

    fn turn_observing(&self, on: bool) {
        if !on && self.shared.is_observing.swap(false, Ordering::AcqRel) {
            self.shared.table.lock().clear();
        }
        // It is turned on by the first wish.
    }

    fn take_changes(&self) -> Changes {
        self.shared.table.lock().take_changes()
    }

    fn is_complete(&self) -> bool {
        self.shared.table.lock().has_answered(0)
    }

    fn has_answered(&self, wish: u64) -> bool {
        self.shared.table.lock().has_answered(wish)
    }

    fn sweep(&self, f: &mut dyn FnMut(&str)) {
        self.shared.table.lock().each_name(f);
    }

    fn name_of(&self, log: LogId) -> Option<Box<str>> {
        self.shared.table.lock().name_of(log)
    }

    fn published(&self, name: &str) -> Option<Position> {
        self.shared.table.lock().end_of(name)
    }

    fn end_to_note(&self, name: &str) -> Option<Position> {
        self.published(name)
    }

    fn is_settled(&self, name: &str) -> bool {
        // Desks report a delete once it is durable.
        let table = self.shared.table.lock();
        table.end_of(name).is_some() || table.has_answered(table.version())
    }

    fn want(&self, interest: Interest) -> u64 {
        let (wish, is_new) = self.shared.table.lock().want(interest);
        self.shared.is_observing.store(true, Ordering::Release);
        if is_new {
            self.shared.interrupt();
        }
        wish
    }

    fn keep(&self, interest: Interest) {
        self.shared.table.lock().keep(interest);
    }

    fn mark(&self) -> u64 {
        self.shared.is_observing.store(true, Ordering::Release);
        let mark = self.shared.marks.fetch_add(1, Ordering::AcqRel) + 1;
        self.shared.interrupt();
        mark
    }

    fn passed(&self) -> u64 {
        self.shared.table.lock().passed()
    }
}

//! The handle that tests hold, and its `Disk` and `File` sides.

use crate::content::{Content, SECTOR, chance};
use crate::state::{Reach, State};
use oorandom::Rand64;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io::{self, Error, ErrorKind};
use std::ops::Range;
use std::sync::Arc;
use thalweg_disk::{Disk, File, check_path, folder_of};

/// A disk in memory. Clones are handles to the same disk; [`SimDisk::fork`] makes another one.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

struct SimFile {
    state: Arc<Mutex<State>>,
    inode: u64,
    life: u64,
}

fn split(path: &str) -> io::Result<(&str, &str)> {
    check_path(path)?;
    let folder = folder_of(path);
    Ok((folder, if folder.is_empty() { path } else { &path[folder.len() + 1..] }))
}

fn missing(path: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("{path} does not exist on the simulated disk"))
}

impl SimDisk {
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: Arc::new(Mutex::new(State::new(seed))) }
    }

    /// An independent disk with the same state, the same faults and the same future.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self { state: Arc::new(Mutex::new(self.state.lock().clone())) }
    }

    /// The power goes: unsynced sectors survive, get lost or tear, one by one; unsynced names survive in a prefix per
    /// folder. Handles from before are dead.
    pub fn crash_power(&self) {
        self.state.lock().crash_power();
    }

    /// The process dies (`kill -9`): nothing is lost from the cache, nothing becomes durable, and its handles are dead.
    pub fn crash_kill(&self) {
        let mut state = self.state.lock();
        state.life += 1;
        state.revive();
    }

    /// So many changes (creations, writes, syncs, renames, removals) still happen. The one after is the process's last:
    /// a write gets to some point, everything else does not happen. From then on every operation fails, until a crash.
    pub fn stop_after(&self, changes: u64) {
        self.state.lock().faults.left = Some(changes);
    }

    /// Whether the process has died of [`SimDisk::stop_after`].
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.state.lock().faults.stopped
    }

    /// How many changes were asked for since the disk was made.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.state.lock().changes
    }

    /// The next read fails.
    pub fn fail_next_read(&self) {
        self.state.lock().faults.fail_next_read = true;
    }

    /// Each read goes wrong with this probability: it fails, it gives bytes of another place, or a sector as it was
    /// before its last write. The medium's bytes stay right.
    pub fn misreads(&self, p: f64) {
        self.state.lock().faults.misreads = p;
    }

    /// Disarms the failure of the next sync, read or write; whether one of them has failed since, or the process has
    /// died.
    pub fn take_armed(&self) -> bool {
        let mut state = self.state.lock();
        let faults = &mut state.faults;
        let armed = [
            &mut faults.fail_next_sync,
            &mut faults.fail_next_write,
            &mut faults.fail_next_dir_sync,
            &mut faults.fail_next_read,
        ];
        armed.into_iter().for_each(|armed| *armed = false);
        std::mem::take(&mut faults.failed)
    }

    /// A file's name is gone, as from a damaged directory; whether it was there.
    pub fn lose(&self, path: &str) -> bool {
        let mut state = self.state.lock();
        let Ok((folder, name)) = split(path) else { return false };
        let found = state.lookup(folder, name).is_some();
        state.folder(folder).lose(name);
        found
    }

    /// Makes the next [`File::sync`] fail. It drops some dirty data, as Linux does: reads show it, and no later sync
    /// writes it.
    pub fn fail_next_sync(&self) {
        self.state.lock().faults.fail_next_sync = true;
    }

    /// The next [`Disk::sync_dir`] fails. Some of the changes of names reach the medium; the others stay in the cache,
    /// and are either still pending or dropped: then no later sync makes them durable.
    pub fn fail_next_dir_sync(&self) {
        self.state.lock().faults.fail_next_dir_sync = true;
    }

    /// The next write fails after a part of it.
    pub fn fail_next_write(&self) {
        self.state.lock().faults.fail_next_write = true;
    }

    /// Each sync fails with this probability.
    pub fn sync_failures(&self, p: f64) {
        self.state.lock().faults.sync_failures = p;
    }

    /// Each write fails with this probability.
    pub fn write_failures(&self, p: f64) {
        self.state.lock().faults.write_failures = p;
    }

    /// Each `try_read_at` answers `None` with this probability.
    pub fn waits(&self, p: f64) {
        self.state.lock().faults.waits = p;
    }

    /// How many bytes all files together may have; `u64::MAX` for no limit.
    pub fn capacity(&self, bytes: u64) {
        self.state.lock().faults.capacity = bytes;
    }

    /// Creating a file fails with this error of the operating system, such as `EMFILE`; `None` lifts it.
    pub fn no_new_files(&self, errno: Option<i32>) {
        self.state.lock().faults.no_new_files = errno;
    }

    /// Every sync answers `Ok` and makes nothing durable.
    pub fn lie_on_sync(&self, lie: bool) {
        self.state.lock().faults.lie_on_sync = lie;
    }

    /// No more faults and no limit.
    pub fn heal(&self) {
        let mut state = self.state.lock();
        state.faults = State::new(0).faults;
    }

    /// Flips a random bit of `path` that is durable; its byte position, or `None` where nothing is durable.
    pub fn flip_bit(&self, path: &str, rng: &mut Rand64) -> Option<u64> {
        self.flip_bit_within(path, 0..u64::MAX, rng)
    }

    /// Like [`SimDisk::flip_bit`], in a range of byte positions.
    pub fn flip_bit_within(&self, path: &str, within: Range<u64>, rng: &mut Rand64) -> Option<u64> {
        let mut state = self.state.lock();
        let (folder, name) = split(path).ok()?;
        let inode = state.lookup(folder, name)?;
        let within = usize::try_from(within.start).ok()?..usize::try_from(within.end).unwrap_or(usize::MAX);
        state.files.get_mut(&inode)?.flip(within, rng).map(|at| at as u64)
    }

    /// All paths, sorted by folder.
    #[must_use]
    pub fn files(&self) -> Vec<String> {
        let state = self.state.lock();
        let paths = state.folders.iter().flat_map(|(dir, f)| f.cached.keys().map(move |name| join(dir, name)));
        paths.collect()
    }

    /// The files after a power cut that loses as much as it may: path and bytes.
    #[must_use]
    pub fn durable(&self) -> BTreeMap<String, Vec<u8>> {
        self.every(|f| &f.durable, |c| &c.durable)
    }

    /// The files as readers see them now: path and bytes.
    #[must_use]
    pub fn cached(&self) -> BTreeMap<String, Vec<u8>> {
        self.every(|f| &f.cached, |c| &c.cached)
    }

    fn every(
        &self,
        names: impl Fn(&crate::folder::Folder) -> &BTreeMap<String, u64>,
        bytes: impl Fn(&Content) -> &Vec<u8>,
    ) -> BTreeMap<String, Vec<u8>> {
        let state = self.state.lock();
        let mut all = BTreeMap::new();
        for (dir, folder) in &state.folders {
            for (name, inode) in names(folder) {
                if let Some(content) = state.files.get(inode) {
                    all.insert(join(dir, name), bytes(content).clone());
                }
            }
        }
        all
    }

    fn file(&self, inode: u64, life: u64) -> Arc<dyn File> {
        Arc::new(SimFile { state: Arc::clone(&self.state), inode, life })
    }
}

fn join(dir: &str, name: &str) -> String {
    if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") }
}

impl Disk for SimDisk {
    fn create(&self, path: &str) -> io::Result<Arc<dyn File>> {
        let (folder, name) = split(path)?;
        let mut state = self.state.lock();
        state.whole_change()?;
        if state.lookup(folder, name).is_some() {
            return Err(Error::new(ErrorKind::AlreadyExists, format!("{path} exists on the simulated disk")));
        }
        if let Some(errno) = state.faults.no_new_files {
            return Err(Error::from_raw_os_error(errno));
        }
        state.room(1)?;
        let inode = state.fresh();
        state.files.insert(inode, Content::default());
        state.folder(folder).link(name, inode);
        Ok(self.file(inode, state.life))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn File>> {
        let (folder, name) = split(path)?;
        let state = self.state.lock();
        state.alive()?;
        let inode = state.lookup(folder, name).ok_or_else(|| missing(path))?;
        Ok(self.file(inode, state.life))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let ((from_folder, from_name), (to_folder, to_name)) = (split(from)?, split(to)?);
        let mut state = self.state.lock();
        state.whole_change()?;
        let inode = state.lookup(from_folder, from_name).ok_or_else(|| missing(from))?;
        if from == to {
            return Ok(());
        }
        if from_folder == to_folder {
            state.folder(from_folder).rename(from_name, to_name, inode);
        } else {
            let id = state.fresh();
            state.folder(to_folder).arrive(to_name, inode, id);
            state.folder(from_folder).leave(from_name, id);
        }
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let (folder, name) = split(path)?;
        let mut state = self.state.lock();
        state.whole_change()?;
        state.lookup(folder, name).ok_or_else(|| missing(path))?;
        state.folder(folder).unlink(name);
        Ok(())
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        if !dir.is_empty() {
            check_path(dir)?;
        }
        let state = self.state.lock();
        state.alive()?;
        Ok(state.folders.get(dir).map(|f| f.cached.keys().cloned().collect()).unwrap_or_default())
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        state.whole_change()?;
        if state.folder_sync_fails() {
            state.fail_folder_sync(dir);
            return Err(Error::other("simulated failure of a folder's sync"));
        }
        state.sync_folder(dir);
        Ok(())
    }

    fn free(&self) -> io::Result<u64> {
        Ok(self.state.lock().free())
    }
}

impl SimFile {
    fn with<T>(&self, f: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.state.lock();
        if state.life != self.life || !state.files.contains_key(&self.inode) {
            return Err(Error::other("the handle is from before a simulated crash"));
        }
        state.alive()?;
        f(&mut state)
    }

    fn grow(&self, state: &mut State, to: u64) -> io::Result<()> {
        let len = state.files.get(&self.inode).map_or(0, |c| c.cached.len() as u64);
        state.room(to.saturating_sub(len))
    }
}

fn content(state: &mut State, inode: u64) -> io::Result<&mut Content> {
    state.files.get_mut(&inode).ok_or_else(|| Error::other("a simulated file without contents"))
}

impl File for SimFile {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        self.with(|state| {
            let p = state.faults.misreads;
            let wrong = if chance(&mut state.rng, p) { Some(state.rng.rand_range(0..3)) } else { None };
            if state.read_fails() || wrong == Some(0) {
                return Err(Error::other("simulated failure of a read"));
            }
            let mut rng = state.rng;
            let content = content(state, self.inode)?;
            let mut from = usize::try_from(at).unwrap_or(usize::MAX);
            if wrong == Some(1) {
                from = from.wrapping_add_signed(SECTOR as isize * (rng.rand_range(0..9) as isize - 4));
            }
            let rest = content.cached.get(from..).unwrap_or_default();
            let n = rest.len().min(buf.len());
            buf[..n].copy_from_slice(&rest[..n]);
            if wrong == Some(2) {
                content.make_stale(&mut buf[..n], from, &mut rng);
            }
            state.rng = rng;
            Ok(n)
        })
    }

    fn try_read_at(&self, buf: &mut [u8], at: u64) -> io::Result<Option<usize>> {
        let waits = self.with(|state| {
            let p = state.faults.waits;
            Ok(chance(&mut state.rng, p))
        })?;
        if waits { Ok(None) } else { self.read_at(buf, at).map(Some) }
    }

    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<()> {
        self.with(|state| {
            let reach = state.change()?;
            self.grow(state, at + buf.len() as u64)?;
            let fails = state.write_fails() || reach == Reach::Part;
            let n = if fails { state.rng.rand_range(0..buf.len() as u64 + 1) as usize } else { buf.len() };
            let at = usize::try_from(at).map_err(|_| Error::from(ErrorKind::InvalidInput))?;
            content(state, self.inode)?.write(&buf[..n], at);
            if fails { Err(Error::other("simulated failure of a write")) } else { Ok(()) }
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.with(|state| {
            state.whole_change()?;
            if state.sync_fails() {
                let mut rng = state.rng;
                content(state, self.inode)?.fail_sync(&mut rng);
                state.rng = rng;
                return Err(Error::other("simulated failure of a sync"));
            }
            if !state.faults.lie_on_sync {
                content(state, self.inode)?.sync();
            }
            Ok(())
        })
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.with(|state| {
            state.whole_change()?;
            self.grow(state, len)?;
            let content = content(state, self.inode)?;
            let len = usize::try_from(len).map_err(|_| Error::from(ErrorKind::InvalidInput))?;
            content.set_len(len.max(content.cached.len()));
            Ok(())
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.with(|state| {
            state.whole_change()?;
            let len = usize::try_from(len).map_err(|_| Error::from(ErrorKind::InvalidInput))?;
            content(state, self.inode)?.set_len(len);
            Ok(())
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.with(|state| Ok(content(state, self.inode)?.cached.len() as u64))
    }
}

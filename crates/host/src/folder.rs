//! The data folder: its lock, its format, and how the last server left it.
//!
//! Beside the kernel's files, a folder holds `FORMAT` (one line, refused if newer than this program), `LOCK` (held
//! exclusively while a server or `thalweg check` runs, with the number of that process), `RUN` (how the last server
//! ran, so that the next one knows whether a crash may have lost buffered appends, or whether the folder was restored)
//! and `LINEAGE` (random; distinguishes this folder's history of object ids from all others, so that a backup knows
//! which objects it has already).
//!
//! Only the owner may read any of it: folders are made with mode 0700, files with 0600.

use anyhow::{Context, bail};
use bytes::Bytes;
use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, DirBuilder, File};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thalweg_base::Durability;
use thalweg_log::Loss;

/// The last line of the file `STORE`, once the folder goes on without its store.
const LEFT: &str = "left";
/// The file that names the store of replicated streams.
const REPLICATED: &str = "REPLICATED";
/// The file that names the prefix of the units that the folder's server has in a bucket.
const PREFIX: &str = "PREFIX";

/// The format of data folders that this program writes; it reads this one and older ones.
pub const FORMAT: u32 = 6;

/// Files of a data folder that concern this folder only.
const OWN: [&str; 9] = ["FORMAT", "LOCK", "RUN", "LINEAGE", "STORE", PREFIX, "FILLING", "CLOSED", "reserve"];
/// How much the files beside the kernel's may take together: they are read at once, so that they fit to each other.
const BESIDE_BYTES_MAX: u64 = 64 << 20;

/// How long a server waits for a folder: the process that it replaces may just have been killed.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A data folder that this process has for itself until this is dropped.
pub struct Folder {
    path: PathBuf,
    /// Dropping them gives the locks back.
    _lock: Lock,
    /// Folders that [`Folder::take`] has made, outermost first.
    made: Vec<PathBuf>,
    /// The data folder had no `FORMAT`.
    is_new: bool,
    /// Files of engines, which go with a start that is refused.
    held: Mutex<Vec<&'static str>>,
    /// Whether content of a new folder may have been acknowledged to a client.
    served: AtomicBool,
}

impl Folder {
    /// Takes a folder for a server, and creates a missing one. Waits some seconds for another process to release it.
    pub fn take(path: &Path) -> anyhow::Result<Self> {
        if path.symlink_metadata().is_ok_and(|found| found.is_symlink()) && !path.exists() {
            let target = fs::read_link(path).unwrap_or_default();
            bail!("{} is a link to {}, which is not there: make that folder first", path.display(), target.display());
        }
        if !path.join("FORMAT").exists() {
            must_be_empty(path)?;
        }
        let made = make(path).with_context(|| format!("cannot make the data folder {}", path.display()))?;
        let lock = Lock::take(path, PATIENCE)?;
        let is_new = !path.join("FORMAT").exists();
        if is_new {
            must_be_empty(path)?;
        }
        // From here on this process has made all files of a new folder.
        let folder = Self {
            path: path.to_owned(),
            _lock: lock,
            made,
            is_new,
            held: Mutex::default(),
            served: AtomicBool::new(false),
        };
        if is_new {
            folder.write("FORMAT", &format!("{FORMAT}\n"))?;
        }
        if folder.check_format()? < FORMAT {
            // Later writes are of this format: an older program must not open them.
            folder.write("FORMAT", &format!("{FORMAT}\n"))?;
        }
        if !path.join("LINEAGE").exists() {
            folder.write("LINEAGE", &format!("{:016x}{:016x}\n", random()?, random()?))?;
        }
        folder.warn_of_readers();
        Ok(folder)
    }

    /// Takes an existing folder for reading: nothing in it is changed.
    pub fn take_existing(path: &Path) -> anyhow::Result<Self> {
        if !path.join("FORMAT").exists() {
            bail!("{} is not a data folder: it has no FORMAT file", path.display());
        }
        let lock = Lock::take_for_reading(path)?;
        let (made, served) = (Vec::new(), AtomicBool::new(true));
        let folder = Self { path: path.to_owned(), _lock: lock, made, is_new: false, held: Mutex::default(), served };
        folder.check_format()?;
        Ok(folder)
    }

    fn warn_of_readers(&self) {
        let mode = fs::metadata(&self.path).map_or(0, |found| found.mode() & 0o077);
        if mode != 0 {
            tracing::warn!(
                folder = %self.path.display(),
                "other users of this machine may read the data: chmod 700 it, unless that is meant"
            );
        }
    }

    /// The folder's format, if this program knows it.
    fn check_format(&self) -> anyhow::Result<u32> {
        let text = fs::read_to_string(self.path.join("FORMAT"))
            .with_context(|| format!("cannot read the format of {}", self.path.display()))?;
        match text.trim().parse::<u32>() {
            Ok(found) if found <= FORMAT => Ok(found),
            Ok(found) => bail!(
                "the data folder {} has format {found}; this program knows formats up to {FORMAT}: use a newer thalweg",
                self.path.display()
            ),
            Err(_) => bail!("{} does not hold a format number", self.path.join("FORMAT").display()),
        }
    }

    /// Where it is, as the settings name it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The acknowledged data that may be lost. If the last server did not stop in order and the machine has rebooted
    /// since: data that only the operating system had. If the folder was restored from a backup and has not been served
    /// since: everything, because positions that the server will assign were assigned before, to other bytes. The same
    /// holds if the record of the last run is unreadable.
    pub(crate) fn loss(&self) -> Loss {
        if self.is_new {
            return Loss::Nothing;
        }
        let last = fs::read_to_string(self.path.join("RUN")).unwrap_or_default();
        let mut words = last.split_whitespace();
        let (state, same_boot) = (words.next(), words.next() == Some(boot().as_str()));
        match state {
            Some("stopped") => Loss::Nothing,
            Some("buffered" | "durable") if same_boot => Loss::Nothing,
            Some("buffered") => Loss::Unsaid,
            // Streams may be buffered of which the server is not.
            Some("durable") => Loss::Buffered,
            Some("restored") => Loss::Everything,
            other => {
                tracing::warn!(
                    found = other.unwrap_or("nothing"),
                    "RUN does not say how the last server on this folder ran: the folder counts as a restored one"
                );
                Loss::Everything
            }
        }
    }

    /// Whether a server has run on the folder, or a restore made it: it holds more than a new folder.
    pub(crate) fn was_served(&self) -> bool {
        !self.is_new && self.path.join("RUN").exists()
    }

    /// Completes a folder with a restored copy, so that a server can open it.
    pub fn finish_restored(path: &Path, format: u32) -> anyhow::Result<()> {
        let _lock = Lock::take(path, Duration::ZERO)?;
        write(path, "RUN", "restored\n")?;
        write(path, "FORMAT", &format!("{format}\n"))
    }

    /// No server has run on the folder before this one, and there is nothing in it.
    pub(crate) fn is_unused(&self) -> bool {
        self.is_new || !(self.was_served() || self.path.join(thalweg_log::MANIFEST).exists())
    }

    /// The store with which the folder was used last.
    pub fn store(&self) -> Option<String> {
        Some(fs::read_to_string(self.path.join("STORE")).ok()?.lines().next()?.to_owned())
    }

    /// The owners of the mirror in that store that have run on this folder, as far as they may be in the mirror still.
    pub(crate) fn mirror_owners(&self) -> Vec<u64> {
        let text = fs::read_to_string(self.path.join("STORE")).unwrap_or_default();
        let owners = text.lines().nth(1).unwrap_or_default().split_whitespace();
        owners.filter_map(|owner| u64::from_str_radix(owner, 16).ok()).collect()
    }

    /// Notes that the folder's objects may be in this store only, from now on, and who may own its mirror.
    pub(crate) fn note_store(path: &Path, name: &str, owners: &[u64]) -> anyhow::Result<()> {
        let owners: Vec<String> = owners.iter().map(|owner| format!("{owner:016x}")).collect();
        write(path, "STORE", &format!("{name}\n{}\n{}\n", owners.join(" "), place(path)?))
    }

    /// Whether the folder is the very one in which the store was noted, and not a copy of it.
    pub(crate) fn is_where_it_was(&self) -> bool {
        let text = fs::read_to_string(self.path.join("STORE")).unwrap_or_default();
        place(&self.path).is_ok_and(|place| text.lines().nth(2) == Some(&place))
    }

    /// Whether the folder has gone on without its store since.
    pub(crate) fn has_left_store(&self) -> bool {
        let text = fs::read_to_string(self.path.join("STORE")).unwrap_or_default();
        text.lines().nth(3) == Some(LEFT)
    }

    /// Notes that the folder goes on without its store. It may come back, if the bucket agrees.
    pub(crate) fn note_left_store(&self) -> anyhow::Result<()> {
        match fs::read_to_string(self.path.join("STORE")) {
            Ok(text) if !self.has_left_store() => {
                self.write("STORE", &format!("{}\n{LEFT}\n", text.trim_end_matches('\n')))
            }
            _ => Ok(()),
        }
    }

    /// The store that has replicated streams of this folder's server.
    #[must_use]
    pub fn replicated_store(&self) -> Option<String> {
        Self::replicated_store_of(&self.path)
    }

    /// The same, of the folder at this path.
    pub(crate) fn replicated_store_of(path: &Path) -> Option<String> {
        Some(fs::read_to_string(path.join(REPLICATED)).ok()?.trim().to_owned())
    }

    /// Notes that replicated streams are in this store: no server may forget their names.
    pub fn note_replicated(path: &Path, store: &str) -> anyhow::Result<()> {
        match path.join(REPLICATED).exists() {
            true => Ok(()),
            false => write(path, REPLICATED, &format!("{store}\n")),
        }
    }

    /// Notes which prefix of a store the folder's server has units in: the store's location, and the prefix's id.
    pub(crate) fn note_prefix(path: &Path, store: &str, id: &str) -> anyhow::Result<()> {
        match Self::prefix_of(path, store)?.as_deref() == Some(id) {
            true => Ok(()),
            false => write(path, PREFIX, &format!("{store}\n{id}\n")),
        }
    }

    /// The id of the prefix that the folder's server has had units in, if it was in this store.
    pub(crate) fn prefix_of(path: &Path, store: &str) -> anyhow::Result<Option<String>> {
        let text = match fs::read_to_string(path.join(PREFIX)) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            text => text.with_context(|| format!("reading {}", path.join(PREFIX).display()))?,
        };
        let noted = text.trim_end().split_once('\n');
        let (noted, id) =
            noted.with_context(|| format!("{} is damaged: it lacks an id", path.join(PREFIX).display()))?;
        Ok((noted == store).then(|| id.to_owned()))
    }

    /// A filling of the folder from a bucket has begun, and is not in force.
    pub(crate) fn is_filling(&self) -> bool {
        self.path.join("FILLING").exists()
    }

    /// Notes that what is in the folder is not whole.
    pub(crate) fn begin_filling(&self) -> anyhow::Result<()> {
        self.write("FILLING", "from a bucket\n")
    }

    /// Notes that the folder is filled. It is a history of its own: other objects than those of the folder from which
    /// it was filled may get the same ids.
    pub(crate) fn note_filled(&self, loss: Loss) -> anyhow::Result<()> {
        let run = if loss == Loss::Nothing { "stopped\n" } else { "restored\n" };
        self.write("RUN", run)?;
        self.write("LINEAGE", &format!("{:016x}{:016x}\n", random()?, random()?))
    }

    /// Notes that no server has run on the folder: it is empty.
    pub(crate) fn forget_runs(&self) -> anyhow::Result<()> {
        remove(&self.path, "RUN")
    }

    /// Notes that the folder is whole, or empty, and that no filling is under way.
    pub(crate) fn end_filling(&self) -> anyhow::Result<()> {
        remove(&self.path, "FILLING")
    }

    /// The bucket may say that the folder was closed with everything in it: another one may go on from there.
    pub(crate) fn is_closed(&self) -> bool {
        self.path.join("CLOSED").exists()
    }

    /// Notes that the bucket is about to say so.
    pub(crate) fn note_closed(path: &Path) -> anyhow::Result<()> {
        write(path, "CLOSED", "the bucket may be served by another server\n")
    }

    /// Notes that the bucket says that the folder is in use.
    pub(crate) fn note_reopened(&self) -> anyhow::Result<()> {
        remove(&self.path, "CLOSED")
    }

    /// Puts a file beside the data: see [`beside`].
    pub(crate) fn put_beside(&self, name: &str, content: &[u8]) -> anyhow::Result<()> {
        if !is_beside(name) {
            bail!("{name:?} is no name of a file beside the data");
        }
        write_bytes(&self.path, name, content)
    }

    /// Empty in a folder that no server of this version has opened yet.
    pub fn lineage(&self) -> String {
        fs::read_to_string(self.path.join("LINEAGE")).map(|text| text.trim().to_owned()).unwrap_or_default()
    }

    /// Records that clients may rely on the folder's content from now on.
    pub fn note_served(&self) {
        self.served.store(true, Ordering::Relaxed);
    }

    /// Notes that a server runs from now on.
    pub fn note_running(&self, durability: Durability) -> anyhow::Result<()> {
        self.write("RUN", &format!("{durability} {}\n", boot()))
    }

    /// Records that a write or sync has failed under a server: data that had not reached the disk may be lost, although
    /// the machine runs on.
    pub fn note_failed(path: &Path, durability: Durability) -> anyhow::Result<()> {
        write(path, "RUN", &format!("{durability} no-boot\n"))
    }

    /// Notes that the server stopped by itself, with everything on the disk.
    pub fn note_stopped(&self) -> anyhow::Result<()> {
        self.write("RUN", "stopped\n")
    }

    /// Says that an engine keeps a file of this name in the folder. A start that is refused removes it from a new
    /// folder. To be called before the file is made.
    pub fn hold(&self, name: &'static str) {
        self.held.lock().push(name);
    }

    fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        write(&self.path, name, text)
    }
}

/// A refused start removes its new folder, and its files in a folder that was empty.
impl Drop for Folder {
    fn drop(&mut self) {
        if !self.is_new || self.served.load(Ordering::Relaxed) {
            return;
        }
        for (folder, ending) in
            [("journal", "seg"), ("objects", "tmp"), ("manifest", ""), ("copies", ""), ("cache", "")]
        {
            let Ok(files) = fs::read_dir(self.path.join(folder)) else { continue };
            for file in files.flatten().filter(|file| ends(&file.path(), ending)) {
                let _ = fs::remove_file(file.path());
            }
            let _ = fs::remove_dir(self.path.join(folder));
        }
        for name in ["RUN", "FORMAT", "LINEAGE", "STORE", "FILLING", "CLOSED", "reserve"]
            .into_iter()
            .chain(self.held.lock().drain(..))
            .chain(["LOCK"])
        {
            let _ = fs::remove_file(self.path.join(name));
        }
        for folder in self.made.iter().rev() {
            let _ = fs::remove_dir(folder);
        }
    }
}

/// Whether a file of this name in a data folder belongs to its data, beside the kernel's files: keys, for example.
#[must_use]
pub fn is_beside(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    !name.is_empty()
        && name.len() <= 255
        && name.bytes().all(plain)
        && !name.starts_with('.')
        && !name.ends_with(".tmp")
        && !OWN.contains(&name)
}

/// The files that belong to a folder's data, beside the kernel's: their names and contents.
pub fn beside(folder: &Path) -> anyhow::Result<Vec<(String, Bytes)>> {
    let (mut found, mut total) = (Vec::new(), 0);
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if !entry.file_type()?.is_file() || !is_beside(&name) {
            continue;
        }
        total += entry.metadata()?.len();
        if total > BESIDE_BYTES_MAX {
            bail!("the files beside the data take more than {} MiB, with {name}", BESIDE_BYTES_MAX >> 20);
        }
        found.push((name, fs::read(entry.path())?.into()));
    }
    found.sort();
    Ok(found)
}

/// The locks of a data folder: of its file `LOCK`, and of the folder itself, in case that file is removed.
struct Lock {
    _file: Option<File>,
    _folder: File,
}

impl Lock {
    /// Takes both, waiting for `patience` at most, and notes the process.
    fn take(path: &Path, patience: Duration) -> anyhow::Result<Self> {
        let file = path.join("LOCK");
        let open = File::options().create(true).truncate(false).read(true).write(true).mode(0o600).open(&file);
        let mut lock = open.with_context(|| format!("cannot open {}", file.display()))?;
        let folder = open_folder(path)?;
        hold(path, &[&lock, &folder], FlockOperation::NonBlockingLockExclusive, patience)?;
        lock.set_len(0)?;
        writeln!(lock, "{}", std::process::id())?;
        Ok(Self { _file: Some(lock), _folder: folder })
    }

    /// The same locks, for a folder that may be read-only. Does not wait for a server.
    fn take_for_reading(path: &Path) -> anyhow::Result<Self> {
        let file = File::open(path.join("LOCK")).ok();
        let folder = open_folder(path)?;
        let both: Vec<&File> = file.iter().chain([&folder]).collect();
        hold(path, &both, FlockOperation::NonBlockingLockExclusive, Duration::ZERO)?;
        Ok(Self { _file: file, _folder: folder })
    }
}

fn open_folder(path: &Path) -> anyhow::Result<File> {
    File::open(path).with_context(|| format!("cannot open {}", path.display()))
}

fn hold(path: &Path, files: &[&File], how: FlockOperation, patience: Duration) -> anyhow::Result<()> {
    let until = Instant::now() + patience;
    while let Some(error) = files.iter().find_map(|file| flock(file, how).err()) {
        if error != rustix::io::Errno::WOULDBLOCK {
            return Err(error).with_context(|| format!("cannot lock {}", path.display()));
        }
        if Instant::now() >= until {
            let holder = fs::read_to_string(path.join("LOCK")).ok();
            let holder = holder.as_deref().map(str::trim).filter(|pid| !pid.is_empty()).unwrap_or("unknown");
            bail!(
                "the data folder {} is in use by another thalweg process (pid {holder}): stop that one first, or name another \
                 folder",
                path.display()
            );
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Creates a folder and its missing parents, durably, for their owner alone; returns the created ones, outermost first.
pub fn make(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut missing: Vec<&Path> =
        path.ancestors().take_while(|at| !at.as_os_str().is_empty() && !at.is_dir()).collect();
    missing.reverse();
    let mut made = Vec::new();
    for folder in missing {
        DirBuilder::new().mode(0o700).create(folder)?;
        let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(parent)?.sync_all()?;
        made.push(folder.to_owned());
    }
    Ok(made)
}

/// Names a folder on a machine: a copy of it has another name.
fn place(path: &Path) -> anyhow::Result<String> {
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Ok(format!("{machine} {}", fs::metadata(path)?.ino()))
}

/// Removes a file, durably, if it is there.
fn remove(folder: &Path, name: &str) -> anyhow::Result<()> {
    match fs::remove_file(folder.join(name)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        removed => removed.with_context(|| format!("cannot remove {}", folder.join(name).display()))?,
    }
    Ok(File::open(folder)?.sync_all()?)
}

/// Replaces a small file, durably and as a whole.
fn write(folder: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    write_bytes(folder, name, text.as_bytes())
}

fn write_bytes(folder: &Path, name: &str, content: &[u8]) -> anyhow::Result<()> {
    let unfinished = folder.join(format!("{name}.tmp"));
    let done = (|| {
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&unfinished, folder.join(name))?;
        File::open(folder)?.sync_all()
    })();
    done.with_context(|| format!("cannot write {} in {}", name, folder.display()))
}

/// A folder without `FORMAT` is either new or another program's. An empty `journal/` may exist before the first start:
/// it may be the mount point of another disk.
fn must_be_empty(path: &Path) -> anyhow::Result<()> {
    let holds = |name: &str, endings: &[&str]| endings.iter().any(|ending| has_files(&path.join(name), ending));
    if path.join("manifest").exists() || holds("journal", &["seg", "spare"]) || holds("objects", &["obj", "tmp"]) {
        bail!("{} holds data but no FORMAT file: it is not a whole data folder", path.display());
    }
    Ok(())
}

fn has_files(folder: &Path, ending: &str) -> bool {
    fs::read_dir(folder).is_ok_and(|mut files| files.any(|file| file.is_ok_and(|file| ends(&file.path(), ending))))
}

fn ends(path: &Path, ending: &str) -> bool {
    ending.is_empty() || path.extension().is_some_and(|extension| extension == ending)
}

/// 64 random bits of the system.
pub fn random() -> anyhow::Result<u64> {
    let mut bytes = [0; 8];
    let n = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if n < bytes.len() {
        bail!("the system gave {n} random bytes of {}", bytes.len());
    }
    Ok(u64::from_le_bytes(bytes))
}

/// The machine's present boot; empty where the system does not report it.
fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(path: &Path) -> String {
        Folder::take(path).err().unwrap().to_string()
    }

    #[test]
    fn a_folder_is_used_by_one_process_at_a_time_and_it_is_said_by_which() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::take(dir.path()).unwrap();
        folder.note_served();
        let holder = format!("in use by another thalweg process (pid {})", std::process::id());
        let refused = Folder::take_existing(dir.path()).err().unwrap().to_string();
        assert!(refused.contains(&holder), "{refused}");
        // The folder itself is locked too, so removing LOCK releases nothing.
        fs::remove_file(dir.path().join("LOCK")).unwrap();
        assert!(Folder::take_existing(dir.path()).is_err());
        assert!(refusal(dir.path()).contains("in use by another thalweg process"));
        drop(folder);
        Folder::take(dir.path()).unwrap();
    }

    #[test]
    fn a_folder_whose_process_is_about_to_end_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::take(dir.path()).unwrap();
        folder.note_served();
        std::thread::scope(|threads| {
            let next = threads.spawn(|| Folder::take(dir.path()).map(|folder| folder.note_served()));
            std::thread::sleep(LOOK_EVERY * 3);
            assert!(!next.is_finished());
            drop(folder);
            next.join().unwrap().unwrap();
        });
    }

    #[test]
    fn only_the_owner_may_read_what_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("a/b");
        Folder::take(&data).unwrap().note_served();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&dir.path().join("a")), mode(&data)), (0o700, 0o700));
        for file in ["FORMAT", "LINEAGE", "LOCK"] {
            assert_eq!(mode(&data.join(file)), 0o600, "{file}");
        }
    }

    #[test]
    fn a_start_that_is_refused_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("mistyped/path");
        drop(Folder::take(&data).unwrap());
        assert!(!dir.path().join("mistyped").exists());
        let empty = dir.path().join("empty");
        fs::create_dir_all(empty.join("journal")).unwrap();
        drop(Folder::take(&empty).unwrap());
        assert!(empty.exists() && fs::read_dir(&empty).unwrap().all(|entry| entry.unwrap().file_name() == "journal"));
        // A folder that clients rely on stays as it is, also when a later start is refused.
        Folder::take(&data).unwrap().note_served();
        drop(Folder::take(&data).unwrap());
        assert!(data.join("FORMAT").exists());
    }

    #[test]
    fn a_folder_without_its_format_is_refused_unless_it_is_new() {
        for file in ["journal/0000000000000001.seg", "objects/0000000000000001.obj", "manifest/root"] {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join(file);
            fs::create_dir(file.parent().unwrap()).unwrap();
            fs::write(&file, "x").unwrap();
            let refused = refusal(dir.path());
            assert!(refused.contains("not a whole data folder"), "{refused}");
            assert_eq!(fs::read(&file).unwrap(), b"x", "the file stays");
        }
    }

    #[test]
    fn a_link_that_leads_nowhere_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("data");
        std::os::unix::fs::symlink("/nowhere/at/all", &link).unwrap();
        assert!(refusal(&link).contains("is a link to /nowhere/at/all, which is not there"));
    }

    #[test]
    fn a_newer_format_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        Folder::take(dir.path()).unwrap().note_served();
        fs::write(dir.path().join("FORMAT"), format!("{}\n", FORMAT + 1)).unwrap();
        assert!(refusal(dir.path()).contains(&format!("format {}", FORMAT + 1)));
    }

    #[test]
    fn a_folder_of_an_older_format_is_of_this_one_once_it_is_served() {
        let dir = tempfile::tempdir().unwrap();
        Folder::take(dir.path()).unwrap().note_served();
        fs::write(dir.path().join("FORMAT"), "1\n").unwrap();
        drop(Folder::take_existing(dir.path()).unwrap());
        assert_eq!(fs::read_to_string(dir.path().join("FORMAT")).unwrap(), "1\n", "reading changes nothing");
        drop(Folder::take(dir.path()).unwrap());
        assert_eq!(fs::read_to_string(dir.path().join("FORMAT")).unwrap(), format!("{FORMAT}\n"));
    }

    #[test]
    fn what_a_boot_has_cut_off_may_be_lost_unless_it_was_durable() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::take(dir.path()).unwrap();
        assert_eq!(folder.loss(), Loss::Nothing, "nothing was ever in it");
        folder.note_served();
        drop(folder);
        let folder = Folder::take(dir.path()).unwrap();
        for (durability, loss) in [(Durability::Buffered, Loss::Unsaid), (Durability::Durable, Loss::Buffered)] {
            folder.note_running(durability).unwrap();
            assert_eq!(folder.loss(), Loss::Nothing, "the machine has not rebooted");
            fs::write(dir.path().join("RUN"), format!("{durability} another-boot\n")).unwrap();
            assert_eq!(folder.loss(), loss);
            folder.note_running(durability).unwrap();
            Folder::note_failed(dir.path(), durability).unwrap();
            assert_eq!(folder.loss(), loss);
        }
        folder.note_stopped().unwrap();
        assert_eq!(folder.loss(), Loss::Nothing);
        for unknown in ["restored\n", "", "something else\n"] {
            fs::write(dir.path().join("RUN"), unknown).unwrap();
            assert_eq!(folder.loss(), Loss::Everything, "{unknown:?}");
        }
        fs::remove_file(dir.path().join("RUN")).unwrap();
        assert_eq!(folder.loss(), Loss::Everything, "nothing says how it was left");
    }
}

//! What tests of redo and of pages share: modules, clusters before and after a load, their logs and their files.
#![allow(dead_code, clippy::unwrap_used)]

use postgres::{Client, NoTls};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thalweg_lakebase_redo::{Page, Program, Redo};
use thalweg_lakebase_wal::{Fork, Framed, PAGE_BYTES, PgVersion, Relation, WalFramer};
use thalweg_pg::PgLsn;
use thalweg_pgtest::{Cluster, Installation, Options, SEGMENT_BYTES, Stop, installations, log_of};

/// A page by its place.
pub(crate) type Key = (Relation, Fork, u32);

/// The module for a version of Postgres.
pub(crate) fn module(major: u32) -> Option<PathBuf> {
    let named = std::env::var("THALWEG_REDO_MODULES").unwrap_or_default();
    let mut all = named.split(':').filter_map(|one| one.split_once('='));
    all.find(|(of, _)| *of == major.to_string()).map(|(_, path)| PathBuf::from(path))
}

/// What can be tested here; a version without a module is skipped, which is a failure with `REQUIRE_ALL=1`.
pub(crate) fn subjects() -> Vec<(Installation, PathBuf)> {
    let all: Vec<_> = installations().into_iter().filter_map(|one| Some((one.clone(), module(one.major)?))).collect();
    if all.is_empty() {
        assert_ne!(std::env::var("REQUIRE_ALL").as_deref(), Ok("1"), "no module of redo is here, and REQUIRE_ALL=1");
        eprintln!("skipped: no module of redo is here (THALWEG_REDO_MODULES)");
    }
    all
}

/// Whom the processes belong to: Postgres refuses to run as root.
fn owner() -> Option<(u32, u32)> {
    let is_root = std::fs::metadata("/proc/self").map(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0).unwrap();
    let users = std::fs::read_to_string("/etc/passwd").unwrap();
    let nobody = users.lines().find(|line| line.starts_with("nobody:")).unwrap();
    let fields: Vec<&str> = nobody.split(':').collect();
    is_root.then(|| (fields[2].parse().unwrap(), fields[3].parse().unwrap()))
}

pub(crate) fn redo(installation: &Installation, module: PathBuf, data: &Path, folder: &Path, processes: usize) -> Redo {
    let program = Program {
        postgres: installation.bin.join("postgres"),
        major: installation.major,
        module,
        owner: owner(),
        request_within: Duration::from_secs(2),
        control: std::fs::read(data.join("global/pg_control")).unwrap(),
    };
    Redo::new(program, folder, processes).unwrap()
}

/// A folder that the owner of the processes can reach.
pub(crate) fn reachable() -> tempfile::TempDir {
    let folder = tempfile::Builder::new().prefix("thalweg-redo-").tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    folder
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => copy(&entry.path(), &to),
            kind if kind.is_file() => drop(std::fs::copy(entry.path(), to).unwrap()),
            _ => {}
        }
    }
}

/// All records of the log in a data folder, and the version that has written it.
pub(crate) fn records_of(data: &Path) -> (Vec<Framed>, PgVersion) {
    let (start, bytes) = log_of(data);
    let mut records = Vec::new();
    let mut framer = WalFramer::new(PgLsn(start), SEGMENT_BYTES, None);
    for piece in bytes.chunks(1 << 20) {
        framer.feed(piece);
        // Ends where the log does: at what a recycled segment had.
        while let Ok(Some(framed)) = framer.next_record() {
            records.push(framed);
        }
    }
    (records, framer.version().unwrap())
}

fn load(cluster: &Cluster) {
    let mut client = Client::connect(&cluster.url("postgres"), NoTls).unwrap();
    for statement in include_str!("../load.sql").split(";\n").map(str::trim).filter(|statement| !statement.is_empty()) {
        client.batch_execute(statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    // A multixact: a row that two transactions have locked; transactions that are prepared, of which one stays.
    let mut other = Client::connect(&cluster.url("postgres"), NoTls).unwrap();
    let (mut one, mut two) = (client.transaction().unwrap(), other.transaction().unwrap());
    for client in [&mut one, &mut two] {
        client.batch_execute("SELECT 1 FROM t WHERE id = 1 FOR KEY SHARE").unwrap();
    }
    one.commit().unwrap();
    two.commit().unwrap();
    for (name, end) in [("a", "COMMIT PREPARED 'a'"), ("b", "ROLLBACK PREPARED 'b'"), ("c", "SELECT 1")] {
        let prepare =
            format!("BEGIN; SAVEPOINT s; UPDATE t SET br = 1 WHERE id = 2; RELEASE s; PREPARE TRANSACTION '{name}'");
        for statement in prepare.split("; ").chain([end]) {
            client.batch_execute(statement).unwrap();
        }
    }
    let scale = std::env::var("ORACLE_SCALE").unwrap_or_else(|_| "1".to_owned());
    let url = cluster.url("postgres");
    let bench = |args: &[&str]| {
        let mut program = cluster.program("pgbench");
        if !Path::new(program.get_program()).exists() {
            return;
        }
        let output = program.args(args).arg(&url).output().unwrap();
        assert!(output.status.success(), "pgbench: {}", String::from_utf8_lossy(&output.stderr));
    };
    bench(&["-i", "-q", "-s", &scale]);
    bench(&["-n", "-c", "4", "-t", &(1_000 * scale.parse::<u64>().unwrap()).to_string()]);
    client.batch_execute("VACUUM").unwrap();
    client.batch_execute("CHECKPOINT").unwrap();
}

/// A cluster that was stopped, loaded and stopped again.
pub(crate) struct Loaded {
    pub(crate) cluster: Cluster,
    pub(crate) redo: Redo,
    /// Its data folder before the load.
    pub(crate) base: PathBuf,
    pub(crate) version: PgVersion,
    /// The record of the checkpoint that stopped it before the load.
    pub(crate) stopped: Framed,
    /// The records since.
    pub(crate) records: Vec<Framed>,
    _folder: tempfile::TempDir,
}

impl Loaded {
    pub(crate) fn new(installation: &Installation, module: PathBuf, options: Options) -> Self {
        let options = options
            .set("full_page_writes", "off")
            .set("max_prepared_transactions", "5")
            .set("max_wal_size", "20GB")
            .set("checkpoint_timeout", "1h")
            .set("wal_keep_size", "20GB");
        let cluster = Cluster::start(installation, &options);
        cluster.stop(Stop::Fast);
        let folder = reachable();
        let base = folder.path().join("base");
        copy(&cluster.data(), &base);
        cluster.start_again();
        load(&cluster);
        cluster.stop(Stop::Fast);
        let stopped = records_of(&base).0.pop().unwrap();
        let (mut records, version) = records_of(&cluster.data());
        records.retain(|framed| framed.start >= stopped.end);
        let redo = redo(installation, module, &cluster.data(), folder.path(), 1);
        Self { cluster, redo, base, version, stopped, records, _folder: folder }
    }
}

/// The page in the files of a cluster.
pub(crate) fn file_page(data: &Path, (relation, fork, block): Key) -> Option<Page> {
    const BLOCKS_PER_FILE: u32 = 131_072;
    let mut name = relation.number.to_string();
    name += fork.suffix();
    if block >= BLOCKS_PER_FILE {
        name += &format!(".{}", block / BLOCKS_PER_FILE);
    }
    let folder = if relation.database == 0 { "global".to_owned() } else { format!("base/{}", relation.database) };
    let file = File::open(data.join(folder).join(name)).ok()?;
    let mut page: Page = Box::new([0; PAGE_BYTES]);
    file.read_exact_at(&mut page[..], u64::from(block % BLOCKS_PER_FILE) * PAGE_BYTES as u64).ok()?;
    Some(page)
}

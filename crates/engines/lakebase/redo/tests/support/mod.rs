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
use thalweg_pgtest::{Cluster, Installation, installations};

pub(crate) const SEGMENT_BYTES: u32 = 16 << 20;

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

pub(crate) fn copy(from: &Path, to: &Path) {
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

/// The cluster's log: its segments one after the other, and where they begin.
pub(crate) fn log_of(data: &Path) -> (PgLsn, Vec<u8>) {
    let mut names: Vec<String> = std::fs::read_dir(data.join("pg_wal"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.len() == 24 && name.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .collect();
    names.sort();
    let number = |name: &str| {
        let [high, low] = [8..16, 16..24].map(|range| u64::from_str_radix(&name[range], 16).unwrap());
        high * (0x1_0000_0000 / u64::from(SEGMENT_BYTES)) + low
    };
    let first = number(&names[0]);
    let names = names.iter().enumerate().take_while(|(at, name)| number(name) == first + *at as u64);
    let bytes = names.flat_map(|(_, name)| std::fs::read(data.join("pg_wal").join(name)).unwrap()).collect();
    (PgLsn(first * u64::from(SEGMENT_BYTES)), bytes)
}

pub(crate) fn frame(start: PgLsn, bytes: &[u8], mut each: impl FnMut(Framed)) -> PgVersion {
    let mut framer = WalFramer::new(start, SEGMENT_BYTES, None);
    for piece in bytes.chunks(1 << 20) {
        framer.feed(piece);
        // Ends where the log does: at what a recycled segment had.
        while let Ok(Some(framed)) = framer.next_record() {
            each(framed);
        }
    }
    framer.version().unwrap()
}

pub(crate) fn load(cluster: &Cluster) {
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
        if !Path::new(program.get_program()).exists() && !cluster.folder().join("pgbench").exists() {
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

/// The page in the files of a cluster.
pub(crate) fn file_page(data: &Path, (relation, fork, block): Key) -> Option<Page> {
    const BLOCKS_PER_FILE: u32 = 131_072;
    let mut name = relation.number.to_string();
    name += match fork {
        Fork::Main => "",
        Fork::FreeSpace => "_fsm",
        Fork::Visibility => "_vm",
        Fork::Init => "_init",
    };
    if block >= BLOCKS_PER_FILE {
        name += &format!(".{}", block / BLOCKS_PER_FILE);
    }
    let folder = if relation.database == 0 { "global".to_owned() } else { format!("base/{}", relation.database) };
    let file = File::open(data.join(folder).join(name)).ok()?;
    let mut page: Page = Box::new([0; PAGE_BYTES]);
    file.read_exact_at(&mut page[..], u64::from(block % BLOCKS_PER_FILE) * PAGE_BYTES as u64).ok()?;
    Some(page)
}

//! Every page of a cluster that was stopped, as a timeline makes it from the pages before a load and the log of that load.
//!
//! What differs in a sound cluster, and is allowed for: what `rm_mask` takes out of a page; free space maps, which are not
//! logged; sequences, whose files lag behind the log; the last pages that a SP-GiST index has used; bits of visibility maps
//! that the file has and the log has not.
#![allow(clippy::unwrap_used)]

#[path = "../../redo/tests/support/mod.rs"]
mod support;

use bytes::Bytes;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;
use support::{Key, copy, file_page, frame, load, log_of, reachable, redo, subjects};
use thalweg_lakebase_pageserver::{Base, Status, StatusKey, Timeline};
use thalweg_lakebase_redo::Page;
use thalweg_lakebase_wal::{Fork, PAGE_BYTES, Record, Relation, Rmgr};
use thalweg_pg::PgLsn;
use thalweg_pgtest::{Cluster, Options, Stop};

/// The tablespaces of what is in `base` and in `global`.
const DEFAULT: u32 = 1663;
const GLOBAL: u32 = 1664;
const SEQUENCE: Rmgr = Rmgr(15);
const SPGIST: Rmgr = Rmgr(16);
const GIST: Rmgr = Rmgr(14);
const HASH: Rmgr = Rmgr(12);
/// Pages that are compared by one request.
const AT_ONCE: usize = 512;

/// The files of a cluster that is stopped.
struct Files(PathBuf);

/// The relation and fork that a file belongs to.
fn fork_of(name: &str, database: u32) -> Option<(Relation, Fork)> {
    let name = name.split('.').next()?;
    let (number, fork) = match name.split_once('_') {
        None => (name, Fork::Main),
        Some((number, "fsm")) => (number, Fork::FreeSpace),
        Some((number, "vm")) => (number, Fork::Visibility),
        Some((number, "init")) => (number, Fork::Init),
        Some(_) => return None,
    };
    let tablespace = if database == 0 { GLOBAL } else { DEFAULT };
    Some((Relation { tablespace, database, number: number.parse().ok()? }, fork))
}

impl Files {
    fn folder(&self, database: u32) -> PathBuf {
        self.0.join(if database == 0 { "global".to_owned() } else { format!("base/{database}") })
    }

    fn databases(&self) -> Vec<u32> {
        let folders = std::fs::read_dir(self.0.join("base")).unwrap();
        let numbers = folders.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
        [0].into_iter().chain(numbers).collect()
    }
}

impl Base for Files {
    fn blocks(&self, relation: Relation, fork: Fork) -> io::Result<Option<u32>> {
        let suffix = match fork {
            Fork::Main => "",
            Fork::FreeSpace => "_fsm",
            Fork::Visibility => "_vm",
            Fork::Init => "_init",
        };
        let path = self.folder(relation.database).join(format!("{}{suffix}", relation.number));
        match std::fs::metadata(path) {
            Ok(found) => Ok(Some((found.len() / PAGE_BYTES as u64) as u32)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn page(&self, key: Key) -> io::Result<Page> {
        file_page(&self.0, key).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn status(&self, (kind, page): StatusKey) -> io::Result<Option<Page>> {
        let folder = self.0.join(match kind {
            Status::Transactions => "pg_xact",
            Status::MultiOffsets => "pg_multixact/offsets",
            Status::MultiMembers => "pg_multixact/members",
        });
        const PAGES_PER_FILE: u64 = 32;
        let Ok(content) = std::fs::read(folder.join(format!("{:04X}", page / PAGES_PER_FILE))) else { return Ok(None) };
        let at = (page % PAGES_PER_FILE) as usize * PAGE_BYTES;
        Ok(content.get(at..at + PAGE_BYTES).map(|page| page.to_vec().into_boxed_slice().try_into().unwrap()))
    }

    fn map(&self, database: u32) -> io::Result<Option<Bytes>> {
        Ok(std::fs::read(self.folder(database).join("pg_filenode.map")).ok().map(Bytes::from))
    }

    fn forks(&self, database: u32) -> io::Result<Vec<(Relation, Fork)>> {
        let Ok(folder) = std::fs::read_dir(self.folder(database)) else { return Ok(Vec::new()) };
        folder
            .filter_map(|entry| {
                entry.map(|entry| entry.file_name().to_str().and_then(|name| fork_of(name, database))).transpose()
            })
            .collect()
    }
}

fn number_at(page: &Page, at: usize) -> u16 {
    u16::from_le_bytes([page[at], page[at + 1]])
}

/// Whose page it is, by its special space, for pages that no record has changed.
fn rmgr_of(page: &Page) -> Rmgr {
    match (number_at(page, 16), number_at(page, PAGE_BYTES - 2)) {
        (8192, _) => Rmgr::HEAP,
        (8176, 0xff80) => HASH,
        (8176, 0xff81) => GIST,
        (8184, 0xff82) => SPGIST,
        (8176, _) => Rmgr::BTREE,
        _ => Rmgr::HEAP,
    }
}

/// Whether a visibility map has a bit that the other one lacks.
fn has_more_bits(found: &Page, file: &Page) -> bool {
    found[24..].iter().zip(&file[24..]).any(|(found, file)| found & !file != 0)
}

fn compare(
    data: &Path,
    timeline: &Timeline,
    redo: &thalweg_lakebase_redo::Redo,
    last_rmgr: &BTreeMap<Key, Rmgr>,
) -> (u64, Vec<String>) {
    let files = Files(data.to_owned());
    let at = timeline.last();
    let (mut compared, mut wrong) = (0, Vec::new());
    for database in files.databases() {
        let forks = files.forks(database).unwrap();
        let is_unlogged = |relation: Relation| forks.contains(&(relation, Fork::Init));
        for (relation, fork) in forks.iter().copied() {
            if fork == Fork::FreeSpace || is_unlogged(relation) && fork != Fork::Init {
                continue;
            }
            let size = timeline.size(relation, fork, at).unwrap();
            let in_file = files.blocks(relation, fork).unwrap().unwrap();
            // An empty map is made without the log.
            let size = size.or((fork == Fork::Visibility).then_some(0));
            let Some(size) = size else {
                wrong.push(format!("{relation:?} {fork:?} does not exist, and has {in_file} blocks"));
                continue;
            };
            // A fork may have been made longer without the log: with zeros.
            let zeros = |block| file_page(data, (relation, fork, block)).unwrap().iter().all(|byte| *byte == 0);
            let is_longer = fork != Fork::Visibility && !(size..in_file).all(zeros);
            if size > in_file || is_longer {
                wrong.push(format!("{relation:?} {fork:?} has {size} blocks, and {in_file} in its file"));
                continue;
            }
            let keys: Vec<Key> = (0..size).map(|block| (relation, fork, block)).collect();
            for keys in keys.chunks(AT_ONCE) {
                let found: Result<Vec<Page>, _> = timeline.pages(redo, keys, at).into_iter().collect();
                let found = match found {
                    Ok(found) => found,
                    Err(error) => {
                        wrong.push(format!("{relation:?} {fork:?}: {error}"));
                        continue;
                    }
                };
                let file: Vec<Page> = keys.iter().map(|key| file_page(data, *key).unwrap()).collect();
                let rmgr = |at: usize| last_rmgr.get(&keys[at]).copied().unwrap_or_else(|| rmgr_of(&file[at]));
                compared += keys.len() as u64;
                let differs: Vec<usize> = (0..keys.len()).filter(|at| found[*at] != file[*at]).collect();
                let both = differs
                    .iter()
                    .flat_map(|at| [&found[*at], &file[*at]].map(|page| (&**page, rmgr(*at), keys[*at].2)));
                let masked = redo.mask(&both.collect::<Vec<_>>());
                for (at, masked) in differs.into_iter().zip(masked.chunks(2)) {
                    let is_same = match (fork, rmgr(at), masked) {
                        (Fork::Visibility, _, _) => !has_more_bits(&found[at], &file[at]),
                        (_, SEQUENCE, _) => true,
                        (_, SPGIST, _) if keys[at].2 == 0 => true,
                        (_, _, [Ok(left), Ok(right)]) => left == right,
                        _ => false,
                    };
                    if !is_same {
                        let byte = match masked {
                            [Ok(left), Ok(right)] => (0..PAGE_BYTES).find(|byte| left[*byte] != right[*byte]),
                            _ => None,
                        };
                        wrong.push(format!("{:?} of {:?}, byte {byte:?}", keys[at], rmgr(at).name()));
                    }
                }
            }
        }
    }
    (compared, wrong)
}

/// Compares status pages, mapped catalogs and prepared transactions.
fn compare_beside(data: &Path, timeline: &Timeline) {
    let (files, at) = (Files(data.to_owned()), timeline.last());
    for kind in [Status::Transactions, Status::MultiOffsets, Status::MultiMembers] {
        let pages = (0..64).filter_map(|page| Some((page, files.status((kind, page)).unwrap()?)));
        let mut compared = 0;
        for (page, mut file) in pages {
            let mut found = timeline.status((kind, page), at).unwrap().unwrap_or_else(|| Box::new([0; PAGE_BYTES]));
            if kind == Status::MultiOffsets {
                // Since their releases of late 2025, servers note where the next multixact begins, which is not there yet.
                let differs: Vec<usize> =
                    (0..PAGE_BYTES / 4).filter(|at| found[at * 4..][..4] != file[at * 4..][..4]).collect();
                assert!(
                    differs.len() <= 1 && differs.iter().all(|at| found[at * 4..].iter().all(|byte| *byte == 0)),
                    "{differs:?}"
                );
                differs.iter().for_each(|at| file[at * 4..][..4].fill(0));
                differs.iter().for_each(|at| found[at * 4..][..4].fill(0));
            }
            assert!(
                found == file,
                "{kind:?}, page {page}, byte {:?}",
                (0..PAGE_BYTES).find(|at| found[*at] != file[*at])
            );
            compared += usize::from(file.iter().any(|byte| *byte != 0));
        }
        assert!(compared > 0, "{kind:?}");
    }
    for database in files.databases() {
        assert_eq!(timeline.map(database, at).unwrap(), files.map(database).unwrap(), "database {database}");
    }
    let prepared = timeline.prepared(at).unwrap();
    assert_eq!(prepared.len(), 1, "one is left");
    for (xid, state) in prepared {
        let folder = std::fs::read_dir(data.join("pg_twophase")).unwrap();
        let files: Vec<_> = folder.map(|entry| entry.unwrap().path()).collect();
        let of_it = files.iter().find(|path| path.to_str().unwrap().ends_with(&format!("{xid:08X}"))).unwrap();
        // Its file has a checksum behind the state.
        let file = std::fs::read(of_it).unwrap();
        assert!(file.starts_with(&state) && file.len() == state.len() + 4, "{} and {}", file.len(), state.len());
    }
}

#[test]
fn every_page_of_a_stopped_cluster_is_made_from_its_log() {
    for (installation, module) in subjects() {
        let options = Options::default()
            .set("full_page_writes", "off")
            .set("max_prepared_transactions", "5")
            .set("max_wal_size", "20GB")
            .set("checkpoint_timeout", "1h")
            .set("wal_keep_size", "20GB");
        let cluster = Cluster::start(&installation, &options);
        cluster.stop(Stop::Fast);
        let folder = reachable();
        let base = folder.path().join("base");
        copy(&cluster.data(), &base);
        cluster.start_again();
        load(&cluster);
        cluster.stop(Stop::Fast);

        let mut from = PgLsn(0);
        let (start, bytes) = log_of(&base);
        frame(start, &bytes, |framed| from = framed.end);
        let redo = redo(&installation, module, &cluster.data(), folder.path(), 1);
        let (start, bytes) = log_of(&cluster.data());
        let mut records = Vec::new();
        let version = frame(start, &bytes, |framed| records.push(framed));
        records.retain(|framed| framed.start >= from);
        let take = |without: Option<usize>| {
            let mut timeline = Timeline::new(version, Box::new(Files(base.clone())), from);
            for (number, framed) in records.iter().enumerate() {
                if Some(number) != without {
                    timeline.ingest(framed).unwrap();
                }
            }
            timeline
        };
        let began = Instant::now();
        let timeline = take(None);
        let ingested = began.elapsed();
        let mut last_rmgr = BTreeMap::new();
        for framed in &records {
            for block in Record::decode(&framed.bytes).unwrap().blocks {
                let is_image = framed.header.rmgr == Rmgr::XLOG;
                if !is_image {
                    last_rmgr.insert((block.relation, block.fork, block.block), framed.header.rmgr);
                }
            }
        }
        let began = Instant::now();
        let (compared, wrong) = compare(&cluster.data(), &timeline, &redo, &last_rmgr);
        println!(
            "Postgres {}: {} records taken in {ingested:?}; {compared} pages compared in {:?}, {} differ",
            installation.major,
            records.len(),
            began.elapsed(),
            wrong.len(),
        );
        assert!(compared > 2_000);
        assert!(wrong.is_empty(), "{:#?}", &wrong[..wrong.len().min(20)]);
        compare_beside(&cluster.data(), &timeline);
        // Without one of its records a page is another one.
        let last = records.iter().rposition(|framed| framed.header.rmgr == Rmgr::HEAP).unwrap();
        let (_, wrong) = compare(&cluster.data(), &take(Some(last)), &redo, &last_rmgr);
        assert!(!wrong.is_empty());
    }
}

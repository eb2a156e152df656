//! Every page of a cluster that was stopped, as a timeline makes it from the pages before a load and the log of that load.
//!
//! What differs in a sound cluster, and is allowed for: what `rm_mask` takes out of a page; free space maps, which are not
//! logged; sequences, whose files lag behind the log; the last pages that a SP-GiST index has used; bits of visibility maps
//! that the file has and the log has not.
#![allow(clippy::unwrap_used)]

#[path = "../../redo/tests/support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;
use support::{Key, copy, file_page, frame, load, log_of, reachable, redo, subjects};
use thalweg_lakebase_pageserver::{Base, Timeline};
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
            let Some(size) = size else {
                wrong.push(format!("{relation:?} {fork:?} does not exist, and has {in_file} blocks"));
                continue;
            };
            // A fork may have been made longer without the log: with zeros.
            let zeros = |block| file_page(data, (relation, fork, block)).unwrap().iter().all(|byte| *byte == 0);
            if size > in_file || !(size..in_file).all(zeros) {
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
        // Without one of its records a page is another one.
        let last = records.iter().rposition(|framed| framed.header.rmgr == Rmgr::HEAP).unwrap();
        let (_, wrong) = compare(&cluster.data(), &take(Some(last)), &redo, &last_rmgr);
        assert!(!wrong.is_empty());
    }
}

//! Every page that a record changes, as Postgres itself had it after that record.
//!
//! A cluster with `wal_consistency_checking=all` puts an image of each changed page into the record that changes it, as the
//! page is afterwards. With `full_page_writes=off` no other image is there. Starting with the pages of the cluster before
//! its load, each record is replayed, and each page compared with its image, both without what `rm_mask` takes out.
//!
//! `THALWEG_REDO_MODULES` names the modules: `15=/path/of/module.so`, separated by colons. `ORACLE_SCALE` is pgbench's scale.
#![allow(clippy::unwrap_used)]

mod support;

use postgres::{Client, NoTls};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use support::{Key, Loaded, file_page, reachable, records_of, redo, subjects};
use thalweg_lakebase_redo::{
    Change, Page, PageRedo, Redo, RedoError, apply_image, clear_visibility, heap_blocks_per_map,
};
use thalweg_lakebase_wal::{Effect, Fork, Framed, PAGE_BYTES, PgVersion, Record, Relation, Rmgr};
use thalweg_pg::PgLsn;
use thalweg_pgtest::{Cluster, Options, Stop};

/// Pages that are compared by one request.
const COMPARED_AT_ONCE: usize = 256;

/// All pages as of a position.
struct Pages {
    base: PathBuf,
    pages: HashMap<Key, Option<Page>>,
}

impl Pages {
    fn get(&mut self, key: Key) -> &mut Option<Page> {
        let base = &self.base;
        self.pages.entry(key).or_insert_with(|| file_page(base, key))
    }
}

#[derive(Default)]
struct Tally {
    records: u64,
    by_postgres: u64,
    by_image: u64,
    compared: u64,
    by_rmgr: BTreeMap<&'static str, u64>,
    mismatches: Vec<String>,
    in_redo: Duration,
}

/// A page after a record, and its image.
struct Compared {
    found: Page,
    expected: Page,
    rmgr: Rmgr,
    key: Key,
    end: PgLsn,
}

struct Oracle<'a> {
    redo: &'a Redo,
    pages: Pages,
    compared: Vec<Compared>,
    tally: Tally,
}

impl Oracle<'_> {
    fn replay(&mut self, framed: &Framed, version: PgVersion) {
        let record = Record::decode(&framed.bytes).unwrap();
        self.tally.records += 1;
        let effect = Effect::of(&record, version).unwrap();
        if let Some(Effect::Truncated { relation, blocks, heap, visibility, .. }) = effect {
            self.truncate(relation, blocks, heap, visibility);
        }
        let change = Change { start: framed.start, end: framed.end, bytes: framed.bytes.clone() };
        let mut asked = Vec::new();
        for block in &record.blocks {
            let key = (block.relation, block.fork, block.block);
            if let Some(image) = block.image.as_ref().filter(|image| image.is_applied) {
                *self.pages.get(key) = Some(apply_image(image, framed.end).unwrap());
                self.tally.by_image += 1;
            } else if !asked.iter().any(|page: &PageRedo| (page.relation, page.fork, page.block) == key) {
                let base = self.pages.get(key).clone();
                let changes = vec![change.clone()];
                asked.push(PageRedo { relation: key.0, fork: key.1, block: key.2, base, changes });
            }
        }
        let began = Instant::now();
        let made = self.redo.apply(&asked);
        self.tally.in_redo += began.elapsed();
        for (page, made) in asked.iter().zip(made) {
            let key = (page.relation, page.fork, page.block);
            *self.pages.get(key) = Some(made.unwrap_or_else(|error| panic!("{key:?} at {}: {error}", framed.end)));
            self.tally.by_postgres += 1;
        }
        if let Some(Effect::VisibilityCleared { blocks, only_frozen }) = effect {
            for (relation, heap_block) in blocks {
                let map = self.pages.get((relation, Fork::Visibility, heap_block / heap_blocks_per_map()));
                map.iter_mut().for_each(|map| clear_visibility(map, heap_block, only_frozen));
            }
        }
        for block in &record.blocks {
            let Some(image) = block.image.as_ref().filter(|image| !image.is_applied) else { continue };
            let key = (block.relation, block.fork, block.block);
            let mut expected: Page = Box::new([0; PAGE_BYTES]);
            image.restore(&mut expected).unwrap();
            let found = self.pages.get(key).clone().unwrap();
            self.compared.push(Compared { found, expected, rmgr: framed.header.rmgr, key, end: framed.end });
        }
        if self.compared.len() >= COMPARED_AT_ONCE {
            self.compare();
        }
    }

    fn truncate(&mut self, relation: Relation, blocks: u32, heap: bool, visibility: bool) {
        let per_map = heap_blocks_per_map();
        for ((of, fork, block), page) in &mut self.pages.pages {
            if *of != relation {
                continue;
            }
            if heap && *fork == Fork::Main && *block >= blocks {
                *page = None;
            }
            if let (true, Fork::Visibility, Some(map)) = (visibility, fork, page) {
                (block.saturating_mul(per_map)..block.saturating_add(1).saturating_mul(per_map))
                    .filter(|heap_block| *heap_block >= blocks)
                    .for_each(|heap_block| clear_visibility(map, heap_block, false));
            }
        }
    }

    fn compare(&mut self) {
        let compared = std::mem::take(&mut self.compared);
        let both =
            compared.iter().flat_map(|one| [(&*one.found, one.rmgr, one.key.2), (&*one.expected, one.rmgr, one.key.2)]);
        let masked = self.redo.mask(&both.collect::<Vec<_>>());
        for (one, masked) in compared.iter().zip(masked.chunks(2)) {
            let [Ok(found), Ok(expected)] = masked else { panic!("{:?}", masked) };
            self.tally.compared += 1;
            let name = one.rmgr.name().unwrap();
            *self.tally.by_rmgr.entry(name).or_default() += 1;
            if let Some(at) = (0..PAGE_BYTES).find(|at| found[*at] != expected[*at]) {
                self.tally.mismatches.push(format!("{name} {:?} at {}, byte {at}", one.key, one.end));
            }
        }
    }
}

#[test]
fn every_page_is_as_postgres_has_it_after_every_record() {
    for (installation, module) in subjects() {
        let options = Options::default().set("wal_consistency_checking", "all").set("autovacuum", "off");
        let loaded = Loaded::new(&installation, module, options);
        let pages = Pages { base: loaded.base.clone(), pages: HashMap::new() };
        let mut oracle = Oracle { redo: &loaded.redo, pages, compared: Vec::new(), tally: Tally::default() };
        loaded.records.iter().for_each(|framed| oracle.replay(framed, loaded.version));
        oracle.compare();
        let tally = oracle.tally;
        println!(
            "Postgres {}: {} records, {} pages by Postgres ({:.2} us each), {} by images; {} compared, {} mismatches; {:?}",
            installation.major,
            tally.records,
            tally.by_postgres,
            tally.in_redo.as_secs_f64() * 1e6 / tally.by_postgres as f64,
            tally.by_image,
            tally.compared,
            tally.mismatches.len(),
            tally.by_rmgr,
        );
        assert!(tally.mismatches.is_empty(), "{:#?}", &tally.mismatches[..tally.mismatches.len().min(20)]);
        for rmgr in ["Heap", "Heap2", "Btree", "Hash", "Gin", "Gist", "SPGist", "BRIN", "Sequence"] {
            assert!(tally.by_rmgr.contains_key(rmgr), "no page of {rmgr} was compared: {:?}", tally.by_rmgr);
        }
    }
}

/// A record of a heap that inserts a tuple, as such a process gets it, and the page before.
fn of_a_table(cluster: &Cluster) -> Vec<PageRedo> {
    let mut client = Client::connect(&cluster.url("postgres"), NoTls).unwrap();
    client
        .batch_execute("CREATE TABLE t (n int, s text); INSERT INTO t SELECT i, 'x' FROM generate_series(1, 100) i")
        .unwrap();
    let number: u32 = client.query_one("SELECT pg_relation_filenode('t')", &[]).unwrap().get(0);
    cluster.stop(Stop::Fast);
    let mut pages: BTreeMap<Key, PageRedo> = BTreeMap::new();
    for framed in records_of(&cluster.data()).0 {
        let record = Record::decode(&framed.bytes).unwrap();
        if framed.header.rmgr != Rmgr::HEAP {
            continue;
        }
        for block in record.blocks.iter().filter(|block| block.relation.number == number) {
            let key = (block.relation, block.fork, block.block);
            let change = Change { start: framed.start, end: framed.end, bytes: framed.bytes.clone() };
            if block.will_init {
                let (relation, fork, block) = key;
                pages.insert(key, PageRedo { relation, fork, block, base: None, changes: vec![change] });
            } else if let Some(page) = pages.get_mut(&key) {
                page.changes.push(change);
            }
        }
    }
    pages.into_values().filter(|page| page.changes.len() > 50).collect()
}

#[test]
fn a_request_that_fails_harms_no_other_and_a_process_can_do_nothing_else() {
    for (installation, module) in subjects() {
        let cluster = Cluster::start(&installation, &Options::default().set("autovacuum", "off"));
        let pages = of_a_table(&cluster);
        assert!(!pages.is_empty());
        let folder = reachable();
        let redo = redo(&installation, module, &cluster.data(), folder.path(), 2);
        let expected: Vec<Page> = redo.apply(&pages).into_iter().map(Result::unwrap).collect();

        // A record whose resource manager refuses it, one that is cut, and one that is another's bytes.
        let spoilt = |spoil: &dyn Fn(&mut Vec<u8>)| {
            let mut page = pages[0].clone();
            let mut bytes = page.changes[7].bytes.to_vec();
            spoil(&mut bytes);
            page.changes[7].bytes = bytes.into();
            page
        };
        let hostile = [
            spoilt(&|bytes| bytes[16] = 0x70),
            spoilt(&|bytes| bytes.truncate(30)),
            spoilt(&|bytes| bytes[17] = 200),
            spoilt(&|bytes| bytes[30..].fill(0xff)),
            spoilt(&|bytes| bytes[24..].fill(0)),
        ];
        let mut mixed = Vec::new();
        for one in &hostile {
            mixed.extend(pages.iter().cloned());
            mixed.push(one.clone());
        }
        mixed.extend(pages.iter().cloned());
        let results = redo.apply(&mixed);
        assert_eq!(results.len(), mixed.len());
        for (at, result) in results.iter().enumerate() {
            let within = at % (pages.len() + 1);
            match result {
                Ok(page) if within < pages.len() => assert_eq!(page, &expected[within], "request {at}"),
                Err(RedoError::Refused { .. } | RedoError::Died { .. }) if within == pages.len() => {
                    println!("{result:?}")
                }
                other => panic!("request {at}: {other:?}"),
            }
        }
    }
}

/// A record that splits a page of a B-tree, whose two pages are one: its routine locks that page twice.
fn that_waits_for_itself(cluster: &Cluster) -> PageRedo {
    let mut client = Client::connect(&cluster.url("postgres"), NoTls).unwrap();
    client.batch_execute("CREATE TABLE k (n int PRIMARY KEY); INSERT INTO k SELECT generate_series(1, 5000)").unwrap();
    cluster.stop(Stop::Fast);
    let mut found = None;
    for framed in records_of(&cluster.data()).0 {
        let record = Record::decode(&framed.bytes).unwrap();
        let [left, right, ..] = &record.blocks[..] else { continue };
        let is_split = framed.header.rmgr == Rmgr::BTREE && matches!(framed.header.info & 0xf0, 0x30 | 0x40);
        if !is_split || found.is_some() || left.block == right.block {
            continue;
        }
        let (from, to) = (left.block.to_le_bytes(), right.block.to_le_bytes());
        for at in 24..80.min(framed.bytes.len() - 4) {
            let mut bytes = framed.bytes.to_vec();
            if bytes[at..at + 4] != from {
                continue;
            }
            bytes[at..at + 4].copy_from_slice(&to);
            let change = Change { start: framed.start, end: framed.end, bytes: bytes.into() };
            if Record::decode(&change.bytes).is_ok_and(|record| record.blocks[0].block == right.block) {
                let (relation, fork, block) = (right.relation, right.fork, right.block);
                found = Some(PageRedo { relation, fork, block, base: None, changes: vec![change] });
                break;
            }
        }
    }
    found.unwrap()
}

#[test]
fn a_record_whose_routine_waits_for_itself_ends_within_a_time() {
    for (installation, module) in subjects() {
        let cluster = Cluster::start(&installation, &Options::default().set("autovacuum", "off"));
        let hangs = that_waits_for_itself(&cluster);
        cluster.start_again();
        let pages = of_a_table(&cluster);
        let folder = reachable();
        let redo = redo(&installation, module, &cluster.data(), folder.path(), 1);
        let began = Instant::now();
        let mixed: Vec<PageRedo> = pages.iter().chain([&hangs]).chain(&pages).cloned().collect();
        let results = redo.apply(&mixed);
        let failed: Vec<usize> = (0..results.len()).filter(|at| results[*at].is_err()).collect();
        assert_eq!(failed, [pages.len()], "{:?}", results[failed[0]]);
        let Err(RedoError::Died { ended, .. }) = &results[pages.len()] else { panic!("{:?}", results[pages.len()]) };
        assert!(ended.contains("14"), "by its alarm, and not {ended}");
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }
}

#[test]
#[ignore = "a measurement"]
fn how_fast() {
    for (installation, module) in subjects() {
        let cluster = Cluster::start(&installation, &Options::default().set("autovacuum", "off"));
        let pages = of_a_table(&cluster);
        let folder = reachable();
        let redo = redo(&installation, module, &cluster.data(), folder.path(), 1);
        let all: Vec<PageRedo> = std::iter::repeat_n(&pages, 20_000).flatten().cloned().collect();
        for chain in [1, 8, 32] {
            let all: Vec<PageRedo> =
                all.iter().map(|page| PageRedo { changes: page.changes[..chain].to_vec(), ..page.clone() }).collect();
            let began = Instant::now();
            for some in all.chunks(1_000) {
                redo.apply(some).into_iter().for_each(|page| drop(page.unwrap()));
            }
            let took = began.elapsed().as_secs_f64();
            println!(
                "chains of {chain}: {:.0} pages/s, {:.0} applies/s",
                all.len() as f64 / took,
                (all.len() * chain) as f64 / took
            );
        }
    }
}

//! The logs of real clusters, of every version of Postgres that is here: all of it is framed and decoded, in any pieces,
//! and as `pg_waldump` has it.
#![allow(clippy::unwrap_used)]

use postgres::{Client, NoTls};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use thalweg_lakebase_wal::{Effect, Fork, Framed, PAGE_BYTES, PgVersion, Record, Rmgr, WalFramer};
use thalweg_pg::PgLsn;
use thalweg_pgtest::{Cluster, Installation, Options, SEGMENT_BYTES, Stop, installations, log_of};

fn client(cluster: &Cluster) -> Client {
    Client::connect(&cluster.url("postgres"), NoTls).unwrap()
}

/// Changes of many kinds.
fn load(cluster: &Cluster) {
    let mut client = client(cluster);
    client
        .batch_execute(
            "CREATE TABLE t (id serial PRIMARY KEY, n int, s text, a int[], p point);
             CREATE INDEX ON t USING hash (n);
             CREATE INDEX ON t USING gin (a);
             CREATE INDEX ON t USING gist (p);
             CREATE INDEX ON t USING spgist (s);
             CREATE INDEX ON t USING brin (n);
             INSERT INTO t (n, s, a, p) SELECT i, md5(i::text), array[i, i % 7], point(i, i % 13) FROM generate_series(1, 3000) i;
             UPDATE t SET n = n + 1 WHERE id % 3 = 0;
             DELETE FROM t WHERE id % 5 = 0;
             CREATE UNLOGGED TABLE u (n int); INSERT INTO u SELECT generate_series(1, 100);
             CREATE TABLE big (s text); ALTER TABLE big ALTER s SET STORAGE EXTERNAL;
             INSERT INTO big SELECT string_agg(md5(i::text), '') FROM generate_series(1, 60000) i;",
        )
        .unwrap();
    client.batch_execute("VACUUM (FREEZE) t").unwrap();
    client.batch_execute("UPDATE t SET s = 'x' WHERE id < 20").unwrap();
    client
        .batch_execute(
            "BEGIN; SAVEPOINT a; INSERT INTO t (n) VALUES (1); SAVEPOINT b; INSERT INTO t (n) VALUES (2); COMMIT",
        )
        .unwrap();
    client.batch_execute("BEGIN; INSERT INTO t (n) VALUES (3); ROLLBACK").unwrap();
    client.batch_execute("BEGIN; INSERT INTO t (n) VALUES (4); PREPARE TRANSACTION 'one'").unwrap();
    client.batch_execute("COMMIT PREPARED 'one'").unwrap();
    client.batch_execute("BEGIN; DROP TABLE big; CREATE TABLE v (n int); TRUNCATE v; COMMIT").unwrap();
    // A row that two transactions lock is a multixact's.
    let mut other = self::client(cluster);
    client.batch_execute("BEGIN; SELECT * FROM t WHERE id = 1 FOR SHARE").unwrap();
    other.batch_execute("BEGIN; SELECT * FROM t WHERE id = 1 FOR SHARE; COMMIT").unwrap();
    client.batch_execute("COMMIT").unwrap();
    client.batch_execute("SELECT pg_logical_emit_message(true, 'prefix', 'message')").unwrap();
    // Each of them alone: some run in no transaction.
    for statement in [
        "CREATE DATABASE d",
        "DROP DATABASE d",
        "CHECKPOINT",
        "SELECT pg_switch_wal()",
        "INSERT INTO t (n) VALUES (5)",
        "ALTER SYSTEM SET full_page_writes = off",
        "SELECT pg_reload_conf()",
        "VACUUM FULL t",
        "VACUUM FULL pg_class",
        "CHECKPOINT",
        "UPDATE t SET n = 0 WHERE id < 100",
    ] {
        client.batch_execute(statement).unwrap();
    }
}

/// All records, fed in pieces of this size. Ends where the log does: at zeros, or at what a recycled segment had.
fn frame(start: PgLsn, bytes: &[u8], piece: usize) -> (Vec<Framed>, WalFramer) {
    let mut framer = WalFramer::new(start, SEGMENT_BYTES, None);
    let mut records = Vec::new();
    for piece in bytes.chunks(piece) {
        framer.feed(piece);
        loop {
            match framer.next_record() {
                Ok(Some(framed)) => records.push(framed),
                Ok(None) => break,
                Err(_) => return (records, framer),
            }
        }
    }
    (records, framer)
}

/// What `pg_waldump` says of a record: its start, previous one, resource manager, length, transaction and blocks.
#[derive(Debug, PartialEq, Eq)]
struct Dumped {
    start: PgLsn,
    previous: PgLsn,
    rmgr: String,
    total_bytes: u32,
    xid: u32,
    blocks: Vec<(String, bool)>,
}

fn dumped(framed: &Framed, record: &Record) -> Dumped {
    let fork = |fork| match fork {
        Fork::Main => "",
        Fork::FreeSpace => " fork fsm",
        Fork::Visibility => " fork vm",
        Fork::Init => " fork init",
    };
    let block = |block: &thalweg_lakebase_wal::BlockRef| {
        let of = block.relation;
        let place =
            format!("rel {}/{}/{}{} blk {}", of.tablespace, of.database, of.number, fork(block.fork), block.block);
        (place, block.image.is_some())
    };
    Dumped {
        start: framed.start,
        previous: framed.header.previous,
        rmgr: framed.header.rmgr.name().unwrap().to_owned(),
        total_bytes: framed.header.total_bytes,
        xid: framed.header.xid,
        blocks: record.blocks.iter().map(block).collect(),
    }
}

fn parse(line: &str) -> Dumped {
    let field = |name: &str| {
        let rest = &line[line.find(name).unwrap_or_else(|| panic!("{name} of {line}")) + name.len()..];
        rest.trim_start().split([',', ' ']).next().unwrap().to_owned()
    };
    let total = line.split("len (rec/tot):").nth(1).unwrap().split('/').nth(1).unwrap().split(',').next().unwrap();
    let mut blocks = Vec::new();
    for part in line.split("blkref #").skip(1) {
        let part = part.split(": ").nth(1).unwrap();
        let words: Vec<&str> = part.trim_end_matches([',', ' ']).split([' ', ';']).collect();
        let at = words.iter().position(|word| *word == "blk").unwrap();
        let place = words[..=at + 1].join(" ").trim_end_matches(',').replace(" fork main", "");
        blocks.push((place, part.contains("FPW")));
    }
    Dumped {
        start: field("lsn:").parse().unwrap(),
        previous: field("prev ").parse().unwrap(),
        rmgr: field("rmgr:"),
        total_bytes: total.trim().parse().unwrap(),
        xid: field("tx:").parse().unwrap(),
        blocks,
    }
}

fn waldump(installation: &Installation, data: &Path, from: PgLsn, to: PgLsn) -> Option<Vec<Dumped>> {
    let program = installation.bin.join("pg_waldump");
    if !program.exists() {
        return None;
    }
    let mut command = Command::new(program);
    command.arg("-p").arg(data.join("pg_wal")).arg("-s").arg(from.to_string()).arg("-e").arg(to.to_string());
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    Some(text.lines().map(parse).collect())
}

fn kind(effect: &Effect) -> String {
    format!("{effect:?}").split(['(', ' ', '{']).next().unwrap().to_owned()
}

#[test]
fn every_record_of_a_real_log_is_framed_and_decoded_as_pg_waldump_does() {
    for installation in &installations() {
        // Builds from npm know no other compression than Postgres's own, and bring no `pg_waldump`.
        let is_full = installation.bin.join("pg_waldump").exists();
        let compressions: &[&str] = if is_full { &["off", "pglz", "lz4", "zstd"] } else { &["pglz"] };
        for compression in compressions {
            let options = Options::default()
                .set("wal_compression", compression)
                .set("wal_level", "logical")
                .set("max_prepared_transactions", "5")
                .set("wal_consistency_checking", "all")
                .set("autovacuum", "off")
                .set("wal_keep_size", "1GB");
            let cluster = Cluster::start(installation, &options);
            load(&cluster);
            cluster.stop(Stop::Fast);
            let (start, bytes) = log_of(&cluster.data());
            let start = PgLsn(start);
            let (records, framer) = frame(start, &bytes, 1 << 20);
            assert_eq!(framer.version().map(PgVersion::major), Some(cluster.major()));
            assert!(records.len() > 10_000, "{} records", records.len());
            // The last one is that of the shutdown.
            let last = records.last().unwrap();
            assert_eq!((last.header.rmgr, last.header.kind()), (Rmgr::XLOG, 0x00));

            let version = framer.version().unwrap();
            let (mut effects, mut images, mut ours) = (BTreeMap::<String, u64>::new(), 0, Vec::new());
            let mut page = [0; PAGE_BYTES];
            for framed in &records {
                let record = Record::decode(&framed.bytes).unwrap_or_else(|error| panic!("{}: {error}", framed.start));
                if let Some(effect) =
                    Effect::of(&record, version).unwrap_or_else(|error| panic!("{}: {error}", framed.start))
                {
                    *effects.entry(kind(&effect)).or_default() += 1;
                    if let Effect::Checkpoint { checkpoint, .. } = &effect {
                        assert!(checkpoint.redo <= framed.start && checkpoint.timeline == 1, "{checkpoint:?}");
                        assert!(checkpoint.next_xid >= 3 && checkpoint.next_oid >= 10_000, "{checkpoint:?}");
                        assert!(checkpoint.time > 1_700_000_000, "{checkpoint:?}");
                    }
                    if let Effect::RelmapUpdated { content, .. } = &effect {
                        // Its magic number.
                        assert_eq!(content[..4], 0x0059_2717_u32.to_le_bytes());
                    }
                }
                for image in record.blocks.iter().filter_map(|block| block.image.as_ref()) {
                    image.restore(&mut page).unwrap_or_else(|error| panic!("{}: {error}", framed.start));
                    let upper = u16::from_le_bytes([page[14], page[15]]);
                    assert!(usize::from(upper) <= PAGE_BYTES, "{}: a page of no form", framed.start);
                    images += 1;
                }
                ours.push(dumped(framed, &record));
            }
            for expected in [
                "Checkpoint",
                "TransactionEnd",
                "Prepared",
                "ForkCreated",
                "Truncated",
                "MultiCreated",
                "RunningXacts",
                "VisibilityCleared",
                "LogicalMessage",
                "FullPageWrites",
                "DatabaseDropped",
                "RelmapUpdated",
                "NextOid",
            ] {
                assert!(effects.contains_key(expected), "Postgres {}: no {expected} in {effects:?}", cluster.major());
            }
            println!(
                "Postgres {}, {compression}: {} records, {images} images, {effects:?}",
                cluster.major(),
                records.len()
            );
            // However it is cut.
            for piece in [777, 8192, 100_000] {
                let (again, _) = frame(start, &bytes[..2 << 20], piece);
                assert_eq!(again[..], records[..again.len()], "pieces of {piece} bytes");
                assert!(again.len() > 100);
            }
            // From any page on, and from any record.
            for page in [1, 7, 100] {
                let at = page * PAGE_BYTES;
                let (some, _) = frame(PgLsn(start.0 + at as u64), &bytes[at..4 << 20], 1 << 20);
                let first = records.iter().position(|framed| framed.start == some[0].start).unwrap();
                assert_eq!(some[..100], records[first..first + 100], "from page {page}");
            }
            let at = (records[500].start.0 - start.0) as usize;
            assert_eq!(frame(records[500].start, &bytes[at..], 1 << 20).0[..], records[500..]);
            if let Some(theirs) = waldump(installation, &cluster.data(), records[0].start, last.end) {
                assert_eq!(theirs.len(), ours.len());
                let differ = theirs.iter().zip(&ours).find(|(theirs, ours)| theirs != ours);
                assert_eq!(differ, None);
            }
        }
    }
}

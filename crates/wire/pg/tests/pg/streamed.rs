//! Transactions that are larger than `logical_decoding_work_mem` come while they run.

use crate::support::{connect, database, each_cluster, everything, read_until, stream};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use thalweg_pg::pgoutput::{Decoder, Message};
use thalweg_pg::replication::Event;

const SMALL: &str = "?options=-c%20logical_decoding_work_mem%3D64kB";

/// Rows as a reader of a stream knows them: of running transactions by (sub)transaction, and of finished ones.
#[derive(Default)]
struct Reader {
    decoder: Decoder,
    top: u32,
    running: BTreeMap<u32, BTreeMap<u32, Vec<i64>>>,
    rows: BTreeSet<i64>,
    blocks: usize,
    aborts: usize,
    finished: usize,
}

impl Reader {
    fn take(&mut self, body: &[u8]) {
        match self.decoder.decode(body).unwrap() {
            Message::StreamStart { xid, first_segment } => {
                assert_eq!(first_segment, !self.running.contains_key(&xid));
                self.running.entry(xid).or_default();
                (self.top, self.blocks) = (xid, self.blocks + 1);
            }
            Message::Insert { xid, new, .. } => {
                let row = crate::support::row(&new);
                let id = row.split(',').next().unwrap().parse().unwrap();
                match xid {
                    Some(xid) => self.running.get_mut(&self.top).unwrap().entry(xid).or_default().push(id),
                    None => assert!(self.rows.insert(id)),
                }
            }
            Message::StreamAbort { xid, subxid } if xid == subxid => {
                self.running.remove(&xid);
                (self.aborts, self.finished) = (self.aborts + 1, self.finished + 1);
            }
            Message::StreamAbort { xid, subxid } => {
                self.running.get_mut(&xid).unwrap().remove(&subxid);
                self.aborts += 1;
            }
            Message::StreamCommit { xid, .. } => {
                self.rows.extend(self.running.remove(&xid).unwrap().into_values().flatten());
                self.finished += 1;
            }
            Message::Commit { .. } => self.finished += 1,
            _ => {}
        }
    }
}

#[test]
fn large_transactions_come_in_blocks_and_parts_of_them_can_be_undone() {
    each_cluster(|cluster| {
        let (url, mut sql) = database(cluster);
        sql.simple("CREATE TABLE t (id bigint PRIMARY KEY, x text); CREATE PUBLICATION everything FOR ALL TABLES")
            .unwrap();
        let mut stream = stream(&format!("{url}{SMALL}"), &everything());
        let mut other = connect(&url);
        let insert = |from: i64, to: i64| {
            format!("INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series({from}, {to}) i")
        };
        // Two at once, so that their blocks alternate; one of them loses a part.
        sql.simple("BEGIN").unwrap();
        other.simple("BEGIN").unwrap();
        for i in 0..5 {
            sql.simple(&insert(i * 2000, i * 2000 + 1999)).unwrap();
            other.simple(&insert(100_000 + i * 2000, 100_000 + i * 2000 + 1999)).unwrap();
        }
        sql.simple(&format!("SAVEPOINT s; {}; ROLLBACK TO s; {}", insert(50_000, 55_000), insert(60_000, 60_009)))
            .unwrap();
        sql.simple("COMMIT").unwrap();
        other.simple("COMMIT").unwrap();
        // A transaction that is undone as a whole, and a small one that comes at its commit.
        sql.simple(&format!("BEGIN; {}; ROLLBACK", insert(200_000, 209_999))).unwrap();
        sql.simple(&insert(300_000, 300_001)).unwrap();

        let mut reader = Reader::default();
        let deadline = Instant::now() + Duration::from_secs(30);
        while !reader.rows.contains(&300_001) || reader.decoder.in_block() || reader.finished < 3 {
            match stream.next(Some(deadline)).unwrap() {
                Event::XLogData { body, .. } => reader.take(body),
                Event::Keepalive { .. } => {}
                Event::Idle => panic!("{} rows, {} blocks", reader.rows.len(), reader.blocks),
            }
        }
        let table = connect(&url).simple("SELECT id FROM t").unwrap().remove(0);
        let expected: BTreeSet<i64> = table.rows().map(|row| row.get(0).unwrap().parse().unwrap()).collect();
        assert_eq!(reader.rows, expected);
        assert!(reader.blocks > 10, "{} blocks", reader.blocks);
        assert!(
            reader.aborts > 0 && reader.running.is_empty(),
            "{} aborts, {} running",
            reader.aborts,
            reader.running.len()
        );
    });
}

#[test]
fn every_kind_of_change_is_understood_in_a_block() {
    each_cluster(|cluster| {
        let (url, mut sql) = database(cluster);
        sql.simple("CREATE TYPE mood AS ENUM ('ok'); CREATE TABLE t (id int PRIMARY KEY, m mood); CREATE PUBLICATION everything FOR ALL TABLES")
            .unwrap();
        let options = thalweg_pg::replication::StartOptions { messages: true, ..everything() };
        let (mut stream, mut decoder) = (stream(&format!("{url}{SMALL}"), &options), Decoder::new());
        sql.simple(
            "BEGIN; INSERT INTO t SELECT i, 'ok' FROM generate_series(1, 5000) i; UPDATE t SET id = -id; DELETE FROM t WHERE id < -2500;
             SELECT pg_logical_emit_message(true, 'p', 'c'); TRUNCATE t; INSERT INTO t SELECT i, 'ok' FROM generate_series(1, 5000) i; COMMIT",
        )
        .unwrap();
        let seen = read_until(&mut stream, &mut decoder, |m| matches!(m, Message::StreamCommit { .. }));
        let count = |kind: &str| seen.iter().filter(|seen| seen.starts_with(kind)).count();
        assert_eq!(
            (count("streamed insert"), count("streamed update"), count("streamed delete")),
            (10_000, 5000, 2500)
        );
        assert_eq!((count("streamed truncate"), count("streamed message true p c")), (1, 1));
        assert!(count("streamed type public.mood") >= 1 && count("streamed relation") >= 1);
        assert_eq!((count("block true"), count("block false") + 1), (1, count("block end")));
        assert!(seen.iter().any(|seen| seen == "streamed update key 1,- -> -1,ok"));
    });
}

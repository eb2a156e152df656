//! SQLite in WAL mode, which syncs at checkpoints only: a row for each change of each shape.

use super::{CHUNK_BYTES, Keeper, Reader, body, bytes_in};
use rusqlite::{Connection, params};
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

type Position = (i64, i64);

pub(super) struct Sqlite {
    folder: TempDir,
    connection: Connection,
    shapes: u32,
    /// Ends of the chunks, as an index in memory has them.
    ends: Vec<Position>,
    open: u64,
}

fn connect(folder: &Path) -> Connection {
    let connection = Connection::open(folder.join("log.sqlite")).unwrap();
    connection.pragma_update(None, "journal_mode", "WAL").unwrap();
    connection.pragma_update(None, "synchronous", "NORMAL").unwrap();
    connection.pragma_update(None, "cache_size", -65_536).unwrap();
    connection
}

impl Keeper for Sqlite {
    const NAME: &'static str = "sqlite";
    type Reader = SqliteReader;

    fn open(shapes: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let connection = connect(folder.path());
        connection
            .execute_batch(
                "CREATE TABLE log (shape INTEGER, lsn INTEGER, op INTEGER, body BLOB, PRIMARY KEY (shape, lsn, op)) WITHOUT ROWID",
            )
            .unwrap();
        Self { folder, connection, shapes, ends: Vec::new(), open: 0 }
    }

    fn append(&mut self, lsn: u64, changes: u64) {
        let transaction = self.connection.transaction().unwrap();
        let mut insert = transaction.prepare_cached("INSERT INTO log VALUES (?, ?, ?, ?)").unwrap();
        for op in 0..changes {
            let body = body(lsn, op * 2, op + 1 == changes);
            for shape in 0..self.shapes {
                insert.execute(params![shape, lsn as i64, (op * 2) as i64, body]).unwrap();
            }
            self.open += body.len() as u64;
            if self.open >= CHUNK_BYTES {
                self.ends.push((lsn as i64, (op * 2) as i64));
                self.open = 0;
            }
        }
        drop(insert);
        transaction.commit().unwrap();
    }

    fn sync(&mut self) {
        let checkpoint = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
        assert_eq!(self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], checkpoint).unwrap(), 0);
    }

    fn bytes_on_disk(&self) -> u64 {
        bytes_in(self.folder.path())
    }

    fn reader(&self) -> SqliteReader {
        SqliteReader { connection: connect(self.folder.path()), ends: self.ends.clone().into() }
    }
}

pub(super) struct SqliteReader {
    connection: Connection,
    ends: Arc<[Position]>,
}

impl Reader for SqliteReader {
    fn read(&mut self, chunks: usize, sink: &mut dyn FnMut(&[u8])) {
        let ask =
            "SELECT body FROM log WHERE shape = 0 AND (lsn, op) > (?, ?) AND (lsn, op) <= (?, ?) ORDER BY lsn, op";
        let mut ask = self.connection.prepare_cached(ask).unwrap();
        let mut from = (0, 0);
        for &end in &self.ends[..chunks] {
            let mut messages = Vec::with_capacity(CHUNK_BYTES as usize + 1024);
            let mut rows = ask.query(params![from.0, from.1, end.0, end.1]).unwrap();
            while let Some(row) = rows.next().unwrap() {
                messages.extend_from_slice(row.get_ref(0).unwrap().as_blob().unwrap());
            }
            sink(&messages);
            from = end;
        }
    }
}

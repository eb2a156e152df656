//! A client of one shape, which keeps every message and checks each one.

use super::cluster::{Row, Rows, TABLES};
use crate::read::{self, ReadRange, split};
use crate::server::ShapesServer;
use crate::shape::Shape;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thalweg_shapes_core::state::entries::Entry;
use thalweg_shapes_model::definition::Definition;
use thalweg_shapes_model::offset::ShapeOffset;
use thalweg_shapes_model::snapshot::PgSnapshot;

pub(super) struct Client {
    pub(super) definition: Definition,
    pub(super) table: usize,
    pub(super) number: u64,
    handle: String,
    rows: BTreeMap<String, Known>,
    /// The offset of the last message that it got.
    offset: ShapeOffset,
    /// The messages of each transaction, by its LSN.
    told: BTreeMap<u64, Vec<u8>>,
    /// The snapshot of the rows that it began with, which later rows may have replaced.
    pub(super) snapshot: PgSnapshot,
    /// Rows changed of which the stream tells nothing: until the catalog was compared, messages may not fit.
    pub(super) is_disturbed: bool,
    /// A message did not fit.
    is_lost: bool,
}

struct Known {
    value: Map<String, Value>,
    tags: Vec<String>,
    active: Vec<bool>,
}

/// The result of a client's read.
pub(super) enum Seen {
    /// It must begin again.
    Gone,
    /// It has all changes up to `told`. `is_at_end`: and none after it.
    UpTo { told: u64, is_at_end: bool, processed: u64 },
}

fn bytes_of(server: &ShapesServer, shape: &Shape, wanted: &ReadRange) -> Vec<u8> {
    read::read(shape.number, wanted, server.changes.sources()).expect("the shape can be read").concat()
}

impl Client {
    /// Begins with the newest rows of a shape that is live.
    pub(super) fn begin(server: &ShapesServer, shape: &Arc<Shape>, table: usize, is_disturbed: bool) -> Option<Self> {
        let (log, upto, end, snapshot, handle) = {
            let state = shape.lock();
            if !state.is_live() {
                return None;
            }
            let rows = state.rows(state.newest())?;
            let snapshot = state.snapshot.as_deref()?.clone();
            (rows.log?, rows.chunks.last().copied()?, rows.end, snapshot, shape.handle.to_string())
        };
        let mut client = Self {
            definition: shape.definition(),
            table,
            number: shape.number,
            handle,
            rows: BTreeMap::new(),
            offset: end,
            told: BTreeMap::new(),
            snapshot,
            is_disturbed,
            is_lost: false,
        };
        let rows = bytes_of(server, shape, &ReadRange::Rows { log, from: 0, upto });
        client.take(&rows);
        (!client.is_lost).then_some(client)
    }

    /// Reads the entries after the client's offset.
    pub(super) fn read(&mut self, server: &ShapesServer) -> Seen {
        let Some(shape) = server.catalog.registry.read().by_handle(&self.handle).cloned() else { return Seen::Gone };
        assert_eq!(shape.number, self.number, "a handle is used again");
        let processed = server.watermarks.processed_lsn().0;
        let (entries, told, tail, start) = {
            let state = shape.lock();
            if !state.is_live() || self.offset < state.start() {
                return Seen::Gone;
            }
            let entries: Vec<Entry> = state.entries.iter().copied().collect();
            (entries, state.complete(processed), state.tail(), state.start())
        };
        // A transaction may be cut into other entries when it comes again: its messages are the same.
        let (again, new): (Vec<Entry>, Vec<Entry>) =
            entries.into_iter().partition(|entry| entry.offset() <= self.offset);
        let read = |entry: Entry| bytes_of(server, &shape, &ReadRange::Changes { entries: vec![entry], whole: false });
        let mut known: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        for entry in again {
            known.entry(entry.lsn).or_default().extend(read(entry));
        }
        for (lsn, now) in known.iter().filter(|(lsn, _)| **lsn > start.lsn) {
            let Some(told) = self.told.get(lsn) else { continue };
            let [told, now] = [told, now].map(|bytes| String::from_utf8_lossy(bytes));
            assert_eq!(told, now, "{} is told otherwise at {lsn}", self.handle);
        }
        for entry in new {
            let bytes = read(entry);
            self.take(&bytes);
            self.told.entry(entry.lsn).or_default().extend(bytes);
            self.offset = entry.offset();
        }
        if self.is_lost {
            return Seen::Gone;
        }
        // Changes that were published before they were durable come again after a crash, at the same places.
        let is_at_end = tail <= self.offset && tail.lsn <= told && self.offset.lsn <= told;
        Seen::UpTo { told, is_at_end, processed }
    }

    /// Every transaction that the client got is in the log.
    pub(super) fn check_told(&self, server: &ShapesServer) {
        let Some(shape) = server.catalog.registry.read().by_handle(&self.handle).cloned() else { return };
        let state = shape.lock();
        let start = state.start();
        let lsns: BTreeSet<u64> = state.entries.iter().map(|entry| entry.lsn).collect();
        for lsn in self.told.keys().filter(|lsn| **lsn > start.lsn) {
            assert!(lsns.contains(lsn), "{}: what was told at {lsn} is not in the log", self.handle);
        }
    }

    pub(super) fn numbers(&self) -> Rows {
        let rows = self.rows.values().map(|known| {
            let number = |at: usize| known.value[TABLES[self.table].1[at]].as_str().map(|text| text.parse().unwrap());
            let row: Row = [number(0), number(1), number(2)];
            (row[0].unwrap_or_default(), row)
        });
        rows.collect()
    }

    pub(super) fn log(&self) -> String {
        let lines = self.told.iter().map(|(lsn, bytes)| format!("{lsn} {}", String::from_utf8_lossy(bytes)));
        format!("{} {:?}\n{}", self.handle, self.definition.where_sql, lines.collect::<Vec<_>>().join("\n"))
    }

    fn take(&mut self, messages: &[u8]) {
        for message in split(messages) {
            let message: Value = serde_json::from_slice(message).expect("a message is JSON");
            self.message(&message);
        }
    }

    fn expect(&mut self, fits: bool, what: &str, message: &Value) {
        assert!(fits || self.is_disturbed, "{what}: {message}\n{}", self.log());
        self.is_lost |= !fits;
    }

    fn message(&mut self, message: &Value) {
        let headers = &message["headers"];
        if let Some(event) = headers["event"].as_str() {
            for pattern in headers["patterns"].as_array().into_iter().flatten() {
                let (at, value) = (pattern["pos"].as_u64().unwrap_or_default() as usize, pattern["value"].as_str());
                for row in self.rows.values_mut() {
                    if row.tags.iter().any(|tag| tag.split('/').nth(at) == value) {
                        row.active[at] = event == "move-in";
                    }
                }
            }
            if event == "move-out" {
                self.rows.retain(|_, row| row.stays());
            }
            return;
        }
        let Some(key) = message["key"].as_str() else { return };
        let list = |name: &str| headers[name].as_array().into_iter().flatten();
        let tags: Vec<String> = list("tags").filter_map(|tag| Some(tag.as_str()?.to_owned())).collect();
        let active: Vec<bool> = list("active_conditions").filter_map(Value::as_bool).collect();
        let value = message["value"].as_object().cloned().unwrap_or_default();
        match headers["operation"].as_str().unwrap_or_default() {
            "insert" => {
                let row = Known { value, tags, active };
                assert!(row.tags.is_empty() || row.stays(), "a row comes without a reason: {message}\n{}", self.log());
                self.expect(!self.rows.contains_key(key), "an insert of a key that is there already", message);
                self.rows.insert(key.to_owned(), row);
            }
            "update" => {
                self.expect(self.rows.contains_key(key), "an update of a key that is absent", message);
                if let Some(known) = self.rows.get_mut(key) {
                    known.value.extend(value);
                    (known.tags, known.active) = (tags, active);
                }
            }
            _ => {
                self.expect(self.rows.contains_key(key), "a delete of a key that is absent", message);
                self.rows.remove(key);
            }
        }
    }
}

impl Known {
    fn stays(&self) -> bool {
        let slots = |tag: &String| tag.split('/').enumerate().all(|(at, slot)| slot.is_empty() || self.active[at]);
        self.tags.is_empty() || self.tags.iter().any(slots)
    }
}

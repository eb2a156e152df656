//! Definitions of shapes that wait for a connection to the database, by their tables: the job that gets a connection
//! takes all of one table.
//!
//! One job takes all requests that wait for a table, so no more connections are requested than are needed. While a
//! batch looks its table up, the next one waits for it, as it would look up the same. While a batch fetches its rows,
//! the next one waits for a moment, and makes the shapes of all requests that arrive by then.

use super::access::Clause;
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thalweg_shapes_model::definition::Definition;
use thalweg_shapes_model::table::TableName;
use thalweg_shapes_source::clock::Clock;

/// How long one batch waits for the rows of another.
const WAIT: Duration = Duration::from_millis(20);
/// Of one batch.
const BATCH_MAX: usize = 1024;

/// A request to make a shape.
#[derive(Debug)]
pub(crate) struct CreateRequest {
    pub(crate) definition: Definition,
    pub(crate) query_key: Vec<u8>,
    /// Parts of its clause that may not fail on any row.
    pub(crate) narrowing: Vec<Clause>,
}

#[derive(Debug)]
pub(crate) struct CreateBatcher {
    clock: Arc<dyn Clock>,
    tables: Mutex<HashMap<TableName, Queue>>,
    went_on: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    requests: Vec<CreateRequest>,
    /// The batch that is under way.
    under_way: Option<UnderWay>,
    /// A job is about to take all.
    awaited: bool,
}

#[derive(Clone, Copy, Debug)]
struct UnderWay {
    began: Instant,
    /// The table is looked up and published: only the rows are still to come.
    prepared: bool,
}

/// The requests that one job has taken. The next batch of the table goes ahead when this one is dropped, or some time
/// after it was prepared.
#[derive(Debug)]
pub(crate) struct Batch<'a> {
    batcher: &'a CreateBatcher,
    table: TableName,
    began: Instant,
    pub(crate) requests: Vec<CreateRequest>,
    /// There were more than one batch has.
    pub(crate) more: bool,
}

impl CreateBatcher {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, tables: Mutex::default(), went_on: Condvar::new() }
    }

    /// Whether the caller must see to it that [`CreateBatcher::take`] is called after this; else a job is about to.
    #[must_use]
    pub(crate) fn add(&self, request: CreateRequest) -> bool {
        let mut tables = self.tables.lock();
        let queue = tables.entry(request.definition.table.clone()).or_default();
        queue.requests.push(request);
        !std::mem::replace(&mut queue.awaited, true)
    }

    /// All that wait for a table, the oldest first. If there are more than one batch has, another job must call this.
    pub(crate) fn take(&self, table: &TableName) -> Option<Batch<'_>> {
        let mut tables = self.tables.lock();
        while let Some(before) = tables.get(table)?.under_way {
            if !before.prepared {
                self.went_on.wait(&mut tables);
            } else if self.went_on.wait_until(&mut tables, before.began + WAIT).timed_out() {
                break;
            }
        }
        self.begin(&mut tables, table)
    }

    /// The same without waiting.
    pub(crate) fn take_now(&self, table: &TableName) -> Option<Batch<'_>> {
        self.begin(&mut self.tables.lock(), table)
    }

    fn begin(&self, tables: &mut HashMap<TableName, Queue>, table: &TableName) -> Option<Batch<'_>> {
        let queue = tables.get_mut(table)?;
        let began = self.clock.now();
        queue.under_way = Some(UnderWay { began, prepared: false });
        let rest = queue.requests.split_off(queue.requests.len().min(BATCH_MAX));
        let requests = std::mem::replace(&mut queue.requests, rest);
        queue.awaited = !queue.requests.is_empty();
        Some(Batch { batcher: self, table: table.clone(), began, requests, more: queue.awaited })
    }

    /// The batch of this table that began then has come further.
    fn note(&self, table: &TableName, began: Instant, ended: bool) {
        let mut tables = self.tables.lock();
        if let Some(queue) = tables.get_mut(table) {
            if let Some(mine) = queue.under_way.as_mut().filter(|batch| batch.began == began) {
                mine.prepared = true;
                queue.under_way.take_if(|_| ended);
            }
            if queue.requests.is_empty() && queue.under_way.is_none() && !queue.awaited {
                tables.remove(table);
            }
        }
        self.went_on.notify_all();
    }
}

impl Batch<'_> {
    /// The table is looked up and published, and the shapes listen: another batch of it may begin.
    pub(crate) fn prepared(&self) {
        self.batcher.note(&self.table, self.began, false);
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.batcher.note(&self.table, self.began, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_shapes_source::clock::SystemClock;

    fn request(table: &str, n: usize) -> CreateRequest {
        CreateRequest {
            definition: Definition::of_table("public", table),
            query_key: n.to_le_bytes().to_vec(),
            narrowing: Vec::new(),
        }
    }

    fn name(table: &str) -> TableName {
        TableName { schema: "public".into(), name: table.into() }
    }

    #[test]
    fn who_comes_first_takes_all_of_a_table() {
        let batcher = CreateBatcher::new(Arc::new(SystemClock));
        let first: Vec<bool> = (0..3).map(|n| batcher.add(request("a", n))).collect();
        assert_eq!(first, [true, false, false], "one takes all");
        assert!(batcher.add(request("b", 3)));
        let batch = batcher.take(&name("a")).unwrap();
        assert_eq!((batch.requests.len(), batch.more), (3, false));
        assert_eq!(batcher.take(&name("b")).unwrap().requests.len(), 1);
        assert!(batcher.add(request("a", 4)), "the one before has taken what it takes");
        drop(batch);
        assert_eq!(batcher.take(&name("a")).unwrap().requests.len(), 1);
        assert!(batcher.tables.lock().is_empty());
    }

    #[test]
    fn the_next_batch_waits_for_the_table_and_a_moment_for_its_rows() {
        let batcher = CreateBatcher::new(Arc::new(SystemClock));
        assert!(batcher.add(request("a", 0)));
        let first = batcher.take(&name("a")).unwrap();
        assert!(batcher.add(request("a", 1)));
        std::thread::scope(|scope| {
            let next = scope.spawn(|| batcher.take(&name("a")).map(|batch| batch.requests.len()));
            // However long it takes to look the table up.
            std::thread::sleep(2 * WAIT);
            assert!(!next.is_finished());
            assert!(!batcher.add(request("a", 2)), "somebody waits already");
            first.prepared();
            assert_eq!(next.join().unwrap(), Some(2));
        });
        drop(first);
        assert!(batcher.tables.lock().is_empty());
    }

    #[test]
    fn a_batch_whose_rows_take_long_is_not_waited_for() {
        let batcher = CreateBatcher::new(Arc::new(SystemClock));
        assert!(batcher.add(request("a", 0)));
        let first = batcher.take(&name("a")).unwrap();
        first.prepared();
        assert!(batcher.add(request("a", 1)));
        let second = batcher.take(&name("a")).unwrap();
        assert_eq!(second.requests.len(), 1);
        // The first one's end says nothing of the second.
        drop(first);
        assert!(batcher.tables.lock()[&name("a")].under_way.is_some());
        drop(second);
        assert!(batcher.tables.lock().is_empty());
    }

    #[test]
    fn a_batch_has_a_size() {
        let batcher = CreateBatcher::new(Arc::new(SystemClock));
        (0..BATCH_MAX + 5).for_each(|n| assert_eq!(batcher.add(request("a", n)), n == 0));
        let batch = batcher.take(&name("a")).unwrap();
        assert_eq!((batch.requests.len(), batch.more), (BATCH_MAX, true));
        assert_eq!(batch.requests[7].query_key, 7_usize.to_le_bytes());
        assert!(!batcher.add(request("a", 0)), "who was told that there are more takes it");
        drop(batch);
        assert_eq!(batcher.take(&name("a")).unwrap().requests.len(), 6);
        assert!(batcher.tables.lock().is_empty());
    }
}

//! Definitions of shapes that wait for a connection to the database, by their tables: who gets one takes all of a table's with it.
//!
//! One job takes all that waits for a table, so no more connections are asked for than are needed. While a batch looks its table up, the
//! next one waits for it, as it would ask the same; while its rows are fetched, for a moment: what comes meanwhile is made together.

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

/// A shape that somebody wants.
#[derive(Debug)]
pub(crate) struct Wish {
    pub(crate) definition: Definition,
    pub(crate) words: Vec<u8>,
    /// Parts of its clause that may not fail on any row.
    pub(crate) narrowing: Vec<Clause>,
}

#[derive(Debug)]
pub(crate) struct Gather {
    clock: Arc<dyn Clock>,
    tables: Mutex<HashMap<TableName, Queue>>,
    went_on: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    wishes: Vec<Wish>,
    /// The batch that is under way.
    under_way: Option<UnderWay>,
    /// Somebody is about to take all.
    awaited: bool,
}

#[derive(Clone, Copy, Debug)]
struct UnderWay {
    began: Instant,
    /// The table is looked up and published: only the rows are still to come.
    prepared: bool,
}

/// What was taken. Others of the table go ahead when it is dropped, or is prepared for a moment.
#[derive(Debug)]
pub(crate) struct Batch<'a> {
    gather: &'a Gather,
    table: TableName,
    began: Instant,
    pub(crate) wishes: Vec<Wish>,
    /// There were more than one batch has.
    pub(crate) more: bool,
}

impl Gather {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, tables: Mutex::default(), went_on: Condvar::new() }
    }

    /// Whether the caller must see to it that [`Gather::take`] is called after this; else somebody is about to.
    #[must_use]
    pub(crate) fn add(&self, wish: Wish) -> bool {
        let mut tables = self.tables.lock();
        let queue = tables.entry(wish.definition.table.clone()).or_default();
        queue.wishes.push(wish);
        !std::mem::replace(&mut queue.awaited, true)
    }

    /// All that wait for a table, the oldest first. If there are more than one batch has, somebody must call this again.
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
        let rest = queue.wishes.split_off(queue.wishes.len().min(BATCH_MAX));
        let wishes = std::mem::replace(&mut queue.wishes, rest);
        queue.awaited = !queue.wishes.is_empty();
        Some(Batch { gather: self, table: table.clone(), began, wishes, more: queue.awaited })
    }

    /// The batch of this table that began then has come further.
    fn note(&self, table: &TableName, began: Instant, ended: bool) {
        let mut tables = self.tables.lock();
        if let Some(queue) = tables.get_mut(table) {
            if let Some(mine) = queue.under_way.as_mut().filter(|batch| batch.began == began) {
                mine.prepared = true;
                queue.under_way.take_if(|_| ended);
            }
            if queue.wishes.is_empty() && queue.under_way.is_none() && !queue.awaited {
                tables.remove(table);
            }
        }
        self.went_on.notify_all();
    }
}

impl Batch<'_> {
    /// The table is looked up and published, and the shapes listen: another batch of it may begin.
    pub(crate) fn prepared(&self) {
        self.gather.note(&self.table, self.began, false);
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.gather.note(&self.table, self.began, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_shapes_source::clock::SystemClock;

    fn wish(table: &str, n: usize) -> Wish {
        Wish {
            definition: Definition::of_table("public", table),
            words: n.to_le_bytes().to_vec(),
            narrowing: Vec::new(),
        }
    }

    fn name(table: &str) -> TableName {
        TableName { schema: "public".into(), name: table.into() }
    }

    #[test]
    fn who_comes_first_takes_all_of_a_table() {
        let gather = Gather::new(Arc::new(SystemClock));
        let first: Vec<bool> = (0..3).map(|n| gather.add(wish("a", n))).collect();
        assert_eq!(first, [true, false, false], "one takes all");
        assert!(gather.add(wish("b", 3)));
        let batch = gather.take(&name("a")).unwrap();
        assert_eq!((batch.wishes.len(), batch.more), (3, false));
        assert_eq!(gather.take(&name("b")).unwrap().wishes.len(), 1);
        assert!(gather.add(wish("a", 4)), "the one before has taken what it takes");
        drop(batch);
        assert_eq!(gather.take(&name("a")).unwrap().wishes.len(), 1);
        assert!(gather.tables.lock().is_empty());
    }

    #[test]
    fn the_next_batch_waits_for_the_table_and_a_moment_for_its_rows() {
        let gather = Gather::new(Arc::new(SystemClock));
        assert!(gather.add(wish("a", 0)));
        let first = gather.take(&name("a")).unwrap();
        assert!(gather.add(wish("a", 1)));
        std::thread::scope(|scope| {
            let next = scope.spawn(|| gather.take(&name("a")).map(|batch| batch.wishes.len()));
            // However long it takes to look the table up.
            std::thread::sleep(2 * WAIT);
            assert!(!next.is_finished());
            assert!(!gather.add(wish("a", 2)), "somebody waits already");
            first.prepared();
            assert_eq!(next.join().unwrap(), Some(2));
        });
        drop(first);
        assert!(gather.tables.lock().is_empty());
    }

    #[test]
    fn a_batch_whose_rows_take_long_is_not_waited_for() {
        let gather = Gather::new(Arc::new(SystemClock));
        assert!(gather.add(wish("a", 0)));
        let first = gather.take(&name("a")).unwrap();
        first.prepared();
        assert!(gather.add(wish("a", 1)));
        let second = gather.take(&name("a")).unwrap();
        assert_eq!(second.wishes.len(), 1);
        // The first one's end says nothing of the second.
        drop(first);
        assert!(gather.tables.lock()[&name("a")].under_way.is_some());
        drop(second);
        assert!(gather.tables.lock().is_empty());
    }

    #[test]
    fn a_batch_has_a_size() {
        let gather = Gather::new(Arc::new(SystemClock));
        (0..BATCH_MAX + 5).for_each(|n| assert_eq!(gather.add(wish("a", n)), n == 0));
        let batch = gather.take(&name("a")).unwrap();
        assert_eq!((batch.wishes.len(), batch.more), (BATCH_MAX, true));
        assert_eq!(batch.wishes[7].words, 7_usize.to_le_bytes());
        assert!(!gather.add(wish("a", 0)), "who was told that there are more takes it");
        drop(batch);
        assert_eq!(gather.take(&name("a")).unwrap().wishes.len(), 6);
        assert!(gather.tables.lock().is_empty());
    }
}

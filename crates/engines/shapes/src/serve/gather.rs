//! Definitions of shapes that wait for a connection to the database, by their tables: who gets one takes all of a table's with it.
//!
//! While a batch of a table has just begun, the next one waits a moment for it: what comes meanwhile is made together.

use crate::definition::Definition;
use crate::table::TableName;
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long one batch waits for another to end.
const WAIT: Duration = Duration::from_millis(20);
/// Of one batch.
const BATCH_MAX: usize = 1024;

/// A shape that somebody wants.
#[derive(Debug)]
pub(crate) struct Wish {
    pub(crate) definition: Definition,
    pub(crate) words: Vec<u8>,
}

#[derive(Debug, Default)]
pub(crate) struct Gather {
    tables: Mutex<HashMap<TableName, Queue>>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    wishes: Vec<Wish>,
    /// When the batch that is under way began; the next need not wait for it for long.
    began: Option<Instant>,
    /// Somebody waits to take all.
    awaited: bool,
}

/// What was taken. Others of the table go ahead when it is dropped, or after a moment.
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
    /// Somebody must call [`Gather::take`] after this.
    pub(crate) fn add(&self, wish: Wish) {
        let mut tables = self.tables.lock();
        tables.entry(wish.definition.table.clone()).or_default().wishes.push(wish);
    }

    /// All that wait for a table, the oldest first. `None`: others have taken them, or are about to.
    pub(crate) fn take(&self, table: &TableName) -> Option<Batch<'_>> {
        let mut tables = self.tables.lock();
        let queue = tables.get_mut(table)?;
        if queue.awaited || queue.wishes.is_empty() {
            return None;
        }
        if let Some(until) = queue.began.map(|began| began + WAIT) {
            queue.awaited = true;
            while tables.get(table).is_some_and(|queue| queue.began.is_some())
                && !self.ended.wait_until(&mut tables, until).timed_out()
            {}
        }
        tables.get_mut(table)?.awaited = false;
        self.begin(&mut tables, table)
    }

    /// The same without waiting.
    pub(crate) fn take_now(&self, table: &TableName) -> Option<Batch<'_>> {
        self.begin(&mut self.tables.lock(), table)
    }

    fn begin(&self, tables: &mut HashMap<TableName, Queue>, table: &TableName) -> Option<Batch<'_>> {
        let queue = tables.get_mut(table)?;
        let began = Instant::now();
        queue.began = Some(began);
        let rest = queue.wishes.split_off(queue.wishes.len().min(BATCH_MAX));
        let wishes = std::mem::replace(&mut queue.wishes, rest);
        let more = !queue.wishes.is_empty();
        Some(Batch { gather: self, table: table.clone(), began, wishes, more })
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        let mut tables = self.gather.tables.lock();
        if let Some(queue) = tables.get_mut(&self.table) {
            queue.began.take_if(|began| *began == self.began);
            if queue.wishes.is_empty() && queue.began.is_none() && !queue.awaited {
                tables.remove(&self.table);
            }
        }
        self.gather.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(table: &str, n: usize) -> Wish {
        Wish { definition: Definition::of_table("public", table), words: n.to_le_bytes().to_vec() }
    }

    fn name(table: &str) -> TableName {
        TableName { schema: "public".into(), name: table.into() }
    }

    #[test]
    fn who_comes_first_takes_all_of_a_table() {
        let gather = Gather::default();
        (0..3).for_each(|n| gather.add(wish("a", n)));
        gather.add(wish("b", 3));
        let batch = gather.take(&name("a")).unwrap();
        assert_eq!((batch.wishes.len(), batch.more), (3, false));
        assert!(gather.take(&name("a")).is_none(), "nothing is left for the others");
        assert_eq!(gather.take(&name("b")).unwrap().wishes.len(), 1);
        drop(batch);
        assert!(gather.tables.lock().is_empty());
    }

    #[test]
    fn the_next_batch_waits_a_moment_and_one_does_for_all() {
        let gather = Gather::default();
        gather.add(wish("a", 0));
        let first = gather.take(&name("a")).unwrap();
        gather.add(wish("a", 1));
        std::thread::scope(|scope| {
            let next = scope.spawn(|| gather.take(&name("a")).map(|batch| batch.wishes.len()));
            while !gather.tables.lock().get(&name("a")).unwrap().awaited {
                std::thread::yield_now();
            }
            gather.add(wish("a", 2));
            assert!(gather.take(&name("a")).is_none(), "somebody waits already");
            drop(first);
            assert_eq!(next.join().unwrap(), Some(2));
        });
        assert!(gather.tables.lock().is_empty());
    }

    #[test]
    fn a_batch_that_takes_long_is_not_waited_for() {
        let gather = Gather::default();
        gather.add(wish("a", 0));
        let first = gather.take(&name("a")).unwrap();
        gather.add(wish("a", 1));
        let second = gather.take(&name("a")).unwrap();
        assert_eq!(second.wishes.len(), 1);
        drop((first, second));
        assert!(gather.tables.lock().is_empty());
    }

    #[test]
    fn a_batch_has_a_size() {
        let gather = Gather::default();
        (0..BATCH_MAX + 5).for_each(|n| gather.add(wish("a", n)));
        let batch = gather.take(&name("a")).unwrap();
        assert_eq!((batch.wishes.len(), batch.more), (BATCH_MAX, true));
        assert_eq!(batch.wishes[7].words, 7_usize.to_le_bytes());
        drop(batch);
        assert_eq!(gather.take(&name("a")).unwrap().wishes.len(), 5);
    }
}

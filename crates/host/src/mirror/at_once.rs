//! The same work on many things, some of them at the same time.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Does `work` on each of `things`, on up to `threads` threads. The first failure ends it: what has not begun by then is
/// left out.
pub(super) fn at_once<T: Sync, E: Send>(
    things: &[T],
    threads: usize,
    work: &(dyn Fn(&T) -> Result<(), E> + Sync),
) -> Result<(), E> {
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
    let worker = || {
        while let Some(thing) = things.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(error) = work(thing) {
                next.store(things.len(), Ordering::Relaxed);
                failed.lock().get_or_insert(error);
            }
        }
    };
    match things.len().min(threads) {
        0 | 1 => worker(),
        threads => std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(worker)))),
    }
    failed.into_inner().map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_done_once_and_a_failure_ends_it() {
        let things: Vec<usize> = (0..100).collect();
        for threads in [1, 4] {
            let done = Mutex::new(Vec::new());
            at_once(&things, threads, &|thing| {
                done.lock().push(*thing);
                Ok::<_, ()>(())
            })
            .unwrap();
            let mut done = done.into_inner();
            done.sort_unstable();
            assert_eq!(done, things);
        }
        let begun = AtomicUsize::new(0);
        let failed = at_once(&things, 1, &|thing| {
            begun.fetch_add(1, Ordering::Relaxed);
            if *thing == 7 { Err(*thing) } else { Ok(()) }
        });
        assert_eq!((failed, begun.into_inner()), (Err(7), 8));
    }
}

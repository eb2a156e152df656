//! The queue between threads that log and the one thread that writes.
//!
//! Of our own, since `tracing-appender` prints to standard output when it ends with a full queue, which may block or
//! panic, and does not count lines that cannot be written.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};
use tracing_subscriber::fmt::MakeWriter;

/// Lines that wait, and the longest one: together the memory that a stalled reader can cost.
const LINES_MAX: usize = 4096;
const LINE_BYTES_MAX: usize = 8 << 10;
/// How often a full queue is tried again at the end.
const TRY_EVERY: Duration = Duration::from_millis(10);

enum Message {
    Line(Vec<u8>),
    /// Answered when all earlier lines are written.
    Flush(SyncSender<()>),
}

/// The end that takes lines. Never waits.
#[derive(Clone)]
pub(super) struct Queue {
    messages: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
}

impl Queue {
    /// Starts the thread that writes to `out`.
    pub(super) fn start(out: impl Write + Send + 'static) -> std::io::Result<Self> {
        let (messages, queue) = sync_channel(LINES_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&dropped);
        std::thread::Builder::new().name("log".into()).spawn(move || write_all(&queue, out, &count))?;
        Ok(Self { messages, dropped })
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Waits until every line so far is written, but no longer than `max`.
    pub(super) fn flush(&self, max: Duration) {
        let until = Instant::now() + max;
        let (done, flushed) = sync_channel(1);
        while let Err(TrySendError::Full(_)) = self.messages.try_send(Message::Flush(done.clone())) {
            if Instant::now() >= until {
                return;
            }
            std::thread::sleep(TRY_EVERY);
        }
        let _ = flushed.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
}

fn write_all(queue: &Receiver<Message>, mut out: impl Write, dropped: &AtomicU64) {
    let mut told = 0;
    while let Ok(message) = queue.recv() {
        match message {
            Message::Flush(done) => drop(done.send(())),
            Message::Line(line) if out.write_all(&line).is_err() => {
                dropped.fetch_add(1, Ordering::Relaxed);
            }
            Message::Line(_) => {
                let now = dropped.load(Ordering::Relaxed);
                if now > told {
                    // This line passes the queue too: same format, and dropped if the queue is full again.
                    tracing::warn!(lines = now - told, "dropped log lines: the reader of standard error is too slow");
                    told = now;
                }
            }
        }
    }
}

/// Writer of one line: the subscriber passes each line as one piece.
pub(super) struct Line<'a>(&'a Queue);

impl Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut line = bytes[..bytes.len().min(LINE_BYTES_MAX)].to_vec();
        if line.len() < bytes.len() {
            line.extend_from_slice("…\n".as_bytes());
        }
        if self.0.messages.try_send(Message::Line(line)).is_err() {
            self.0.dropped.fetch_add(1, Ordering::Relaxed);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Queue {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;

    /// Takes lines only while its lock is free.
    #[derive(Clone, Default)]
    struct Reader(Arc<Mutex<Vec<u8>>>);

    impl Write for Reader {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_stalls_costs_lines_and_no_time() {
        let reader = Reader::default();
        let queue = Queue::start(reader.clone()).unwrap();
        let stalled = reader.0.lock();
        let begun = Instant::now();
        for n in 0..LINES_MAX + 1000 {
            queue.make_writer().write_all(format!("{n}\n").as_bytes()).unwrap();
        }
        queue.flush(Duration::from_millis(50));
        assert!(begun.elapsed() < Duration::from_secs(5), "it waited");
        // The thread that writes may have taken one line out of the queue.
        assert!((999..=1000).contains(&queue.dropped()), "{}", queue.dropped());
        drop(stalled);
        queue.flush(Duration::from_secs(10));
        let taken = String::from_utf8(reader.0.lock().clone()).unwrap();
        assert!(taken.starts_with("0\n1\n2\n"));
        assert!((LINES_MAX..=LINES_MAX + 1).contains(&taken.lines().count()));
    }

    #[test]
    fn a_reader_that_is_gone_costs_lines_only() {
        struct Gone;
        impl Write for Gone {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                Err(std::io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let queue = Queue::start(Gone).unwrap();
        queue.make_writer().write_all(b"a\n").unwrap();
        queue.flush(Duration::from_secs(10));
        assert_eq!(queue.dropped(), 1);
    }

    #[test]
    fn a_long_line_is_cut() {
        let reader = Reader::default();
        let queue = Queue::start(reader.clone()).unwrap();
        queue.make_writer().write_all(&vec![b'x'; LINE_BYTES_MAX * 3]).unwrap();
        queue.flush(Duration::from_secs(10));
        assert_eq!(reader.0.lock().len(), LINE_BYTES_MAX + "…\n".len());
    }
}

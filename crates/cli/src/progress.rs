//! How far a long command is: bytes, rate, and the time that is left if the end is known. On standard error, and only
//! for a person.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// A command that ends sooner shows no progress.
const FIRST: Duration = Duration::from_secs(1);

/// The bar of one command. It is removed when the value is dropped.
pub struct Progress {
    bar: ProgressBar,
    since: Instant,
    /// Whether the bar is to be shown and is not shown yet.
    waits: bool,
}

impl Progress {
    /// `total`: bytes that are to come, if that is known. `busy`: standard output is a terminal that shows content
    /// itself.
    pub fn new(total: Option<u64>, busy: bool) -> Self {
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden()).with_style(style(total.is_some()));
        Self { bar, since: Instant::now(), waits: std::io::stderr().is_terminal() && !busy }
    }

    /// Counts `bytes` more as done.
    pub fn add(&mut self, bytes: u64) {
        self.bar.inc(bytes);
        self.show();
    }

    /// Number of bytes done.
    pub fn set(&mut self, bytes: u64) {
        self.bar.set_position(bytes);
        self.show();
    }

    /// Number of bytes in all.
    pub fn set_total(&mut self, bytes: u64) {
        self.bar.set_length(bytes);
        self.bar.set_style(style(true));
    }

    /// Sets the word in front of the bar, such as `checking`.
    pub fn set_message(&mut self, words: &'static str) {
        self.bar.set_message(words);
    }

    fn show(&mut self) {
        if self.waits && self.since.elapsed() >= FIRST {
            self.waits = false;
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.bar.tick();
            // The bar keeps moving while no bytes come, so that a stalled transfer is visible.
            self.bar.enable_steady_tick(Duration::from_millis(500));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        // The command itself reports its result.
        self.bar.finish_and_clear();
    }
}

fn style(bounded: bool) -> ProgressStyle {
    let template = if bounded {
        "{msg}{binary_bytes} of {binary_total_bytes}  {wide_bar}  {binary_bytes_per_sec}  {eta} left"
    } else {
        "{msg}{binary_bytes}  {binary_bytes_per_sec}"
    };
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_understood_by_the_library() {
        for bounded in [false, true] {
            let _ = style(bounded);
            assert!(ProgressStyle::with_template("{nonsense!}").is_ok() || bounded, "templates are not checked much");
        }
    }

    #[test]
    fn nothing_is_drawn_where_nobody_looks() {
        let mut progress = Progress::new(Some(10), true);
        progress.add(5);
        assert!(progress.bar.is_hidden() && progress.bar.position() == 5);
    }
}

//! Counts of checks, and the violations found.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[derive(Default)]
struct Findings {
    counts: BTreeMap<&'static str, u64>,
    lateness_ms: Vec<u64>,
    refusals: BTreeMap<String, u64>,
    violations: Vec<String>,
}

#[derive(Default)]
pub(crate) struct Report {
    findings: Mutex<Findings>,
    /// Only the fact counts, not the words (self-test).
    quiet: bool,
}

impl Report {
    pub(crate) fn new(quiet: bool) -> Self {
        Self { quiet, ..Self::default() }
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    fn lock(&self) -> MutexGuard<'_, Findings> {
        self.findings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn count(&self, what: &'static str) {
        *self.lock().counts.entry(what).or_default() += 1;
    }

    pub(crate) fn get(&self, what: &str) -> u64 {
        self.lock().counts.get(what).copied().unwrap_or(0)
    }

    pub(crate) fn late(&self, by: Duration) {
        self.lock().lateness_ms.push(by.as_millis() as u64);
    }

    /// A condition that the server does not take.
    pub(crate) fn refused(&self, clause: &str, answer: &str) {
        self.count("refused");
        self.lock().refusals.insert(clause.to_owned(), 1);
        if !self.quiet && std::env::var_os("ORACLE_REFUSALS").is_some() {
            println!("refused: {clause}\n    {answer}");
        }
    }

    pub(crate) fn violation(&self, what: String) {
        let mut findings = self.lock();
        if !self.quiet && findings.violations.len() < 20 {
            println!("VIOLATION {what}");
        }
        findings.violations.push(what);
    }

    pub(crate) fn violations(&self) -> usize {
        self.lock().violations.len()
    }

    pub(crate) fn summary(&self) -> String {
        let mut findings = self.lock();
        findings.lateness_ms.sort_unstable();
        let late = &findings.lateness_ms;
        let quantile = |q: f64| late.get(((late.len() as f64 - 1.0) * q).max(0.0) as usize).copied().unwrap_or(0);
        let lateness = format!("lateness p50 {} p99 {} max {} ms", quantile(0.5), quantile(0.99), quantile(1.0));
        let parts: Vec<String> = findings.counts.iter().map(|(what, n)| format!("{what} {n}")).collect();
        format!("CHECKED {}, {lateness}, violations {}", parts.join(", "), findings.violations.len())
    }
}

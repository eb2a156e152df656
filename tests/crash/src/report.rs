//! Counts of checks, and the violations found.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

#[derive(Default)]
pub(crate) struct Report {
    counts: Mutex<BTreeMap<&'static str, u64>>,
    violations: Mutex<Vec<String>>,
}

impl Report {
    pub(crate) fn count(&self, what: &'static str) {
        self.add(what, 1);
    }

    pub(crate) fn add(&self, what: &'static str, n: u64) {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner).entry(what).or_default() += n;
    }

    pub(crate) fn get(&self, what: &str) -> u64 {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).get(what).copied().unwrap_or(0)
    }

    pub(crate) fn violation(&self, what: String) {
        let mut violations = self.violations.lock().unwrap_or_else(PoisonError::into_inner);
        // Failures after the first are mostly its consequences.
        if violations.len() < 5 {
            println!("VIOLATION {what}");
        }
        violations.push(what);
    }

    pub(crate) fn clean(&self) -> bool {
        self.violations.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    pub(crate) fn summary(&self) -> String {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let parts: Vec<String> = counts.iter().map(|(what, n)| format!("{what} {n}")).collect();
        format!("CHECKED {}", parts.join(", "))
    }
}

//! How long a row takes and how much memory a predicate:
//! `cargo test -p thalweg-filter --release --test measure -- --ignored --nocapture`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::time::Instant;
use thalweg_filter::{Column, Index, Predicate, Schema};

fn schema() -> Schema {
    let column = |name: &str, type_oid| Column { name: name.into(), type_oid, ..Column::default() };
    Schema::new("t", vec![column("id", 23), column("name", 25), column("a", 23), column("c", 25), column("d", 25)])
}

fn fill(count: usize, clause: impl Fn(usize) -> String) -> (Index<u32>, f64) {
    let schema = schema();
    let mut index = Index::new();
    let began = Instant::now();
    for i in 0..count {
        index.insert(i as u32, Some(&Arc::new(Predicate::parse(&clause(i), &[], &schema).unwrap())));
    }
    (index, began.elapsed().as_secs_f64() * 1e6 / count as f64)
}

#[test]
#[ignore = "it measures"]
fn rows() {
    type Clause = fn(usize) -> String;
    let kinds: [(&str, Clause); 8] = [
        ("name = 'x'", |i| format!("name = 'name {i}'")),
        ("name ILIKE 'x%'", |i| format!("name ILIKE 'name {i:05}%'")),
        ("name LIKE '%x'", |i| format!("name LIKE '%ame {i:05}'")),
        ("name LIKE '%x%'", |i| format!("name LIKE '%me {i:05}%'")),
        ("a BETWEEN", |i| format!("a BETWEEN {} AND {}", i * 10, i * 10 + 9)),
        ("a IN (10)", |i| {
            format!("a IN ({})", (0..10).map(|j| (i * 10 + j).to_string()).collect::<Vec<_>>().join(", "))
        }),
        ("c = 'same' AND name = 'x'", |i| format!("c = 'same' AND name = 'name {i}'")),
        ("name <> 'x' AND a + 1 = i (residual)", |i| format!("name <> 'name' AND a + 1 + {i} <> 0 AND a = id + {i}")),
    ];
    for (what, clause) in kinds {
        let count = 10_000;
        let (mut index, insert) = fill(count, clause);
        let rounds = if what.contains("residual") { 100 } else { 100_000 };
        let mut out = Vec::new();
        let mut found = 0;
        let texts: Vec<(String, String)> =
            (0..1000).map(|i| (format!("name {:05}", i * 7), (i * 77).to_string())).collect();
        let plain: Vec<(String, String)> =
            (0..1000).map(|i| (format!("name {}", i * 7), (i * 77).to_string())).collect();
        let texts = if what.contains("= 'x'") { plain } else { texts };
        let began = Instant::now();
        for round in 0..rounds {
            let (name, a) = &texts[round % texts.len()];
            out.clear();
            index.matching(
                &[Some(b"1"), Some(name.as_bytes()), Some(a.as_bytes()), Some(b"same"), Some(b"d")],
                &mut out,
                &mut Vec::new(),
            );
            found += out.len();
        }
        let row = began.elapsed().as_secs_f64() * 1e9 / rounds as f64;
        println!(
            "{what}: {row:.0} ns per row, {:.2} found, {insert:.2} us to parse and insert",
            found as f64 / rounds as f64
        );
    }
}

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096
}

#[test]
#[ignore = "it measures"]
fn memory() {
    let before = resident();
    let count = 1_000_000;
    let (index, insert) = fill(count, |i| format!("name = 'name {i}'"));
    println!("{} bytes per predicate, {insert:.2} us to parse and insert", (resident() - before) / count);
    drop(index);
}

//! Comparison with a real Postgres: a random where clause must select there exactly the rows for which
//! [`holds`](thalweg_filter::Predicate) is true here, and our SQL of it the same. `THALWEG_FILTER_SEED` and
//! `THALWEG_FILTER_CLAUSES` choose another or a longer run, `THALWEG_FILTER_SHOW=1` prints refused clauses.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod generate;
mod server;

use generate::Generator;
use server::{Answer, Server};
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_filter::{Index, Predicate};

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

#[test]
fn postgres_and_predicates_select_the_same_rows() {
    let servers = Server::start_all();
    for server in &servers {
        compare_with(server);
    }
}

fn compare_with(server: &Server) {
    let seed = setting("THALWEG_FILTER_SEED", 1);
    let count = setting("THALWEG_FILTER_CLAUSES", 1500);
    let mut generator = Generator::new(seed);
    let rows = server.fill(&mut generator, 40);
    let schema = server.schema();

    let mut refused: BTreeMap<String, usize> = BTreeMap::new();
    let mut accepted = Vec::new();
    for _ in 0..count {
        let clause = generator.clause();
        match Predicate::parse(&clause, &[], &schema) {
            Ok(predicate) => accepted.push((clause, predicate)),
            Err(error) => {
                *refused.entry(format!("{error}")).or_default() += 1;
                if setting("THALWEG_FILTER_SHOW", 0) == 1 {
                    println!("refused: {clause}\n  {error}");
                }
            }
        }
    }
    let clauses: Vec<String> = accepted.iter().map(|(clause, _)| clause.clone()).collect();
    let printed: Vec<String> = accepted.iter().map(|(_, predicate)| predicate.sql()).collect();
    let original = server.ask(&clauses);
    let ours = server.ask(&printed);

    let mut index = Index::new();
    for (i, (_, predicate)) in accepted.iter().enumerate() {
        index.insert(i, Some(&Arc::new(predicate.clone())));
    }
    let borrowed: Vec<Vec<Option<&[u8]>>> =
        rows.iter().map(|row| row.iter().map(|v| v.as_deref().map(str::as_bytes)).collect()).collect();
    let mut found = vec![Vec::new(); rows.len()];
    for (row, found) in borrowed.iter().zip(&mut found) {
        index.matching(row, found, &mut Vec::new());
    }

    let (mut compared, mut selected, mut wrong) = (0, 0, Vec::new());
    for (i, (clause, predicate)) in accepted.iter().enumerate() {
        let held: String =
            borrowed.iter().map(|row| if predicate.holds(row) == Ok(true) { 't' } else { 'f' }).collect();
        let indexed: String = found.iter().map(|f| if f.binary_search(&i).is_ok() { 't' } else { 'f' }).collect();
        let mut judge = |what: &str, answer: &Answer| match answer {
            Answer::Rows(truths) => {
                compared += truths.len();
                selected += truths.matches('t').count();
                // Of a row for which Postgres fails nothing is known: we may know better, or fail as well.
                let agree = |(theirs, ours)| theirs == 'E' || theirs == ours;
                if truths.len() != held.len() || !truths.chars().zip(held.chars()).all(agree) {
                    wrong.push(format!(
                        "{what}\n  clause:   {clause}\n  sql:      {}\n  postgres: {truths}\n  holds:    {held}",
                        predicate.sql()
                    ));
                }
            }
            Answer::Refused(message) => {
                wrong.push(format!(
                    "{what} refused: {message}\n  clause: {clause}\n  sql:    {}\n  holds:  {held}",
                    predicate.sql()
                ));
            }
        };
        judge("original", &original[i]);
        judge("printed", &ours[i]);
        if indexed != held {
            wrong.push(format!("index\n  clause: {clause}\n  held:   {held}\n  index:  {indexed}"));
        }
    }
    for (message, times) in &refused {
        println!("{times:5} x {message}");
    }
    println!(
        "Postgres {}, seed {seed}: {count} clauses, {} refused, {compared} comparisons, {selected} selected",
        server.major(),
        refused.values().sum::<usize>()
    );
    assert!(
        wrong.is_empty(),
        "{} wrong, seed {seed}:\n{}",
        wrong.len(),
        wrong.iter().take(25).cloned().collect::<Vec<_>>().join("\n")
    );
    assert!(compared >= 20_000 || count < 1500, "{compared} comparisons");
    assert!(refused.values().sum::<usize>() * 10 < accepted.len(), "more than a tenth is refused");
}

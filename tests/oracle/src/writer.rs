//! Random transactions.

use crate::random::Random;
use crate::schema::{Kind, Table, quote};
use postgres::{Client, NoTls};
use std::time::{Duration, Instant};

/// The statements that a writer may use besides changes of rows.
#[derive(Clone, Copy)]
pub(crate) struct Freedom {
    pub(crate) truncate: bool,
    pub(crate) ddl: bool,
}

/// A connection, as soon as Postgres gives one.
pub(crate) fn connect(url: &str) -> anyhow::Result<Client> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match Client::connect(url, NoTls) {
            Ok(mut client) => {
                client.batch_execute(
                    "SET lock_timeout = '3s'; SET TimeZone = 'UTC'; SET DateStyle = 'ISO, DMY'; SET IntervalStyle = 'iso_8601';
                     SET extra_float_digits = 1; SET bytea_output = 'hex'",
                )?;
                return Ok(client);
            }
            Err(error) if Instant::now() > deadline => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// One transaction; true if it was committed. Refused statements roll it back; a lost connection is an error.
pub(crate) fn transaction(
    client: &mut Client,
    tables: &[Table],
    random: &mut Random,
    freedom: Freedom,
) -> Result<bool, postgres::Error> {
    let mut statements = Vec::new();
    for _ in 0..1 + random.below(6) {
        let table = random.pick(tables);
        if random.percent(10) {
            statements.push("SAVEPOINT s".to_owned());
            statements.push(change(table, random));
            statements.push(change(table, random));
            statements.push((random.word(&["ROLLBACK TO s", "RELEASE s"])).to_owned());
        } else {
            statements.push(change(table, random));
        }
    }
    if freedom.truncate && random.percent(2) {
        let at = random.below(statements.len());
        statements.insert(at, format!("TRUNCATE {}", random.pick(tables).sql()));
    }
    if freedom.ddl && random.percent(1) {
        let table = random.pick(tables);
        statements.push(alter(table, random));
        // A follower of the log learns of it with the next write.
        statements.push(format!("UPDATE {} SET ref = coalesce(ref, 0)", table.sql()));
    }
    let end = if random.percent(8) { "ROLLBACK" } else { "COMMIT" };
    // Most transactions are one statement each way; some are one message.
    client.batch_execute("BEGIN")?;
    for statement in &statements {
        if let Err(error) = client.batch_execute(statement) {
            if client.is_closed() {
                return Err(error);
            }
            client.batch_execute("ROLLBACK")?;
            return Ok(false);
        }
    }
    client.batch_execute(end)?;
    Ok(end == "COMMIT")
}

pub(crate) fn insert(table: &Table, rows: usize, random: &mut Random) -> String {
    let names: Vec<String> = table.columns.iter().map(crate::schema::Column::sql).collect();
    let tuples: Vec<String> = (0..rows)
        .map(|_| {
            let values: Vec<String> = (0..table.columns.len()).map(|at| table.literal(at, random)).collect();
            format!("({})", values.join(", "))
        })
        .collect();
    format!("INSERT INTO {} ({}) VALUES {} ON CONFLICT DO NOTHING", table.sql(), names.join(", "), tuples.join(", "))
}

fn change(table: &Table, random: &mut Random) -> String {
    let name = table.sql();
    match random.below(20) {
        0..=5 => {
            let rows = 1 + random.below(3);
            insert(table, rows, random)
        }
        6..=9 => {
            let (sets, some) = (sets(table, random), some(table, random));
            format!("UPDATE {name} SET {sets} WHERE {some}")
        }
        10..=11 => {
            // A column that sub-queries use.
            let at = table.columns.iter().position(|c| c.name == "ref").unwrap_or(0);
            let (value, some) = (table.literal(at, random), some(table, random));
            format!("UPDATE {name} SET ref = {value} WHERE {some}")
        }
        12 => {
            let some = some(table, random);
            format!("UPDATE {name} SET ref = ref WHERE {some}")
        }
        13 if !table.key.is_empty() => {
            let at = *random.pick(&table.key);
            let (column, value, some) = (table.columns[at].sql(), table.literal(at, random), some(table, random));
            format!("UPDATE {name} SET {column} = {value} WHERE {some}")
        }
        14 if table.key.iter().any(|at| table.columns[*at].kind == Kind::Int4) => {
            // All at once: keys pass through each other.
            format!(
                "UPDATE {name} SET id = id + {} WHERE id > {}",
                random.pick(&[100, -100, 50]),
                random.between(20, 60)
            )
        }
        15..=18 => {
            let some = some(table, random);
            format!("DELETE FROM {name} WHERE {some}")
        }
        _ => {
            let rows = 1 + random.below(20);
            insert(table, rows, random)
        }
    }
}

/// Assignments to one to three columns that are no key.
fn sets(table: &Table, random: &mut Random) -> String {
    let first = if table.has_nonce() { 1 } else { 0 };
    let mut columns: Vec<usize> = (first..table.columns.len()).filter(|at| !table.key.contains(at)).collect();
    let mut parts = Vec::new();
    for _ in 0..1 + random.below(3) {
        if columns.is_empty() {
            break;
        }
        let at = columns.remove(random.below(columns.len()));
        let value = table.literal(at, random);
        parts.push(format!("{} = {value}", table.columns[at].sql()));
    }
    parts.join(", ")
}

/// A condition on few rows.
fn some(table: &Table, random: &mut Random) -> String {
    let id = table.columns.iter().find(|c| c.name == "id").map_or(Kind::Text, |c| c.kind);
    match (id, random.below(5)) {
        (_, 0) => format!("ref = {}", random.between(-3, 12)),
        (Kind::Int4, 1) => format!("id % 7 = {}", random.below(7)),
        (Kind::Int4, _) => format!("id = {}", random.between(0, 40)),
        (kind, _) => format!("id = {}", quote(&kind.value(random))),
    }
}

fn alter(table: &Table, random: &mut Random) -> String {
    let name = table.sql();
    match random.below(5) {
        0 | 1 => format!(
            "ALTER TABLE {name} ADD COLUMN IF NOT EXISTS extra{} int DEFAULT {}",
            random.below(3),
            random.below(9)
        ),
        2 => format!("ALTER TABLE {name} DROP COLUMN IF EXISTS extra{}", random.below(3)),
        3 => format!("ALTER TABLE {name} ADD COLUMN extra{} text", random.below(3)),
        _ => format!("ALTER TABLE {name} ALTER COLUMN extra{} TYPE text", random.below(3)),
    }
}

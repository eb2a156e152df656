//! `thalweg shape ls`.

use super::{ADMIN, is_no_server_of_shapes};
use crate::failure::Failure;
use crate::human::{size, time};
use crate::server::{Call, Server, query_value};
use crate::table::Table;
use clap::Args;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::io::Write;
use ureq::http::Method;

/// Shapes per request.
const PAGE: usize = 1_000;

#[derive(Args)]
#[command(after_help = "\
Examples:
  thalweg shape ls
  thalweg shape ls --table public.items
  thalweg shape ls --json | jq -r 'select(.idle_ms > 86400000) | .handle' |
    xargs -n 1 thalweg shape drop             those without a request for a day

ROWS and COPIED are rows and bytes of the snapshot (rows: known only since the last start of the server), LOGGED the bytes of the changes \
after it, IDLE the time since a client asked. How far all shapes are behind Postgres is said on standard error.")]
pub(super) struct ListArgs {
    /// List only shapes of this table, spelled as the list prints it.
    #[arg(long)]
    table: Option<String>,
    /// The most shapes to list.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Print the server's entry for each shape, one JSON object per line.
    #[arg(long)]
    json: bool,
}

#[derive(Deserialize)]
struct Page {
    shapes: Vec<Box<RawValue>>,
    next: Option<u64>,
    source: Source,
}

#[derive(Deserialize)]
struct Source {
    status: String,
    lag_bytes: u64,
    lag_ms: u64,
    wal_kept_bytes: u64,
}

#[derive(Deserialize)]
struct Entry {
    handle: String,
    table: String,
    #[serde(rename = "where")]
    where_sql: Option<String>,
    columns: Option<Vec<String>>,
    replica: String,
    log: String,
    phase: String,
    snapshot_rows: Option<u64>,
    snapshot_bytes: u64,
    log_bytes: u64,
    waiting: u64,
    idle_ms: Option<u64>,
}

const HEADER: [&str; 9] = ["HANDLE", "TABLE", "PHASE", "ROWS", "COPIED", "LOGGED", "WAITING", "IDLE", "WHERE"];

impl Entry {
    /// The selection that distinguishes the shape from others of the table.
    fn selects(&self) -> String {
        let mut words: Vec<String> = self.where_sql.iter().cloned().collect();
        words.extend(self.columns.as_ref().map(|columns| format!("[columns {}]", columns.join(","))));
        words.extend((self.replica != "default").then(|| format!("[replica {}]", self.replica)));
        words.extend((self.log != "full").then(|| format!("[log {}]", self.log)));
        words.join(" ")
    }

    fn cells(self) -> [String; HEADER.len()] {
        let selects = self.selects();
        let number = |n: Option<u64>| n.map_or("-".to_owned(), |n| n.to_string());
        [
            self.handle,
            self.table,
            self.phase,
            number(self.snapshot_rows),
            size(self.snapshot_bytes),
            size(self.log_bytes),
            self.waiting.to_string(),
            self.idle_ms.map_or("-".to_owned(), time),
            selects,
        ]
    }
}

pub(super) fn run(server: &Server, args: &ListArgs) -> Result<(), Failure> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut left = args.limit.unwrap_or(usize::MAX);
    let mut table = Table::new(HEADER).right(&[3, 4, 5, 6]);
    let (mut after, mut count) = (0, 0);
    let source = loop {
        let page = page(server, args.table.as_deref(), after, left.clamp(1, PAGE))?;
        let shown = &page.shapes[..page.shapes.len().min(left)];
        if args.json {
            for one in shown {
                writeln!(out, "{}", one.get())?;
            }
        } else {
            for one in shown {
                let entry: Entry = serde_json::from_str(one.get()).map_err(|e| Failure::Strange(e.to_string()))?;
                table.row(entry.cells());
            }
            table.write(&mut out)?;
        }
        count += shown.len();
        left -= shown.len();
        match page.next {
            Some(next) if left > 0 => after = next,
            _ => break page.source,
        }
    };
    out.flush()?;
    if !args.json {
        eprintln!(
            "{count} shapes; changes: {}, {} and {} behind; Postgres keeps {} of its log for us",
            source.status,
            size(source.lag_bytes),
            time(source.lag_ms),
            size(source.wal_kept_bytes)
        );
    }
    Ok(())
}

fn page(server: &Server, table: Option<&str>, after: u64, limit: usize) -> Result<Page, Failure> {
    let table = table.map(|table| format!("&table={}", query_value(table))).unwrap_or_default();
    let url = server.at(&format!("{ADMIN}?after={after}&limit={limit}{table}"));
    let mut answer = server.ask(&Call::new(Method::GET, url)).map_err(is_no_server_of_shapes)?;
    serde_json::from_reader(answer.body()).map_err(|error| Failure::Strange(format!("a list of shapes: {error}")))
}

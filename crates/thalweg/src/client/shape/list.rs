//! `thalweg shape ls`.

use super::{ADMIN, is_no_server_of_shapes};
use crate::client::failure::Failure;
use crate::client::server::{Call, Server, query_value};
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
  thalweg shape ls --json | jq -r 'select(.idle_ms > 86400000) | .handle' | xargs -n 1 thalweg shape drop

ROWS and COPIED are rows and bytes of the snapshot (rows: known only since the last start of the server), LOGGED the bytes of the changes
after it, IDLE the time since somebody asked. How far all shapes are behind Postgres is said on standard error.")]
pub(super) struct ListArgs {
    /// Only shapes of this table, written as the list has it.
    #[arg(long)]
    table: Option<String>,
    /// So many at most.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// What the server says of each, one JSON object per line.
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

const COLUMNS: usize = 9;
const HEADER: [&str; COLUMNS] = ["HANDLE", "TABLE", "PHASE", "ROWS", "COPIED", "LOGGED", "WAITING", "IDLE", "WHERE"];

impl Entry {
    /// What tells it from other shapes of the table.
    fn selects(&self) -> String {
        let mut words: Vec<String> = self.where_sql.iter().cloned().collect();
        words.extend(self.columns.as_ref().map(|columns| format!("[columns {}]", columns.join(","))));
        words.extend((self.replica != "default").then(|| format!("[replica {}]", self.replica)));
        words.extend((self.log != "full").then(|| format!("[log {}]", self.log)));
        words.join(" ")
    }

    fn cells(self) -> [String; COLUMNS] {
        let selects = self.selects();
        let number = |n: Option<u64>| n.map_or("-".to_owned(), |n| n.to_string());
        [
            self.handle,
            self.table,
            self.phase,
            number(self.snapshot_rows),
            self.snapshot_bytes.to_string(),
            self.log_bytes.to_string(),
            self.waiting.to_string(),
            self.idle_ms.map_or("-".to_owned(), time),
            selects,
        ]
    }
}

pub(super) fn run(server: &Server, args: &ListArgs) -> Result<(), Failure> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut left = args.limit.unwrap_or(usize::MAX);
    let (mut after, mut count) = (0, 0);
    let source = loop {
        let page = page(server, args.table.as_deref(), after, left.clamp(1, PAGE))?;
        let shown = &page.shapes[..page.shapes.len().min(left)];
        if args.json {
            for one in shown {
                writeln!(out, "{}", one.get())?;
            }
        } else {
            let entries = shown.iter().map(|one| serde_json::from_str::<Entry>(one.get()).map(Entry::cells));
            let entries = entries.collect::<Result<Vec<_>, _>>().map_err(|e| Failure::Strange(e.to_string()))?;
            let header = (count == 0 && !entries.is_empty()).then(|| HEADER.map(str::to_owned));
            write(&mut out, header.into_iter().chain(entries).collect())?;
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
            "{count} shapes; changes: {}, {} bytes and {} behind; Postgres keeps {} bytes of its log for us",
            source.status,
            source.lag_bytes,
            time(source.lag_ms),
            source.wal_kept_bytes
        );
    }
    Ok(())
}

const LAST: usize = COLUMNS - 1;

/// In columns; the last one may be of any length.
fn write(out: &mut impl Write, lines: Vec<[String; COLUMNS]>) -> std::io::Result<()> {
    let width = |at: usize| lines.iter().map(|cells| cells[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..LAST).map(width).collect();
    for cells in &lines {
        let mut line = String::new();
        for (cell, width) in cells.iter().zip(&widths) {
            line.push_str(&format!("{cell:width$}  "));
        }
        // A clause may have line breaks, and whatever else a terminal would take for something.
        line.extend(cells[LAST].chars().map(|c| if c.is_control() { ' ' } else { c }));
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn time(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..120_000 => format!("{}s", ms / 1_000),
        120_000..7_200_000 => format!("{}min", ms / 60_000),
        7_200_000..172_800_000 => format!("{}h", ms / 3_600_000),
        _ => format!("{}d", ms / 86_400_000),
    }
}

fn page(server: &Server, table: Option<&str>, after: u64, limit: usize) -> Result<Page, Failure> {
    let table = table.map(|table| format!("&table={}", query_value(table))).unwrap_or_default();
    let url = server.at(&format!("{ADMIN}?after={after}&limit={limit}{table}"));
    let mut answer = server.ask(&Call::new(Method::GET, url)).map_err(is_no_server_of_shapes)?;
    serde_json::from_reader(answer.body()).map_err(|error| Failure::Strange(format!("a list of shapes: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_well() {
        let times: Vec<_> = [0, 999, 1_000, 119_999, 120_000, 7_200_000, 172_800_000].into_iter().map(time).collect();
        assert_eq!(times, ["0ms", "999ms", "1s", "119s", "2min", "2h", "2d"]);
    }

    #[test]
    fn a_clause_cannot_pass_for_a_line() {
        let cells =
            |clause: &str| std::array::from_fn(|at| if at == LAST { clause.to_owned() } else { "x".to_owned() });
        let mut out = Vec::new();
        write(&mut out, vec![cells("a\n\u{1b}[31mb"), cells("")]).unwrap();
        assert_eq!(String::from_utf8(out).unwrap().lines().count(), 2);
    }
}

//! `thalweg stream ls`, by thalweg's own list (`docs/protocol/extensions.md`).

use crate::failure::Failure;
use crate::human::{size, time};
use crate::server::{Call, Server, query_value};
use crate::table::Table;
use clap::Args;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::io::Write;
use ureq::http::Method;

/// Streams per request.
const PAGE: usize = 1_000;

#[derive(Args)]
#[command(after_help = "\
Examples:
  thalweg stream ls
  thalweg stream ls --prefix sessions/ --long
  thalweg stream ls --json | jq -r 'select(.closed) | .name'

SIZE: readable content. KEEPS: lifetime of an unused stream, its expiry time, or how much of its newest content is kept.")]
pub(crate) struct ListArgs {
    /// List only names with this prefix.
    #[arg(long, default_value = "", hide_default_value = true)]
    prefix: String,
    /// List only names after this one.
    #[arg(long, value_name = "NAME")]
    after: Option<String>,
    /// The most streams to list.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// A table: size, content type, whether the stream is closed, and its retention.
    #[arg(short, long, conflicts_with = "json")]
    long: bool,
    /// The server's entry for each stream, one JSON object per line.
    #[arg(long)]
    json: bool,
}

#[derive(Deserialize)]
struct Page {
    streams: Vec<Box<RawValue>>,
    /// The page after this one comes after this name; none after the last.
    next: Option<String>,
}

/// An entry of the stream list.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entry {
    pub(super) name: String,
    content_type: String,
    closed: bool,
    pub(super) bytes: Option<u64>,
    ttl: Option<u64>,
    expires_at: Option<String>,
    retention_bytes: Option<u64>,
    retention_seconds: Option<u64>,
    durability: Option<String>,
    pub(super) forked_from: Option<String>,
    pub(super) forks: Option<u64>,
}

impl Entry {
    fn cells(self) -> [String; 6] {
        let keeps = self.keeps();
        let mut notes: Vec<String> = self.durability.into_iter().collect();
        notes.extend(self.forked_from.map(|source| format!("fork of {source}")));
        notes.extend(self.forks.map(|n| format!("{n} forks")));
        let size = self.bytes.map_or("-".to_owned(), size);
        let state = if self.closed { "closed" } else { "open" };
        [self.name, size, self.content_type, state.to_owned(), keeps, notes.join(", ")]
    }

    fn keeps(&self) -> String {
        let mut words = Vec::new();
        words.extend(self.ttl.map(|s| format!("{} unused", time(s.saturating_mul(1_000)))));
        words.extend(self.expires_at.as_ref().map(|at| format!("until {at}")));
        words.extend(self.retention_bytes.map(size));
        words.extend(self.retention_seconds.map(|s| time(s.saturating_mul(1_000))));
        if words.is_empty() { "all".to_owned() } else { words.join(", ") }
    }
}

pub(crate) fn run(server: &Server, args: &ListArgs) -> Result<(), Failure> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut left = args.limit.unwrap_or(usize::MAX);
    let mut after = args.after.clone();
    let mut table = Table::new(["NAME", "SIZE", "TYPE", "STATE", "KEEPS", ""]).right(&[1]);
    while left > 0 {
        let page = page(server, &args.prefix, after.as_deref(), left.min(PAGE))?;
        for one in page.streams.iter().take(left) {
            if args.json {
                writeln!(out, "{}", one.get())?;
                continue;
            }
            let entry: Entry = serde_json::from_str(one.get()).map_err(|e| Failure::Strange(e.to_string()))?;
            if args.long {
                table.row(entry.cells());
            } else {
                writeln!(out, "{}", entry.name)?;
            }
        }
        table.write(&mut out)?;
        left -= page.streams.len().min(left);
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    out.flush()?;
    Ok(())
}

/// The entry of one stream, if the server has one; other servers of the protocol have no list.
pub(super) fn entry(server: &Server, name: &str) -> Option<Entry> {
    // If the stream exists, the first name with this prefix is the name itself.
    let page = page(server, name, None, 1).ok()?;
    let entry: Entry = serde_json::from_str(page.streams.first()?.get()).ok()?;
    (entry.name == name).then_some(entry)
}

fn page(server: &Server, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page, Failure> {
    let after = after.map(|after| format!("after={}&", query_value(after))).unwrap_or_default();
    let url = format!("{}?{after}limit={limit}&prefix={}", server.stream("__ds/streams"), query_value(prefix));
    let mut answer = server.ask(&Call::new(Method::GET, url))?;
    serde_json::from_reader(answer.body()).map_err(|error| Failure::Strange(format!("a list of streams: {error}")))
}

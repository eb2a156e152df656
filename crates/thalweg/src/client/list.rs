//! `thalweg stream ls`, by thalweg's own list (`docs/protocol/extensions.md`).

use super::failure::Failure;
use super::server::{Call, Server, query_value};
use clap::Args;
use serde::Deserialize;
use std::io::Write;
use ureq::http::Method;

/// Streams per request.
const PAGE: usize = 1_000;

#[derive(Args)]
#[command(after_help = "\
Examples:
  thalweg stream ls
  thalweg stream ls --prefix sessions/ --long
  thalweg stream ls --json | jq -r 'select(.closed) | .name'")]
pub(crate) struct ListArgs {
    /// Only names that begin so.
    #[arg(long, default_value = "")]
    prefix: String,
    /// Only names after this one.
    #[arg(long, value_name = "NAME")]
    after: Option<String>,
    /// So many at most.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Also content type, next offset, and whether it is closed.
    #[arg(short, long, conflicts_with = "json")]
    long: bool,
    /// What the server says of each, one JSON object per line.
    #[arg(long)]
    json: bool,
}

#[derive(Deserialize)]
struct Page {
    streams: Vec<Box<serde_json::value::RawValue>>,
    /// The page after this one comes after this name; none after the last.
    next: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    name: String,
    content_type: String,
    next_offset: String,
    closed: bool,
}

pub(crate) fn run(server: &Server, args: &ListArgs) -> Result<(), Failure> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut left = args.limit.unwrap_or(usize::MAX);
    let mut after = args.after.clone();
    while left > 0 {
        let page = page(server, &args.prefix, after.as_deref(), left.min(PAGE))?;
        for one in page.streams.iter().take(left) {
            if args.json {
                writeln!(out, "{}", one.get())?;
                continue;
            }
            let entry: Entry = serde_json::from_str(one.get()).map_err(|e| Failure::Strange(e.to_string()))?;
            if args.long {
                let closed = if entry.closed { "closed" } else { "open" };
                writeln!(out, "{}\t{}\t{}\t{closed}", entry.name, entry.content_type, entry.next_offset)?;
            } else {
                writeln!(out, "{}", entry.name)?;
            }
        }
        left -= page.streams.len().min(left);
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    out.flush()?;
    Ok(())
}

fn page(server: &Server, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page, Failure> {
    let after = after.map(|after| format!("after={}&", query_value(after))).unwrap_or_default();
    let url = format!("{}?{after}limit={limit}&prefix={}", server.stream("__ds/streams"), query_value(prefix));
    let mut answer = server.ask(&Call::new(Method::GET, url))?;
    serde_json::from_reader(answer.body()).map_err(|error| Failure::Strange(format!("a list of streams: {error}")))
}

//! `thalweg stream info`: the headers of HEAD on a stream, and the additions of thalweg's stream list.

use super::list;
use crate::failure::Failure;
use crate::human::{size, time};
use crate::server::{Call, Server, encoded};
use clap::Args;
use ureq::http::Method;

#[derive(Args)]
#[command(after_help = "\
Examples:
  thalweg stream info notes
  thalweg stream info events --json | jq -r .nextOffset")]
pub(crate) struct InfoArgs {
    /// The stream.
    name: String,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Headers of a HEAD answer, with the names that this command gives them.
const FIELDS: [(&str, &str); 8] = [
    ("contentType", "content-type"),
    ("nextOffset", "stream-next-offset"),
    ("earliestOffset", "stream-earliest-offset"),
    ("durability", "stream-durability"),
    ("ttl", "stream-ttl"),
    ("expiresAt", "stream-expires-at"),
    ("retentionBytes", "stream-retention-bytes"),
    ("retentionSeconds", "stream-retention-seconds"),
];

pub(crate) fn run(server: &Server, args: &InfoArgs) -> Result<(), Failure> {
    let head = Call::new(Method::HEAD, server.stream(&args.name));
    let answer = server.ask(&head).map_err(|failure| failure.of_stream(&args.name, ""))?;
    let listed = list::entry(server, &encoded(args.name.strip_prefix("/v1/stream/").unwrap_or(&args.name)));
    let known = FIELDS.iter().filter_map(|(key, header)| Some((*key, answer.header(header)?)));
    if args.json {
        let mut all: serde_json::Map<String, serde_json::Value> =
            known.map(|(key, value)| (key.to_owned(), number_or_text(value))).collect();
        all.insert("name".to_owned(), args.name.clone().into());
        all.insert("closed".to_owned(), answer.says("stream-closed").into());
        if let Some(entry) = listed {
            all.insert("bytes".to_owned(), entry.bytes.into());
            all.extend(entry.forked_from.map(|source| ("forkedFrom".to_owned(), source.into())));
            all.extend(entry.forks.map(|n| ("forks".to_owned(), n.into())));
        }
        println!("{}", serde_json::Value::Object(all));
        return Ok(());
    }
    let line = |name: &str, value: &str| println!("{name:<12} {value}");
    line("name", &args.name);
    line("state", if answer.says("stream-closed") { "closed" } else { "open" });
    if let Some(bytes) = listed.as_ref().and_then(|entry| entry.bytes) {
        line("size", &size(bytes));
    }
    for (key, value) in known {
        match key {
            "contentType" => line("type", value),
            "nextOffset" => line("ends at", value),
            "earliestOffset" => line("begins at", value),
            "ttl" => line("stays", &format!("{} after its last use", seconds(value))),
            "expiresAt" => line("stays", &format!("until {value}")),
            "retentionBytes" => line("keeps", &value.parse().map_or_else(|_| value.to_owned(), size)),
            "retentionSeconds" => line("keeps", &seconds(value)),
            other => line(other, value),
        }
    }
    if let Some(entry) = listed {
        if let Some(source) = &entry.forked_from {
            line("fork of", source);
        }
        if let Some(n) = entry.forks {
            line("forks", &n.to_string());
        }
    }
    Ok(())
}

fn seconds(text: &str) -> String {
    text.parse::<u64>().map_or_else(|_| format!("{text} s"), |s| time(s.saturating_mul(1_000)))
}

fn number_or_text(text: &str) -> serde_json::Value {
    text.parse::<u64>().map_or_else(|_| text.into(), Into::into)
}

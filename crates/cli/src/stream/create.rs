//! `thalweg stream create`.

use crate::failure::Failure;
use crate::server::{Call, Server};
use clap::Args;
use thalweg_base::{Level, Size, Span};
use ureq::http::Method;

#[derive(Args)]
#[command(after_help = "\
Examples:
  thalweg stream create notes --content-type text/plain
  thalweg stream create sessions/42 --json --ttl 24h
  thalweg stream create log --content-type text/plain --retention-age 7d
  thalweg stream create tokens/7 --json --durability buffered
  thalweg stream create blobs/1               bytes: application/octet-stream")]
pub(crate) struct CreateArgs {
    /// The stream.
    name: String,
    /// Content type of the stream [default: application/octet-stream].
    #[arg(long, value_name = "TYPE", conflicts_with = "json")]
    content_type: Option<String>,
    /// The stream holds JSON messages.
    #[arg(long)]
    json: bool,
    /// Gone when it was neither read nor written for this long.
    #[arg(long, value_name = "TIME", conflicts_with = "expires_at")]
    ttl: Option<Span>,
    /// The stream expires at this time (RFC 3339), such as 2030-01-01T00:00:00Z.
    #[arg(long, value_name = "TIME")]
    expires_at: Option<String>,
    /// Keep at least this much of the newest content, and remove older content [default: the server's].
    #[arg(long, value_name = "SIZE")]
    retention_bytes: Option<Size>,
    /// Keep content that is younger than this [default: the server's].
    #[arg(long, value_name = "TIME")]
    retention_age: Option<Span>,
    /// When an append is acknowledged and shown: once it is on the disk (durable), once the operating system has it
    /// (buffered), or once the bucket has it (replicated) [default: the server's].
    #[arg(long, value_name = "LEVEL")]
    durability: Option<Level>,
    /// Create it closed.
    #[arg(long)]
    closed: bool,
}

pub(crate) const JSON: &str = "application/json";
pub(crate) const BYTES: &str = "application/octet-stream";

pub(crate) fn run(server: &Server, args: &CreateArgs) -> Result<(), Failure> {
    let content_type = args.content_type.as_deref().unwrap_or(if args.json { JSON } else { BYTES });
    let mut call = Call::new(Method::PUT, server.stream(&args.name)).header("content-type", content_type);
    if let Some(ttl) = args.ttl {
        call = call.header("stream-ttl", seconds("--ttl", ttl)?);
    }
    if let Some(bytes) = args.retention_bytes {
        call = call.header("stream-retention-bytes", bytes.0.to_string());
    }
    if let Some(age) = args.retention_age {
        call = call.header("stream-retention-seconds", seconds("--retention-age", age)?);
    }
    if let Some(at) = &args.expires_at {
        call = call.header("stream-expires-at", at);
    }
    if let Some(durability) = args.durability {
        call = call.header("stream-durability", durability.to_string());
    }
    if args.closed {
        call = call.header("stream-closed", "true");
    }
    let answer = server.ask(&call)?;
    let word = if answer.status() == 201 || answer.repeated { "created" } else { "exists already" };
    eprintln!("{}: {word}", args.name);
    Ok(())
}

fn seconds(flag: &str, Span(time): Span) -> Result<String, Failure> {
    match time.subsec_nanos() {
        0 => Ok(time.as_secs().to_string()),
        _ => Err(Failure::Local(format!("{flag} counts whole seconds"))),
    }
}

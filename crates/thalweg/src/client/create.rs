//! `thalweg stream create`.

use super::failure::Failure;
use super::server::{Call, Server};
use crate::config::Span;
use clap::Args;
use ureq::http::Method;

#[derive(Args)]
#[command(after_help = "\
Examples:
  thalweg stream create notes --content-type text/plain
  thalweg stream create sessions/42 --json --ttl 24h
  thalweg stream create blobs/1                              bytes: application/octet-stream")]
pub(crate) struct CreateArgs {
    /// The stream.
    name: String,
    /// What the stream holds [default: application/octet-stream].
    #[arg(long, value_name = "TYPE", conflicts_with = "json")]
    content_type: Option<String>,
    /// The stream holds JSON messages.
    #[arg(long)]
    json: bool,
    /// Gone when it was neither read nor written for this long.
    #[arg(long, value_name = "TIME", conflicts_with = "expires_at")]
    ttl: Option<Span>,
    /// Gone at this time (RFC 3339), such as 2030-01-01T00:00:00Z.
    #[arg(long, value_name = "TIME")]
    expires_at: Option<String>,
    /// Create it closed.
    #[arg(long)]
    closed: bool,
}

pub(crate) const JSON: &str = "application/json";
pub(crate) const BYTES: &str = "application/octet-stream";

pub(crate) fn run(server: &Server, args: &CreateArgs) -> Result<(), Failure> {
    let content_type = args.content_type.as_deref().unwrap_or(if args.json { JSON } else { BYTES });
    let mut call = Call::new(Method::PUT, server.stream(&args.name)).header("content-type", content_type);
    if let Some(Span(ttl)) = args.ttl {
        if ttl.subsec_millis() != 0 {
            return Err(Failure::Local("--ttl counts whole seconds".to_owned()));
        }
        call = call.header("stream-ttl", ttl.as_secs().to_string());
    }
    if let Some(at) = &args.expires_at {
        call = call.header("stream-expires-at", at);
    }
    if args.closed {
        call = call.header("stream-closed", "true");
    }
    let answer = server.ask(&call)?;
    let word = if answer.status() == 201 || answer.repeated { "created" } else { "exists already" };
    eprintln!("{}: {word}", args.name);
    Ok(())
}

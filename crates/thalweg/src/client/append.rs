//! `thalweg stream append`.

use super::batches::{Batches, Shape};
use super::close::close;
use super::create::{BYTES, JSON};
use super::failure::Failure;
use super::pages::is_json;
use super::producer::{Producer, Sent};
use super::progress::Progress;
use super::server::{Call, Server};
use clap::Args;
use std::io::{IsTerminal, Read};
use ureq::http::Method;

/// The longest standard input that is sent as one append. The server's own limit is usually less.
const WHOLE_MAX: u64 = 1 << 30;

#[derive(Args)]
#[command(after_help = "\
Examples:
  echo 'first words' | thalweg stream append notes
  thalweg stream append events --json <<< '[{\"n\":1},{\"n\":2}]'
  tail -F app.ndjson | thalweg stream append events --lines
  thalweg stream append events --lines --producer import-7 < big.ndjson   run it again if it was broken off: it goes on

With --lines, each line of a JSON stream is a message; elsewhere the content is the lines as they are, and an append never ends
inside of one shorter than 16 MiB. Lines are sent in batches, at once when no more are waiting.

Whatever is sent is sent by an idempotent producer: after a lost connection or a crash of the server it is sent again, and the server
tells what it has already. With --producer a run that was broken off can be run again, on the same whole input and with the same
--batch: it adds what is missing. Appends are told by their number and not by their content, so input that has changed or grown
needs a higher --epoch.")]
pub(crate) struct AppendArgs {
    /// The stream.
    name: String,
    /// Append line by line rather than standard input as one.
    #[arg(long)]
    lines: bool,
    /// The input is JSON, and so is the stream.
    #[arg(long, conflicts_with = "content_type")]
    json: bool,
    /// The stream's content type; else the server is asked for it.
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// Create the stream if it is not there.
    #[arg(long)]
    create: bool,
    /// Close the stream with this.
    #[arg(long)]
    close: bool,
    /// Lines of one append, at most.
    #[arg(long, value_name = "N", default_value = "1000", value_parser = clap::value_parser!(u32).range(1..), requires = "lines")]
    batch: u32,
    /// The producer's id, so that a later run of the same goes on where this one was broken off.
    #[arg(long, value_name = "ID")]
    producer: Option<String>,
    /// The producer's epoch.
    #[arg(long, value_name = "N", requires = "producer", default_value = "0")]
    epoch: u64,
}

pub(crate) fn run(server: &Server, args: &AppendArgs) -> Result<(), Failure> {
    let content_type = content_type(server, args)?;
    let json = is_json(&content_type);
    let producer = match &args.producer {
        Some(id) => Producer::named(server, &args.name, content_type, id.clone(), args.epoch),
        None => Producer::shared(server, &args.name, content_type),
    };
    if args.lines { lines(server, args, producer, json) } else { whole(server, args, producer) }
}

fn content_type(server: &Server, args: &AppendArgs) -> Result<String, Failure> {
    let given = if args.json { Some(JSON) } else { args.content_type.as_deref() };
    if let Some(given) = given
        && !args.create
    {
        return Ok(given.to_owned());
    }
    let url = server.stream(&args.name);
    match server.ask(&Call::new(Method::HEAD, url.clone())) {
        Ok(answer) => Ok(given.or(answer.header("content-type")).unwrap_or(BYTES).to_owned()),
        Err(failure) if args.create && failure.is_missing() => {
            let content_type = given.unwrap_or(BYTES);
            server.ask(&Call::new(Method::PUT, url).header("content-type", content_type))?;
            Ok(content_type.to_owned())
        }
        // There was no body to explain it.
        Err(Failure::Refused(mut refusal)) if refusal.message.is_empty() && refusal.status == 404 => {
            refusal.message = format!("there is no stream {}; --create makes it", args.name);
            Err(Failure::Refused(refusal))
        }
        Err(failure) => Err(failure),
    }
}

fn whole(server: &Server, args: &AppendArgs, mut producer: Producer<'_>) -> Result<(), Failure> {
    let mut body = Vec::new();
    std::io::stdin().lock().take(WHOLE_MAX + 1).read_to_end(&mut body)?;
    if body.len() as u64 > WHOLE_MAX {
        return Err(Failure::Local("standard input is longer than 1 GiB; --lines sends it in parts".to_owned()));
    }
    match (body.is_empty(), args.close) {
        (true, true) => close(server, &args.name),
        (true, false) => Err(Failure::Local("there is nothing to append: standard input is empty".to_owned())),
        (false, closes) => producer.send(&body, closes).map(drop),
    }
}

fn lines(server: &Server, args: &AppendArgs, mut producer: Producer<'_>, json: bool) -> Result<(), Failure> {
    let shape = Shape { json, lines_max: args.batch as usize, repeatable: args.producer.is_some() };
    let mut batches = Batches::new(std::io::stdin(), shape);
    let mut progress = Progress::new(std::io::stdin().is_terminal());
    let (mut sent, mut known) = (0, 0);
    while let Some(batch) = batches.next()? {
        match producer.send(&batch.body, false)? {
            Sent::New => sent += batch.lines,
            Sent::Known => known += batch.lines,
        }
        progress.add(batch.body.len());
    }
    drop(progress);
    if known > 0 {
        eprintln!("{sent} lines appended; {known} were there from an earlier run");
    }
    if args.close { close(server, &args.name) } else { Ok(()) }
}

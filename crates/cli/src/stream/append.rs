//! `thalweg stream append`.

use super::batches::{Batches, Shape};
use super::close::close;
use super::create::{BYTES, JSON};
use super::pages::is_json;
use super::producer::{Producer, Sent};
use crate::failure::Failure;
use crate::human::size;
use crate::progress::Progress;
use crate::say::{ask_on_terminal, report};
use crate::server::{Call, Server};
use clap::Args;
use std::fs::File;
use std::io::{IsTerminal, Read};
use std::path::PathBuf;
use ureq::http::Method;

/// The longest input that is sent as one append. The server's own limit is usually less.
const WHOLE_MAX: u64 = 1 << 30;

#[derive(Args)]
#[command(after_help = "\
Examples:
  echo 'first words' | thalweg stream append notes
  thalweg stream append notes --input letter.txt
  thalweg stream append events --json <<< '[{\"n\":1},{\"n\":2}]'
  tail -F app.ndjson | thalweg stream append events --lines
  thalweg stream append events --lines --producer import-7 <big.ndjson
                                              run it again if it was broken
                                              off: it goes on

With --lines, each line of a JSON stream is a message; elsewhere the content is the lines as they are, and an append never ends inside of \
one shorter than 16 MiB. Lines are sent in batches, at once when no more are waiting.

All input is sent by an idempotent producer: after a lost connection or a crash of the server a batch is sent again, and the server \
skips a batch that it has already. With --producer an interrupted run can be repeated, on the same whole input and with the same --batch: \
it adds the missing batches. The server knows batches by number and not by content, so input that has changed or grown needs a higher \
--epoch.")]
pub(crate) struct AppendArgs {
    /// The stream.
    name: String,
    /// Append this file rather than standard input.
    #[arg(short, long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Append line by line rather than the input as one.
    #[arg(long)]
    lines: bool,
    /// The input is JSON, and so is the stream.
    #[arg(long, conflicts_with = "content_type")]
    json: bool,
    /// The stream's content type; by default the server is asked.
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// Create the stream if it does not exist.
    #[arg(long)]
    create: bool,
    /// Close the stream with this.
    #[arg(long)]
    close: bool,
    /// Lines of one append, at most.
    #[arg(long, value_name = "N", default_value = "1000", value_parser = clap::value_parser!(u32).range(1..), requires = "lines")]
    batch: u32,
    /// The producer's id, with which a later run continues an interrupted one.
    #[arg(long, value_name = "ID")]
    producer: Option<String>,
    /// The producer's epoch.
    #[arg(long, value_name = "N", requires = "producer", default_value = "0")]
    epoch: u64,
}

/// Standard input or a file, to be appended.
struct Input {
    from: Box<dyn Read + Send>,
    /// The length of the input, if it is a file.
    bytes: Option<u64>,
    /// The input is typed at a terminal.
    typed: bool,
}

impl Input {
    fn open(args: &AppendArgs) -> Result<Self, Failure> {
        let Some(path) = &args.input else {
            let stdin = std::io::stdin();
            let bytes = rustix::fs::fstat(&stdin).ok().filter(is_file).and_then(|about| about.st_size.try_into().ok());
            return Ok(Self { bytes, typed: stdin.is_terminal(), from: Box::new(stdin) });
        };
        let wrong = |error: std::io::Error| Failure::Local(format!("{}: {error}", path.display()));
        let file = File::open(path).map_err(wrong)?;
        let about = file.metadata().map_err(wrong)?;
        if about.is_dir() {
            return Err(Failure::Local(format!("{} is a folder", path.display())));
        }
        Ok(Self { bytes: about.is_file().then_some(about.len()), typed: false, from: Box::new(file) })
    }
}

fn is_file(about: &rustix::fs::Stat) -> bool {
    rustix::fs::FileType::from_raw_mode(about.st_mode) == rustix::fs::FileType::RegularFile
}

pub(crate) fn run(server: &Server, args: &AppendArgs) -> Result<(), Failure> {
    let input = Input::open(args)?;
    let content_type = content_type(server, args)?;
    let json = is_json(&content_type);
    let producer = match &args.producer {
        Some(id) => Producer::named(server, &args.name, content_type, id.clone(), args.epoch),
        None => Producer::shared(server, &args.name, content_type),
    };
    if input.typed {
        let how = if args.lines { "line by line" } else { "as one message" };
        ask_on_terminal(&format!("Standard input is appended {how}; Ctrl-D ends it.\n"));
    }
    if args.lines { lines(server, args, input, producer, json) } else { whole(server, args, input, producer) }
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
        Err(failure) => Err(failure.of_stream(&args.name, "; --create makes it")),
    }
}

fn whole(server: &Server, args: &AppendArgs, input: Input, mut producer: Producer<'_>) -> Result<(), Failure> {
    let mut body = Vec::new();
    input.from.take(WHOLE_MAX + 1).read_to_end(&mut body)?;
    if body.len() as u64 > WHOLE_MAX {
        return Err(Failure::Local("the input is longer than 1 GiB; --lines sends it in parts".to_owned()));
    }
    match (body.is_empty(), args.close) {
        (true, true) => close(server, &args.name)?,
        (true, false) => return Err(Failure::Local("there is nothing to append: the input is empty".to_owned())),
        (false, closes) => {
            let sent = producer.send(&body, closes)?;
            let word = if sent == Sent::Known { "there from an earlier run" } else { "appended" };
            report(|| format!("{}: {} {word}{}", args.name, size(body.len() as u64), ends_at(&producer)));
        }
    }
    if args.close {
        report(|| format!("{}: closed", args.name));
    }
    Ok(())
}

fn lines(
    server: &Server,
    args: &AppendArgs,
    input: Input,
    mut producer: Producer<'_>,
    json: bool,
) -> Result<(), Failure> {
    let shape = Shape { json, lines_max: args.batch as usize, repeatable: args.producer.is_some() };
    let mut batches = Batches::new(input.from, shape);
    let mut progress = Progress::new(input.bytes, input.typed);
    let (mut sent, mut known, mut bytes) = (0, 0, 0);
    while let Some(batch) = batches.next()? {
        match producer.send(&batch.body, false)? {
            Sent::New => sent += batch.lines,
            Sent::Known => known += batch.lines,
        }
        bytes += batch.body.len() as u64;
        progress.add(batch.body.len() as u64);
    }
    drop(progress);
    if known > 0 {
        eprintln!("{sent} lines appended; {known} were there from an earlier run");
    } else {
        report(|| format!("{}: {sent} lines appended ({}){}", args.name, size(bytes), ends_at(&producer)));
    }
    if args.close {
        close(server, &args.name)?;
        report(|| format!("{}: closed", args.name));
    }
    Ok(())
}

fn ends_at(producer: &Producer<'_>) -> String {
    producer.tail().map(|tail| format!("; it ends at {tail}")).unwrap_or_default()
}

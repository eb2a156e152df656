//! `thalweg stream …`: streams of a running server from a shell. Each command has a file; [`pages`] follows content and
//! [`producer`] appends without duplicates.
//!
//! The commands know the protocol, and for lists and details thalweg's additions to it: they work with any server of the
//! protocol. Content goes to standard output and everything else to standard error, so that commands can be joined by
//! pipes.

mod append;
mod batches;
mod bench;
mod close;
mod create;
mod delete;
mod fork;
mod info;
mod last;
mod list;
mod messages;
mod pages;
mod producer;
mod read;
mod tail;

use crate::failure::Failure;
use crate::server::Server;
use crate::{PATIENCE, Target};
use clap::{Args, Subcommand};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct StreamArgs {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  thalweg stream create notes --content-type text/plain
  echo 'first words' | thalweg stream append notes
  thalweg stream read notes
  thalweg stream tail notes                   from now on, until it is closed

  thalweg stream create events --json
  tail -F app.ndjson | thalweg stream append events --lines
                                              each line a message, none lost
                                              or doubled
  thalweg stream tail events --from start | jq .
  thalweg stream ls --long --prefix ev
  thalweg stream bench                        throughput and latency from here

NAME is the part of the stream's URL behind /v1/stream/, or the whole URL; characters that no URL holds are encoded. A server elsewhere:
  export THALWEG_SERVER=https://streams.example.org THALWEG_TOKEN=…
  thalweg context add prod --server https://streams.example.org --token -

Exit codes: 0 done; 1 something else failed; 2 wrong usage; 3 there is no such stream; 4 the stream's state refuses it (closed, exists \
differently, …); 5 the request is refused as it is; 6 the server cannot be reached or is overloaded, and retrying did not help; 7 not \
allowed, or no valid token.
";

#[derive(Subcommand)]
enum Command {
    /// Create a stream. Succeeds if a stream with the same configuration exists.
    Create(create::CreateArgs),
    /// Append standard input or a file: as one message, or line by line.
    Append(append::AppendArgs),
    /// Read to the present end. JSON messages come one per line.
    Read(read::ReadArgs),
    /// Follow a stream until it is closed. Reconnects by itself.
    Tail(tail::TailArgs),
    /// Close a stream: readers learn that nothing follows.
    Close(close::CloseArgs),
    /// Delete a stream.
    Delete(delete::DeleteArgs),
    /// Make a stream that begins as another one does.
    Fork(fork::ForkArgs),
    /// List streams.
    Ls(list::ListArgs),
    /// Show the properties of a stream.
    Info(info::InfoArgs),
    /// Measure appends and reads, on streams that the command creates and deletes.
    Bench(bench::BenchArgs),
}

/// Runs one command on streams. Content goes to standard output, everything else to standard error.
pub fn run(args: StreamArgs) -> Result<(), Failure> {
    let patience = if matches!(args.command, Command::Tail(_)) { None } else { Some(PATIENCE) };
    let server = Server::new(&args.target, patience)?;
    match args.command {
        Command::Create(args) => create::run(&server, &args),
        Command::Append(args) => append::run(&server, &args),
        Command::Read(args) => read::run(&server, &args),
        Command::Tail(args) => tail::run(&server, &args),
        Command::Close(args) => close::run(&server, &args),
        Command::Delete(args) => delete::run(&server, &args),
        Command::Fork(args) => fork::run(&server, &args),
        Command::Ls(args) => list::run(&server, &args),
        Command::Info(args) => info::run(&server, &args),
        Command::Bench(bench) => bench::run(&args.target, &server, &bench),
    }
}

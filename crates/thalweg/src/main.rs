//! The one binary: configuration, wiring, routes and `check`.

mod announce;
mod auth;
mod background;
mod backup;
mod check;
mod client;
mod config;
mod folder;
mod http;
mod kernel;
mod live;
mod logs;
mod metrics;
mod reload;
mod reserve;
mod scrub;
mod serve;
mod shapes;
mod shutdown;
mod tls;
mod vitals;

use clap::{Args, Parser, Subcommand};
use config::{Config, LogFormat, Settings};
use std::path::PathBuf;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Durable, append-only streams over HTTP: every acknowledged append is on the disk, every reader resumes where it left off.
///
/// Speaks the Durable Streams protocol; streams live under /v1/stream/.
#[derive(Parser)]
#[command(name = "thalweg", version, propagate_version = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  thalweg dev                                   try it: data in ./data, readable logs
  thalweg serve --data /var/lib/thalweg         serve on 127.0.0.1:4437
  thalweg serve --listen 0.0.0.0:4437 --tokens tokens.toml --tls-cert cert.pem --tls-key key.pem
  thalweg token new --name app --read chat/     a token, and its line for the file of tokens
  thalweg check /var/lib/thalweg                read all data and list what is damaged, if anything
  thalweg backup --server http://127.0.0.1:4437 --to /backup
  thalweg restore /backup --data /var/lib/thalweg

  thalweg stream create hello --content-type text/plain
  echo 'first words' | thalweg stream append hello
  thalweg stream tail hello --from -1           live, until the stream is closed

  thalweg serve --data ./data --database-url postgres://… --shape-secret TEXT
  thalweg shape tail items                      changes of a table of that database

  curl -X PUT  http://127.0.0.1:4437/v1/stream/hello -H 'content-type: text/plain'
  curl -X POST http://127.0.0.1:4437/v1/stream/hello -H 'content-type: text/plain' -d 'first words'
  curl 'http://127.0.0.1:4437/v1/stream/hello?offset=-1'
";

const SERVE_HELP: &str = "\
Each setting can be a flag (--settle-after 3s), an environment variable (THALWEG_SETTLE_AFTER=3s) or a key of the file
given with --config (settle_after = \"3s\"). Flags win over the environment, the environment over the file.

Examples:
  thalweg serve --data /var/lib/thalweg
  thalweg serve --listen 127.0.0.1:0 --ready-file /tmp/address      a free port, written to a file when ready
  THALWEG_DURABILITY=buffered thalweg serve --long-poll-timeout 500ms
";

#[derive(Subcommand)]
enum Command {
    /// Serve streams from a data folder.
    #[command(after_help = SERVE_HELP)]
    Serve(ServeArgs),
    /// Serve from ./data with logs for a person: for trying things out.
    #[command(after_help = SERVE_HELP)]
    Dev(ServeArgs),
    /// Make tokens that say who may do what, and sign short-lived ones.
    Token(auth::TokenArgs),
    /// Read all data, contents included, and list everything that is damaged, with the names of its streams.
    ///
    /// Of a stopped server, by its data folder; a running one reads its data itself. Exit code 0: everything is as it was written; 1: not,
    /// or the folder is in use.
    Check(check::CheckArgs),
    /// Work with streams of a running server: create, append, read, tail, close, delete, fork, ls.
    Stream(client::StreamArgs),
    /// Work with shapes of a running server: create, tail, ls, drop, explain.
    Shape(client::ShapeArgs),
    /// Copy a running server's data, or a stopped one's, into a folder of backups.
    ///
    /// The copy is consistent: it ends at one moment, and has everything acknowledged before the command began. What the newest
    /// backup in the folder has already is not copied again.
    Backup(backup::BackupArgs),
    /// Put a backup into a new data folder, and check every byte of it.
    Restore {
        /// A backup, or a folder of backups: then the newest.
        backup: PathBuf,
        /// The data folder to make; it must be new or empty.
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
    },
}

#[derive(Args)]
struct ServeArgs {
    /// A TOML file of settings, such as: durability = "durable".
    #[arg(long, env = "THALWEG_CONFIG", value_name = "FILE", hide_env = true)]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("thalweg: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Stream(args) => return Ok(client::run(args)),
        Command::Shape(args) => return Ok(client::run_shape(args)),
        Command::Serve(args) => {
            let config = load(args)?;
            logs::start(&config.log, config.log_format, logs::Audience::Operator)?;
            serve::run(&config)?;
        }
        Command::Dev(args) => {
            let config = config::load_for_dev(args.settings, args.config.as_deref())?;
            logs::start(&config.log, config.log_format, logs::Audience::Developer)?;
            serve::run(&config)?;
        }
        Command::Token(args) => auth::run_command(args)?,
        Command::Check(args) => {
            logs::start("warn", LogFormat::Text, logs::Audience::Operator)?;
            check::run(&args)?;
        }
        Command::Backup(args) => {
            logs::start("warn", LogFormat::Text, logs::Audience::Operator)?;
            backup::backup(&args)?;
        }
        Command::Restore { backup, data } => {
            logs::start("warn", LogFormat::Text, logs::Audience::Operator)?;
            backup::restore(&backup, &data)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn load(args: ServeArgs) -> anyhow::Result<Config> {
    config::load(args.settings, args.config.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_promised_flags_are_there() {
        let parsed = Cli::try_parse_from([
            "thalweg",
            "serve",
            "--listen",
            "127.0.0.1:4437",
            "--data",
            "DIR",
            "--durability",
            "buffered",
            "--long-poll-timeout",
            "30s",
        ]);
        assert!(parsed.is_ok());
    }

    #[test]
    fn a_wrong_flag_is_refused_with_the_right_one() {
        let refused = Cli::try_parse_from(["thalweg", "serve", "--lissten", "x"]).err().map(|e| e.to_string());
        assert!(refused.is_some_and(|text| text.contains("--listen")));
        let refused = Cli::try_parse_from(["thalweg", "serve", "--settle-after", "3"]).err().map(|e| e.to_string());
        assert!(refused.is_some_and(|text| text.contains("`3s`")));
    }
}

//! The command line: its commands, their help, and the program's version text.

use crate::{backup, check, store, token};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use std::path::PathBuf;
use thalweg_host::config::{Layers, Settings, Source};
use thalweg_host::folder;

/// Durable, append-only streams over HTTP: every acknowledged append is on the disk, every reader resumes where it left
/// off.
///
/// Speaks the Durable Streams protocol; streams live under /v1/stream/. With a Postgres database it also serves shapes,
/// live parts of its tables, to Electric's clients.
#[derive(Parser)]
#[command(name = "thalweg", version, propagate_version = true, after_help = SHORT_EXAMPLES, after_long_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const SHORT_EXAMPLES: &str = "\
Examples:
  thalweg dev                                   try it: data in ./data
  thalweg stream create hello --content-type text/plain
  echo 'first words' | thalweg stream append hello
  thalweg stream tail hello --from start
";

const EXAMPLES: &str = "\
Examples:
  thalweg dev                                   try it: data in ./data
  thalweg serve --data /var/lib/thalweg         serve on 127.0.0.1:4437
  thalweg serve --listen 0.0.0.0:4437 --tokens tokens.toml \\
    --tls-cert cert.pem --tls-key key.pem
  thalweg config example >thalweg.toml          all settings, with comments
  thalweg token new --name app --read chat/     a token, and its lines for the
                                                file of tokens
  thalweg status                                state of a running server
  thalweg check /var/lib/thalweg                read all data, and list
                                                damage if there is any
  thalweg backup --server http://127.0.0.1:4437 --to /backup
  thalweg restore /backup --data /var/lib/thalweg

  thalweg stream create hello --content-type text/plain
  echo 'first words' | thalweg stream append hello
  thalweg stream tail hello --from start        live, until it is closed

  thalweg serve --data ./data --database-url postgres://… --shape-secret TEXT
  thalweg shape tail items                      changes of a table

  S=http://127.0.0.1:4437/v1/stream
  curl -X PUT  $S/hello -H 'content-type: text/plain'
  curl -X POST $S/hello -H 'content-type: text/plain' -d 'first words'
  curl \"$S/hello?offset=-1\"
";

const SERVE_HELP: &str = "\
Each setting can be a flag (--settle-after 3s), an environment variable (THALWEG_SETTLE_AFTER=3s) or a key of the file given with --config \
(settle_after = \"3s\"). Flags win over the environment, the environment over the file.

Examples:
  thalweg serve --data /var/lib/thalweg
  thalweg serve --config thalweg.toml --check-config
  thalweg serve --listen 127.0.0.1:0 --ready-file /tmp/address
                                        a free port, written to a file
  THALWEG_DURABILITY=buffered thalweg serve --long-poll-timeout 500ms
";

const DEV_HELP: &str = "\
As `serve`, but for a person on their own machine: logs without time, shapes without a secret on a loopback address, webhooks to this machine, \
and a replication slot of its own (--replication-stream-id is `dev` if it is unset) that is dropped at the end.

Each setting can be a flag, an environment variable or a key of the file given with --config, as for `serve`.

Examples:
  thalweg dev                                   data in ./data
  thalweg dev --database-url postgres://postgres:password@localhost/postgres
  thalweg dev --listen 127.0.0.1:0 --data /tmp/try
  thalweg dev --nodes 3                         three nodes and a bucket
";

const SHORT_SERVE_HELP: &str = "`--help` shows every setting, and `thalweg config example` prints them as a file.";

/// Settings that `-h` shows; `--help` shows all.
const FIRST_SETTINGS: [&str; 11] = [
    "listen",
    "data",
    "durability",
    "auth",
    "tokens",
    "tls_cert",
    "tls_key",
    "database_url",
    "shape_secret",
    "log",
    "log_format",
];

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Serve streams from a data folder.
    #[command(after_long_help = SERVE_HELP, after_help = SHORT_SERVE_HELP)]
    Serve(ServeArgs),
    /// Serve from ./data with logs for a person: for trying things out.
    #[command(after_long_help = DEV_HELP, after_help = SHORT_SERVE_HELP)]
    Dev(DevArgs),
    /// Print a configuration file to begin with.
    Config(ConfigArgs),
    /// Make tokens with rights, and sign short-lived ones.
    Token(token::TokenArgs),
    /// Show the state of a running server: health, rates, the backlog of its disk.
    Status(thalweg_cli::StatusArgs),
    /// Work with streams of a running server: create, append, read, tail, …
    Stream(thalweg_cli::StreamArgs),
    /// Work with shapes of a running server: create, tail, ls, drop, explain.
    Shape(thalweg_cli::ShapeArgs),
    /// Work with nodes that share a bucket: list them, drain one.
    Node(thalweg_cli::NodeArgs),
    /// Keep servers and their tokens under names.
    Context(thalweg_cli::ContextArgs),
    /// Read all data, contents included, and list damage.
    ///
    /// Of a stopped server, by its data folder; a running one reads its data itself. Exit code 0: everything is as it
    /// was written; 1: not, or the folder is in use.
    Check(check::CheckArgs),
    /// Show what a bucket holds of a data folder, check it, and bring it back.
    Store(store::StoreArgs),
    /// Copy a running server's data, or a stopped one's, into a folder of backups.
    ///
    /// The copy is consistent: it ends at one moment, and has everything acknowledged before the command began. Data
    /// that the newest backup in the folder already has is not copied again.
    Backup(backup::BackupArgs),
    /// Put a backup into a new data folder, and check every byte of it.
    Restore {
        /// A backup, or a folder of backups: then the newest.
        backup: PathBuf,
        /// The data folder to make; it must be new or empty.
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
    },
    /// Print a shell's completion script for commands, settings and files.
    #[command(after_help = COMPLETIONS_HELP)]
    Completions {
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Write the manual: one page per command.
    #[command(after_help = "\
Examples:
  thalweg man | man -l -                              the first page
  thalweg man --out ~/.local/share/man/man1           then: man thalweg-serve")]
    Man {
        /// The folder for the pages; by default the first page goes to standard output.
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
}

const COMPLETIONS_HELP: &str = "\
Examples:
  thalweg completions bash >~/.local/share/bash-completion/completions/thalweg
  thalweg completions zsh >\"${fpath[1]}/_thalweg\"
  thalweg completions fish >~/.config/fish/completions/thalweg.fish
";

#[derive(Args)]
pub(crate) struct ServeArgs {
    /// A TOML file of settings, such as: durability = "durable".
    #[arg(long, env = "THALWEG_CONFIG", value_name = "FILE", hide_env = true)]
    config: Option<PathBuf>,
    /// Print the settings in force and where each comes from, and end.
    #[arg(long, conflicts_with = "check_config")]
    pub(crate) print_config: bool,
    /// Check the settings, with the files that they name, and end.
    #[arg(long)]
    pub(crate) check_config: bool,
    #[command(flatten)]
    settings: Settings,
}

#[derive(Args)]
pub(crate) struct DevArgs {
    /// Start so many nodes on this machine, at the port of --listen and those after it, which share a bucket in the
    /// data folder, or --store.
    #[arg(long, value_name = "N", conflicts_with_all = ["print_config", "check_config"])]
    pub(crate) nodes: Option<u64>,
    #[command(flatten)]
    pub(crate) serve: ServeArgs,
}

impl ServeArgs {
    pub(crate) fn layers(self, dev: bool) -> anyhow::Result<Layers> {
        Layers::gather(self.settings, self.config.as_deref(), dev)
    }
}

#[derive(Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) command: ConfigCommand,
}

#[derive(Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print a TOML file with all settings, their defaults, and comments.
    #[command(after_help = "Example:\n  thalweg config example >thalweg.toml && thalweg serve --config thalweg.toml")]
    Example,
}

/// The command line, with the parts that attributes cannot express.
pub(crate) fn command() -> clap::Command {
    let mut command = Cli::command().long_version(long_version()).max_term_width(100);
    for name in ["serve", "dev"] {
        command = command.mut_subcommand(name, |mut command| {
            for setting in Settings::ALL.iter().filter(|setting| !FIRST_SETTINGS.contains(&setting.key)) {
                command = command.mut_arg(setting.key, |arg| arg.hide_short_help(true));
            }
            command
        });
    }
    command
}

/// The parsed command line; ends the process for help and for errors.
pub(crate) fn parse() -> (Cli, ArgMatches) {
    let matches = command().get_matches();
    match Cli::from_arg_matches(&matches) {
        Ok(cli) => (cli, matches),
        Err(error) => error.format(&mut command()).exit(),
    }
}

/// The source of a setting of `serve` or `dev`, if it was given.
pub(crate) fn source(matches: &ArgMatches, key: &str) -> Source {
    let given = matches.subcommand().and_then(|(_, matches)| matches.value_source(key));
    if given == Some(ValueSource::EnvVariable) { Source::Environment } else { Source::Flag }
}

/// Version, commit and formats, for reports.
pub(crate) fn long_version() -> String {
    let commit = option_env!("THALWEG_COMMIT").map(|commit| format!(" (commit {commit})")).unwrap_or_default();
    format!(
        "{}{commit}\ndata folders: writes format {}, reads it and older ones",
        env!("CARGO_PKG_VERSION"),
        folder::FORMAT
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Visits each command, at every depth, with the words that lead to it.
    fn all(command: &clap::Command, words: &str, visit: &mut dyn FnMut(&clap::Command, &str)) {
        visit(command, words);
        for sub in command.get_subcommands() {
            all(sub, &format!("{words} {}", sub.get_name()), visit);
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn the_promised_flags_are_there() {
        let line = "thalweg serve --listen 127.0.0.1:4437 --data DIR --durability buffered --long-poll-timeout 30s";
        assert!(command().try_get_matches_from(line.split(' ')).is_ok());
    }

    #[test]
    fn a_wrong_flag_is_refused_with_the_right_one() {
        let refused = |line: &str| command().try_get_matches_from(line.split(' ')).err().unwrap().to_string();
        assert!(refused("thalweg serve --lissten x").contains("--listen"));
        assert!(refused("thalweg serve --settle-after 3").contains("`3s`"));
    }

    #[test]
    fn help_fits_the_terminal_and_examples_are_never_wrapped() {
        let root = command();
        all(&root, "thalweg", &mut |command, words| {
            for text in
                [command.clone().term_width(80).render_long_help(), command.clone().term_width(80).render_help()]
            {
                for line in text.to_string().lines() {
                    assert!(line.chars().count() <= 80, "{words} --help is wider than 80 columns:\n{line}");
                }
            }
            // A line that clap has to wrap is prose: a wrapped example cannot be pasted.
            let notes = [command.get_after_help(), command.get_after_long_help()].into_iter().flatten();
            for line in notes.flat_map(|text| text.to_string().lines().map(str::to_owned).collect::<Vec<_>>()) {
                assert!(!line.starts_with(' ') || line.chars().count() <= 80, "{words}: example too long:\n{line}");
            }
        });
    }

    #[test]
    fn short_help_is_short_and_no_default_is_empty() {
        for name in ["serve", "dev"] {
            let command = command();
            let command = command.find_subcommand(name).unwrap().clone();
            let (short, long) =
                (command.clone().render_help().to_string(), command.clone().render_long_help().to_string());
            assert!(short.lines().count() < 60, "{short}");
            assert!(short.lines().count() * 2 < long.lines().count());
            assert!(!long.contains("[default: ]"), "{long}");
            assert!(Settings::ALL.iter().all(|setting| long.contains(&setting.key.replace('_', "-"))));
        }
    }
}

//! `thalweg token`: makes tokens, and signs short-lived ones.

use super::scope::{Prefix, Rights, Scope};
use super::signed::{self, Claim, Key};
use super::tokens;
use crate::background;
use crate::config::Span;
use anyhow::{Context, bail};
use std::path::PathBuf;

const HELP: &str = "\
A PREFIX is `chat/` for all streams below it, `chat` for these and the stream `chat` itself, `*` for everything.

Examples:
  thalweg token new --name app --read chat/ --write chat/ >>tokens.toml
                                              the secret goes to the terminal
  thalweg token new --name ops --admin '*' --expires 2030-01-31T00:00:00Z
  thalweg token sign --data /var/lib/thalweg --prefix chat/room-7 --ttl 10m
";

#[derive(clap::Args)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(clap::Subcommand)]
enum TokenCommand {
    /// Make a token: its lines for the file of tokens on standard output, its secret, once, on standard error.
    #[command(after_help = HELP)]
    New {
        /// Its name in the file: letters, digits, `-` and `_`.
        #[arg(long)]
        name: String,
        /// What it may read. May be given more than once.
        #[arg(long, value_name = "PREFIX")]
        read: Vec<Prefix>,
        /// What it may create and append to; does not include reading. May be given more than once.
        #[arg(long, value_name = "PREFIX")]
        write: Vec<Prefix>,
        /// What it may read, write and delete. May be given more than once.
        #[arg(long, value_name = "PREFIX")]
        admin: Vec<Prefix>,
        /// When it ends, such as 2030-01-31T00:00:00Z. [default: never]
        #[arg(long, value_name = "TIME")]
        expires: Option<String>,
    },
    /// Sign a short-lived token with the key of a data folder; works beside a running server.
    #[command(after_help = HELP)]
    Sign {
        /// The data folder, which has the key.
        #[arg(long, env = "THALWEG_DATA", value_name = "DIR", hide_env = true, default_value = "./data")]
        data: PathBuf,
        /// The streams that it is for.
        #[arg(long)]
        prefix: Prefix,
        /// read, write or admin.
        #[arg(long, default_value = "read")]
        scope: Scope,
        /// How long it lives, up to 24h.
        #[arg(long, value_name = "TIME", default_value = "10min")]
        ttl: Span,
        /// A token of the file that it is to die with, and that must allow as much.
        #[arg(long, value_name = "NAME")]
        parent: Option<String>,
    },
}

/// A name may hold a `*`, and then a token for it works. From somebody at a shell it means a pattern, which would match nothing.
fn no_patterns(rights: &Rights) -> anyhow::Result<()> {
    let all = [&rights.read, &rights.write, &rights.admin].into_iter().flatten().map(ToString::to_string);
    match all.into_iter().find(|prefix| prefix.contains('*') && prefix != "*") {
        Some(prefix) => bail!(
            "`{prefix}` is a prefix and no pattern: write `{}/` for all streams below it, or `*` for everything",
            prefix.split(['*', '/']).next().unwrap_or_default()
        ),
        None => Ok(()),
    }
}

pub(crate) fn run(args: TokenArgs) -> anyhow::Result<()> {
    match args.command {
        TokenCommand::New { name, read, write, admin, expires } => {
            let rights = Rights { read, write, admin };
            no_patterns(&rights)?;
            if let Some(text) = &expires
                && tokens::expiry(text)? <= background::now().0
            {
                bail!("--expires {text} is over already: the token could not be used");
            }
            let (token, lines) = tokens::make(&name, &rights, expires.as_deref())?;
            print!("{lines}");
            eprintln!("The token, shown this once; the lines for the file of tokens hold only its hash:\n{token}");
        }
        TokenCommand::Sign { data, prefix, scope, ttl, parent } => {
            no_patterns(&Rights::one(scope, prefix.clone()))?;
            signed::check_ttl(ttl.0)?;
            let ttl = u64::try_from(ttl.0.as_millis()).context("too long a time")?;
            let claim = Claim { scope, prefix, expires: background::now().0 + ttl, parent };
            println!("{}", Key::load(&data, false)?.sign(&claim));
        }
    }
    Ok(())
}

//! `thalweg token`: makes tokens, and signs short-lived ones.

use anyhow::{Context, bail};
use std::path::PathBuf;
use std::time::Duration;
use thalweg_host::auth::{Claim, Key, Prefix, Rights, Scope, check_ttl, expiry, make_token};
use thalweg_host::background;
use thalweg_shapes::{Grant, Grants};

const HELP: &str = "\
A PREFIX is `chat/` for all streams below it, `chat` for these and the stream `chat` itself, `*` for everything.
A SHAPE grants a part of one table, written as the query of a request for it: rows by `where`, with values for $1, $2, … as \
`params[1]`, `params[2]`, …, and `columns`. Requests may ask for less.

Examples:
  thalweg token new --name app --read chat/ --write chat/ >>tokens.toml
                                              the secret goes to the terminal
  thalweg token new --name ops --admin '*' --expires 2030-01-31T00:00:00Z
  thalweg token sign --data /var/lib/thalweg --prefix chat/room-7 --expires 10m
  thalweg token sign --data /var/lib/thalweg --expires 1h \\
    --shape 'table=items&where=owner=$1&params[1]=7'
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
        /// Prefix of stream names that the token may read. May be given more than once.
        #[arg(long, value_name = "PREFIX")]
        read: Vec<Prefix>,
        /// Prefix of stream names that the token may create and append to, without reading them. May be given more than
        /// once.
        #[arg(long, value_name = "PREFIX")]
        write: Vec<Prefix>,
        /// Prefix of stream names that the token may read, write and delete. May be given more than once.
        #[arg(long, value_name = "PREFIX")]
        admin: Vec<Prefix>,
        /// Rows and columns of a table that the token may read. May be given more than once, for different tables.
        #[arg(long, value_name = "SHAPE")]
        shape: Vec<Grant>,
        /// When the token expires: a time, such as 2030-01-31T00:00:00Z, or a duration from now, such as 90d. [default:
        /// never]
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
        #[arg(long, required_unless_present = "shape")]
        prefix: Option<Prefix>,
        /// Rows and columns of a table that the token may read. May be given more than once, for different tables.
        #[arg(long, value_name = "SHAPE")]
        shape: Vec<Grant>,
        /// read, write or admin.
        #[arg(long, default_value = "read")]
        scope: Scope,
        /// When the token expires: a duration from now, such as 1h, or a time; within 24h.
        #[arg(long, visible_alias = "ttl", value_name = "TIME", default_value = "10min")]
        expires: String,
        /// A token of the file that it is to die with, and that must allow as much.
        #[arg(long, value_name = "NAME")]
        parent: Option<String>,
    },
}

fn no_patterns(rights: &Rights) -> anyhow::Result<()> {
    match rights.pattern().map(ToString::to_string) {
        Some(prefix) => bail!(
            "`{prefix}` is a prefix and no pattern: write `{}/` for all streams below it, or `*` for everything",
            prefix.split(['*', '/']).next().unwrap_or_default()
        ),
        None => Ok(()),
    }
}

pub(crate) fn run(args: TokenArgs) -> anyhow::Result<()> {
    match args.command {
        TokenCommand::New { name, read, write, admin, shape, expires } => {
            let shapes = Grants::try_from(shape).map_err(anyhow::Error::msg).context("--shape")?;
            let rights = Rights { read, write, admin, shapes };
            no_patterns(&rights)?;
            let now = background::now().0;
            let expires = expires.map(|text| expiry(&text, now).context("--expires")).transpose()?;
            let (token, lines) = make_token(&name, &rights, expires)?;
            print!("{lines}");
            eprintln!("The token, shown this once; the lines for the file of tokens hold only its hash:\n{token}");
        }
        TokenCommand::Sign { data, prefix, shape, scope, expires, parent } => {
            let now = background::now().0;
            let expires = expiry(&expires, now).context("--expires")?;
            check_ttl(Duration::from_millis(expires - now))?;
            let shapes = Grants::try_from(shape).map_err(anyhow::Error::msg).context("--shape")?;
            let streams = prefix.map(|prefix| (scope, prefix));
            if let Some((scope, prefix)) = &streams {
                no_patterns(&Rights::one(*scope, prefix.clone()))?;
            }
            let claim = Claim { streams, shapes, expires, parent };
            println!("{}", Key::load(&data, false)?.sign(&claim));
        }
    }
    Ok(())
}

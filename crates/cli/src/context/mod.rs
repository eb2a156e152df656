//! `thalweg context …`: servers, with tokens and authorities, kept under names.

mod file;

pub(crate) use file::{Context, Contexts};

use crate::failure::Failure;
use crate::server::whole_url;
use crate::table::Table;
use clap::{Args, Subcommand};
use std::io::BufRead;
use std::path::PathBuf;

#[derive(Args)]
#[command(after_help = "\
Examples:
  thalweg context add prod --server https://streams.example.org --token -
                                              the token comes from a terminal
                                              or a pipe: no other user sees it
  thalweg context use prod
  thalweg stream ls                           talks to prod from now on
  thalweg stream ls --context test            just this once to another one
  thalweg context ls
  thalweg context use --none                  back to http://127.0.0.1:4437

Contexts are in contexts.toml below $XDG_CONFIG_HOME/thalweg (~/.config/thalweg), readable for you alone.")]
pub struct ContextArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Keep a server under a name. One of that name is replaced.
    Add(AddArgs),
    /// Let commands talk to this server from now on.
    Use {
        /// The context.
        #[arg(required_unless_present = "none")]
        name: Option<String>,
        /// Use no context.
        #[arg(long, conflicts_with = "name")]
        none: bool,
    },
    /// List contexts. Tokens are not shown.
    Ls {
        /// Print one JSON object per line.
        #[arg(long)]
        json: bool,
    },
    /// Forget a context.
    Rm {
        /// The context.
        name: String,
    },
}

#[derive(Args)]
struct AddArgs {
    /// The name: letters, digits, `-`, `_` and `.`.
    name: String,
    /// The server: http://HOST:PORT or https://HOST.
    #[arg(long, value_name = "URL")]
    server: String,
    /// Its token; `-` reads it from standard input, where no other user of the machine can see it.
    #[arg(long, value_name = "TOKEN|-", allow_hyphen_values = true)]
    token: Option<String>,
    /// Trust the certificates in this PEM file instead of the system's.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The secret of its shapes; `-` reads it from standard input, after the token.
    #[arg(long, value_name = "TEXT|-", allow_hyphen_values = true)]
    secret: Option<String>,
    /// Let commands talk to this server from now on.
    #[arg(long = "use")]
    used: bool,
}

/// Runs one command on contexts.
pub fn run(args: ContextArgs) -> Result<(), Failure> {
    match args.command {
        Command::Add(args) => add(args),
        Command::Use { name, .. } => Contexts::change(|contexts| {
            if let Some(name) = &name {
                contexts.get(name)?;
            }
            contexts.current.clone_from(&name);
            Ok(())
        }),
        Command::Ls { json } => list(&Contexts::read()?, json),
        Command::Rm { name } => Contexts::change(|contexts| {
            contexts.get(&name)?;
            contexts.all.remove(&name);
            contexts.current.take_if(|current| *current == name);
            Ok(())
        }),
    }
}

fn add(args: AddArgs) -> Result<(), Failure> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if args.name.is_empty() || !args.name.chars().all(plain) {
        return Err(Failure::Local(format!("`{}` is not a name of letters, digits, -, _ and .", args.name)));
    }
    let ca = args
        .ca
        .map(|path| path.canonicalize().map_err(|error| Failure::Local(format!("--ca {}: {error}", path.display()))));
    let context = Context {
        server: whole_url(&args.server)?,
        token: typed("The token: ", args.token)?,
        ca: ca.transpose()?,
        secret: typed("The secret of shapes: ", args.secret)?,
    };
    Contexts::change(|contexts| {
        contexts.all.insert(args.name.clone(), context);
        if args.used {
            contexts.current = Some(args.name.clone());
        }
        Ok(())
    })
}

/// A text from the command line, or the next line of standard input for `-`.
fn typed(what: &str, given: Option<String>) -> Result<Option<String>, Failure> {
    if given.as_deref() != Some("-") {
        return Ok(given.filter(|text| !text.is_empty()));
    }
    crate::say::ask_on_terminal(what);
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    let text = line.trim();
    if text.is_empty() {
        return Err(Failure::Local("standard input has no line for it".to_owned()));
    }
    Ok(Some(text.to_owned()))
}

fn list(contexts: &Contexts, json: bool) -> Result<(), Failure> {
    let mut table = Table::new(["", "NAME", "SERVER", "TOKEN", "SECRET", "CA"]);
    for (name, context) in &contexts.all {
        let used = contexts.current.as_ref() == Some(name);
        if json {
            let one = serde_json::json!({
                "name": name, "server": context.server, "current": used, "token": context.token.is_some(),
                "secret": context.secret.is_some(), "ca": context.ca,
            });
            println!("{one}");
            continue;
        }
        let has = |text: &Option<String>| if text.is_some() { "yes" } else { "-" }.to_owned();
        let ca = context.ca.as_ref().map_or("-".to_owned(), |path| path.display().to_string());
        let used = if used { "*" } else { "" }.to_owned();
        table.row([used, name.clone(), context.server.clone(), has(&context.token), has(&context.secret), ca]);
    }
    Ok(table.write(&mut std::io::stdout().lock())?)
}

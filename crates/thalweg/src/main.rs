//! The one binary: the wiring of its engines, the service in front of them, and its commands.

#[macro_use]
extern crate thalweg_cli;

mod announce;
mod backup;
mod caution;
mod check;
mod cli;
mod descriptors;
mod dev_nodes;
mod engines;
mod http;
mod live;
mod logs;
mod manual;
mod nodes;
mod serve;
mod shutdown;
mod store;
#[cfg(test)]
mod tests;
mod token;
mod vitals;

use anyhow::Context;
use clap::ArgMatches;
use cli::{Command, ConfigCommand, ServeArgs};
use logs::Audience;
use std::process::ExitCode;
use thalweg_cli::{Failure, say};
use thalweg_host::config::{self, LogFormat};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let (cli, matches) = cli::parse();
    let done = run(cli.command, &matches).and_then(|()| say::finish().context("cannot write to standard output"));
    logs::end();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

/// Says on standard error why a command failed; its exit code.
fn failed(error: &anyhow::Error) -> ExitCode {
    match error.downcast_ref::<Failure>() {
        // The reader of our output has closed it.
        Some(Failure::ReaderGone) => ExitCode::SUCCESS,
        known => {
            // It may have names in it that others have made.
            let lines: Vec<String> = format!("{error:#}").lines().map(thalweg_cli::human::printable).collect();
            logs::say(&format!("thalweg: {}", lines.join("\n")));
            known.map_or(ExitCode::FAILURE, |failure| ExitCode::from(failure.exit_code()))
        }
    }
}

fn run(command: Command, matches: &ArgMatches) -> anyhow::Result<()> {
    if matches!(command, Command::Check(_) | Command::Store(_) | Command::Backup(_) | Command::Restore { .. }) {
        logs::start("warn", LogFormat::Text, Audience::Operator)?;
    }
    match command {
        Command::Serve(args) => serve(args, matches, false),
        Command::Dev(args) => match args.nodes {
            Some(count) => dev_nodes::run(count, &args.serve.layers(true)?.resolve()?),
            None => {
                dev_nodes::end_with_parent();
                serve(args.serve, matches, true)
            }
        },
        Command::Config(args) => match args.command {
            ConfigCommand::Example => {
                print!("{}", config::example());
                Ok(())
            }
        },
        Command::Token(args) => token::run(args),
        Command::Status(args) => Ok(thalweg_cli::run_status(args)?),
        Command::Stream(args) => Ok(thalweg_cli::run_stream(args)?),
        Command::Shape(args) => Ok(thalweg_cli::run_shape(args)?),
        Command::Node(args) => Ok(thalweg_cli::run_node(args)?),
        Command::Context(args) => Ok(thalweg_cli::run_context(args)?),
        Command::Check(args) => check::run(&args),
        Command::Store(args) => store::run(&args),
        Command::Backup(args) => backup::backup(&args),
        Command::Restore { backup, data } => backup::restore(&backup, &data),
        Command::Completions { shell } => manual::completions(shell),
        Command::Man { out } => manual::pages(out.as_deref()),
    }
}

fn serve(args: ServeArgs, matches: &ArgMatches, dev: bool) -> anyhow::Result<()> {
    let (print, check) = (args.print_config, args.check_config);
    let layers = args.layers(dev)?;
    let config = layers.resolve()?;
    if print {
        print!("{}", config::described(&layers, &config, |key| cli::source(matches, key)));
        return Ok(());
    }
    if check {
        return serve::check(&config);
    }
    logs::start(&config.log, config.log_format, if dev { Audience::Developer } else { Audience::Operator })?;
    serve::run(&config)
}

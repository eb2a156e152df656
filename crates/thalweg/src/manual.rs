//! Completions for shells, and man pages: both made from the command line.

use crate::cli;
use anyhow::Context;
use clap_complete::Shell;
use clap_mangen::Man;
use std::path::Path;

/// Prints the script that a shell loads.
pub(crate) fn completions(shell: Shell) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut cli::command(), "thalweg", &mut script);
    print!("{}", String::from_utf8(script)?);
    Ok(())
}

/// Writes one page per command into a folder; without one, prints the first page.
pub(crate) fn pages(out: Option<&Path>) -> anyhow::Result<()> {
    let Some(out) = out else {
        let mut page = Vec::new();
        Man::new(cli::command()).render(&mut page)?;
        print!("{}", String::from_utf8(page)?);
        return Ok(());
    };
    std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    clap_mangen::generate_to(cli::command(), out).with_context(|| format!("cannot write to {}", out.display()))
}

//! Opens the data folder and serves it until it is asked to stop.

use crate::config::Config;

/// Runs a server with these settings. Returns after a graceful stop.
pub(crate) fn run(config: &Config) -> anyhow::Result<()> {
    let mut stop = crate::shutdown::Stop::install()?;
    let _ = (&mut stop, config);
    anyhow::bail!("serving is not wired up yet")
}

//! Events of the database's history: its files are put back, a standby takes over, or another cluster answers at the
//! same address.
//!
//! A command does it, which gets the action as its last argument (tests/oracle/run.sh writes one).

use crate::random::Random;
use anyhow::bail;
use std::process::Command;

/// How the history ends that the server has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The files are again what they were before the round.
    SetBack,
    /// A standby takes over that has everything, but not the replication slot.
    FailOver,
    /// A standby takes over that has nothing of the round.
    FailOverBehind,
    /// A new cluster answers, with other rows.
    Replace,
}

impl Turn {
    pub(crate) fn random(random: &mut Random) -> Self {
        *random.pick(&[Self::SetBack, Self::FailOver, Self::FailOverBehind, Self::Replace])
    }

    /// For the report.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::SetBack => "set back",
            Self::FailOver => "failed over",
            Self::FailOverBehind => "failed over behind",
            Self::Replace => "replaced",
        }
    }

    /// Before the round is written.
    pub(crate) fn prepare(self, command: &str) -> anyhow::Result<()> {
        match self {
            Self::SetBack => act(command, "keep"),
            Self::FailOver => act(command, "standby"),
            Self::FailOverBehind => act(command, "standby").and_then(|()| act(command, "stop-standby")),
            Self::Replace => Ok(()),
        }
    }

    /// After it.
    pub(crate) fn make(self, command: &str) -> anyhow::Result<()> {
        match self {
            Self::SetBack => act(command, "set-back"),
            Self::FailOver | Self::FailOverBehind => act(command, "promote"),
            Self::Replace => act(command, "replace"),
        }
    }
}

fn act(command: &str, action: &str) -> anyhow::Result<()> {
    let status = Command::new("bash").arg("-c").arg(format!("{command} {action}")).status()?;
    if !status.success() {
        bail!("{command} {action} ended with {status}");
    }
    Ok(())
}

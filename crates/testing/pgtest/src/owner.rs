//! The user that runs the server.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The user that clusters belong to; `None`: the user that runs the tests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner(Option<(u32, u32)>);

impl Owner {
    pub(super) fn find() -> Self {
        let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
        if !is_root {
            return Self(None);
        }
        let users = std::fs::read_to_string("/etc/passwd").expect("/etc/passwd");
        let wanted = std::env::var("PG_USER").ok();
        let ids = wanted.as_deref().into_iter().chain(["postgres", "nobody"]).find_map(|name| {
            let mut fields =
                users.lines().map(|line| line.split(':')).find(|fields| fields.clone().next() == Some(name))?;
            Some((fields.nth(2)?.parse().ok()?, fields.next()?.parse().ok()?))
        });
        Self(Some(ids.expect("a user to run Postgres as: postgres or nobody")))
    }

    /// A program that runs as this user, in a folder that it may see.
    pub(super) fn command(self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.current_dir("/");
        if let Some((user, group)) = self.0 {
            command.uid(user).gid(group);
        }
        command
    }

    pub(super) fn give(self, path: &Path) {
        if let Some((user, group)) = self.0 {
            std::os::unix::fs::chown(path, Some(user), Some(group)).expect("chown");
        }
    }
}

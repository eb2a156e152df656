//! Forks of streams that give up their beginning: what a fork inherited stays, whatever its source gives up afterwards.

use super::{Keeper, delete};
use crate::http::Request;
use crate::numbered::{self, Read};
use crate::session::Down;

const LIVE: usize = 8;

/// A fork without a writer.
pub(super) struct Fork {
    path: String,
    /// The lines that it inherited, once they were seen: the first, and the one after the last.
    inherited: Option<(u64, u64)>,
    /// The first line that its source had at that time, and the one after the last that it was asked for.
    bounds: (u64, u64),
    /// Its deletion was asked for. If the answer was lost, it may have happened.
    leaving: bool,
}

impl Keeper<'_> {
    pub(super) fn fork(&mut self, which: usize) -> Result<(), Down> {
        if self.forks.len() >= LIVE {
            return self.leave_fork(0);
        }
        let source = &self.streams[which];
        let at = self.rng.rand_range(source.floor..source.lines.acknowledged.max(source.floor + 1));
        let sent = usize::try_from(at).ok().and_then(|at| source.lines.sent.get(at)).cloned();
        let Some((_, Some(offset))) = sent else { return Ok(()) };
        self.names += 1;
        let path = format!("/v1/stream/crash/kept/f{}", self.names);
        let headers = [("stream-forked-from", source.lines.path.as_str()), ("stream-fork-offset", offset.as_str())];
        let request = Request::new("PUT", &path, &headers, &[]);
        let bounds = (source.floor, at + 1);
        // One in doubt is forgotten: its name is not used again.
        let answer = self.session.call(&request)?;
        match answer.status {
            201 => self.forks.push(Fork { path, inherited: None, bounds, leaving: false }),
            // The content was removed since, the place itself included.
            400 | 410 | 429 | 503 => return Ok(()),
            status => {
                self.session.world.violation(format!("{} at {offset}: {status} {:?}", request.line, answer.text()));
                return Ok(());
            }
        }
        self.check_fork(self.forks.len() - 1)
    }

    fn leave_fork(&mut self, which: usize) -> Result<(), Down> {
        let fork = &mut self.forks[which];
        if delete(&mut self.session, &fork.path, &mut fork.leaving)? {
            self.forks.remove(which);
        }
        Ok(())
    }

    /// The same lines as ever.
    pub(super) fn check_fork(&mut self, which: usize) -> Result<(), Down> {
        let world = self.session.world;
        if self.forks.get(which).is_some_and(|fork| fork.leaving) {
            return self.leave_fork(which);
        }
        let Some(fork) = self.forks.get_mut(which) else { return Ok(()) };
        let span = match numbered::read(&mut self.session, &fork.path, "-1")? {
            Read::Lines(Some(span), _) => span,
            Read::Lines(None, _) => (fork.bounds.1, fork.bounds.1),
            Read::Refused(answer) => {
                world.violation(format!("{}: {} {:?}", fork.path, answer.status, answer.text()));
                return Ok(());
            }
        };
        let inherited = *fork.inherited.get_or_insert(span);
        if span != inherited {
            world.violation(format!("{}: it inherited lines {inherited:?}, and has {span:?} now", fork.path));
        }
        if span.1 != fork.bounds.1 || span.0 < fork.bounds.0 {
            world.violation(format!("{}: it has lines {span:?} of {:?} that there were", fork.path, fork.bounds));
        }
        world.report.count("forks of retained streams compared");
        Ok(())
    }
}

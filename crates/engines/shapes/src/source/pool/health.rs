//! Whether Postgres can be reached, and when to try again.

use std::time::{Duration, Instant};

const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How long to do with the connections that there are, after the server has refused another one.
const REFUSED_FOR: Duration = Duration::from_secs(5);

/// What the pool knows of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Health {
    /// Nobody has asked yet.
    #[default]
    Untried,
    Up,
    /// The last attempt to connect failed.
    Down {
        error: String,
    },
}

/// The way to the server.
#[derive(Debug, Default)]
pub(super) struct Way {
    health: Health,
    /// Somebody is trying, or nobody is to try before.
    not_before: Option<Instant>,
    pause: Option<Duration>,
    /// The server takes no more connections than these, for a while.
    refused: Option<(usize, Instant)>,
}

impl Way {
    pub(super) fn health(&self) -> Health {
        self.health.clone()
    }

    /// Whether to try to connect; if not, why. While the server is down one tries at a time.
    pub(super) fn may_try(&mut self, now: Instant, patience: Duration) -> Result<(), String> {
        let Health::Down { error } = &self.health else { return Ok(()) };
        if self.not_before.is_some_and(|time| now < time) {
            return Err(error.clone());
        }
        self.not_before = Some(now + patience);
        Ok(())
    }

    pub(super) fn connected(&mut self) {
        (self.health, self.not_before, self.pause) = (Health::Up, None, None);
    }

    pub(super) fn failed(&mut self, error: String, now: Instant) {
        let pause = self.pause.map_or(PAUSE_MIN, |pause| (pause * 2).min(PAUSE_MAX));
        (self.health, self.not_before, self.pause) = (Health::Down { error }, Some(now + pause), Some(pause));
    }

    /// The server refused a connection beyond these, which it has.
    pub(super) fn refused(&mut self, connections: usize, now: Instant) {
        self.refused = Some((connections, now + REFUSED_FOR));
    }

    pub(super) fn connections_max(&self, wanted: usize, now: Instant) -> usize {
        match self.refused {
            Some((has, until)) if now < until => wanted.min(has.max(1)),
            _ => wanted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_tries_at_a_time_with_growing_pauses() {
        let (mut way, start) = (Way::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        let patience = Duration::from_secs(10);
        assert_eq!(way.may_try(at(0), patience), Ok(()));
        assert_eq!(way.may_try(at(0), patience), Ok(()), "nothing is known yet");
        way.failed("no".into(), at(0));
        assert_eq!(way.may_try(at(99), patience), Err("no".into()));
        assert_eq!(way.may_try(at(100), patience), Ok(()));
        assert_eq!(way.may_try(at(5000), patience), Err("no".into()), "somebody is trying");
        way.failed("still".into(), at(200));
        assert_eq!(way.may_try(at(399), patience), Err("still".into()));
        assert_eq!(way.may_try(at(400), patience), Ok(()));
        assert_eq!(way.health(), Health::Down { error: "still".into() });
        way.connected();
        assert_eq!((way.may_try(at(401), patience), way.health()), (Ok(()), Health::Up));
        way.failed("again".into(), at(500));
        assert_eq!(way.may_try(at(600), patience), Ok(()), "the pause begins anew");
    }

    #[test]
    fn a_server_that_refuses_more_is_left_with_what_it_has() {
        let (mut way, now) = (Way::default(), Instant::now());
        assert_eq!(way.connections_max(20, now), 20);
        way.refused(3, now);
        assert_eq!(way.connections_max(20, now), 3);
        assert_eq!(way.connections_max(20, now + REFUSED_FOR), 20);
        way.refused(0, now);
        assert_eq!(way.connections_max(20, now), 1);
    }
}

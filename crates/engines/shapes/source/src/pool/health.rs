//! The state of the connection to the server, and the time of the next attempt.

use std::time::{Duration, Instant};

const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How long the pool opens no further connection after the server refused one.
const REFUSED_FOR: Duration = Duration::from_secs(5);

/// The state of the server as the pool knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// No connection was attempted yet.
    #[default]
    Untried,
    Up,
    /// The last attempt to connect failed.
    Down {
        error: String,
    },
}

/// The attempts to connect.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    health: Health,
    /// An attempt is under way, or the next one is not due before this.
    not_before: Option<Instant>,
    pause: Option<Duration>,
    /// The number of connections that the server accepts, until a time.
    refused: Option<(usize, Instant)>,
}

impl Attempts {
    pub(super) fn health(&self) -> Health {
        self.health.clone()
    }

    /// Whether to try to connect; if not, the reason. While the server is down one thread tries at a time.
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

    /// The server refused a connection beyond these.
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
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;

    #[test]
    fn one_tries_at_a_time_with_growing_pauses() {
        let (mut attempts, start) = (Attempts::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        let patience = Duration::from_secs(10);
        assert_eq!(attempts.may_try(at(0), patience), Ok(()));
        assert_eq!(attempts.may_try(at(0), patience), Ok(()), "nothing is known yet");
        attempts.failed("no".into(), at(0));
        assert_eq!(attempts.may_try(at(99), patience), Err("no".into()));
        assert_eq!(attempts.may_try(at(100), patience), Ok(()));
        assert_eq!(attempts.may_try(at(5000), patience), Err("no".into()), "somebody is trying");
        attempts.failed("still".into(), at(200));
        assert_eq!(attempts.may_try(at(399), patience), Err("still".into()));
        assert_eq!(attempts.may_try(at(400), patience), Ok(()));
        assert_eq!(attempts.health(), Health::Down { error: "still".into() });
        attempts.connected();
        assert_eq!((attempts.may_try(at(401), patience), attempts.health()), (Ok(()), Health::Up));
        attempts.failed("again".into(), at(500));
        assert_eq!(attempts.may_try(at(600), patience), Ok(()), "the pause starts over");
    }

    #[test]
    fn a_server_that_refuses_more_is_left_with_what_it_has() {
        let (mut attempts, now) = (Attempts::default(), Instant::now());
        assert_eq!(attempts.connections_max(20, now), 20);
        attempts.refused(3, now);
        assert_eq!(attempts.connections_max(20, now), 3);
        assert_eq!(attempts.connections_max(20, now + REFUSED_FOR), 20);
        attempts.refused(0, now);
        assert_eq!(attempts.connections_max(20, now), 1);
    }
}

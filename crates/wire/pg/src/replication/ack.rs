//! Telling the server how far we are.

use super::super::error::Error;
use super::super::link::Link;
use super::super::lsn::PgLsn;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// From 1970 to 2000, where Postgres begins to count.
const EPOCH: Duration = Duration::from_secs(946_684_800);
/// `CopyData` with a standby status update: tag and length, `r`, three positions, a clock, whether to answer.
const LEN: usize = 1 + 4 + 1 + 3 * 8 + 8 + 1;

/// Sends acknowledgements of one [`Stream`](super::Stream), from any thread, also while another one reads.
#[derive(Clone)]
pub struct Acker {
    link: Arc<Link>,
}

impl Acker {
    pub(super) fn new(link: Arc<Link>) -> Self {
        Self { link }
    }

    /// Reports how far changes are received, durable and applied; the slot forgets changes before `flushed`. `reply`:
    /// the server answers with a keepalive at once.
    pub fn ack(&self, written: PgLsn, flushed: PgLsn, applied: PgLsn, reply: bool) -> Result<(), Error> {
        let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH + EPOCH).unwrap_or_default();
        self.link.send(&status(written, flushed, applied, clock.as_micros() as i64, reply))
    }

    /// Whether either side has ended the stream.
    pub fn is_closed(&self) -> bool {
        self.link.is_broken()
    }

    /// Ends the connection at once; the stream's reader gets [`Error::Closed`].
    pub fn hang_up(&self) {
        self.link.hang_up();
    }
}

impl std::fmt::Debug for Acker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Acker").field("closed", &self.is_closed()).finish()
    }
}

fn status(written: PgLsn, flushed: PgLsn, applied: PgLsn, clock: i64, reply: bool) -> [u8; LEN] {
    let mut message = [0; LEN];
    message[0] = b'd';
    message[1..5].copy_from_slice(&(LEN as u32 - 1).to_be_bytes());
    message[5] = b'r';
    for (i, lsn) in [written, flushed, applied].into_iter().enumerate() {
        message[6 + i * 8..][..8].copy_from_slice(&lsn.0.to_be_bytes());
    }
    message[30..38].copy_from_slice(&clock.to_be_bytes());
    message[38] = u8::from(reply);
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        let message = status(PgLsn(1), PgLsn(2), PgLsn(0x16_0000_0003), 4, true);
        let expected = b"d\0\0\0\x26r\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\x16\0\0\0\x03\0\0\0\0\0\0\0\x04\x01";
        assert_eq!(&message, expected);
    }
}

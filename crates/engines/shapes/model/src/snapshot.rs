//! Postgres snapshots: which transactions one contains.

use std::collections::BTreeSet;
use std::str::FromStr;
use thalweg_base::{DecodeError, Decoder, Encoder};

/// The most transactions that [`PgSnapshot::with`] lists as not contained.
const HOLES_MAX: usize = 256;

/// A snapshot of Postgres (`pg_current_snapshot()`), and the LSN up to which WAL was inserted right after it was taken.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PgSnapshot {
    /// Every transaction below is visible or aborted.
    pub xmin: u64,
    /// No transaction at or above is visible.
    pub xmax: u64,
    /// Between the two: not visible, because they were in progress. Ascending.
    pub xip: Vec<u64>,
    /// Transactions that commit after it are not visible.
    pub lsn: u64,
}

impl PgSnapshot {
    /// Whether the snapshot contains a transaction that has committed. `xid` is that of the top-level transaction,
    /// without its epoch, as the replication stream has it.
    #[must_use]
    pub fn contains(&self, xid: u32, commit: u64) -> bool {
        if commit > self.lsn {
            return false;
        }
        let xid = self.with_epoch(xid);
        xid < self.xmin || xid < self.xmax && self.xip.binary_search(&xid).is_err()
    }

    /// Whether no transaction from `commit` on can be contained.
    #[must_use]
    pub fn is_past(&self, commit: u64) -> bool {
        commit > self.lsn
    }

    /// The full id nearest to the snapshot: transactions that are compared with it are within 2^31 of it.
    pub fn with_epoch(&self, xid: u32) -> u64 {
        let near = self.xmax;
        let distance = (xid.wrapping_sub(near as u32)) as i32;
        near.wrapping_add_signed(i64::from(distance))
    }

    /// This snapshot extended by the transactions `seen` and by all below `seen_below`. Of the transactions between
    /// them the last `HOLES_MAX` are listed as not contained: they did not touch the table, or have not committed.
    #[must_use]
    pub fn with(&self, seen: &BTreeSet<u64>, seen_below: u64, lsn: u64) -> Self {
        let xmax = self.xmax.max(seen.last().map_or(0, |last| last + 1)).max(seen_below);
        let early = self.xip.iter().rev().copied();
        let holes = (self.xmax.max(seen_below)..xmax).rev().chain(early.filter(|xid| *xid >= seen_below));
        let mut xip: Vec<u64> = holes.filter(|xid| !seen.contains(xid)).take(HOLES_MAX).collect();
        xip.reverse();
        Self { xmin: xip.first().copied().unwrap_or(xmax), xmax, xip, lsn }
    }

    /// Appends the stored form: `docs/format/shapes.md`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.xmin);
        out.put_varint(self.xmax);
        out.put_varint(self.lsn);
        out.put_varint(self.xip.len() as u64);
        self.xip.iter().for_each(|xid| out.put_varint(*xid));
    }

    /// The snapshot of a stored form, see [`PgSnapshot::encode`].
    pub fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let (xmin, xmax, lsn, count) = (d.varint()?, d.varint()?, d.varint()?, d.varint()?);
        if count > d.rest().len() as u64 {
            return Err(DecodeError::Truncated(1));
        }
        let xip = (0..count).map(|_| d.varint()).collect::<Result<_, _>>()?;
        Ok(Self { xmin, xmax, xip, lsn })
    }
}

/// The text is not of the form `xmin:xmax:xip,xip`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a snapshot of Postgres")]
pub struct SnapshotError(String);

/// `xmin:xmax:xip,xip,…`, as `pg_current_snapshot()` prints it; the LSN is 0.
impl FromStr for PgSnapshot {
    type Err = SnapshotError;

    fn from_str(text: &str) -> Result<Self, SnapshotError> {
        let bad = || SnapshotError(text.to_owned());
        let mut parts = text.splitn(3, ':');
        let mut part = || parts.next().ok_or_else(bad);
        let (xmin, xmax, xip) = (part()?, part()?, part()?);
        let number = |text: &str| text.parse::<u64>().map_err(|_| bad());
        let mut xip = xip.split(',').filter(|x| !x.is_empty()).map(number).collect::<Result<Vec<_>, _>>()?;
        xip.sort_unstable();
        Ok(Self { xmin: number(xmin)?, xmax: number(xmax)?, xip, lsn: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(text: &str, lsn: u64) -> PgSnapshot {
        PgSnapshot { lsn, ..text.parse().unwrap() }
    }

    #[test]
    fn a_snapshot_contains_what_had_committed_before_it() {
        let snapshot = snapshot("10:20:12,15", 1000);
        let contained = |xid| snapshot.contains(xid, 900);
        assert!(contained(9) && contained(11) && contained(19));
        assert!(!contained(12) && !contained(15) && !contained(20) && !contained(21));
        assert!(!snapshot.contains(11, 1001), "it committed after the snapshot, whatever its number");
    }

    #[test]
    fn a_snapshot_goes_on_with_what_came_after_it() {
        let snapshot = snapshot("10:20:12,15", 1000);
        let seen = |xids: &[u64]| snapshot.with(&xids.iter().copied().collect(), 0, 2000);
        assert_eq!(seen(&[]), PgSnapshot { xmin: 12, xmax: 20, xip: vec![12, 15], lsn: 2000 });
        assert_eq!(seen(&[12, 21, 24]), PgSnapshot { xmin: 15, xmax: 25, xip: vec![15, 20, 22, 23], lsn: 2000 });
        assert_eq!(seen(&[12, 15, 20]), PgSnapshot { xmin: 21, xmax: 21, xip: vec![], lsn: 2000 });
        let far = seen(&[1 << 40]);
        assert_eq!((far.xip.len(), far.xmin, far.xmax), (HOLES_MAX, (1 << 40) - HOLES_MAX as u64, (1 << 40) + 1));
        let below = snapshot.with(&[32].into(), 30, 2000);
        assert_eq!(below, PgSnapshot { xmin: 30, xmax: 33, xip: vec![30, 31], lsn: 2000 });
    }

    #[test]
    fn numbers_without_an_epoch_are_near_the_snapshot() {
        let epoch = 3_u64 << 32;
        let snapshot = snapshot(&format!("{}:{}:", epoch + 5, epoch + 5), 1000);
        assert!(snapshot.contains(4, 900));
        assert!(!snapshot.contains(5, 900));
        assert!(snapshot.contains(u32::MAX - 3, 900), "the last of the epoch before");
    }

    #[test]
    fn a_snapshot_is_read_back_as_it_was_written() {
        for text in ["7:7:", "10:20:12,15", "1:18446744073709551615:1"] {
            let snapshot = snapshot(text, 77);
            let mut out = Vec::new();
            snapshot.encode(&mut out);
            assert_eq!(PgSnapshot::decode(&mut Decoder::new(&out)), Ok(snapshot));
        }
        for text in ["", "1", "1:2", "a:b:", "1:2:x"] {
            assert!(text.parse::<PgSnapshot>().is_err(), "{text}");
        }
    }
}

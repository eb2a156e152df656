//! Positions in a shape, as clients see them.
//!
//! `-1` is before everything, `0_<n>` the end of snapshot chunk `n`, `0_inf` the end of the snapshot, and `<LSN>_<op>`
//! a change: the commit's LSN in decimal and the change's place in its transaction. `<LSN>_inf` is the end of a
//! transaction.

use std::fmt;
use std::str::FromStr;

/// A position in a shape's log. The order is that of the protocol: LSN first, then the place in the transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShapeOffset {
    /// The commit's LSN; 0 is the snapshot.
    pub lsn: u64,
    /// The place in the transaction, or the snapshot chunk; [`ShapeOffset::END`] is after all of them.
    pub op: u64,
}

impl ShapeOffset {
    /// The `op` of `<LSN>_inf`.
    pub const END: u64 = u64::MAX;
    /// The end of the snapshot, and the last position of a shape without changes.
    pub const SNAPSHOT_END: ShapeOffset = ShapeOffset { lsn: 0, op: Self::END };

    /// The position of change `op` of the transaction that commits at `lsn`.
    #[must_use]
    pub fn new(lsn: u64, op: u64) -> Self {
        Self { lsn, op }
    }

    /// The end of snapshot chunk `n`.
    #[must_use]
    pub fn chunk(n: u64) -> Self {
        Self { lsn: 0, op: n }
    }

    /// Whether it is a position in the snapshot.
    #[must_use]
    pub fn is_snapshot(self) -> bool {
        self.lsn == 0
    }
}

impl fmt::Display for ShapeOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.op {
            Self::END => write!(f, "{}_inf", self.lsn),
            op => write!(f, "{}_{op}", self.lsn),
        }
    }
}

/// The text is not a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("has invalid format")]
pub struct OffsetError;

impl FromStr for ShapeOffset {
    type Err = OffsetError;

    fn from_str(text: &str) -> Result<Self, OffsetError> {
        let (lsn, op) = text.split_once('_').ok_or(OffsetError)?;
        let op = if op == "inf" { Self::END } else { number(op)? };
        Ok(Self { lsn: number(lsn)?, op })
    }
}

/// A position as a request names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// `-1`: everything.
    Start,
    /// `now`: nothing but where the shape is.
    Now,
    /// Everything after this position.
    After(ShapeOffset),
}

impl fmt::Display for From {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            From::Start => f.write_str("-1"),
            From::Now => f.write_str("now"),
            From::After(offset) => offset.fmt(f),
        }
    }
}

impl FromStr for From {
    type Err = OffsetError;

    fn from_str(text: &str) -> Result<Self, OffsetError> {
        match text {
            "-1" => Ok(From::Start),
            "now" => Ok(From::Now),
            _ => text.parse().map(From::After),
        }
    }
}

fn number(text: &str) -> Result<u64, OffsetError> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(OffsetError);
    }
    text.parse().map_err(|_| OffsetError)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_ordered_as_the_protocol_says() {
        let order = ["0_0", "0_1", "0_inf", "7_0", "7_2", "7_inf", "10_0"];
        let parsed: Vec<ShapeOffset> = order.iter().map(|text| text.parse().unwrap()).collect();
        assert!(parsed.is_sorted());
        assert_eq!(parsed.iter().map(ToString::to_string).collect::<Vec<_>>(), order);
    }

    #[test]
    fn what_is_no_position_is_refused() {
        for text in ["", "_", "1", "1_", "_1", "+1_0", "1_-1", "-1_0", "a_b", "1_1_1", "18446744073709551616_0"] {
            assert_eq!(text.parse::<ShapeOffset>(), Err(OffsetError), "{text}");
        }
        assert_eq!("-1".parse(), Ok(From::Start));
        assert_eq!("now".parse(), Ok(From::Now));
        assert!("live".parse::<From>().is_err());
    }
}

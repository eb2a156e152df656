//! Offsets as clients see them: `{incarnation:016}_{position:016}`, in decimal.
//!
//! They sort as text in the order of positions, and a stream that was deleted and made again never repeats one, because
//! incarnations are ids of logs. Offsets are opaque to clients; only the server parses them.

use thalweg_base::Offset;

/// How many bytes an offset takes on the wire.
pub const OFFSET_BYTES: usize = 2 * DIGITS + 1;

const DIGITS: usize = 16;
const DIGITS_MAX: u64 = 9_999_999_999_999_999;

/// One position in one history of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The history that the offset is of.
    pub incarnation: u64,
    /// The byte position in that history.
    pub offset: Offset,
}

/// An offset as a client may give it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetParam {
    /// `-1`, or the zero offset.
    Start,
    /// `now`
    Tail,
    /// A position.
    At(Position),
}

impl Position {
    /// The offset on the wire: two numbers of 16 digits, joined by `_`.
    #[must_use]
    pub fn to_text(self) -> [u8; OFFSET_BYTES] {
        let mut text = [b'_'; OFFSET_BYTES];
        put_digits(&mut text[..DIGITS], self.incarnation);
        put_digits(&mut text[DIGITS + 1..], self.offset.0);
        text
    }

    /// The position of an offset on the wire; `None` if it is none.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (incarnation, rest) = text.split_at_checked(DIGITS)?;
        let (separator, position) = rest.split_first()?;
        if *separator != b'_' || position.len() != DIGITS {
            return None;
        }
        Some(Self { incarnation: digits(incarnation)?, offset: Offset(digits(position)?) })
    }
}

impl OffsetParam {
    /// The value of the parameter `offset`; `None` if it is none.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        match text {
            b"-1" => Some(Self::Start),
            b"now" => Some(Self::Tail),
            _ => Some(match Position::parse(text)? {
                Position { incarnation: 0, offset: Offset::ZERO } => Self::Start,
                position => Self::At(position),
            }),
        }
    }
}

/// Two digits at a time: every answer carries an offset.
fn put_digits(out: &mut [u8], n: u64) {
    const PAIRS: [[u8; 2]; 100] = {
        let mut pairs = [[0; 2]; 100];
        let mut n = 0;
        while n < 100 {
            pairs[n] = [b'0' + (n / 10) as u8, b'0' + (n % 10) as u8];
            n += 1;
        }
        pairs
    };
    let n = n.min(DIGITS_MAX);
    // Halves of 32 bits divide faster, and mostly the upper one is zero.
    let mut halves = [(n / 100_000_000) as u32, (n % 100_000_000) as u32];
    for (half, place) in halves.iter_mut().zip(out.chunks_exact_mut(DIGITS / 2)) {
        for pair in place.rchunks_exact_mut(2) {
            pair.copy_from_slice(&PAIRS[(*half % 100) as usize]);
            *half /= 100;
        }
    }
}

fn digits(text: &[u8]) -> Option<u64> {
    text.iter().try_fold(0u64, |n, b| b.is_ascii_digit().then(|| n * 10 + u64::from(b - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_form_is_pinned() {
        let position = Position { incarnation: 64, offset: Offset(1_234) };
        assert_eq!(&position.to_text(), b"0000000000000064_0000000000001234");
    }

    #[test]
    fn sentinels_are_known() {
        assert_eq!(OffsetParam::parse(b"-1"), Some(OffsetParam::Start));
        assert_eq!(OffsetParam::parse(b"now"), Some(OffsetParam::Tail));
        assert_eq!(OffsetParam::parse(b"0000000000000000_0000000000000000"), Some(OffsetParam::Start));
    }

    #[test]
    fn other_forms_are_refused() {
        for text in ["", "0", "-2", "NOW", "0,1", "0 1", "64_0", "0000000000000064-0000000000000000"] {
            assert_eq!(OffsetParam::parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(OffsetParam::parse(b"0000000000000064_000000000000000a"), None);
        assert_eq!(OffsetParam::parse(b"0000000000000064_00000000000000000"), None);
    }

    proptest! {
        #[test]
        fn positions_round_trip(incarnation in 0..=DIGITS_MAX, offset in 0..=DIGITS_MAX) {
            let position = Position { incarnation, offset: Offset(offset) };
            prop_assert_eq!(Position::parse(&position.to_text()), Some(position));
        }

        #[test]
        fn text_sorts_as_positions_do(i in 0..1000u64, a in 0..=DIGITS_MAX, b in 0..=DIGITS_MAX) {
            let text = |offset| Position { incarnation: i, offset: Offset(offset) }.to_text();
            prop_assert_eq!(text(a).cmp(&text(b)), a.cmp(&b));
        }

        #[test]
        fn garbage_never_panics(text: Vec<u8>) {
            let _ = OffsetParam::parse(&text);
        }
    }
}

//! The compression that Postgres had first (`pg_lzcompress.c`): decompression only.
//!
//! The input is a sequence of groups: a control byte, then eight items, the lowest bit first. A clear bit is a literal
//! byte; a set bit is a tag of two or three bytes: length minus 3 in the low four bits of the first byte (15: the third
//! byte is added), and an offset of 12 bits back from the end of the output.

/// Decompresses into all of `out`. Returns whether the input gives exactly that many bytes.
pub(crate) fn decompress(mut input: &[u8], out: &mut [u8]) -> bool {
    let mut at = 0;
    let next = |input: &mut &[u8]| -> Option<usize> {
        let (first, rest) = input.split_first()?;
        *input = rest;
        Some(usize::from(*first))
    };
    while at < out.len() {
        let Some(control) = next(&mut input) else { return false };
        for bit in 0..8 {
            if at == out.len() {
                break;
            }
            if control >> bit & 1 == 0 {
                let Some(literal) = next(&mut input) else { return false };
                out[at] = literal as u8;
                at += 1;
                continue;
            }
            let (Some(first), Some(second)) = (next(&mut input), next(&mut input)) else { return false };
            let (mut len, offset) = ((first & 0x0f) + 3, (first & 0xf0) << 4 | second);
            if len == 18 {
                let Some(more) = next(&mut input) else { return false };
                len += more;
            }
            if offset == 0 || offset > at || len > out.len() - at {
                return false;
            }
            // The source may reach into what is being written.
            for _ in 0..len {
                out[at] = out[at - offset];
                at += 1;
            }
        }
    }
    input.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(input: &[u8], len: usize) -> Option<Vec<u8>> {
        let mut out = vec![0; len];
        decompress(input, &mut out).then_some(out)
    }

    #[test]
    fn literals_and_matches_are_copied() {
        assert_eq!(all(&[0, b'a', b'b', b'c'], 3).unwrap(), b"abc");
        // One literal, then a match that repeats it 6 times.
        assert_eq!(all(&[0b10, b'x', 3, 1], 7).unwrap(), b"xxxxxxx");
        // A long one: 18 and 10 more.
        assert_eq!(all(&[0b10, b'x', 15, 1, 10], 29).unwrap(), [b'x'; 29]);
    }

    #[test]
    fn what_is_cut_or_points_outside_is_refused() {
        for (input, len) in [
            (&[][..], 1),
            (&[0], 1),
            (&[1, 0, 1], 3),
            (&[0b10, b'x', 3, 2], 7),
            (&[0b10, b'x', 3, 0], 7),
            (&[0b10, b'x', 3, 1], 6),
            (&[0b10, b'x', 15, 1], 20),
            (&[0, b'a', b'b'], 1),
        ] {
            assert_eq!(all(input, len), None, "{input:?}");
        }
    }
}

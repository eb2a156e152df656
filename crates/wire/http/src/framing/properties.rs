//! Properties of the framing.

use super::Limits;
use super::fuzz::{Said, Seen, fuzz_framing, listen};
use proptest::prelude::*;

const LIMITS: Limits = Limits { head: 4096, body: 64 * 1024 };

/// A request and its bytes.
#[derive(Clone, Debug)]
struct Made {
    bytes: Vec<u8>,
    path: String,
    body: Vec<u8>,
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(Vec::new()),
        prop::collection::vec(any::<u8>(), 0..40),
        prop::collection::vec(any::<u8>(), 0..3000)
    ]
}

/// The body in chunks of these sizes, with optional parts of the grammar around them.
fn in_chunks(body: &[u8], sizes: &[usize], decorated: bool) -> Vec<u8> {
    let (mut out, mut rest, mut sizes) = (Vec::new(), body, sizes.iter().cycle());
    // Many small chunks with an extension each would pass the bound on these.
    let mut extensions = LIMITS.head / 16;
    while !rest.is_empty() {
        let (chunk, more) = rest.split_at((*sizes.next().unwrap_or(&1)).clamp(1, rest.len()));
        let extension = if decorated && chunk.len() % 3 == 0 && extensions > 0 { ";n=\"v\"" } else { "" };
        extensions -= usize::from(!extension.is_empty());
        out.extend_from_slice(format!("{:X}{extension}\r\n", chunk.len()).as_bytes());
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
        rest = more;
    }
    out.extend_from_slice(if decorated { b"000\r\nX-Sum: 1\r\n\r\n" } else { b"0\r\n\r\n" });
    out
}

fn made() -> impl Strategy<Value = Made> {
    let sizes = prop::collection::vec(1_usize..200, 1..5);
    (("[a-z0-9/%]{0,20}", body()), prop::option::of(sizes), any::<bool>()).prop_map(
        |((path, body), sizes, decorated)| {
            let path = format!("/{path}");
            let mut bytes = if decorated { b"\r\n".to_vec() } else { Vec::new() };
            bytes.extend_from_slice(format!("POST {path} HTTP/1.1\r\nhost: h\r\nX-A: \t b \r\n").as_bytes());
            match sizes {
                Some(sizes) => {
                    bytes.extend_from_slice(b"transfer-encoding: chunked\r\n\r\n");
                    bytes.extend_from_slice(&in_chunks(&body, &sizes, decorated));
                }
                None => {
                    bytes.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
                    bytes.extend_from_slice(&body);
                }
            }
            Made { bytes, path, body }
        },
    )
}

fn pieces(bytes: &[u8], cuts: &[prop::sample::Index]) -> Said {
    let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    listen(cuts.windows(2).map(|w| &bytes[w[0]..w[1]]), LIMITS)
}

fn asked(requests: &[Seen]) -> Vec<(&str, &[u8])> {
    requests.iter().map(|r| (r.path.as_str(), r.body.as_slice())).collect()
}

proptest! {
    #[test]
    fn requests_come_out_as_they_went_in_however_they_are_split(
        made in prop::collection::vec(made(), 1..6),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let bytes: Vec<u8> = made.iter().flat_map(|m| m.bytes.clone()).collect();
        let said = pieces(&bytes, &cuts);
        prop_assert_eq!(said.refusal, None);
        let expected: Vec<_> = made.iter().map(|m| (m.path.as_str(), m.body.as_slice())).collect();
        prop_assert_eq!(asked(&said.requests), expected);
    }

    #[test]
    fn a_byte_at_a_time_is_as_good_as_one_piece(made in prop::collection::vec(made(), 1..4)) {
        let bytes: Vec<u8> = made.iter().flat_map(|m| m.bytes.clone()).collect();
        prop_assert_eq!(listen(bytes.chunks(1), LIMITS), listen([bytes.as_slice()], LIMITS));
    }

    #[test]
    fn mutated_requests_never_panic_and_do_not_depend_on_the_split(
        made in prop::collection::vec(made(), 1..4),
        edits in prop::collection::vec((any::<prop::sample::Index>(), prop_oneof![
            any::<u8>(),
            prop::sample::select(b"\r\n\0 :;,0123456789abcdef".to_vec()),
        ], 0..3_u8), 1..6),
        seed in any::<[u8; 4]>(),
    ) {
        let mut bytes = seed.to_vec();
        bytes.extend(made.iter().flat_map(|m| m.bytes.clone()));
        for (at, byte, kind) in edits {
            let at = 4 + at.index(bytes.len() - 4);
            match kind {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ if bytes.len() > 5 => { bytes.remove(at); }
                _ => {}
            }
        }
        fuzz_framing(&bytes);
    }

    #[test]
    fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        fuzz_framing(&bytes);
    }

    #[test]
    fn garbage_in_chunks_never_panics(garbage in "[0-9a-fA-F;: \r\nxG\0]{0,200}", seed in any::<[u8; 4]>()) {
        let mut bytes = seed.to_vec();
        bytes.extend_from_slice(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
        bytes.extend_from_slice(garbage.as_bytes());
        fuzz_framing(&bytes);
    }

    #[test]
    fn a_cut_request_waits_and_never_yields(made in made(), cut in any::<prop::sample::Index>()) {
        let cut = cut.index(made.bytes.len());
        let said = listen([&made.bytes[..cut]], LIMITS);
        prop_assert_eq!((said.requests.len(), said.refusal), (0, None));
    }

    #[test]
    fn whatever_follows_a_body_does_not_change_it(made in made(), tail in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut bytes = made.bytes.clone();
        bytes.extend_from_slice(&tail);
        let said = listen([bytes.as_slice()], LIMITS);
        prop_assert_eq!(said.requests.first().map(|r| r.body.as_slice()), Some(made.body.as_slice()));
    }
}

//! Large answers as gzip, for clients that accept it: compressed on threads of the pool, and only while one is idle.

use super::engine::Engine;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use thalweg_http::Fetch;

/// Smaller answers are sent as they are: a client gains little.
pub(super) const BYTES_MIN: usize = 8 << 10;

/// How many answers are compressed now.
#[derive(Default)]
pub(crate) struct Compressions(AtomicUsize);

struct Permit(Arc<Engine>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.compressions.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Engine {
    /// Compresses elsewhere; `None` if no thread is to spare: then the answer is to be sent as it is.
    pub(super) fn compress(self: &Arc<Self>, parts: &[Bytes]) -> Option<Fetch<Result<Bytes, String>>> {
        let at_once_max = (self.config.io_threads / 2).max(1);
        self.compressions.0.fetch_add(1, Ordering::Relaxed);
        let permit = Permit(Arc::clone(self));
        if self.compressions.0.load(Ordering::Relaxed) > at_once_max {
            return None;
        }
        let parts = parts.to_vec();
        let level = Compression::new(self.config.gzip_level.min(9));
        self.pool.run(move || {
            let _permit = permit;
            gzip(&parts, level).map_err(|error| error.to_string())
        })
    }
}

fn gzip(parts: &[Bytes], level: Compression) -> std::io::Result<Bytes> {
    let len: usize = parts.iter().map(Bytes::len).sum();
    let mut encoder = GzEncoder::new(Vec::with_capacity(len / 4), level);
    parts.iter().try_for_each(|part| encoder.write_all(part))?;
    Ok(encoder.finish()?.into())
}

/// Whether content of this type usually gets smaller.
pub(super) fn is_compressible(content_type: &str) -> bool {
    let media = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    media.starts_with("text/")
        || media.ends_with("+json")
        || media.ends_with("+xml")
        || matches!(
            media.strip_prefix("application/"),
            Some("json" | "xml" | "ndjson" | "x-ndjson" | "javascript" | "yaml" | "toml" | "sql")
        )
}

/// Whether `Accept-Encoding` prefers gzip to the plain content (RFC 9110, section 12.5.3).
pub(super) fn accepts_gzip(given: &[u8]) -> bool {
    let (mut gzip, mut any, mut identity) = (None, None, None);
    for item in given.split(|b| *b == b',') {
        let mut fields = item.split(|b| *b == b';').map(<[u8]>::trim_ascii);
        let coding = fields.next().unwrap_or_default();
        let weight = fields.find_map(|field| field.strip_prefix(b"q=").or_else(|| field.strip_prefix(b"Q=")));
        let weight = weight.map_or(1_000, permille);
        match coding {
            b"*" => any = Some(weight),
            _ if coding.eq_ignore_ascii_case(b"gzip") || coding.eq_ignore_ascii_case(b"x-gzip") => gzip = Some(weight),
            _ if coding.eq_ignore_ascii_case(b"identity") => identity = Some(weight),
            _ => {}
        }
    }
    let gzip = gzip.or(any).unwrap_or(0);
    gzip > 0 && gzip >= identity.unwrap_or(0)
}

/// A weight in thousandths; 0 for an invalid one.
fn permille(text: &[u8]) -> u32 {
    let weight: Option<f32> = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    weight.filter(|weight| (0.0..=1.0).contains(weight)).map_or(0, |weight| (weight * 1_000.0) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn weights_decide() {
        for yes in
            ["gzip", "GZIP", "br, gzip;q=0.5", "*", "gzip, deflate, br, zstd", "x-gzip", "gzip;q=1.0, identity;q=0.5"]
        {
            assert!(accepts_gzip(yes.as_bytes()), "{yes}");
        }
        for no in [
            "",
            "br",
            "gzip;q=0",
            "*, gzip;q=0",
            "gzip;q=0.000",
            "identity, gzip;q=0.5",
            "gzip;q=x",
            "gzip;q=2",
            "*;q=0",
        ] {
            assert!(!accepts_gzip(no.as_bytes()), "{no}");
        }
    }

    #[test]
    fn text_is_compressible() {
        for yes in
            ["text/plain", "application/json; charset=utf-8", "application/vnd.x+json", "image/svg+xml", "Text/HTML"]
        {
            assert!(is_compressible(yes), "{yes}");
        }
        for no in ["application/octet-stream", "image/png", "application/cbor", ""] {
            assert!(!is_compressible(no), "{no}");
        }
    }

    #[test]
    fn what_was_compressed_is_the_parts() {
        let parts = [Bytes::from_static(b"[1,"), Bytes::from(vec![b'2'; 100_000]), Bytes::from_static(b"]")];
        for level in 1..=9 {
            let small = gzip(&parts, Compression::new(level)).unwrap();
            assert!(small.len() < 1_000);
            let mut back = Vec::new();
            flate2::read::GzDecoder::new(&small[..]).read_to_end(&mut back).unwrap();
            assert_eq!(back, parts.concat());
        }
    }
}

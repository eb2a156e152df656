//! The request's header fields that concern us, found in one pass.

use super::gzip::accepts_gzip;
use crate::error::{Refusal, SEQ_BYTES_MAX};
use crate::format::offset::{OffsetParam, Position};
use crate::format::timestamp;
use crate::state::lifetime::Lifetime;
use crate::state::producers::{Claim, PRODUCER_ID_BYTES_MAX, PRODUCER_NUMBER_MAX};
use crate::state::retention::Retention;
use thalweg_base::Level;
use thalweg_http::Headers;

/// Header values as sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fields<'a> {
    pub(crate) content_type: Option<&'a [u8]>,
    pub(crate) if_match: Option<&'a [u8]>,
    pub(crate) if_none_match: Option<&'a [u8]>,
    last_event_id: Option<&'a [u8]>,
    pub(crate) host: Option<&'a [u8]>,
    pub(crate) forwarded_proto: Option<&'a [u8]>,
    closed: Option<&'a [u8]>,
    seq: Option<&'a [u8]>,
    ttl: Option<&'a [u8]>,
    expires_at: Option<&'a [u8]>,
    accept_encoding: Option<&'a [u8]>,
    retention_bytes: Option<&'a [u8]>,
    retention_seconds: Option<&'a [u8]>,
    durability: Option<&'a [u8]>,
    pub(crate) forked_from: Option<&'a [u8]>,
    fork_offset: Option<&'a [u8]>,
    fork_sub_offset: Option<&'a [u8]>,
    producer_id: Option<&'a [u8]>,
    producer_epoch: Option<&'a [u8]>,
    producer_seq: Option<&'a [u8]>,
}

impl<'a> Fields<'a> {
    /// Names are compared only where the length fits, so a header that is not ours costs next to nothing.
    pub(crate) fn find(headers: Headers<'a>) -> Result<Self, Refusal> {
        let mut f = Self::default();
        for &(name, value) in headers.0 {
            let is = |candidate: &str| name.eq_ignore_ascii_case(candidate);
            // A list, which may be spread over several fields: then the last one is enough.
            if name.len() == 15 && is("Accept-Encoding") {
                f.accept_encoding = Some(value);
                continue;
            }
            let (candidate, place) = match name.len() {
                4 if is("Host") => ("Host", &mut f.host),
                8 if is("If-Match") => ("If-Match", &mut f.if_match),
                10 if is("Stream-Seq") => ("Stream-Seq", &mut f.seq),
                10 if is("Stream-TTL") => ("Stream-TTL", &mut f.ttl),
                11 if is("Producer-Id") => ("Producer-Id", &mut f.producer_id),
                12 if is("Content-Type") => ("Content-Type", &mut f.content_type),
                12 if is("Producer-Seq") => ("Producer-Seq", &mut f.producer_seq),
                13 if is("Stream-Closed") => ("Stream-Closed", &mut f.closed),
                13 if is("If-None-Match") => ("If-None-Match", &mut f.if_none_match),
                13 if is("Last-Event-ID") => ("Last-Event-ID", &mut f.last_event_id),
                14 if is("Producer-Epoch") => ("Producer-Epoch", &mut f.producer_epoch),
                17 if is("Stream-Expires-At") => ("Stream-Expires-At", &mut f.expires_at),
                17 if is("X-Forwarded-Proto") => ("X-Forwarded-Proto", &mut f.forwarded_proto),
                18 if is("Stream-Forked-From") => ("Stream-Forked-From", &mut f.forked_from),
                18 if is("Stream-Fork-Offset") => ("Stream-Fork-Offset", &mut f.fork_offset),
                17 if is("Stream-Durability") => ("Stream-Durability", &mut f.durability),
                22 if is("Stream-Retention-Bytes") => ("Stream-Retention-Bytes", &mut f.retention_bytes),
                24 if is("Stream-Retention-Seconds") => ("Stream-Retention-Seconds", &mut f.retention_seconds),
                22 if is("Stream-Fork-Sub-Offset") => ("Stream-Fork-Sub-Offset", &mut f.fork_sub_offset),
                _ => continue,
            };
            if place.replace(value.trim_ascii()).is_some() {
                return Err(Refusal::RepeatedHeader(candidate));
            }
        }
        Ok(f)
    }

    /// Any other value than `true` is as good as none.
    #[must_use]
    pub(crate) fn closes(&self) -> bool {
        self.closed.is_some_and(|value| value.eq_ignore_ascii_case(b"true"))
    }

    /// The position at which an SSE reader resumes; an empty value means that it has received nothing.
    pub(crate) fn last_event_id(&self) -> Result<Option<Position>, Refusal> {
        match self.last_event_id {
            None | Some([]) => Ok(None),
            Some(text) => Position::parse(text).map(Some).ok_or(Refusal::LastEventId),
        }
    }

    pub(crate) fn accepts_gzip(&self) -> bool {
        self.accept_encoding.is_some_and(accepts_gzip)
    }

    pub(crate) fn seq(&self) -> Result<Option<&'a [u8]>, Refusal> {
        match self.seq {
            Some(seq) if seq.is_empty() || seq.len() > SEQ_BYTES_MAX => Err(Refusal::Seq),
            seq => Ok(seq),
        }
    }

    pub(crate) fn claim(&self) -> Result<Option<Claim<'a>>, Refusal> {
        let (id, epoch, seq) = match (self.producer_id, self.producer_epoch, self.producer_seq) {
            (None, None, None) => return Ok(None),
            (Some(id), Some(epoch), Some(seq)) => (id, epoch, seq),
            _ => return Err(Refusal::ProducerIncomplete),
        };
        if id.is_empty() || id.len() > PRODUCER_ID_BYTES_MAX {
            return Err(Refusal::ProducerId);
        }
        let epoch = number(epoch).ok_or(Refusal::ProducerNumber("Producer-Epoch"))?;
        let seq = number(seq).ok_or(Refusal::ProducerNumber("Producer-Seq"))?;
        Ok(Some(Claim { id, epoch, seq }))
    }

    pub(crate) fn lifetime(&self) -> Result<Option<Lifetime>, Refusal> {
        match (self.ttl, self.expires_at) {
            (Some(_), Some(_)) => Err(Refusal::TtlAndExpiresAt),
            (Some(ttl), None) => {
                let secs = exact_number(ttl).ok_or(Refusal::Ttl)?;
                Ok(Some(Lifetime::Idle { secs }))
            }
            (None, Some(at)) => Ok(Some(Lifetime::Until(timestamp::parse(at).ok_or(Refusal::ExpiresAt)?))),
            (None, None) => Ok(None),
        }
    }

    pub(crate) fn retention(&self) -> Result<Retention, Refusal> {
        let bound = |name, text: Option<&[u8]>| match text {
            None => Ok(None),
            Some(text) => exact_number(text).filter(|n| *n > 0).map(Some).ok_or(Refusal::Retention(name)),
        };
        Ok(Retention {
            bytes: bound("Stream-Retention-Bytes", self.retention_bytes)?,
            secs: bound("Stream-Retention-Seconds", self.retention_seconds)?,
        })
    }

    pub(crate) fn durability(&self) -> Result<Option<Level>, Refusal> {
        match self.durability {
            None => Ok(None),
            Some(word) => {
                let level = std::str::from_utf8(word).ok().and_then(|word| word.parse().ok());
                level.map(Some).ok_or(Refusal::Durability)
            }
        }
    }

    /// The fork offset, `None` for the source's tail, and the sub-offset past it.
    pub(crate) fn fork_place(&self) -> Result<(Option<OffsetParam>, u64), Refusal> {
        if self.forked_from.is_none() {
            return match (self.fork_offset, self.fork_sub_offset) {
                (None, None) => Ok((None, 0)),
                (Some(_), _) => Err(Refusal::ForkHeaderAlone("Stream-Fork-Offset")),
                (None, Some(_)) => Err(Refusal::ForkHeaderAlone("Stream-Fork-Sub-Offset")),
            };
        }
        let at = match self.fork_offset.map(OffsetParam::parse) {
            None | Some(Some(OffsetParam::Tail)) => None,
            Some(Some(given)) => Some(given),
            Some(None) => return Err(Refusal::ForkOffset),
        };
        let sub_offset = match self.fork_sub_offset {
            None => 0,
            Some(text) => exact_number(text).ok_or(Refusal::SubOffset)?,
        };
        if sub_offset > 0 && at.is_none() {
            return Err(Refusal::SubOffsetAlone);
        }
        Ok((at, sub_offset))
    }
}

/// Digits, up to 2^53 - 1.
fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |n, b| {
        let digit = b.is_ascii_digit().then(|| u64::from(b - b'0'))?;
        Some(n * 10 + digit).filter(|n| *n <= PRODUCER_NUMBER_MAX)
    })
}

/// A number without leading zeros.
fn exact_number(text: &[u8]) -> Option<u64> {
    number(text).filter(|_| text.len() == 1 || text[0] != b'0')
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_base::Millis;

    fn with<T>(headers: &[(&str, &str)], read: impl Fn(&Fields<'_>) -> T) -> T {
        let list: Vec<(&str, &[u8])> = headers.iter().map(|(n, v)| (*n, v.as_bytes())).collect();
        read(&Fields::find(Headers(&list)).unwrap())
    }

    #[test]
    fn names_are_found_in_any_case_and_values_trimmed() {
        let fields = [("STREAM-closed", " TRUE "), ("content-type", "a/b"), ("x-other", "1")];
        assert!(with(&fields, |f| f.closes() && f.content_type == Some(b"a/b")));
        for value in ["false", "yes", "1", ""] {
            assert!(!with(&[("Stream-Closed", value)], |f| f.closes()));
        }
    }

    #[test]
    fn a_header_of_ours_stands_once() {
        let twice: [(&str, &[u8]); 2] = [("Stream-Seq", b"1"), ("stream-seq", b"2")];
        assert_eq!(Fields::find(Headers(&twice)).err(), Some(Refusal::RepeatedHeader("Stream-Seq")));
    }

    #[test]
    fn ttl_has_one_spelling() {
        let ttl = |text| with(&[("Stream-TTL", text)], |f| f.lifetime());
        assert_eq!(ttl("60"), Ok(Some(Lifetime::Idle { secs: 60 })));
        assert_eq!(ttl("0"), Ok(Some(Lifetime::Idle { secs: 0 })));
        for text in ["+5", "05", "5.0", "5e0", "-1", "", "x", "9007199254740992", "99999999999999999999999"] {
            assert_eq!(ttl(text), Err(Refusal::Ttl), "{text}");
        }
    }

    #[test]
    fn expires_at_is_rfc_3339() {
        let at = |text| with(&[("Stream-Expires-At", text)], |f| f.lifetime());
        let expected = Ok(Some(Lifetime::Until(Millis(1_728_432_000_500))));
        assert_eq!(at("2024-10-09T00:00:00.500Z"), expected);
        assert_eq!(at("2024-10-09T02:00:00.5+02:00"), expected);
        assert_eq!(at("9999-12-31T23:59:59Z"), Ok(Some(Lifetime::Until(Millis(253_402_300_799_000)))), "the last one");
        assert_eq!(at("1969-12-31T23:59:59Z"), Ok(Some(Lifetime::Until(Millis(0)))));
        for text in [
            "not-a-timestamp",
            "2024-10-09",
            "2024-10-09T00:00:00",
            "2024-10-09 00:00:00Z",
            "2024-13-09T00:00:00Z",
            "2024-10-09T00:00:00Z[UTC]",
        ] {
            assert_eq!(at(text), Err(Refusal::ExpiresAt), "{text}");
        }
        let both = [("Stream-TTL", "1"), ("Stream-Expires-At", "2024-10-09T00:00:00Z")];
        assert_eq!(with(&both, |f| f.lifetime()), Err(Refusal::TtlAndExpiresAt));
    }

    #[test]
    fn retention_bounds_are_above_zero() {
        let retention = |text| with(&[("Stream-Retention-Bytes", text)], |f| f.retention());
        assert_eq!(retention("7"), Ok(Retention { bytes: Some(7), secs: None }));
        for text in ["0", "", "07", "-1", "1k", "9007199254740992"] {
            assert_eq!(retention(text), Err(Refusal::Retention("Stream-Retention-Bytes")), "{text}");
        }
    }

    #[test]
    fn durability_is_one_of_three_words() {
        let durability = |text| with(&[("Stream-Durability", text)], |f| f.durability());
        assert_eq!(durability("durable"), Ok(Some(Level::Durable)));
        assert_eq!(durability(" buffered "), Ok(Some(Level::Buffered)));
        assert_eq!(durability("replicated"), Ok(Some(Level::Replicated)));
        for text in ["", "Durable", "fast", "durable,buffered"] {
            assert_eq!(durability(text), Err(Refusal::Durability), "{text}");
        }
        assert_eq!(with(&[], |f| f.durability()), Ok(None));
    }

    #[test]
    fn producer_headers_come_together_and_in_digits() {
        let claim = |id: &str, epoch: &str, seq: &str| {
            let all = [("Producer-Id", id), ("Producer-Epoch", epoch), ("Producer-Seq", seq)];
            with(&all, |f| f.claim().map(|c| c.map(|c| (c.epoch, c.seq))))
        };
        assert_eq!(claim("p", "0", "9007199254740991"), Ok(Some((0, PRODUCER_NUMBER_MAX))));
        assert_eq!(claim("", "0", "0"), Err(Refusal::ProducerId));
        assert_eq!(claim(&"p".repeat(257), "0", "0"), Err(Refusal::ProducerId));
        assert_eq!(claim("p", "-1", "0"), Err(Refusal::ProducerNumber("Producer-Epoch")));
        assert_eq!(claim("p", "0", "9007199254740992"), Err(Refusal::ProducerNumber("Producer-Seq")));
        assert_eq!(with(&[("Producer-Id", "p")], |f| f.claim().err()), Some(Refusal::ProducerIncomplete));
    }

    #[test]
    fn fork_headers_need_each_other() {
        let place = |headers: &[(&str, &str)]| with(headers, |f| f.fork_place());
        const SOURCE: (&str, &str) = ("Stream-Forked-From", "/v1/stream/a");
        let zero = ("Stream-Fork-Offset", "0000000000000000_0000000000000000");
        assert_eq!(place(&[SOURCE]), Ok((None, 0)));
        assert_eq!(place(&[SOURCE, zero, ("Stream-Fork-Sub-Offset", "2")]), Ok((Some(OffsetParam::Start), 2)));
        assert_eq!(place(&[SOURCE, ("Stream-Fork-Sub-Offset", "0")]), Ok((None, 0)));
        assert_eq!(place(&[SOURCE, ("Stream-Fork-Sub-Offset", "2")]), Err(Refusal::SubOffsetAlone));
        assert_eq!(place(&[("Stream-Fork-Sub-Offset", "0")]), Err(Refusal::ForkHeaderAlone("Stream-Fork-Sub-Offset")));
        assert_eq!(place(&[zero]), Err(Refusal::ForkHeaderAlone("Stream-Fork-Offset")));
        assert_eq!(place(&[SOURCE, ("Stream-Fork-Offset", "x")]), Err(Refusal::ForkOffset));
        assert_eq!(place(&[SOURCE, zero, ("Stream-Fork-Sub-Offset", "05")]), Err(Refusal::SubOffset));
    }
}

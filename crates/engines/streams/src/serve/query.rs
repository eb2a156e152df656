//! The query of a read.

use crate::error::Refusal;
use crate::format::offset::OffsetParam;
use crate::state::cursor;
use std::borrow::Cow;

/// How a client waits for future content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Live {
    LongPoll,
    Sse,
}

/// Query parameters of a GET. Unknown parameters are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) offset: Option<OffsetParam>,
    pub(crate) live: Option<Live>,
    pub(crate) cursor: Option<u64>,
}

impl Query {
    pub(crate) fn parse(query: &str) -> Result<Self, Refusal> {
        let (mut offset, mut live, mut echoed) = (None, None, None);
        for pair in query.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "offset" => once("offset", &mut offset, value)?,
                "live" => once("live", &mut live, value)?,
                "cursor" => once("cursor", &mut echoed, value)?,
                _ => {}
            }
        }
        let offset = offset.map(|text| OffsetParam::parse(&decoded(text)).ok_or(Refusal::Offset)).transpose()?;
        let live = match live.map(decoded).as_deref() {
            None => None,
            Some(b"long-poll") => Some(Live::LongPoll),
            Some(b"sse") => Some(Live::Sse),
            Some(_) => return Err(Refusal::Live),
        };
        if live.is_some() && offset.is_none() {
            return Err(Refusal::OffsetRequired);
        }
        Ok(Self { offset, live, cursor: echoed.and_then(|text| cursor::parse(text.as_bytes())) })
    }
}

pub(super) fn once<'a>(name: &'static str, place: &mut Option<&'a str>, value: &'a str) -> Result<(), Refusal> {
    if place.replace(value).is_some() { Err(Refusal::RepeatedParameter(name)) } else { Ok(()) }
}

/// Percent-decoded; a stray `%` means itself.
pub(super) fn decoded(text: &str) -> Cow<'_, [u8]> {
    let bytes = text.as_bytes();
    if !bytes.contains(&b'%') {
        return Cow::Borrowed(bytes);
    }
    let digit = |at: usize| bytes.get(at).and_then(|b| char::from(*b).to_digit(16));
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(byte) = bytes.get(at) {
        match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high << 4 | low) as u8);
                at += 3;
            }
            _ => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_in_any_order_and_others_ignored() {
        let query = Query::parse("x=1&live=sse&cursor=12&y&offset=-1").unwrap();
        assert_eq!(query, Query { offset: Some(OffsetParam::Start), live: Some(Live::Sse), cursor: Some(12) });
        assert_eq!(Query::parse("offset=%2D1").unwrap().offset, Some(OffsetParam::Start));
        assert_eq!(Query::parse("cursor=x").unwrap(), Query::default());
    }

    #[test]
    fn ambiguous_or_unknown_values_are_refused() {
        assert_eq!(Query::parse("offset=-1&offset=-1"), Err(Refusal::RepeatedParameter("offset")));
        assert_eq!(Query::parse("live=sse&live=sse"), Err(Refusal::RepeatedParameter("live")));
        assert_eq!(Query::parse("offset="), Err(Refusal::Offset));
        assert_eq!(Query::parse("offset=0,1"), Err(Refusal::Offset));
        assert_eq!(Query::parse("offset=-1&live=ws"), Err(Refusal::Live));
        assert_eq!(Query::parse("live=long-poll"), Err(Refusal::OffsetRequired));
    }
}

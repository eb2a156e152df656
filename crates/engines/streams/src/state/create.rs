//! Compares an existing stream with a PUT request (protocol sections 4.2 and 5.1).

use super::lifetime::Lifetime;
use super::retention::Retention;
use super::{Fork, StreamState};
use crate::format::offset::OffsetParam;
use thalweg_base::{Level, Offset};

/// Configuration in a PUT, before its source is read.
#[derive(Clone, Copy, Debug)]
pub struct CreateRequest<'a> {
    /// `Content-Type`.
    pub content_type: Option<&'a [u8]>,
    /// `Stream-TTL` or `Stream-Expires-At`.
    pub lifetime: Option<Lifetime>,
    /// `Stream-Closed: true`.
    pub closed: bool,
    /// `Stream-Retention-…`.
    pub retention: Retention,
    /// `None` for the server's, or the source's.
    pub durability: Option<Level>,
    /// `Stream-Forked-From` and its offsets.
    pub fork: Option<ForkRequest<'a>>,
    /// Refuse if a stream of that name exists (`If-None-Match: *`).
    pub fresh: bool,
}

/// The origin of a fork in a PUT.
#[derive(Clone, Copy, Debug)]
pub struct ForkRequest<'a> {
    /// The source's name.
    pub source: &'a str,
    /// `None` for the source's tail.
    pub at: Option<OffsetParam>,
    /// `Stream-Fork-Sub-Offset`, 0 by default.
    pub sub_offset: u64,
}

/// The first difference between a stream and a PUT request.
#[must_use]
pub fn difference(state: &StreamState, requested: &CreateRequest<'_>) -> Option<&'static str> {
    let fork = state.fork.as_deref();
    match (fork, requested.fork) {
        (None, None) => {}
        (Some(fork), Some(requested)) if *fork.source == *requested.source => {
            if requested.at.is_some_and(|at| !is_at(fork, at)) {
                return Some("Stream-Fork-Offset");
            }
            if requested.sub_offset != fork.sub_offset {
                return Some("Stream-Fork-Sub-Offset");
            }
        }
        _ => return Some("Stream-Forked-From"),
    }
    let same_type = match requested.content_type {
        Some(given) => state.content_type.matches(given),
        None => fork.is_some() || state.content_type.matches(b"application/octet-stream"),
    };
    if !same_type {
        return Some("Content-Type");
    }
    let same_lifetime = match requested.lifetime {
        Some(lifetime) => lifetime == state.lifetime,
        None => state.lifetime == Lifetime::Unlimited || fork.is_some_and(|fork| fork.inherited_lifetime),
    };
    if !same_lifetime {
        return Some("Stream-TTL or Stream-Expires-At");
    }
    if requested.retention != state.retention {
        return Some("Stream-Retention-Bytes or Stream-Retention-Seconds");
    }
    let inherited = fork.is_some() && requested.durability.is_none();
    if requested.durability != state.durability && !inherited {
        return Some("Stream-Durability");
    }
    if requested.closed != state.closed.is_some() {
        return Some("Stream-Closed");
    }
    None
}

fn is_at(fork: &Fork, at: OffsetParam) -> bool {
    match at {
        OffsetParam::Start => fork.at.offset == Offset::ZERO,
        OffsetParam::At(at) => at == fork.at || (at.offset == Offset::ZERO && fork.at.offset == Offset::ZERO),
        OffsetParam::Tail => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::content_type::ContentType;
    use crate::format::offset::Position;
    use crate::state::Config;
    use thalweg_base::{Lsn, Millis};

    const SAME: CreateRequest<'static> = CreateRequest {
        content_type: Some(b"Text/Plain"),
        lifetime: None,
        closed: false,
        retention: Retention { bytes: None, secs: None },
        durability: None,
        fork: None,
        fresh: false,
    };

    fn stream(fork: Option<Fork>) -> StreamState {
        let content_type = ContentType::parse(b"text/plain").unwrap();
        let lifetime = if fork.is_some() { Lifetime::Idle { secs: 5 } } else { Lifetime::Unlimited };
        let fork = fork.map(Box::new);
        StreamState::new(
            Config {
                content_type,
                lifetime,
                created: Millis(0),
                closed: false,
                fork,
                retention: Retention::default(),
                durability: None,
                home: None,
            },
            Lsn(1),
        )
    }

    #[test]
    fn equal_configuration_is_the_same_stream() {
        assert_eq!(difference(&stream(None), &SAME), None);
        assert_eq!(difference(&stream(None), &CreateRequest { content_type: None, ..SAME }), Some("Content-Type"));
        assert_eq!(difference(&stream(None), &CreateRequest { closed: true, ..SAME }), Some("Stream-Closed"));
        let timed = CreateRequest { lifetime: Some(Lifetime::Idle { secs: 1 }), ..SAME };
        assert_eq!(difference(&stream(None), &timed), Some("Stream-TTL or Stream-Expires-At"));
        let bounded = CreateRequest { retention: Retention { bytes: Some(1), secs: None }, ..SAME };
        assert_eq!(difference(&stream(None), &bounded), Some("Stream-Retention-Bytes or Stream-Retention-Seconds"));
    }

    #[test]
    fn durability_is_compared_as_it_was_asked_for() {
        const BUFFERED: Option<Level> = Some(Level::Buffered);
        let source = Fork { source: "s".into(), at: Position::default(), sub_offset: 0, inherited_lifetime: true };
        let fork_request = Some(ForkRequest { source: "s", at: None, sub_offset: 0 });
        for (state, requested, fork, same) in [
            (BUFFERED, BUFFERED, false, true),
            (BUFFERED, None, false, false),
            (None, BUFFERED, false, false),
            (None, Some(Level::Durable), false, false),
            (BUFFERED, Some(Level::Durable), false, false),
            (BUFFERED, None, true, true),
            (BUFFERED, Some(Level::Durable), true, false),
        ] {
            let mut stream = stream(fork.then(|| source.clone()));
            stream.durability = state;
            let requested = CreateRequest { durability: requested, fork: fork_request.filter(|_| fork), ..SAME };
            assert_eq!(difference(&stream, &requested), (!same).then_some("Stream-Durability"));
        }
    }

    #[test]
    fn forks_compare_what_was_asked_for() {
        let at = Position { incarnation: 64, offset: Offset(7) };
        let state = stream(Some(Fork { source: "s".into(), at, sub_offset: 2, inherited_lifetime: true }));
        let requested = |source, at, sub_offset| CreateRequest {
            content_type: None,
            fork: Some(ForkRequest { source, at, sub_offset }),
            ..SAME
        };
        assert_eq!(difference(&state, &requested("s", Some(OffsetParam::At(at)), 2)), None);
        assert_eq!(difference(&state, &requested("s", None, 2)), None);
        assert_eq!(difference(&state, &requested("s", None, 3)), Some("Stream-Fork-Sub-Offset"));
        assert_eq!(difference(&state, &requested("s", Some(OffsetParam::Start), 2)), Some("Stream-Fork-Offset"));
        assert_eq!(difference(&state, &requested("t", None, 2)), Some("Stream-Forked-From"));
        assert_eq!(difference(&state, &SAME), Some("Stream-Forked-From"));
    }
}

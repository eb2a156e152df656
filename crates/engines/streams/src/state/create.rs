//! Whether a stream that exists is the one that a PUT asks for (protocol sections 4.2 and 5.1).

use super::lifetime::Lifetime;
use super::retention::Retention;
use super::{Fork, StreamState};
use crate::format::offset::Given;
use thalweg_base::{Durability, Offset};

/// What a PUT asks for, before its source is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    pub content_type: Option<&'a [u8]>,
    pub lifetime: Option<Lifetime>,
    pub closed: bool,
    pub retention: Retention,
    /// `None` for the server's, or the source's.
    pub durability: Option<Durability>,
    pub fork: Option<ForkWish<'a>>,
    /// Only if there is none of that name (`If-None-Match: *`).
    pub fresh: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct ForkWish<'a> {
    pub source: &'a str,
    /// `None` for the source's tail.
    pub at: Option<Given>,
    pub sub_offset: u64,
}

/// The first difference between a stream and what a PUT asks for.
#[must_use]
pub fn difference(state: &StreamState, wish: &Wish<'_>) -> Option<&'static str> {
    let fork = state.fork.as_deref();
    match (fork, wish.fork) {
        (None, None) => {}
        (Some(fork), Some(wish)) if *fork.source == *wish.source => {
            if wish.at.is_some_and(|at| !is_at(fork, at)) {
                return Some("Stream-Fork-Offset");
            }
            if wish.sub_offset != fork.sub_offset {
                return Some("Stream-Fork-Sub-Offset");
            }
        }
        _ => return Some("Stream-Forked-From"),
    }
    let same_type = match wish.content_type {
        Some(given) => state.content_type.matches(given),
        None => fork.is_some() || state.content_type.matches(b"application/octet-stream"),
    };
    if !same_type {
        return Some("Content-Type");
    }
    let same_lifetime = match wish.lifetime {
        Some(lifetime) => lifetime == state.lifetime,
        None => state.lifetime == Lifetime::Unlimited || fork.is_some_and(|fork| fork.inherited_lifetime),
    };
    if !same_lifetime {
        return Some("Stream-TTL or Stream-Expires-At");
    }
    if wish.retention != state.retention {
        return Some("Stream-Retention-Bytes or Stream-Retention-Seconds");
    }
    let inherited = fork.is_some() && wish.durability.is_none();
    if wish.durability != state.durability && !inherited {
        return Some("Stream-Durability");
    }
    if wish.closed != state.closed.is_some() {
        return Some("Stream-Closed");
    }
    None
}

fn is_at(fork: &Fork, at: Given) -> bool {
    match at {
        Given::Start => fork.at.offset == Offset::ZERO,
        Given::At(at) => at == fork.at || (at.offset == Offset::ZERO && fork.at.offset == Offset::ZERO),
        Given::Tail => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::content_type::ContentType;
    use crate::format::offset::Position;
    use crate::state::Config;
    use thalweg_base::{Lsn, Millis};

    const SAME: Wish<'static> = Wish {
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
            },
            Lsn(1),
        )
    }

    #[test]
    fn equal_configuration_is_the_same_stream() {
        assert_eq!(difference(&stream(None), &SAME), None);
        assert_eq!(difference(&stream(None), &Wish { content_type: None, ..SAME }), Some("Content-Type"));
        assert_eq!(difference(&stream(None), &Wish { closed: true, ..SAME }), Some("Stream-Closed"));
        let timed = Wish { lifetime: Some(Lifetime::Idle { secs: 1 }), ..SAME };
        assert_eq!(difference(&stream(None), &timed), Some("Stream-TTL or Stream-Expires-At"));
        let bounded = Wish { retention: Retention { bytes: Some(1), secs: None }, ..SAME };
        assert_eq!(difference(&stream(None), &bounded), Some("Stream-Retention-Bytes or Stream-Retention-Seconds"));
    }

    #[test]
    fn durability_is_compared_as_it_was_asked_for() {
        const BUFFERED: Option<Durability> = Some(Durability::Buffered);
        let source = Fork { source: "s".into(), at: Position::default(), sub_offset: 0, inherited_lifetime: true };
        let fork_wish = Some(ForkWish { source: "s", at: None, sub_offset: 0 });
        for (state, wish, fork, same) in [
            (BUFFERED, BUFFERED, false, true),
            (BUFFERED, None, false, false),
            (None, BUFFERED, false, false),
            (None, Some(Durability::Durable), false, false),
            (BUFFERED, Some(Durability::Durable), false, false),
            (BUFFERED, None, true, true),
            (BUFFERED, Some(Durability::Durable), true, false),
        ] {
            let mut stream = stream(fork.then(|| source.clone()));
            stream.durability = state;
            let wish = Wish { durability: wish, fork: fork_wish.filter(|_| fork), ..SAME };
            assert_eq!(difference(&stream, &wish), (!same).then_some("Stream-Durability"));
        }
    }

    #[test]
    fn forks_compare_what_was_asked_for() {
        let at = Position { incarnation: 64, offset: Offset(7) };
        let state = stream(Some(Fork { source: "s".into(), at, sub_offset: 2, inherited_lifetime: true }));
        let wish = |source, at, sub_offset| Wish {
            content_type: None,
            fork: Some(ForkWish { source, at, sub_offset }),
            ..SAME
        };
        assert_eq!(difference(&state, &wish("s", Some(Given::At(at)), 2)), None);
        assert_eq!(difference(&state, &wish("s", None, 2)), None);
        assert_eq!(difference(&state, &wish("s", None, 3)), Some("Stream-Fork-Sub-Offset"));
        assert_eq!(difference(&state, &wish("s", Some(Given::Start), 2)), Some("Stream-Fork-Offset"));
        assert_eq!(difference(&state, &wish("t", None, 2)), Some("Stream-Forked-From"));
        assert_eq!(difference(&state, &SAME), Some("Stream-Forked-From"));
    }
}

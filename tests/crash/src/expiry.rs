//! A worker with streams that expire: alive while they are used, gone soon after that, and never back once they are
//! gone.

use crate::http::Request;
use crate::session::{Down, Session};
use crate::world::World;
use std::time::{Duration, Instant};

/// Renewal may be noted late; nothing is claimed this close to the end of a stream's life.
const MARGIN: Duration = Duration::from_millis(1500);
/// How much longer a stream may live that was used shortly before a crash: the slack of short lives.
const SLACK: Duration = Duration::from_secs(1);

struct Mortal {
    path: String,
    life: Duration,
    /// When the last renewing request that was answered was sent.
    renewed: Instant,
    /// When the last renewing request was over, answered or not.
    used: Instant,
    /// Answered 404 once.
    gone: bool,
    /// Used again and again, as long as it lives.
    kept: bool,
}

pub(crate) fn work(world: &World, seed: u64) {
    let mut session = Session::new(world, "ttl");
    let mut rng = oorandom::Rand64::new(u128::from(seed) + 4242);
    let mut streams: Vec<Mortal> = Vec::new();
    let mut names = 0;
    while !world.over() {
        let outcome = step(&mut session, &mut streams, &mut names, &mut rng);
        if outcome.is_err() && !session.revive() {
            return;
        }
        std::thread::sleep(Duration::from_millis(15));
    }
}

fn step(
    session: &mut Session<'_>,
    streams: &mut Vec<Mortal>,
    names: &mut u64,
    rng: &mut oorandom::Rand64,
) -> Result<(), Down> {
    if streams.iter().filter(|stream| !stream.gone).count() < 10 {
        *names += 1;
        let seconds = rng.rand_range(3..8);
        let stream = Mortal {
            path: format!("/v1/stream/crash/ttl/{names}"),
            life: Duration::from_secs(seconds),
            renewed: Instant::now(),
            used: Instant::now(),
            gone: false,
            kept: rng.rand_float() < 0.5,
        };
        let headers = [("content-type", "text/plain"), ("stream-ttl", &seconds.to_string())];
        // A create in doubt is forgotten: its name is not used again.
        if session.call(&Request::new("PUT", &stream.path, &headers, b"mortal"))?.status == 201 {
            streams.push(Mortal { used: Instant::now(), ..stream });
        }
    }
    if streams.len() > 120 {
        streams.remove(0);
    }
    let which = usize::try_from(rng.rand_range(0..streams.len().max(1) as u64)).unwrap_or(0);
    let Some(stream) = streams.get_mut(which) else { return Ok(()) };
    // Left to itself at some time, or all that live would be those that are used for ever.
    stream.kept &= rng.rand_float() > 0.02;
    let renews = stream.kept && !stream.gone;
    let request = match (renews, rng.rand_float() < 0.5) {
        (true, true) => Request::new("POST", &stream.path, &[("content-type", "text/plain")], b"again"),
        (true, false) => Request::get(&format!("{}?offset=-1", stream.path)),
        // Asking for the head does not renew.
        (false, _) => Request::new("HEAD", &stream.path, &[], &[]),
    };
    let sent = Instant::now();
    let answer = session.call(&request);
    let idle = sent.duration_since(stream.used);
    if renews {
        stream.used = Instant::now();
    }
    let answer = answer?;
    let world = session.world;
    let age = stream.renewed.elapsed();
    match answer.status {
        200 | 204 if stream.gone => {
            world.violation(format!("{}: the stream had expired, but is there again", stream.path))
        }
        200 | 204 if idle > stream.life + SLACK + MARGIN => {
            world.violation(format!(
                "{}: alive {idle:?} after its last use, with a life of {:?}",
                stream.path, stream.life
            ));
        }
        200 | 204 => {
            if renews {
                stream.renewed = sent;
            }
            world.report.count("unexpired streams alive");
        }
        404 | 410 if !stream.gone && age + MARGIN < stream.life => {
            if !world.tolerates("expiry") {
                world.violation(format!(
                    "{}: gone {age:?} after it was used, with a life of {:?}",
                    stream.path, stream.life
                ));
            }
            stream.gone = true;
        }
        404 | 410 => {
            world.report.count(if stream.gone { "expired streams still gone" } else { "streams expired" });
            stream.gone = true;
        }
        429 | 503 | 507 => {}
        status => world.violation(format!("{}: {status}", request.line)),
    }
    Ok(())
}

//! When the server is killed, stopped and started.

use crate::Options;
use crate::damage;
use crate::server::Made;
use crate::world::{Sabotage, World};
use std::time::{Duration, Instant};

pub(crate) struct Chaos {
    rng: oorandom::Rand64,
    /// The longest time that a start took.
    pub(crate) slowest: Duration,
}

impl Chaos {
    pub(crate) fn new(seed: u64) -> Self {
        Self { rng: oorandom::Rand64::new(u128::from(seed) + 77), slowest: Duration::ZERO }
    }

    pub(crate) fn run(&mut self, world: &World, options: &Options) {
        for _ in 0..options.kills {
            // Mostly short lives: a young server's code paths meet a crash most often.
            let calm = if self.rng.rand_float() < 0.3 { options.calm_ms / 8 } else { options.calm_ms };
            let mut left = self.rng.rand_range(50..calm.max(51));
            while left > 0 && world.report.clean() {
                let step = left.min(100);
                std::thread::sleep(Duration::from_millis(step));
                left -= step;
            }
            if !world.report.clean() {
                return;
            }
            if self.rng.rand_float() < 0.1 {
                match world.server.terminate() {
                    Ok(()) => world.report.count("graceful stops"),
                    Err(error) => {
                        world.violation(format!("graceful stop: {error:#}"));
                        return;
                    }
                }
            } else {
                world.server.kill();
                world.report.count("kills");
            }
            if world.sabotage(Sabotage::Disk) {
                world.server.spoil_disk();
            }
            let damages = !world.server.spec.is_peer() && self.rng.rand_float() < 0.15;
            if damages && let Err(error) = self.damage(world) {
                world.violation(format!("{error:#}"));
                return;
            }
            while self.rng.rand_float() < 0.25 {
                let after = Duration::from_micros(self.rng.rand_range(500..80_000));
                if let Err(error) = world.server.start_and_kill(after) {
                    world.violation(format!("start during recovery: {error:#}"));
                    return;
                }
                world.report.count("kills");
                world.report.count("kills during recovery");
            }
            let began = Instant::now();
            if let Err(error) = world.server.start() {
                world.violation(format!("the server does not start again: {error:#}"));
                return;
            }
            self.slowest = self.slowest.max(began.elapsed());
            world.report.count("restarts");
        }
    }

    /// The newest segment is removed, emptied, or a bit of its end flips. A server must refuse that, or say that it has
    /// discarded something; if it does neither, nothing may be missing. Earlier content comes back unless that is so.
    fn damage(&mut self, world: &World) -> anyhow::Result<()> {
        let data = world.server.data();
        let Some(newest) = damage::newest_segment(&data)? else { return Ok(()) };
        let copy = data.with_extension("whole");
        damage::copy(&data, &copy)?;
        let done = damage::damage(&newest, &mut self.rng)?;
        let made = world.server.try_damaged()?;
        println!("damage: {done}: {}", made.in_words());
        world.report.count(match &made {
            Made::Refused(said) if said.contains("journal") && said.contains("damaged") => "damage refused",
            Made::Refused(said) => anyhow::bail!("{done}: it does not start, and does not say that: {said}"),
            Made::Said => "damage said",
            Made::Nothing => "damage without effect",
        });
        if made == Made::Nothing {
            std::fs::remove_dir_all(&copy)?;
        } else {
            std::fs::remove_dir_all(&data)?;
            std::fs::rename(&copy, &data)?;
        }
        Ok(())
    }
}

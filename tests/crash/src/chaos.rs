//! When the server is killed, stopped and started.

use crate::Options;
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
            // Mostly short lives: what is young is where most code paths meet a crash.
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
}

//! A worker with streams of its own: it alone changes them, so it knows what each must hold.

mod change;
mod check;
mod conditional;
mod list;
mod produce;

pub(crate) use produce::produced;

use crate::backup::Snapshot;
use crate::model::{Model, Truth};
use crate::session::{Down, Session};
use crate::world::World;

const LIVE_MAX: usize = 12;
const SIZE_MAX: usize = 3 << 20;

pub(crate) fn work(world: &World, number: u32, seed: u64) {
    let rng = oorandom::Rand64::new(u128::from(seed) * 1000 + u128::from(number));
    let mut owner = Owner {
        session: Session::new(world, &format!("w{number}")),
        number,
        rng,
        names: 0,
        streams: Vec::new(),
        dead: Vec::new(),
        buried: Vec::new(),
        gone: Vec::new(),
        answered: 0,
    };
    loop {
        let step = if world.over() { owner.last_check() } else { owner.step() };
        match step {
            Ok(()) if world.over() => return,
            Ok(()) => {}
            Err(Down) => loop {
                if !owner.session.revive() {
                    return;
                }
                if owner.after_restart().is_ok() {
                    break;
                }
            },
        }
    }
}

struct Owner<'a> {
    session: Session<'a>,
    number: u32,
    rng: oorandom::Rand64,
    names: u64,
    streams: Vec<Model>,
    /// Deleted, and free to be created again.
    dead: Vec<Model>,
    /// Deleted, with forks that may keep the name taken.
    buried: Vec<String>,
    /// Deleted since the last snapshot.
    gone: Vec<String>,
    /// The last question for a snapshot that was answered.
    answered: u64,
}

impl Owner<'_> {
    fn world(&self) -> &World {
        self.session.world
    }

    fn count(&self, what: &'static str) {
        self.world().report.count(what);
    }

    fn violation(&self, what: String) {
        self.world().violation(what);
    }

    fn pick(&mut self, n: usize) -> usize {
        usize::try_from(self.rng.rand_range(0..n.max(1) as u64)).unwrap_or(0)
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.rng.rand_range(0..100) < percent
    }

    fn step(&mut self) -> Result<(), Down> {
        let asked = self.world().snapshots.asked();
        if asked != self.answered {
            self.answered = asked;
            let snapshot = Snapshot { streams: self.streams.clone(), gone: std::mem::take(&mut self.gone) };
            self.world().snapshots.give(self.number, asked, snapshot);
        }
        if self.streams.len() < 3 {
            return self.create();
        }
        let which = self.pick(self.streams.len());
        let open = self.streams[which].closed == Truth::No;
        if self.world().is_spoiled() {
            return self.check(which);
        }
        if self.streams[which].size() > SIZE_MAX {
            return self.delete(which);
        }
        match self.rng.rand_range(0..100) {
            0..8 if self.streams.len() < LIVE_MAX => self.create(),
            0..38 if open => self.append(which),
            38..45 if open => self.append_conditionally(which),
            0..70 if open => self.produce(which),
            70..74 if open => self.close(which),
            74..80 if self.streams.len() < LIVE_MAX => self.fork(which),
            80..84 if self.streams.len() > 4 => self.delete(which),
            84..88 if !self.dead.is_empty() => self.recreate(),
            88..92 => self.read_from_the_middle(which),
            92..94 if !open => self.append_to_closed(which),
            94..97 if open => self.retry(which),
            97..98 => self.check(which),
            98..99 => self.check_list(),
            _ => {
                std::thread::sleep(std::time::Duration::from_millis(2));
                Ok(())
            }
        }
    }
}

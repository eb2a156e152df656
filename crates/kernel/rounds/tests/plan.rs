//! The promises of the plan, with a clock that the tests move. `SEED=n` replays one schedule, `SEEDS=n` says how many
//! are run.
#![allow(clippy::unwrap_used, reason = "a test that fails should say where")]

use oorandom::Rand32;
use std::collections::BTreeMap;
use std::time::Duration;
use thalweg_rounds::{Behind, Done, JobId, Kind, Next, Options, Pick, Plan, THREADS_MIN, WEIGHT_MAX};

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn plan(threads: usize) -> Plan {
    Plan::new(Options { threads, ..Options::default() })
}

fn behind(next: Next, percent: u64) -> Option<Done> {
    Some(Done { behind: Behind::of(percent, 100), ..Done::then(next) })
}

/// Takes the first turn of a job, which finds nothing.
fn rest(plan: &mut Plan, job: JobId, now: Duration) {
    assert_eq!(plan.next(now), Pick::Run(job));
    plan.done(job, Some(Done::IDLE), now);
}

#[test]
fn a_job_without_work_wants_no_turn_and_no_time() {
    let mut plan = plan(4);
    for n in 0..1000 {
        let job = plan.add(Kind::ALL[n % 4], ms(0));
        rest(&mut plan, job, ms(0));
    }
    assert_eq!(plan.next(ms(1)), Pick::Wait(None));
    assert_eq!(plan.next(ms(1_000_000)), Pick::Wait(None));
    assert!(!plan.has_more());
}

#[test]
fn a_job_has_a_turn_when_it_is_nudged_or_its_time_has_come() {
    let mut plan = plan(4);
    let job = plan.add(Kind::Settle, ms(0));
    rest(&mut plan, job, ms(0));
    plan.nudge(job, None, ms(5));
    assert_eq!(plan.next(ms(5)), Pick::Run(job));
    // It is nudged in its turn: what happened then may have come too late for it.
    plan.nudge(job, None, ms(6));
    assert_eq!(plan.next(ms(6)), Pick::Wait(None), "turns of one job never overlap");
    plan.done(job, Some(Done::IDLE), ms(7));
    assert_eq!(plan.next(ms(7)), Pick::Run(job));
    plan.done(job, Some(Done::then(Next::In(ms(100)))), ms(10));
    assert_eq!(plan.next(ms(11)), Pick::Wait(Some(ms(110))));
    assert_eq!(plan.next(ms(110)), Pick::Run(job));
    plan.done(job, Some(Done::then(Next::In(ms(100)))), ms(120));
    plan.nudge(job, None, ms(130));
    assert_eq!(plan.next(ms(130)), Pick::Run(job), "its time is not waited for");
    plan.done(job, Some(Done::IDLE), ms(140));
    assert_eq!(plan.next(ms(500)), Pick::Wait(None), "nor does it come once more");
}

#[test]
fn settling_does_not_wait_for_merges_and_the_scrub_nor_segments_for_both() {
    for threads in THREADS_MIN..8 {
        let mut plan = plan(threads);
        let of = |plan: &mut Plan, kind| (0..20).map(|_| plan.add(kind, ms(0))).collect::<Vec<_>>();
        let long = [of(&mut plan, Kind::Merge), of(&mut plan, Kind::Scrub)].concat();
        let begun = |plan: &mut Plan| {
            let picks = std::iter::from_fn(|| match plan.next(ms(1)) {
                Pick::Run(job) => Some(job),
                Pick::Wait(_) => None,
            });
            picks.collect::<Vec<_>>()
        };
        let first = begun(&mut plan);
        assert_eq!(first.len(), threads - 2, "one is left to settling, one to segments");
        assert!(first.iter().all(|job| long.contains(job)));
        let settle = of(&mut plan, Kind::Settle);
        let second = begun(&mut plan);
        assert_eq!(second.len(), 1);
        assert!(settle.contains(&second[0]));
        let segments = of(&mut plan, Kind::Segments);
        let third = begun(&mut plan);
        assert_eq!(third.len(), 1);
        assert!(segments.contains(&third[0]));
        // When any turn ends, its class has a thread again, and long work is not starved either.
        plan.done(second[0], Some(Done::then(Next::Now)), ms(2));
        let next = begun(&mut plan);
        assert!(next.len() == 1 && settle.contains(&next[0]));
        for job in first {
            plan.done(job, Some(Done::then(Next::Now)), ms(3));
        }
        let next = begun(&mut plan);
        assert_eq!(next.len(), threads - 2);
        assert!(next.iter().any(|job| long.contains(job)), "work that is always due leaves long work a thread");
    }
}

#[test]
fn long_work_keeps_to_its_budget_and_settling_does_not_wait_for_it() {
    let mut plan = Plan::new(Options { threads: 4, bytes_per_second: 1000 });
    let (merge, scrub) = (plan.add(Kind::Merge, ms(0)), plan.add(Kind::Scrub, ms(0)));
    let settle = plan.add(Kind::Settle, ms(0));
    rest(&mut plan, settle, ms(0));
    assert_eq!(plan.next(ms(0)), Pick::Run(merge));
    let wrote = |bytes, next| Some(Done { bytes, ..Done::then(next) });
    plan.done(merge, wrote(3000, Next::Now), ms(100));
    assert_eq!(plan.next(ms(100)), Pick::Wait(Some(ms(3000))), "3,000 bytes are paid for in three seconds");
    plan.nudge(settle, None, ms(200));
    assert_eq!(plan.next(ms(200)), Pick::Run(settle));
    plan.done(settle, wrote(1 << 40, Next::WhenNudged), ms(300));
    assert_eq!(plan.next(ms(2999)), Pick::Wait(Some(ms(3000))), "settling is not charged either");
    assert_eq!(plan.next(ms(3000)), Pick::Run(scrub), "it has waited longer");
    plan.done(scrub, wrote(1000, Next::WhenNudged), ms(3001));
    assert_eq!(plan.next(ms(3002)), Pick::Wait(Some(ms(4000))));
    // Half way to its bound, a merge does not wait.
    plan.nudge(merge, Some(Behind::of(50, 100)), ms(3003));
    assert_eq!(plan.next(ms(3003)), Pick::Run(merge));
}

#[test]
fn a_job_that_fails_rests_longer_each_time_and_holds_up_nobody() {
    let mut plan = plan(4);
    let (bad, good) = (plan.add(Kind::Merge, ms(0)), plan.add(Kind::Merge, ms(0)));
    rest(&mut plan, bad, ms(0));
    rest(&mut plan, good, ms(0));
    let mut now = ms(0);
    for rests in [1, 2, 4, 8, 16, 30, 30] {
        plan.nudge(bad, None, now);
        assert_eq!(plan.next(now), Pick::Run(bad));
        plan.done(bad, None, now);
        plan.nudge(bad, Some(Behind::of(1, 1)), now);
        plan.nudge(good, None, now);
        assert_eq!(plan.next(now), Pick::Run(good), "nudges do not end the rest");
        plan.done(good, Some(Done::IDLE), now);
        assert_eq!(plan.next(now), Pick::Wait(Some(now + Duration::from_secs(rests))));
        now += Duration::from_secs(rests);
    }
    assert_eq!(plan.next(now), Pick::Run(bad));
    plan.done(bad, Some(Done::IDLE), now);
    plan.nudge(bad, None, now);
    assert_eq!(plan.next(now), Pick::Run(bad));
    plan.done(bad, None, now);
    assert_eq!(plan.next(now), Pick::Wait(Some(now + Duration::from_secs(1))), "a turn that works begins again");
    let stats = plan.stats()[Kind::Merge as usize];
    assert_eq!((stats.turns, stats.failed), (18, 8));
}

#[test]
fn settling_that_fails_is_tried_again_within_two_seconds_however_often_it_failed() {
    for (kind, longest) in [(Kind::Segments, 1), (Kind::Settle, 2)] {
        let mut plan = plan(4);
        let job = plan.add(kind, ms(0));
        let mut now = ms(0);
        for _ in 0..20 {
            assert_eq!(plan.next(now), Pick::Run(job));
            plan.done(job, None, now);
            let Pick::Wait(Some(again)) = plan.next(now) else { panic!("it is tried again") };
            assert!(again - now <= Duration::from_secs(longest), "{kind:?} rests until {again:?} from {now:?} on");
            now = again;
        }
    }
}

/// The rate that servers have, and more than a device holds that is read back at once.
const RATE: u64 = 128 << 20;
const MUCH: u64 = 1 << 40;

#[test]
fn relief_of_a_full_disk_waits_neither_for_the_budget_nor_for_long_merges_of_other_units() {
    let mut plan = Plan::new(Options { threads: 4, bytes_per_second: RATE });
    let relief = plan.add(Kind::Settle, ms(0));
    rest(&mut plan, relief, ms(0));
    let scrub = plan.add(Kind::Scrub, ms(0));
    assert_eq!(plan.next(ms(0)), Pick::Run(scrub));
    plan.done(scrub, Some(Done { bytes: MUCH, ..Done::IDLE }), ms(1));
    plan.nudge(relief, None, ms(2));
    assert_eq!(plan.next(ms(2)), Pick::Run(relief), "nothing is paid for yet");
    plan.done(relief, Some(Done { bytes: MUCH, ..Done::IDLE }), ms(3));
    let merges = [(); 2].map(|()| plan.add(Kind::Merge, ms(3)));
    merges.iter().for_each(|merge| plan.nudge(*merge, Some(Behind::of(1, 1)), ms(3)));
    for _ in merges {
        assert!(matches!(plan.next(ms(4)), Pick::Run(job) if merges.contains(&job)));
    }
    plan.nudge(relief, None, ms(5));
    assert_eq!(plan.next(ms(5)), Pick::Run(relief), "two merges run and do not end");
}

#[test]
fn a_check_that_is_asked_for_is_not_charged_and_no_debt_lasts_longer_than_five_seconds() {
    let mut plan = Plan::new(Options { threads: 4, bytes_per_second: RATE });
    let (merge, scrub) = (plan.add(Kind::Merge, ms(0)), plan.add(Kind::Scrub, ms(0)));
    rest(&mut plan, merge, ms(0));
    rest(&mut plan, scrub, ms(0));
    plan.nudge(scrub, Some(Behind::of(1, 1)), ms(1));
    assert_eq!(plan.next(ms(1)), Pick::Run(scrub));
    plan.done(scrub, Some(Done { bytes: MUCH, ..Done::IDLE }), ms(2));
    plan.nudge(merge, None, ms(3));
    assert_eq!(plan.next(ms(3)), Pick::Run(merge), "what was asked for delays nobody");
    plan.done(merge, Some(Done { bytes: MUCH, ..Done::then(Next::Now) }), ms(1000));
    assert_eq!(plan.next(ms(1000)), Pick::Wait(Some(ms(6000))));
    assert_eq!(plan.next(ms(6000)), Pick::Run(merge));
    assert_eq!(plan.stats()[Kind::Scrub as usize].bytes, MUCH, "metrics count it");
}

#[test]
fn a_job_that_is_taken_away_has_no_turn_any_more() {
    let mut plan = plan(4);
    let jobs: Vec<_> = (0..4).map(|_| plan.add(Kind::Settle, ms(0))).collect();
    assert_eq!(plan.next(ms(0)), Pick::Run(jobs[0]));
    assert!(!plan.remove(jobs[0]), "it is in its turn");
    assert_eq!(plan.next(ms(0)), Pick::Run(jobs[1]));
    plan.done(jobs[0], Some(Done::then(Next::Now)), ms(1));
    assert_ne!(plan.next(ms(1)), Pick::Run(jobs[0]), "it goes with the end of its turn");
    plan.done(jobs[2], Some(Done::then(Next::In(ms(9)))), ms(1));
    plan.done(jobs[1], Some(Done::then(Next::In(ms(5)))), ms(1));
    assert!(jobs.iter().all(|job| plan.remove(*job)));
    assert_eq!(plan.next(ms(100_000)), Pick::Wait(None));
    jobs.iter().for_each(|job| plan.nudge(*job, None, ms(100_000)));
    assert_eq!(plan.next(ms(100_000)), Pick::Wait(None));
}

/// Turns of one class on the threads that it has, of jobs that always have work, that now and then have some, and that
/// seldom do.
struct World {
    plan: Plan,
    random: Rand32,
    now: u64,
    /// Until when each turn lasts.
    running: Vec<(u64, JobId)>,
    jobs: Vec<JobId>,
    /// The first of them always have work, and are at their bound.
    hot: usize,
    due_since: BTreeMap<JobId, u64>,
    longest: u64,
}

const TURN_MS: u32 = 50;

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Rand32::new(seed);
        let mut plan = plan(3 + random.rand_range(0..3) as usize);
        let jobs: Vec<_> = (0..2 + random.rand_range(0..30)).map(|_| plan.add(Kind::Settle, ms(0))).collect();
        let hot = 1 + random.rand_range(0..jobs.len() as u32) as usize;
        let due_since = jobs.iter().map(|job| (*job, 0)).collect();
        Self { plan, random, now: 0, running: Vec::new(), jobs, hot, due_since, longest: 0 }
    }

    fn step(&mut self) {
        while let Pick::Run(job) = self.plan.next(ms(self.now)) {
            let since = self.due_since.remove(&job).unwrap();
            self.longest = self.longest.max(self.now - since);
            self.running.push((self.now + u64::from(1 + self.random.rand_range(0..TURN_MS)), job));
        }
        assert!(!self.running.is_empty() || self.due_since.is_empty(), "a thread is free, and a job waits");
        let at = (0..self.running.len()).min_by_key(|at| self.running[*at]);
        let Some((until, job)) = at.map(|at| self.running.swap_remove(at)) else { return };
        self.now = until;
        let is_hot = self.jobs.iter().position(|other| *other == job).unwrap() < self.hot;
        let percent = if is_hot { 100 } else { u64::from(self.random.rand_range(0..20)) };
        let next = if is_hot { Next::Now } else { Next::WhenNudged };
        self.plan.done(job, behind(next, percent), ms(self.now));
        if is_hot {
            self.due_since.insert(job, self.now);
        }
        let nudged = self.jobs[self.random.rand_range(0..self.jobs.len() as u32) as usize];
        let is_running = self.running.iter().any(|(_, job)| *job == nudged);
        if !is_running && !self.due_since.contains_key(&nudged) {
            self.plan.nudge(nudged, None, ms(self.now));
            self.due_since.insert(nudged, self.now);
        }
    }
}

#[test]
fn simulation_of_units_that_always_have_work_starves_none() {
    let mut worst = 0.0_f64;
    thalweg_sim::histories(40, "thalweg-rounds", |seed| {
        let mut world = World::new(seed);
        for _ in 0..3_000 {
            world.step();
        }
        let bound = 2 * (WEIGHT_MAX + 1) * world.jobs.len() as u64 * u64::from(TURN_MS);
        assert!(world.longest <= bound, "one waited {} ms of at most {bound}", world.longest);
        worst = worst.max(world.longest as f64 / bound as f64);
        let waiting = world.due_since.values().min().map_or(0, |since| world.now - since);
        assert!(waiting <= bound, "one waits since {waiting} ms");
    });
    println!("the longest wait is {:.0} % of the bound", worst * 100.0);
}

#[test]
fn what_is_further_behind_has_more_turns() {
    let mut plan = plan(THREADS_MIN);
    let percents = [0, 0, 0, 0, 0, 0, 0, 0, 100];
    let jobs = percents.map(|percent| (plan.add(Kind::Settle, ms(0)), percent));
    let mut turns = BTreeMap::<JobId, u64>::new();
    for n in 1..=1000 {
        let Pick::Run(job) = plan.next(ms(n * 10)) else { panic!("they always have work") };
        *turns.entry(job).or_default() += 1;
        let (_, percent) = jobs.iter().find(|(of, _)| *of == job).unwrap();
        plan.done(job, behind(Next::Now, *percent), ms(n * 10 + 9));
    }
    let [plain @ .., urgent] = jobs.map(|(job, _)| turns[&job]);
    assert!(plain.iter().all(|turns| urgent > 2 * turns && *turns > 50), "{plain:?}, {urgent}");
    assert!(plain.iter().max().unwrap() - plain.iter().min().unwrap() <= 1, "equals have equal shares: {plain:?}");
}

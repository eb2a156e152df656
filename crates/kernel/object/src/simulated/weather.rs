//! A simulated bucket on a clock: when requests and answers arrive, which of them get lost, and which processes are cut
//! off from the bucket.
//!
//! A request that takes longer than its sender waits is a *zombie*: it is done when it arrives, whoever has given it up,
//! died or been deposed meanwhile.

use super::{Reply, Request, SimulatedBucket, State, no_answer};
use object_store::{PutMode, Result};
use oorandom::Rand64;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// How requests fare. Percentages are of 100 requests.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// The time that requests take, from and to.
    pub latency: (Duration, Duration),
    /// So many take any time up to `late_max`, and so many answers do.
    pub late: u64,
    /// The longest time of those.
    pub late_max: Duration,
    /// So many are lost, or arrive when their sender has long given up.
    pub lost: u64,
    /// Of replacements on a condition so many more arrive only when their sender has given up this attempt.
    pub doubtful: u64,
    /// Of so many the answer is lost.
    pub unanswered: u64,
    /// So many writes are done a second time, later.
    pub repeated: u64,
    /// How long a sender waits for the answer to one attempt.
    pub patience: Duration,
}

type Answer = oneshot::Sender<Result<Reply>>;

/// What is on its way, and the rules for it.
pub(super) struct Sky {
    weather: Weather,
    clock: Box<dyn Fn() -> Duration + Send + Sync>,
    sent: u64,
    on_their_way: Vec<Flight>,
    /// Processes that are cut off from the bucket.
    cut: BTreeSet<usize>,
    /// Processes that get answers late, by up to so much.
    slow: BTreeMap<usize, Duration>,
    /// Called with the time at which something arrives.
    expect: Box<dyn Fn(Duration) + Send + Sync>,
}

struct Flight {
    due: Duration,
    /// Makes flights of one time differ.
    number: u64,
    sender: usize,
    what: What,
}

enum What {
    Request(Request, Option<Answer>),
    Answer(Result<Reply>, Answer),
}

fn up_to(random: &mut Rand64, time: Duration) -> Duration {
    Duration::from_micros(random.rand_range(0..1 + time.as_micros() as u64))
}

impl State {
    /// Sends a request. Returns how long its sender waits.
    pub(super) fn send_by(&mut self, sender: usize, request: Request, answer: Answer) -> Duration {
        let Some(weather) = self.weather.as_ref().map(|sky| sky.weather) else { return Duration::ZERO };
        if std::thread::panicking() {
            // A process that was killed sends nothing.
            return weather.patience;
        }
        let mut time = weather.latency.0 + up_to(&mut self.random, weather.latency.1 - weather.latency.0);
        if self.pick(100) < weather.late {
            time += up_to(&mut self.random, weather.late_max);
        }
        let is_cut = self.weather.as_ref().is_some_and(|sky| sky.cut.contains(&sender));
        let mut answer = Some(answer);
        let is_replacement = matches!(request, Request::Put { mode: PutMode::Update(_), .. });
        if weather.doubtful > 0 && is_replacement && self.pick(100) < weather.doubtful {
            answer = None;
            time += weather.patience + up_to(&mut self.random, 6 * weather.patience);
        } else if is_cut || self.pick(100) < weather.lost {
            // Nobody hears of it; half of them arrive much later.
            answer = None;
            if self.pick(2) == 0 {
                return weather.patience;
            }
            time += weather.patience + up_to(&mut self.random, 3 * weather.late_max);
        }
        self.fly(time, sender, What::Request(request, answer));
        weather.patience
    }

    fn fly(&mut self, time: Duration, sender: usize, what: What) {
        let Some(sky) = &mut self.weather else { return };
        let (due, number) = ((sky.clock)() + time, sky.sent);
        sky.sent += 1;
        sky.on_their_way.push(Flight { due, number, sender, what });
        (sky.expect)(due);
    }

    /// What arrives first, if it has arrived.
    fn arrived(&mut self) -> Option<Flight> {
        let sky = self.weather.as_mut()?;
        let now = (sky.clock)();
        let first = (0..sky.on_their_way.len())
            .min_by_key(|at| (sky.on_their_way[*at].due, sky.on_their_way[*at].number))
            .filter(|at| sky.on_their_way[*at].due <= now)?;
        Some(sky.on_their_way.swap_remove(first))
    }

    /// Does what has arrived. Returns the processes that have got answers.
    fn arrive(&mut self) -> BTreeSet<usize> {
        let mut answered = BTreeSet::new();
        while let Some(Flight { sender, what, .. }) = self.arrived() {
            let Some(sky) = &self.weather else { break };
            let (weather, is_cut) = (sky.weather, sky.cut.contains(&sender));
            let slow = sky.slow.get(&sender).copied();
            let (reply, answer) = match what {
                What::Answer(reply, answer) => (reply, answer),
                What::Request(request, answer) => {
                    let reply = self.perform(&request);
                    let is_write = !matches!(request, Request::Get { .. } | Request::List { .. });
                    let Some(answer) = answer else { continue };
                    if is_write && self.pick(100) < weather.repeated {
                        let time = up_to(&mut self.random, 2 * weather.late_max);
                        self.fly(time, sender, What::Request(request, None));
                    }
                    if self.pick(100) < weather.unanswered {
                        continue;
                    }
                    let is_late = slow.is_some() || self.pick(100) < weather.late;
                    if is_late {
                        let time = up_to(&mut self.random, slow.unwrap_or(weather.late_max));
                        self.fly(time, sender, What::Answer(reply, answer));
                        continue;
                    }
                    (reply, answer)
                }
            };
            // Of a process that is cut off, half of the answers that are on their way still arrive.
            if !is_cut || self.pick(2) == 0 {
                drop(answer.send(reply));
                answered.insert(sender);
            }
        }
        answered
    }
}

/// Waits for an answer as long as its sender does.
pub(super) async fn wait(patience: Duration, reply: oneshot::Receiver<Result<Reply>>) -> Result<Reply> {
    let answer = async {
        match reply.await {
            Ok(answer) => answer,
            // It got lost, which its sender cannot know.
            Err(_) => std::future::pending().await,
        }
    };
    tokio::time::timeout(patience, answer).await.unwrap_or_else(|_| Err(no_answer()))
}

impl SimulatedBucket {
    /// An empty bucket on a clock. `expect` is called with the time at which [`Self::arrive`] is to be called.
    #[must_use]
    pub fn on_a_clock(
        seed: u64,
        weather: Weather,
        clock: impl Fn() -> Duration + Send + Sync + 'static,
        expect: impl Fn(Duration) + Send + Sync + 'static,
    ) -> Self {
        let mut state = State::new(Rand64::new(u128::from(seed)), (0, 0, 0));
        let (on_their_way, cut, slow) = (Vec::new(), BTreeSet::new(), BTreeMap::new());
        let (clock, expect) = (Box::new(clock), Box::new(expect));
        state.weather = Some(Sky { weather, clock, sent: 0, on_their_way, cut, slow, expect });
        Self { state: Arc::new(Mutex::new(state)), sender: 0 }
    }

    /// The view of a process.
    #[must_use]
    pub fn seen_by(&self, process: usize) -> Self {
        Self { state: Arc::clone(&self.state), sender: process }
    }

    /// Does what has arrived by now. Returns the processes that have got answers.
    #[must_use]
    pub fn arrive(&self) -> BTreeSet<usize> {
        self.state.lock().arrive()
    }

    /// When the next thing arrives.
    #[must_use]
    pub fn next_arrival(&self) -> Option<Duration> {
        let state = self.state.lock();
        state.weather.as_ref()?.on_their_way.iter().map(|flight| flight.due).min()
    }

    /// Changes the weather.
    pub fn change(&self, weather: Weather) {
        if let Some(sky) = &mut self.state.lock().weather {
            sky.weather = weather;
        }
    }

    /// A process gets its answers late, by up to so much; `None`: no longer.
    pub fn slow(&self, process: usize, by: Option<Duration>) {
        if let Some(sky) = &mut self.state.lock().weather {
            match by {
                Some(by) => drop(sky.slow.insert(process, by)),
                None => drop(sky.slow.remove(&process)),
            }
        }
    }

    /// Cuts a process off from the bucket, or connects it again. Half of what it sends meanwhile arrives later.
    pub fn cut(&self, process: usize, is_cut: bool) {
        if let Some(sky) = &mut self.state.lock().weather {
            if is_cut {
                sky.cut.insert(process);
            } else {
                sky.cut.remove(&process);
            }
        }
    }
}

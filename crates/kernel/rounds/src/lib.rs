//! The background jobs of all kernel units of a process, on a few shared threads.
//!
//! A *job* is one kind of work of one unit: its rounds of settling, say. A *turn* is one call of a job. A turn says
//! when the job wants the next one: at once, after some time, or when the job is *nudged*, which is the duty of the
//! code that makes work for it. So a unit in which nothing happens costs no turn, no timer and no wake-up of a thread.
//!
//! [`Plan`] decides which job has the next turn. It has no clock, thread or lock: time is a parameter, so that a seed
//! replays a schedule. [`Rounds`] has the threads, and takes the turns.
//!
//! Rules, in the order in which they count:
//!
//! 1. *Each class of work has a thread.* Kinds have three classes ([`Kind`]): segments, before which batches of a
//!    journal may have to wait; settling and the relief of a full disk, before which writers may have to wait; merging
//!    and the scrub, for which no request waits. No turn begins that would leave another class without a thread, so
//!    that short work does not wait for long work, and long work is never starved. Further threads go to the classes in
//!    this order.
//! 2. *Long work has a budget* of bytes per second. A turn is taken when the budget has paid for the turns before it,
//!    or five seconds after the last of them. A job that is at least half way to its bound ([`Behind`]) does not wait
//!    for the budget, and the bytes that its turn reads and writes are not charged, so that they delay no other job.
//!    Settling neither waits nor is charged.
//! 3. *Turns are fair.* In a class, the job has the next turn whose wait, times its weight, is the longest. The weight
//!    goes from 1 to [`WEIGHT_MAX`] with how far behind the job is. A job that always has work waits again from the end
//!    of its turn on. So while `n` jobs are due whose turns last `d`, none waits longer than `2 × (WEIGHT_MAX + 1) × n
//!    × d`: in the second half of a wait, each other job has at most `WEIGHT_MAX + 1` turns.
//! 4. *Errors hold up no other job.* A job whose turn failed rests, twice as long after each failure, up to 30 s.
//!    Settling rests 2 s at most, and segments 1 s: writers wait for them.

mod budget;
mod kind;
mod plan;
mod shell;

pub use kind::{Behind, Kind};
pub use plan::{Done, JobId, KindStats, Next, Options, Pick, Plan, THREADS_MIN, WEIGHT_MAX};
pub use shell::{Error, Handle, Rounds, Stats};

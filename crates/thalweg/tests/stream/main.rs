//! `thalweg stream …` as a person uses it: the real binary on both sides, and a scripted server where a real one
//! behaves too well.

#![allow(clippy::unwrap_used, reason = "a test")]

mod crash;
mod daily;
mod rig;
mod scripted;

//! Journal segments: header, batches, frames.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thalweg_journal::fuzz_segment(data));

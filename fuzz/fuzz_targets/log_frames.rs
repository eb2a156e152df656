//! Transactions of the log, as they stand in journal frames.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thalweg_log::fuzz_frame(data));

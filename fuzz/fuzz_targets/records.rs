//! Records of logs, as the directory has them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thalweg_log::fuzz_record(data));

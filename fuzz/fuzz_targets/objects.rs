//! Objects of runs and directories, whole and in parts.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thalweg_log::fuzz_object(data));

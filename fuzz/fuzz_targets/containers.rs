//! Containers, whole and in parts.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thalweg_container::fuzz_container(data));

//! The body of a mirror's root in a bucket.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thalweg_object::fuzz_mirror(data));

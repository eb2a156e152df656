//! A byte stream to the HTTP/1.1 framing, whole and split: no panic, no difference, no bound passed.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thalweg_http::fuzz_framing(data));

//! A path, a query and header values of a stream's request: no panic, and a name is its own normal form.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thalweg_streams::fuzz_query_and_headers(data));

//! A body in JSON mode: what is taken and what `serde_json` takes are the same, message by message.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thalweg_streams::fuzz_json(data));

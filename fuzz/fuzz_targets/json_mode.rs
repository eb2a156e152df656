//! A body in JSON mode: the server accepts exactly the bodies that `serde_json` accepts, message by message.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thalweg_streams::fuzz_json(data));

//! Messages of Postgres's pgoutput: no panic, and what is read can be written and read again.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thalweg_pg::pgoutput::fuzz_pgoutput(data));

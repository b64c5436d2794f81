//! `lastwords_fuzz::regions::persistent`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lastwords_fuzz::regions::persistent(data));

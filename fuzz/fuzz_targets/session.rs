//! `lastwords_fuzz::targets::session`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lastwords_fuzz::targets::session(data));

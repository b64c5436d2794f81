//! `lastwords_fuzz::targets::recorded`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lastwords_fuzz::targets::recorded(data));

//! `lastwords_fuzz::targets::json_end_to_end`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lastwords_fuzz::targets::json_end_to_end(data));

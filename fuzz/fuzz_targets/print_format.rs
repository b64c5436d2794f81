//! `lastwords_fuzz::targets::print_format`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lastwords_fuzz::targets::print_format(data));

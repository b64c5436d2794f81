//! `lastwords_fuzz::targets::trace_dat`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lastwords_fuzz::targets::trace_dat(data));

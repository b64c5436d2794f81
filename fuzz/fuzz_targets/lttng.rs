//! `lastwords_fuzz::targets::lttng`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lastwords_fuzz::targets::lttng(data));

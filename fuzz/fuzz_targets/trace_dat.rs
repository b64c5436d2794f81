//! `lastwords_fuzz::kernels::trace_dat`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lastwords_fuzz::kernels::trace_dat(data));

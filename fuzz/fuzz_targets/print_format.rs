//! `lastwords_fuzz::kernels::print_format`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lastwords_fuzz::kernels::print_format(data));

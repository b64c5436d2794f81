//! `lastwords_fuzz::kernels::kernel_memory`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lastwords_fuzz::kernels::kernel_memory(data));

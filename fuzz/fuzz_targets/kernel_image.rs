//! `lastwords_fuzz::regions::kernel_image`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lastwords_fuzz::regions::kernel_image(data));

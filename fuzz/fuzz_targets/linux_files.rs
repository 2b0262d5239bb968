#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sennit_fuzz::helper::files(data));

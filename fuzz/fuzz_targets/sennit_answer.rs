#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sennit_fuzz::resolver::answers(data));

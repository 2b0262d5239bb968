//! Link emulator as a seeded function of time.

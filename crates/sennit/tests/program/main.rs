//! The program as a user runs it, in processes of its own: commands, load tests over loopback, and
//! what packages are made from.
//!
//! `cargo test --workspace --test program -- cli::` runs the tests of one of them.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod cli;
mod loadtest;
mod packages;

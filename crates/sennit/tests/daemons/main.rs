//! The whole program in network namespaces: real daemons, kernel TCP, links that fail.
//!
//! A [`world::World`] is a lab with links that can be cut, an operator's directory, and daemons
//! that are joined, started, stopped and killed as an operator would. [`traffic`] is what passes
//! through their tunnels. The tests are sorted by what goes wrong: [`joining`] (who is let in),
//! [`tunnel`] (nothing: it works), [`workers`] (nothing either, with several of them), [`links`],
//! [`daemons`] (they die, or start in a bad place), [`leaks`] (what would leave beside the tunnel),
//! [`absent`] (the hub is not to be found), [`operate`] (an operator does something), [`doctor`]
//! (is asked what is wrong), [`proxied`] (UDP for clients without a tunnel), [`reload`] (a hub
//! reads its config anew), [`elsewhere`] (it has another address),
//! [`rotation`] (it gets another authority), [`editing`] (somebody writes
//! its config from afar), [`sorted`] (the kernel chooses the class), [`speedtest`] (a tunnel is
//! measured), [`standing`] (how a hub stands), [`watched`] (by a real Prometheus), [`crowded`] (by
//! ten thousand who ask nothing), [`confined`] (what it has given up), [`own_user`] (root too) and
//! [`input`] (packets that nobody should have sent).
//! Most of each is waiting, so a few run at a time: see [`world::World::new`].

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod absent;
mod confined;
mod crowded;
mod daemons;
mod doctor;
mod editing;
mod elsewhere;
mod hostile;
mod input;
mod joining;
mod leaks;
mod links;
mod neighbour;
mod notify;
mod operate;
mod own_user;
mod proxied;
mod reload;
mod rotation;
mod sorted;
mod speedtest;
mod standing;
mod traffic;
mod tunnel;
mod watched;
mod workers;
mod world;

//! A client and a server joined by their outputs, each alone against a peer that breaks rules, and
//! each with what another implementation sends.

mod pair;
mod quic_go;
mod rules;
mod scripted;

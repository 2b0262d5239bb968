//! A client and a server joined by their outputs, and each alone against a peer that breaks rules.

mod pair;
mod rules;
mod scripted;

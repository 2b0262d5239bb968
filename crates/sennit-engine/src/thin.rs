//! Which template each flow of a connection has, at the end that sends and at the one that
//! receives.
//!
//! The sender takes a template from a flow that has sent some packets, and *offers* it. It is used
//! once the other end has said that it has it, so no packet depends on one that may be lost. A flow
//! that does not move as its template says any more gets another *edition*. Both ends hold two: the
//! last of an even number and the last of an odd one. The edition in use stays until another is
//! acknowledged, so that one gets a number of the other parity, whatever became of offers between.
//! A packet says by one bit which edition it is of, and one that was sent before its edition was
//! offered is of an earlier one that is gone, and is dropped.
//!
//! Flows are those of [`sennit_core::queue`], so there are at most 256, and two that share a queue
//! share the template: it belongs to the one that had it first, as long as that one uses it.

mod receiving;
mod rush;
mod sending;

pub(crate) use receiving::{Receiving, Restored};
pub(crate) use sending::{Outgoing, Sending};

/// The place of an edition among the two of a flow that the receiver holds.
fn place(odd: bool) -> usize {
    usize::from(odd)
}

fn is_odd(edition: u8) -> bool {
    !edition.is_multiple_of(2)
}

#[cfg(test)]
mod tests;

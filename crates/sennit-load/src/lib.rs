//! Load for measurements: sources and sinks over sockets that the caller opened, and the arithmetic
//! on what arrived.
//!
//! Nothing here knows a namespace, a scenario or a tunnel. The lab opens sockets inside its
//! namespaces and hands them over; `sennit test` opens them on a real host.
//!
//! - [`Received`] counts bytes by their time of arrival and gives [`Bins`], of which gaps and
//!   recoveries are read.
//! - [`Times`] is a histogram of times, [`Arrivals`] what a receiver says about numbered messages:
//!   loss, reordering, variation of the delay.
//! - [`Schedule`] says when an open loop sends next, however late the machine is.
//! - [`selfcheck`] says whether an emulated link is as asked, by what probes met there.
//! - [`Echo`] measures round trips by ICMP.
//! - [`Machine`] is where it was measured.
//! - [`tcp`], [`packets`] and, with the feature `quinn`, `quic` send and receive.

mod arrivals;
mod bins;
mod echo;
mod machine;
pub mod packets;
#[cfg(feature = "quinn")]
pub mod quic;
mod received;
mod schedule;
pub mod selfcheck;
pub mod tcp;
mod times;

pub use arrivals::{ArrivalFigures, Arrivals};
pub use bins::{BIN, Bins, FINE_BIN, median, quantile};
pub use echo::Echo;
pub use machine::Machine;
pub use received::{Bulk, Received};
pub use schedule::Schedule;
pub use times::{Bucket, TimeFigures, Times};

/// Jain's index of fairness: 1 if all have the same, 1/n if one has everything; `None` if nobody
/// has anything.
#[must_use]
pub fn fairness(shares: &[f64]) -> Option<f64> {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    (squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_is_one_for_equals_and_a_share_for_one_of_many() {
        assert_eq!(fairness(&[3.0, 3.0, 3.0]), Some(1.0));
        assert_eq!(fairness(&[5.0, 0.0, 0.0, 0.0]), Some(0.25));
        assert_eq!(fairness(&[0.0, 0.0]), None);
    }
}

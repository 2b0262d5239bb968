//! UDP at a constant rate by a sender and a receiver of our own, which time each packet.

use std::net::SocketAddr;
use std::time::Duration;

use sennit_load::packets as load;

use super::{Context, UdpFigures, packets};
use crate::error::{Doing, Error};
use crate::host::Role;
use crate::plan;
use crate::scenario::Udp;

/// What comes later than the fastest packet by more than this is of no use to a call.
const LATE: Duration = Duration::from_millis(60);

pub(super) fn run(udp: &Udp, context: &Context<'_>) -> Result<UdpFigures, Error> {
    let port = udp.port.unwrap_or(context.port);
    let address = SocketAddr::new(plan::SERVER.ip(udp.ipv6), port);
    let [near, far] = packets::ends(context, [udp.from, Role::Server], address)?;
    let mean = f64::from(udp.bytes) + f64::from(udp.grow) * f64::from(load::PLACES - 1) / 2.0;
    let asked = load::Stream {
        direction: udp.direction,
        bytes: udp.bytes.into(),
        grow: udp.grow,
        per_second: udp.rate_mbit * 1e6 / 8.0 / mean,
        span: context.span(),
        dscp: udp.dscp,
        bin: context.bin,
    };
    let streamed = load::stream(near, far, address, &asked)
        .doing(|| format!("send UDP between the {} and {address}", udp.from))?;
    let arrivals = streamed.arrivals.figures(Some(streamed.sent));
    let within = streamed.received.within(context.span());
    Ok(UdpFigures {
        goodput: within.goodput,
        packets: arrivals.sent,
        lost: arrivals.lost,
        unread: 0,
        jitter_seconds: arrivals.ipdv.mean_seconds.unwrap_or_default(),
        bins: Some(within.bins),
        lateness: Some(arrivals.delay_variation),
        late: Some(streamed.arrivals.later_than(LATE)),
    })
}

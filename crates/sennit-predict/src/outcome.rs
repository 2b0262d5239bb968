//! The sum: from cells and links to goodput.

use sennit_netem::{Config, Direction, LinkSpec};
use serde::Serialize;

use crate::PredictError;
use crate::load::{Answer, Cell, Load};
use crate::medium::{Medium, Packet};
use crate::repairs;

/// The form of the JSON.
const SCHEMA: &str = "sennit.predict/1";

/// What links will carry.
#[derive(Clone, Debug, Serialize)]
pub struct Prediction {
    schema: &'static str,
    /// What is sent over what.
    pub what: String,
    /// All links together.
    pub goodput_bits_per_second: f64,
    /// Payload of a cell against what it takes on a link without loss.
    pub efficiency: f64,
    /// Bytes of a cell that count.
    pub payload_bytes: usize,
    /// Bytes of a cell on a link.
    pub wire_bytes: usize,
    /// Bytes that come back for a cell, on average.
    pub answer_bytes: f64,
    /// Both directions share a link.
    pub half_duplex: bool,
    /// Bytes of repairs for a cell, on average.
    pub repair_bytes: f64,
    /// What goes out for a cell.
    pub packets: Vec<Packet>,
    /// What is sent in addition, with how many cells have one of it.
    pub repairs: Vec<AnswerFigures>,
    /// What comes back, with how many cells have one of it.
    pub answers: Vec<AnswerFigures>,
    /// Each link.
    pub links: Vec<LinkFigures>,
}

/// A packet that is sent, or comes back, once in several cells.
#[derive(Clone, Debug, Serialize)]
pub struct AnswerFigures {
    /// Cells for one of it.
    pub every: f64,
    /// The packet.
    pub packet: Packet,
}

/// One link of a prediction.
#[derive(Clone, Debug, Serialize)]
pub struct LinkFigures {
    /// As it was written.
    pub link: String,
    /// In the direction of the data.
    pub rate_bits_per_second: f64,
    /// Share of packets that are lost.
    pub loss: f64,
    /// Share of what is sent that arrives for the first time, or need not be sent again.
    pub arrives: f64,
    /// Payload that arrives.
    pub goodput_bits_per_second: f64,
    /// The way back is too slow for the answers, and that is the limit.
    pub limited_by_answers: bool,
}

impl Prediction {
    /// Whether a frame of it is so short that a port pads it.
    pub fn is_padded(&self) -> bool {
        let back = self.repairs.iter().chain(&self.answers);
        let mut all = self
            .packets
            .iter()
            .chain(back.map(|figures| &figures.packet));
        all.any(Packet::is_padded)
    }
}

/// What `links` carry together of `load` in a direction.
pub fn predict(
    load: &Load,
    medium: &Medium,
    links: &[LinkSpec],
    direction: Direction,
) -> Result<Prediction, PredictError> {
    if links.is_empty() {
        return Err(PredictError::NoLinks);
    }
    let cell = load.cell(medium.ip)?;
    let framed = |packet: Packet| medium.framed(packet);
    let packets: Vec<_> = cell.packets.iter().cloned().map(framed).collect();
    let figures = |answers: &[Answer]| -> Vec<AnswerFigures> {
        let answers = answers
            .iter()
            .map(|Answer { packet, every }| AnswerFigures {
                every: *every,
                packet: medium.framed(packet.clone()),
            });
        answers.collect()
    };
    let (repairs, answers) = (figures(&cell.repairs), figures(&cell.answers));
    let wire_bytes: usize = packets.iter().map(Packet::bytes).sum();
    let back = |answer: &AnswerFigures| answer.packet.bytes() as f64 / answer.every;
    // The sum of nothing is -0.0.
    let sum = |all: &[AnswerFigures]| all.iter().map(back).fold(0.0, |sum, bytes| sum + bytes);
    let (repair_bytes, answer_bytes) = (sum(&repairs), sum(&answers));
    let sums = Sums {
        payload: cell.payload as f64,
        forth: wire_bytes as f64,
        repairs: repair_bytes,
        back: answer_bytes,
        half_duplex: medium.half_duplex,
    };
    let links = links
        .iter()
        .map(|link| sums.link(&cell, link, direction))
        .collect::<Result<Vec<_>, _>>()?;
    let goodputs = links.iter().map(|link| link.goodput_bits_per_second);
    Ok(Prediction {
        schema: SCHEMA,
        what: format!("{} over {}", load.name(), medium.name()),
        goodput_bits_per_second: goodputs.sum(),
        efficiency: sums.payload / sums.taken(1.0),
        payload_bytes: cell.payload,
        wire_bytes,
        answer_bytes,
        half_duplex: medium.half_duplex,
        repair_bytes,
        packets,
        repairs,
        answers,
        links,
    })
}

/// Bytes of a cell.
struct Sums {
    payload: f64,
    forth: f64,
    repairs: f64,
    back: f64,
    half_duplex: bool,
}

impl Sums {
    /// What a cell takes of the direction of its data. Only for the share of it that arrives
    /// something comes back.
    fn taken(&self, arrives: f64) -> f64 {
        let back = if self.half_duplex { self.back } else { 0.0 };
        self.forth + self.repairs + back * arrives
    }

    /// The share that is not sent again, of a cell whose packets are sent again so many times.
    fn first_time(&self, again: f64) -> f64 {
        let once = self.forth + self.repairs;
        once / (once + self.forth * again)
    }

    fn link(
        &self,
        cell: &Cell,
        link: &LinkSpec,
        direction: Direction,
    ) -> Result<LinkFigures, PredictError> {
        if self.half_duplex && link.up != link.down {
            return Err(PredictError::Unlike(link.to_string()));
        }
        let rate = |config: &Config| steady_rate(config, link);
        let forth = link.way(direction);
        let (there, home) = (rate(forth)?, rate(link.way(direction.reverse()))?);
        let loss = forth.loss.ratio().unwrap_or(0.0);
        let together = if cell.repaired { 1 } else { cell.packets.len() };
        let arrives = match cell.code {
            Some(code) => self.first_time(repairs::missing(code, loss) / (1.0 - loss)),
            None => (1.0 - loss).powi(together as i32),
        };
        let by_data = there / self.taken(arrives);
        let by_answers = home / (self.back * arrives);
        let limited_by_answers = !self.half_duplex && by_answers < by_data;
        let cells = if limited_by_answers {
            by_answers
        } else {
            by_data
        };
        Ok(LinkFigures {
            link: link.to_string(),
            rate_bits_per_second: there,
            loss,
            arrives,
            goodput_bits_per_second: cells * self.payload * arrives,
            limited_by_answers,
        })
    }
}

/// The rate of a direction that stands still, in bits per second.
pub(crate) fn steady_rate(config: &Config, link: &LinkSpec) -> Result<f64, PredictError> {
    if config.trace.is_some() {
        return Err(PredictError::Moves(link.to_string()));
    }
    let rate = config.rate.map(|rate| rate.as_bps() as f64);
    rate.ok_or_else(|| PredictError::NoRate(link.to_string()))
}

#[cfg(test)]
mod tests {
    use sennit_engine::Fec;

    use super::*;
    use crate::load::Tunnel;
    use crate::medium::{Counts, Ip};

    fn mbit(load: &Load, medium: &Medium, links: &[&str]) -> f64 {
        let links: Vec<LinkSpec> = links.iter().map(|it| it.parse().expect("a link")).collect();
        let predicted = predict(load, medium, &links, Direction::Up).expect("it fits");
        predicted.goodput_bits_per_second / 1e6
    }

    fn assert_near(value: f64, expected: f64) {
        assert!((value - expected).abs() < 1e-3, "{value} for {expected}");
    }

    fn with_mtu(mtu: usize) -> Medium {
        let ip = Ip { v6: false, mtu };
        Medium {
            ip,
            ..Medium::default()
        }
    }

    #[test]
    fn tcp_and_udp_over_ethernet_are_what_the_lab_report_says() {
        let medium = Medium::default();
        assert_near(mbit(&Load::tcp(), &medium, &["10/1"]), 14480.0 / 1538.0);
        assert_near(mbit(&Load::udp(), &medium, &["10/1"]), 14720.0 / 1538.0);
    }

    #[test]
    fn each_layer_takes_its_bytes() {
        let plain = Medium::default();
        let udp = |medium: Medium| mbit(&Load::udp(), &medium, &["10/1"]);
        assert_near(udp(Medium { vlan: 1, ..plain }), 14720.0 / 1542.0);
        let pppoe = Medium {
            pppoe: true,
            ..with_mtu(1492)
        };
        assert_near(udp(pppoe), 14640.0 / 1538.0);
        let ip = Ip {
            v6: true,
            mtu: 1500,
        };
        assert_near(udp(Medium { ip, ..plain }), 14520.0 / 1538.0);
        let counts = Counts::Packets;
        assert_near(udp(Medium { counts, ..plain }), 14720.0 / 1500.0);
        let counts = Counts::Frames;
        assert_near(udp(Medium { counts, ..plain }), 14720.0 / 1514.0);
    }

    #[test]
    fn acknowledgements_take_their_share_of_a_shared_medium() {
        let half_duplex = true;
        let medium = Medium {
            half_duplex,
            ..Medium::default()
        };
        // An acknowledgement of 52 bytes for every second segment.
        let taken = 1538.0 + (52.0 + 38.0) / 2.0;
        assert_near(mbit(&Load::tcp(), &medium, &["10/1"]), 14480.0 / taken);
        assert_near(mbit(&Load::udp(), &medium, &["10/1"]), 14720.0 / 1538.0);
    }

    #[test]
    fn a_way_back_too_slow_for_acknowledgements_is_the_limit() {
        let medium = Medium::default();
        let narrow = mbit(&Load::tcp(), &medium, &["100:0.5/1"]);
        assert_near(narrow, 0.5 * 1448.0 / 45.0);
    }

    #[test]
    fn only_what_arrives_is_acknowledged() {
        let medium = Medium::default();
        // The way back is as full as without loss, and carries as many acknowledgements.
        let narrow = mbit(&Load::tcp(), &medium, &["100:0.5/1/20%"]);
        assert_near(narrow, 0.5 * 1448.0 / 45.0);
        let shared = Medium {
            half_duplex: true,
            ..medium
        };
        let taken = 1538.0 + 0.8 * 45.0;
        let lossy = mbit(&Load::tcp(), &shared, &["10/1/20%"]);
        assert_near(lossy, 14480.0 / taken * 0.8);
    }

    #[test]
    fn what_moves_or_is_no_shared_medium_is_no_prediction() {
        let predicted = |link: &str, half_duplex| {
            let medium = Medium {
                half_duplex,
                ..Medium::default()
            };
            let links = [link.parse().expect("a link")];
            predict(&Load::tcp(), &medium, &links, Direction::Up).err()
        };
        // The acknowledgements of the second would take a way that moves.
        for link in ["lte/20", "10:lte/20"] {
            let error = predicted(link, false);
            assert!(matches!(error, Some(PredictError::Moves(_))), "{error:?}");
        }
        let unlike = Some(PredictError::Unlike("10:2/5".into()));
        assert_eq!(predicted("10:2/5", true), unlike);
        assert_eq!(predicted("10/5±2", false), None);
    }

    #[test]
    fn links_add_up_and_what_is_lost_is_missing() {
        let medium = Medium::default();
        let both = mbit(&Load::tcp(), &medium, &["10/1", "20/30/5%"]);
        assert_near(both, (10.0 + 20.0 * 0.95) * 1448.0 / 1538.0);
        // One lost fragment of three takes the datagram with it.
        let payload = Some(3000);
        let frames = f64::from(1538 + 1538 + 38 + 20 + 48);
        let fragments = mbit(&Load::Udp { payload }, &medium, &["10/1/10%"]);
        assert_near(fragments, 10.0 * 3000.0 / frames * 0.9_f64.powi(3));
    }

    #[test]
    fn short_packets_fill_the_shortest_frame() {
        let payload = Some(1);
        let mbit = mbit(&Load::Udp { payload }, &Medium::default(), &["10/1"]);
        assert_near(mbit, 10.0 / 84.0);
    }

    #[test]
    fn a_number_in_the_tunnel_costs_ten_bytes_of_each_packet() {
        let tunnel = |bare| {
            let ip = Ip {
                v6: false,
                mtu: 1400,
            };
            let (inner, packet_number) = (Load::tcp(), 2);
            Load::Tunnel(Box::new(Tunnel {
                inner,
                ip,
                bare,
                thin: false,
                packet_number,
                fec: Fec::Off,
            }))
        };
        let wire = |bare| {
            let links = ["10/1".parse().expect("a link")];
            let medium = Medium::default();
            let predicted = predict(&tunnel(bare), &medium, &links, Direction::Up);
            predicted.expect("it fits").wire_bytes
        };
        assert_eq!(wire(false) - wire(true), 10);
        assert!(
            wire(false) <= 1478 + 38,
            "as the book says: {}",
            wire(false)
        );
    }

    #[test]
    fn repairs_cost_their_bytes_and_save_what_is_sent_again() {
        let goodput = |fec: &str, link: &str| {
            let ip = Ip {
                v6: false,
                mtu: 1400,
            };
            let tunnel = Tunnel {
                inner: Load::udp(),
                ip,
                bare: false,
                thin: false,
                packet_number: 2,
                fec: fec.parse().expect("a code"),
            };
            mbit(&Load::Tunnel(Box::new(tunnel)), &Medium::default(), &[link])
        };
        let plain = goodput("off", "10/5");
        // A repair is as long as what it protects.
        assert_near(goodput("rs:10+2", "10/5"), plain * 10.0 / 12.0);
        assert_near(goodput("xor:4+1", "10/5"), plain * 4.0 / 5.0);
        // Half of each packet's copies is enough, but for those of which both are lost.
        let both = goodput("xor:1+1", "10/5/10%");
        assert_near(both, plain / (2.0 + 0.01 / 0.9));
        assert_near(goodput("rlc:1/8", "10/5/5%"), plain * 8.0 / 9.0);
        assert_near(goodput("off", "10/5/5%"), plain * 0.95);
    }

    #[test]
    fn a_code_that_losses_choose_is_no_prediction() {
        let cell = |fec, bare| {
            let tunnel = Tunnel {
                inner: Load::udp(),
                ip: Ip {
                    v6: false,
                    mtu: 1400,
                },
                bare,
                thin: true,
                packet_number: 2,
                fec,
            };
            Load::Tunnel(Box::new(tunnel)).cell(Medium::default().ip)
        };
        assert_eq!(cell(Fec::Auto, false), Err(PredictError::AutoFec));
        let fixed = "rlc:1/8".parse().expect("a code");
        assert_eq!(cell(fixed, true), Err(PredictError::BareFec));
    }

    #[test]
    fn a_link_without_a_rate_is_named() {
        let link = LinkSpec::symmetric(Config::default());
        let error = predict(&Load::tcp(), &Medium::default(), &[link], Direction::Up);
        let error = error.expect_err("it has none").to_string();
        assert!(error.contains("has no rate"), "{error}");
        let none = predict(&Load::tcp(), &Medium::default(), &[], Direction::Up);
        assert_eq!(none.err(), Some(PredictError::NoLinks));
    }
}

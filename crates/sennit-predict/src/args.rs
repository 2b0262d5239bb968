//! The command line of a prediction, which the program and the lab have in common.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use sennit_engine::{BadCode, Fec};
use sennit_netem::{Bitrate, Config, Direction, LinkSpec, Loss};

use crate::load::{Load, PACKET_NUMBER, Tunnel};
use crate::medium::{Counts, ETHERNET_MTU, Ip, Medium};
use crate::{PredictError, Prediction, predict};

/// A link of which only the rate is known is this far away when it is emulated, in milliseconds.
const NEAR_MS: f64 = 1.0;
/// What `sennit` puts into a packet unless its config says otherwise.
const INNER_MTU: usize = 1400;

/// Predict what links carry, from the sizes of headers alone
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sennit predict tcp --rate 10Mbit
  sennit predict udp --rate 10Mbit --payload 512 --vlan 1 --explain
  sennit predict tunnel --link 300/10 --link 80/30/0.5% --json
  sennit predict tunnel --link 50/25/5% --inner udp --fec rlc:1/8 --explain
  sennit predict tcp --rate 10Mbit --half-duplex --check    # measures the same, as root")]
pub struct PredictArgs {
    #[command(subcommand)]
    pub what: What,
}

#[derive(Debug, Subcommand)]
pub enum What {
    /// TCP connections with much to send
    Tcp(TcpArgs),
    /// UDP datagrams one way
    Udp(UdpArgs),
    /// A stream of a QUIC connection
    Quic(QuicArgs),
    /// TCP, UDP or QUIC inside Sennit's tunnel, over all links together
    Tunnel(TunnelArgs),
    /// Round trips by packet size, and what their slope says about a link
    RttSweep(Box<SweepArgs>),
}

/// Where it runs, and how it is printed.
#[derive(Debug, Args)]
pub struct MediumArgs {
    /// Rate of a link, like 500k, 10Mbit or 1.5G bit/s; repeatable
    #[arg(long = "rate", value_name = "RATE", required_unless_present = "links", value_parser = rate)]
    rates: Vec<Bitrate>,
    /// A link as rate[:rate down]/delay[/loss%] in Mbit/s and ms one way, like 80/30/0.5%;
    /// repeatable
    #[arg(long = "link", value_name = "LINK")]
    links: Vec<LinkSpec>,
    /// Share of packets that are lost on the links of --rate, like 1%
    #[arg(long, value_name = "PERCENT", value_parser = loss, requires = "rates")]
    loss: Option<f64>,
    /// Which way the data goes on links that differ: up or down
    #[arg(long, value_name = "WAY", default_value = "up")]
    direction: Direction,
    /// The largest IP packet [default: 1500, with --pppoe 1492]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(68..=65535))]
    mtu: Option<u32>,
    /// IPv6 instead of IPv4 on the links
    #[arg(long)]
    ipv6: bool,
    /// VLAN tags of each frame
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=2))]
    vlan: u8,
    /// PPP over Ethernet
    #[arg(long)]
    pppoe: bool,
    /// What the rate counts
    #[arg(long, value_enum, default_value = "wire")]
    counts: Counts,
    /// Both directions share the rate, so acknowledgements take of it too
    #[arg(long)]
    half_duplex: bool,
    /// Print the sum line by line
    #[arg(long, conflicts_with = "json")]
    explain: bool,
    /// Print JSON (sennit.predict/1)
    #[arg(long)]
    json: bool,
    /// Measure the same over emulated links, and print the difference (needs root and sennit-lab)
    #[arg(long)]
    check: bool,
    /// How long --check measures each link, in seconds
    #[arg(long, value_name = "S", default_value_t = 8, requires = "check", value_parser = clap::value_parser!(u32).range(4..=600))]
    seconds: u32,
}

#[derive(Debug, Args)]
pub struct TcpArgs {
    #[command(flatten)]
    pub medium: MediumArgs,
    #[command(flatten)]
    segment: SegmentArgs,
}

#[derive(Debug, Args)]
struct SegmentArgs {
    /// Bytes of options in each segment; timestamps take 12
    #[arg(long, value_name = "BYTES", default_value_t = 12, value_parser = clap::value_parser!(u8).range(0..=40))]
    options: u8,
    /// Segments or packets that one acknowledgement is for
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
    ack_every: u8,
}

#[derive(Debug, Args)]
pub struct UdpArgs {
    #[command(flatten)]
    pub medium: MediumArgs,
    /// Bytes of payload; more than fits goes in fragments [default: what just fits]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(1..=65507))]
    payload: Option<u16>,
}

#[derive(Debug, Args)]
pub struct QuicArgs {
    #[command(flatten)]
    pub medium: MediumArgs,
    /// The largest UDP payload that the stack looks for; quinn and others stop at 1452
    #[arg(long, value_name = "BYTES", default_value_t = 1452, value_parser = clap::value_parser!(u16).range(1200..))]
    datagram: u16,
    /// Bytes of connection IDs
    #[arg(long, value_name = "BYTES", default_value_t = 8, value_parser = clap::value_parser!(u8).range(0..=20))]
    connection_id: u8,
    /// Bytes of packet numbers
    #[arg(long, value_name = "BYTES", default_value_t = PACKET_NUMBER as u8, value_parser = clap::value_parser!(u8).range(1..=4))]
    packet_number: u8,
    /// Packets that one acknowledgement is for
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
    ack_every: u8,
}

/// What is in the tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Inner {
    /// TCP connections
    Tcp,
    /// UDP datagrams
    Udp,
    /// A QUIC connection
    Quic,
}

/// How headers travel in the tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HeadersWord {
    /// Without what the packets of a flow have in common
    Thin,
    /// As they are
    Whole,
}

#[derive(Debug, Args)]
pub struct TunnelArgs {
    #[command(flatten)]
    pub medium: MediumArgs,
    /// What is in the tunnel
    #[arg(long, value_enum, default_value = "tcp")]
    pub inner: Inner,
    /// `mtu` of the config: the largest packet in the tunnel
    #[arg(long, value_name = "BYTES", default_value_t = INNER_MTU as u16, value_parser = clap::value_parser!(u16).range(1280..=9000))]
    pub inner_mtu: u16,
    /// IPv6 instead of IPv4 in the tunnel
    #[arg(long)]
    pub inner_ipv6: bool,
    /// Packets without numbers (context 0), as with peers that are no Sennit
    #[arg(long)]
    bare: bool,
    /// `headers` of the class: packets of flows that go on without what both ends know, or as they
    /// are
    #[arg(long, value_enum, default_value = "thin")]
    pub headers: HeadersWord,
    /// `fec` of the class: off, xor:10+1, rs:10+2 or rlc:1/8
    #[arg(long, value_name = "CODE", default_value = "off", value_parser = fec)]
    pub fec: Fec,
    /// Bytes of packet numbers: 1 up to 127 packets in flight, 2 up to 32767
    #[arg(long, value_name = "BYTES", default_value_t = PACKET_NUMBER as u8, value_parser = clap::value_parser!(u8).range(1..=4))]
    packet_number: u8,
    /// Bytes of options in each inner TCP segment; timestamps take 12
    #[arg(long, value_name = "BYTES", default_value_t = 12, value_parser = clap::value_parser!(u8).range(0..=40))]
    options: u8,
}

fn fec(text: &str) -> Result<Fec, String> {
    let fec = text.parse().map_err(|error: BadCode| error.to_string())?;
    match fec {
        Fec::Auto => Err(PredictError::AutoFec.to_string()),
        Fec::Off | Fec::Fixed(_) => Ok(fec),
    }
}

/// Measures round trips by size.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sennit predict rtt-sweep 192.0.2.1                    # to a host, by ping
  sennit predict rtt-sweep --link 2/15                  # what a link should give
  sennit predict rtt-sweep --link 2/15 --check          # and what the emulated link gives, as root")]
pub struct SweepArgs {
    /// The host at the far end
    #[arg(
        value_name = "HOST",
        required_unless_present = "link",
        conflicts_with = "link"
    )]
    pub address: Option<String>,
    /// A link as rate[:rate down]/delay in Mbit/s and ms one way
    #[arg(long, value_name = "LINK")]
    pub link: Option<LinkSpec>,
    /// Payloads to try
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_values_t = [56, 256, 512, 768, 1024, 1280, 1472, 2000, 3000, 4000, 6000, 8000],
        value_parser = clap::value_parser!(u16).range(16..=65507))]
    pub sizes: Vec<u16>,
    /// Echoes of each size, of which the fastest counts
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub count: u16,
    /// The largest IP packet
    #[arg(long, value_name = "BYTES", default_value_t = ETHERNET_MTU as u16, value_parser = clap::value_parser!(u16).range(68..))]
    pub mtu: u16,
    /// What the rate counts
    #[arg(long, value_enum, default_value = "wire")]
    pub counts: Counts,
    /// Write a page with the plot too (HTML, which needs nothing else)
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Measure the emulated link (needs root and sennit-lab)
    #[arg(long, requires = "link")]
    pub check: bool,
    /// Print JSON (sennit.rtt-sweep/1)
    #[arg(long)]
    pub json: bool,
}

impl SweepArgs {
    /// What the packets are sent over, to an address of IPv6 or of IPv4.
    pub fn medium(&self, v6: bool) -> Medium {
        let mtu = self.mtu.into();
        let ip = Ip { v6, mtu };
        Medium {
            counts: self.counts,
            ip,
            ..Medium::default()
        }
    }
}

/// One load with where it runs.
#[derive(Debug)]
pub struct LoadArgs<'a> {
    /// Where it runs, and how it is printed.
    pub medium: &'a MediumArgs,
    /// What is sent.
    pub load: Load,
}

impl What {
    /// What is asked for, if it is a load.
    pub fn load(&self) -> Option<LoadArgs<'_>> {
        let (medium, load) = match self {
            Self::Tcp(args) => (&args.medium, args.segment.load()),
            Self::Udp(args) => {
                let payload = args.payload.map(usize::from);
                (&args.medium, Load::Udp { payload })
            }
            Self::Quic(args) => (&args.medium, args.load()),
            Self::Tunnel(args) => (&args.medium, args.load()),
            Self::RttSweep(_) => return None,
        };
        Some(LoadArgs { medium, load })
    }

    /// Whether something has to be measured on emulated links.
    pub fn is_checked(&self) -> bool {
        match self {
            Self::RttSweep(args) => args.check,
            Self::Tcp(_) | Self::Udp(_) | Self::Quic(_) | Self::Tunnel(_) => {
                self.load().is_some_and(|args| args.medium.check)
            }
        }
    }
}

impl LoadArgs<'_> {
    /// What comes of it.
    pub fn predict(&self) -> Result<Prediction, PredictError> {
        let medium = self.medium;
        predict(
            &self.load,
            &medium.medium(),
            &medium.links(),
            medium.direction,
        )
    }

    /// What to print, with its last line ended.
    pub fn print(&self, predicted: &Prediction) -> String {
        if self.medium.json {
            let json = serde_json::to_string_pretty(predicted);
            json.expect("a prediction holds only numbers, texts and lists") + "\n"
        } else if self.medium.explain {
            predicted.explanation()
        } else {
            predicted.summary()
        }
    }
}

impl MediumArgs {
    /// What carries packets.
    pub fn medium(&self) -> Medium {
        let usual = Medium::usual_mtu(self.pppoe);
        let mtu = self.mtu.map_or(usual, |mtu| mtu as usize);
        Medium {
            counts: self.counts,
            vlan: self.vlan.into(),
            pppoe: self.pppoe,
            ip: Ip { v6: self.ipv6, mtu },
            half_duplex: self.half_duplex,
        }
    }

    /// Those of `--rate`, then those of `--link`.
    pub fn links(&self) -> Vec<LinkSpec> {
        let plain = |rate: &Bitrate| {
            LinkSpec::symmetric(Config {
                rate: Some(*rate),
                delay: Config::delay_of_ms(NEAR_MS).unwrap_or_default(),
                loss: self.loss.map_or(Loss::None, Loss::Random),
                ..Config::default()
            })
        };
        let rates = self.rates.iter().map(plain);
        rates.chain(self.links.iter().cloned()).collect()
    }

    /// Which way the data goes.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// Whether the same is to be measured.
    pub fn check(&self) -> bool {
        self.check
    }

    /// How long `--check` measures.
    pub fn seconds(&self) -> u32 {
        self.seconds
    }

    /// Whether JSON is asked for.
    pub fn json(&self) -> bool {
        self.json
    }
}

impl SegmentArgs {
    fn load(&self) -> Load {
        Load::Tcp {
            options: self.options.into(),
            ack_every: self.ack_every.into(),
        }
    }
}

impl QuicArgs {
    fn load(&self) -> Load {
        Load::Quic {
            connection_id: self.connection_id.into(),
            packet_number: self.packet_number.into(),
            datagram: self.datagram.into(),
            ack_every: self.ack_every.into(),
        }
    }
}

impl TunnelArgs {
    fn load(&self) -> Load {
        let inner = match self.inner {
            Inner::Tcp => Load::Tcp {
                options: self.options.into(),
                ack_every: 2,
            },
            Inner::Udp => Load::udp(),
            Inner::Quic => Load::quic(),
        };
        let (v6, mtu) = (self.inner_ipv6, self.inner_mtu.into());
        Load::Tunnel(Box::new(Tunnel {
            inner,
            ip: Ip { v6, mtu },
            bare: self.bare,
            thin: self.headers == HeadersWord::Thin,
            packet_number: self.packet_number.into(),
            fec: self.fec,
        }))
    }
}

fn rate(text: &str) -> Result<Bitrate, String> {
    text.parse()
}

fn loss(text: &str) -> Result<f64, String> {
    let percent = text.trim_end_matches('%').parse().ok();
    let ratio = percent.and_then(Loss::ratio_of_percent);
    ratio.ok_or_else(|| "write 0 to less than 100 %, like 0.5%".into())
}

//! Fuzz targets: one function per parser of bytes that a stranger can send.
//!
//! A target takes any bytes and returns, or panics if an invariant broke. "Does not panic" is the
//! least of them: each target also states what must be true of whatever comes out, such as that
//! what was parsed is written and parsed again to the same, that a stream cut into single bytes
//! means the same as in one piece, or that an honest edge gets through whatever else arrived.
//!
//! Most targets read their input as a script ([`input`]): a few bytes that choose what happens
//! next, then the bytes it happens with. So a fuzzer that only knows how to change bytes finds its
//! way to the second packet of a batch and the third stream of a connection.
//!
//! The targets are run in two ways: by libFuzzer through the wrappers in `fuzz/`, and over the
//! committed corpus in `fuzz/corpus` by this crate's tests (docs/decisions/0037). `examples/seeds`
//! makes the part of that corpus which is not a find.

pub mod engine;
pub mod fec;
pub mod helper;
mod input;
pub mod join;
pub mod masque;
pub mod measure;
pub mod packet;
pub mod queues;
pub mod resolver;

/// A target by the name of its wrapper and corpus.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: &[Target] = &[
    ("packet_ip", packet::ip),
    ("packet_segments", packet::segments),
    ("packet_coalesce", packet::coalesce),
    ("packet_thin", packet::thin),
    ("masque_varint", masque::varint),
    ("masque_qpack", masque::qpack),
    ("masque_datagram", masque::datagram),
    ("masque_capsule", masque::capsule),
    ("masque_scope", masque::scope),
    ("masque_server", masque::server),
    ("masque_client", masque::client),
    ("core_frame", queues::frame),
    ("core_halves", queues::halves),
    ("core_dedup", queues::dedup),
    ("core_fq_codel", queues::fq_codel),
    ("fec_decoder", fec::decoder),
    ("engine_hub", engine::hub),
    ("engine_edge", engine::edge),
    ("engine_hub_peer", engine::hub_peer),
    ("engine_edge_peer", engine::edge_peer),
    ("sennit_config", join::config),
    ("sennit_invitation", join::invitation),
    ("sennit_enrolment", join::enrolment),
    ("sennit_control", join::control),
    ("sennit_tickets", join::tickets),
    ("sennit_answer", resolver::answers),
    ("linux_orders", helper::orders),
    ("linux_files", helper::files),
    ("sennit_plan", measure::plan),
    ("load_arrivals", measure::arrivals),
];

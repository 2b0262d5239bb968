//! What the two ends say to each other: lines of JSON on streams.
//!
//! On the control connection the client opens one stream and says [`Ask::Run`], the server answers
//! [`Answer::Ready`] with the name of the session; each other connection says that name
//! ([`Ask::Join`]) and is answered [`Answer::Joined`]. Then [`Ask::Start`] and [`Answer::Started`]
//! begin the load at both ends, [`Ask::Stop`] and [`Answer::Done`] end it.

use std::ops::RangeInclusive;

use sennit_load::{ArrivalFigures, Bins};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    fec::{FecChoice, Symbols},
    requests::Requests,
    stack::StackName,
};

/// Letters of what a far end says in its own words, as the engine keeps of why a tunnel ended.
const LONGEST: usize = 400;
/// Words for congestion controllers of an end, at most: more than there are.
const MOST_CONTROLLERS: usize = 8;

/// What a client wants to be measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// What the server wants to hear before it does anything.
    pub token: Option<String>,
    /// Whether the client sends.
    pub up: bool,
    /// Whether the server sends.
    pub down: bool,
    /// Connections of the load.
    pub connections: u16,
    /// Streams of each connection in each direction; none: no stream, but messages.
    pub streams: u16,
    /// The congestion controller, by its word.
    pub congestion: String,
    /// How long load is counted.
    pub seconds: f64,
    /// How long load is sent before it is counted.
    pub warmup_seconds: f64,
    /// Over this time the connections begin one after the other.
    pub ramp_seconds: f64,
    /// Payload bytes in each direction after which the load ends before its time.
    pub bytes: Option<u64>,
    /// Bytes of each message that is sent once or never, in a DATAGRAM frame; `None`: no messages.
    pub message_bytes: Option<u16>,
    /// The code by which messages are protected in each direction, by its word, or `auto`; `None`:
    /// by none.
    pub fec: Option<String>,
    /// Payload bits a second of all connections together in each direction; `None`: all there is
    /// room for.
    pub rate_bits_per_second: Option<f64>,
    /// Requests of the client on each connection, with or without other load.
    pub requests: Option<Requests>,
}

impl Plan {
    /// Messages a second that a plan may ask for in each direction. No thread of either end sends
    /// so many.
    pub const MOST_MESSAGES: f64 = 1e7;
    /// Bytes of a message: it has a head, and fits any path of QUIC.
    pub const MESSAGE_BYTES: RangeInclusive<u16> = 17..=1100;

    /// Whether its rate is more messages a second than [`Self::MOST_MESSAGES`].
    #[must_use]
    pub fn has_too_many_messages(&self) -> bool {
        let planned = self.rate_bits_per_second.zip(self.message_bytes);
        let per_second = planned.map(|(rate, bytes)| rate / 8.0 / f64::from(bytes.max(1)));
        per_second.is_some_and(|messages| messages > Self::MOST_MESSAGES)
    }

    /// How messages are protected, in words; empty if they are not.
    pub(super) fn protection(&self) -> String {
        let fec = self.fec.as_ref();
        fec.map_or(String::new(), |code| format!(" protected by {code}"))
    }
}

/// What a client says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ask {
    Run(Plan),
    Join(String),
    Start,
    /// Is answered at once, as the first thing of a connection.
    Echo,
    /// With what the server cannot know.
    Stop {
        /// Those that left the client.
        messages: u64,
        /// How long it sent what counts: the warm-up is over before.
        seconds: f64,
    },
}

/// What a server says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    Ready(String),
    /// Instead, if the messages of the plan are to be protected: a server that does not know how
    /// overlooks that they are, and says [`Answer::Ready`].
    Protected(String),
    Joined,
    Started,
    Echo,
    /// Once a second, and when all bytes have arrived.
    Tick(Tick),
    Done(Box<Side>),
}

/// What one end has received so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Tick {
    /// Payload bytes that count.
    pub(super) bytes: u64,
    /// All that the plan asks for is there.
    pub(super) complete: bool,
    /// What error correction did there.
    #[serde(default)]
    pub(super) fec: Symbols,
    /// Since it began, by its own clock; `None` of a server that does not say.
    #[serde(default)]
    pub(super) seconds: Option<f64>,
}

/// Memory of the process of one end; what is not known is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Before the connections of the load were there.
    pub before_bytes: Option<u64>,
    /// When they were there, and idle.
    pub idle_bytes: Option<u64>,
    /// The most of it under load.
    pub loaded_bytes: Option<u64>,
}

/// What one end did and saw.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Side {
    pub(super) received: Received,
    pub(super) sent: Sent,
    /// CPU time of the thread while the load ran.
    pub(super) cpu_seconds: Option<f64>,
    /// For so long it waited for a processor meanwhile.
    #[serde(default)]
    pub(super) cpu_waited_seconds: Option<f64>,
    /// Other tests that a server served while the load ran; `None` of a client, and of a server
    /// that does not say.
    #[serde(default)]
    pub(super) other_tests: Option<u64>,
    /// How long the load ran, with its warm-up.
    pub(super) elapsed_seconds: f64,
    pub(super) memory: Memory,
    /// The QUIC that it ran on; an end that does not say is one of before there was a choice.
    #[serde(default)]
    pub(super) stack: StackName,
    /// What error correction did.
    #[serde(default)]
    pub(super) fec: Symbols,
    /// What `auto` chose last for each connection on which this end sends.
    #[serde(default)]
    pub(super) choices: Vec<FecChoice>,
}

/// What one end received while the load ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Received {
    /// How long it counted.
    pub(super) seconds: f64,
    /// Payload bytes of streams and messages.
    pub(super) bytes: u64,
    pub(super) bins: Option<Bins>,
    /// Payload bytes of each stream, or of the messages of each connection.
    pub(super) flows: Vec<u64>,
    pub(super) messages: Option<ArrivalFigures>,
}

/// What one end sent while the load ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Sent {
    pub(super) messages: u64,
    /// QUIC packets.
    pub(super) packets: u64,
    /// QUIC packets that it took for lost.
    pub(super) lost: u64,
    /// The congestion controllers that ran at the end, by their words.
    pub(super) controllers: Vec<String>,
}

impl Side {
    /// As a far end says it: its words stand in a report and on a terminal, so they are short and
    /// without control characters, and there are as few as there can be of so many connections.
    pub(super) fn cleaned(mut self, connections: u16) -> Self {
        self.choices.truncate(connections.into());
        for choice in &mut self.choices {
            choice.code = choice.code.as_deref().map(plain);
            choice.reason = plain(&choice.reason);
        }
        let words = &mut self.sent.controllers;
        words.truncate(MOST_CONTROLLERS);
        words.iter_mut().for_each(|word| *word = plain(word));
        self
    }
}

/// What a far end says, without control characters and cut after [`LONGEST`] letters.
pub(super) fn plain(text: &str) -> String {
    let letters = text.chars().filter(|letter| !letter.is_control());
    letters.take(LONGEST).collect()
}

/// The lines of a stream, as they come in.
#[derive(Debug)]
pub(super) struct Lines {
    text: Vec<u8>,
    /// Bytes that may wait for the end of their line.
    longest: usize,
}

impl Lines {
    pub(super) fn new(longest: usize) -> Self {
        let text = Vec::new();
        Self { text, longest }
    }

    /// Takes bytes of the stream; `false` if the line is too long to be one of ours.
    #[must_use]
    pub(super) fn push(&mut self, bytes: &[u8]) -> bool {
        self.text.extend_from_slice(bytes);
        self.text.len() <= self.longest
    }

    /// The next line; an error if it is none of those that are expected.
    pub(super) fn next<T: DeserializeOwned>(&mut self) -> Option<Result<T, String>> {
        let end = self.text.iter().position(|&byte| byte == b'\n')?;
        let line: Vec<u8> = self.text.drain(..=end).collect();
        Some(serde_json::from_slice(&line).map_err(|error| error.to_string()))
    }
}

/// A line to send.
pub(super) fn line(message: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}

#[cfg(test)]
impl Plan {
    /// Of a test that sends nothing.
    pub(super) fn example() -> Self {
        Self {
            token: None,
            up: false,
            down: false,
            connections: 1,
            streams: 1,
            congestion: "auto".into(),
            seconds: 8.0,
            warmup_seconds: 0.0,
            ramp_seconds: 0.0,
            bytes: None,
            message_bytes: None,
            fec: None,
            rate_bits_per_second: None,
            requests: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_out_whole_however_they_came_in() {
        let mut lines = Lines::new(100);
        let text = [line(&Ask::Start), line(&Ask::Join("ab".into()))].concat();

        let (first, rest) = text.split_at(text.len() - 3);
        assert!(lines.push(first));
        assert_eq!(lines.next(), Some(Ok(Ask::Start)));
        assert_eq!(lines.next::<Ask>(), None);
        assert!(lines.push(rest));
        assert_eq!(lines.next(), Some(Ok(Ask::Join("ab".into()))));
        assert_eq!(lines.next::<Ask>(), None);
    }

    #[test]
    fn what_a_far_end_says_is_short_and_does_nothing_to_a_terminal() {
        let choice = FecChoice {
            code: Some("\x1b[2Jrs:10+2".into()),
            reason: "no\r\n\u{9b}31mloss".repeat(100),
            loss_ratio: 0.0,
            burst: 1.0,
        };
        let side = Side {
            choices: vec![choice; 70],
            sent: Sent {
                controllers: vec!["\x1b]0;cubic\x07".into(); 1000],
                ..Sent::default()
            },
            ..Side::default()
        };

        let side = side.cleaned(2);

        assert_eq!(side.choices.len(), 2);
        assert_eq!(side.choices[0].code.as_deref(), Some("[2Jrs:10+2"));
        assert_eq!(side.choices[1].reason.len(), LONGEST);
        assert!(!side.choices[1].reason.contains(char::is_control));
        assert_eq!(side.sent.controllers, vec!["]0;cubic"; MOST_CONTROLLERS]);
    }

    #[test]
    fn what_is_no_message_is_an_error_and_what_has_no_end_is_refused() {
        let mut lines = Lines::new(100);
        assert!(lines.push(b"{\"explode\":1}\n"));
        assert!(lines.next::<Ask>().is_some_and(|line| line.is_err()));
        assert!(!lines.push(&[b' '; 101]));
    }
}

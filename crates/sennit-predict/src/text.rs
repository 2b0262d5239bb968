//! Predictions for people.

use std::fmt::Write as _;

use crate::medium::Packet;
use crate::outcome::{LinkFigures, Prediction};

/// Columns of what a part is called.
const NAMES: usize = 30;

impl Prediction {
    /// What all links carry together, with its unit.
    pub fn goodput_text(&self) -> String {
        rate(self.goodput_bits_per_second)
    }

    /// What is carried, in a few lines.
    pub fn summary(&self) -> String {
        let (goodput, what) = (self.goodput_text(), &self.what);
        let rates = self.links.iter().map(|link| link.rate_bits_per_second);
        let percent = self.goodput_bits_per_second / rates.sum::<f64>() * 100.0;
        let mut text = format!("{what}: {goodput}, {percent:.2} % of the rate\n");
        for link in self.links.iter().filter(|link| link.limited_by_answers) {
            let name = &link.link;
            let _ = writeln!(
                text,
                "{name}: the way back is full of acknowledgements; data would have room for more"
            );
        }
        text
    }

    /// The sum, line by line.
    pub fn explanation(&self) -> String {
        let mut text = format!("{}\n", self.what);
        let count = self.packets.len();
        for (index, packet) in self.packets.iter().enumerate() {
            let number = if count > 1 {
                format!("packet {} of {count}", index + 1)
            } else {
                "a packet".into()
            };
            list(&mut text, &format!("{number} takes"), packet);
        }
        for repair in &self.repairs {
            let title = format!("one repair for {} of these takes", repair.every);
            list(&mut text, &title, &repair.packet);
        }
        for answer in self.answers.iter().filter(|_| self.half_duplex) {
            let every = answer.every;
            let title = format!("one for {every} of these comes back, and takes");
            list(&mut text, &title, &answer.packet);
        }
        text.push('\n');
        self.explain_efficiency(&mut text);
        for link in &self.links {
            self.explain_link(&mut text, link);
        }
        line(&mut text, "goodput", &self.goodput_text());
        text
    }

    fn explain_efficiency(&self, text: &mut String) {
        let (payload, wire) = (self.payload_bytes, self.wire_bytes);
        let percent = self.efficiency * 100.0;
        let answers = if self.half_duplex {
            self.answer_bytes
        } else {
            0.0
        };
        let more = [self.repair_bytes, answers].into_iter();
        let more = more.filter(|bytes| *bytes > 0.0);
        let more: String = more.map(|bytes| format!(" + {bytes:.1}")).collect();
        let sum = match more.is_empty() {
            true => format!("{payload} / {wire} = {percent:.2} %"),
            false => format!("{payload} / ({wire}{more}) = {percent:.2} %"),
        };
        line(text, "payload / bytes", &sum);
        if !self.half_duplex && self.answer_bytes > 0.0 {
            let back = format!("{:.1} bytes for these {wire}", self.answer_bytes);
            line(text, "on the way back", &back);
        }
    }

    fn explain_link(&self, text: &mut String, link: &LinkFigures) {
        let LinkFigures {
            link: name,
            arrives,
            limited_by_answers,
            ..
        } = link;
        let mut sum = match limited_by_answers {
            true => format!(
                "{} bytes of payload for {:.1} bytes on the way back",
                self.payload_bytes, self.answer_bytes
            ),
            false => format!(
                "{} x {}",
                rate(link.rate_bits_per_second),
                self.efficiency_where(*arrives)
            ),
        };
        // What does not arrive is not acknowledged, so it is no part of that limit.
        if *arrives < 1.0 && !limited_by_answers {
            let which = match self.repairs.is_empty() {
                true => "that arrive",
                false => "that is not sent again",
            };
            let _ = write!(sum, " x {:.2} % {which}", arrives * 100.0);
        }
        let _ = write!(sum, " = {}", rate(link.goodput_bits_per_second));
        line(text, &format!("link {name}"), &sum);
    }

    /// Payload against bytes where this share of what is sent arrives, and only that is
    /// acknowledged.
    fn efficiency_where(&self, arrives: f64) -> String {
        let (payload, sent) = (
            self.payload_bytes,
            self.wire_bytes as f64 + self.repair_bytes,
        );
        let back = self.answer_bytes;
        match self.half_duplex && back > 0.0 && arrives < 1.0 {
            true => format!(
                "{payload} / ({sent:.1} + {back:.1} x {:.2} %)",
                arrives * 100.0
            ),
            false => format!("{:.2} %", self.efficiency * 100.0),
        }
    }
}

fn line(text: &mut String, name: &str, value: &str) {
    let _ = writeln!(text, "  {name:NAMES$} {value}");
}

fn list(text: &mut String, title: &str, packet: &Packet) {
    let _ = writeln!(text, "\n{title}");
    for part in &packet.parts {
        let _ = writeln!(text, "  {:NAMES$} {:5}", part.what, part.bytes);
    }
    let _ = writeln!(text, "  {:NAMES$} {:5}", "together", packet.bytes());
}

/// Bits per second with a unit that suits them.
pub(crate) fn rate(bits: f64) -> String {
    match bits {
        1e9.. => format!("{:.3} Gbit/s", bits / 1e9),
        1e8.. => format!("{:.1} Mbit/s", bits / 1e6),
        1e6.. => format!("{:.2} Mbit/s", bits / 1e6),
        _ => format!("{:.1} kbit/s", bits / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use sennit_netem::{Direction, LinkSpec};

    use crate::{Load, Medium, predict};

    fn explained(half_duplex: bool, link: &str) -> String {
        let links: [LinkSpec; 1] = [link.parse().expect("a link")];
        let medium = Medium {
            half_duplex,
            ..Medium::default()
        };
        let predicted = predict(&Load::tcp(), &medium, &links, Direction::Up);
        predicted.expect("it fits").explanation()
    }

    #[test]
    fn the_sum_is_there_line_by_line() {
        let text = explained(false, "10/5/2%");
        for part in [
            "preamble, start of frame           8\n",
            "TCP options                       12\n",
            "payload                         1448\n",
            "together                        1538\n",
            "1448 / 1538 = 94.15 %\n",
            "10.00 Mbit/s x 94.15 % x 98.00 % that arrive = 9.23 Mbit/s\n",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }

    #[test]
    fn a_lossy_shared_medium_is_explained_by_what_is_acknowledged() {
        let text = explained(true, "10/5/20%");
        let sum = "10.00 Mbit/s x 1448 / (1538.0 + 45.0 x 80.00 %) x 80.00 % that arrive = 7.36";
        assert!(text.contains(sum), "{text}");
        let narrow = explained(false, "100:0.5/5/20%");
        let sum = "1448 bytes of payload for 45.0 bytes on the way back = 16.09 Mbit/s";
        assert!(narrow.contains(sum), "{narrow}");
    }

    #[test]
    fn the_share_of_the_rate_is_what_arrives_of_it() {
        let links = ["10/5/20%", "30/5/20%"].map(|link| link.parse().expect("a link"));
        let predicted = predict(&Load::tcp(), &Medium::default(), &links, Direction::Up);
        let text = predicted.expect("it fits").summary();
        assert!(text.contains("30.13 Mbit/s, 75.32 % of the rate"), "{text}");
    }

    #[test]
    fn what_comes_back_counts_on_a_shared_medium_only() {
        assert!(explained(true, "10/5").contains("1448 / (1538 + 45.0) = 91.47 %\n"));
        assert!(!explained(false, "10/5").contains("comes back"));
    }
}

//! What a server lets a client plan.

use aws_lc_rs::constant_time;
use sennit_fec::Fec;

use super::{
    super::{requests::LONGEST, words::Plan},
    Options,
};

/// Connections of one client at once, those of its load and one more.
pub(super) const MOST_CONNECTIONS: u16 = 1024;
/// Connections of one client with messages: histograms and delays of each take 500 KB.
const MOST_WITH_MESSAGES: u16 = 64;
/// Connections of one client with messages that are protected: a decoder keeps 2,048 messages and
/// 64 equations with up to as many unknowns, which are less than 5 MB.
const MOST_PROTECTED: u16 = 16;
/// Streams of a connection, in each direction.
const MOST_STREAMS: u16 = 256;

impl Options {
    /// Whether such a test is for this server.
    ///
    /// # Errors
    /// Why it is not, and what to say instead.
    pub fn allow(&self, plan: &Plan) -> Result<(), String> {
        let said = plan.token.as_deref().unwrap_or_default();
        if let Some(token) = &self.token
            && constant_time::verify_slices_are_equal(token.as_bytes(), said.as_bytes()).is_err()
        {
            return Err("the token is not this server's: see --token".into());
        }
        let most = self.most_seconds.as_secs_f64();
        let (counted, before) = (plan.seconds, [plan.warmup_seconds, plan.ramp_seconds]);
        let is_time = before.iter().all(|time| (0.0..=most).contains(time));
        if !(is_time && counted > 0.0 && counted + plan.warmup_seconds <= most) {
            return Err(too_long(plan, most));
        }
        if !(1..=MOST_CONNECTIONS).contains(&plan.connections) || plan.streams > MOST_STREAMS {
            return Err(format!(
                "1 to {MOST_CONNECTIONS} connections and up to {MOST_STREAMS} streams are allowed"
            ));
        }
        if plan.message_bytes.is_some() && plan.connections > MOST_WITH_MESSAGES {
            return Err(format!(
                "messages go over at most {MOST_WITH_MESSAGES} connections"
            ));
        }
        let fits = |bytes| Plan::MESSAGE_BYTES.contains(&bytes);
        if plan.message_bytes.is_some_and(|bytes| !fits(bytes)) {
            let (least, most) = Plan::MESSAGE_BYTES.into_inner();
            return Err(format!("a message has {least} to {most} bytes"));
        }
        self.allow_code(plan)?;
        self.allow_rate(plan)?;
        let asks = plan.requests.as_ref();
        if asks.is_some_and(|asks| asks.answer_bytes > LONGEST) {
            return Err(format!("an answer has at most {LONGEST} bytes"));
        }
        let sane = |rate: f64| (1.0..=1e12).contains(&rate);
        if plan.rate_bits_per_second.is_some_and(|rate| !sane(rate)) {
            return Err("a rate is 1 bit/s to 1 Tbit/s".into());
        }
        if plan.has_too_many_messages() {
            return Err(format!(
                "at most {} messages a second are allowed",
                Plan::MOST_MESSAGES
            ));
        }
        let (stack, word) = (self.stack, &plan.congestion);
        match word.parse() {
            Ok(known) if stack.has(known) => Ok(()),
            Ok(_) => Err(format!(
                "this server's stack, {stack}, has no congestion control `{word}`"
            )),
            Err(_) => Err(format!("this server has no congestion control `{word}`")),
        }
    }

    fn allow_code(&self, plan: &Plan) -> Result<(), String> {
        let Some(word) = &plan.fec else { return Ok(()) };
        let fec = word.parse::<Fec>();
        let fec =
            fec.map_err(|bad| format!("this server has no such error correction: `{word}` {bad}"))?;
        if plan.message_bytes.is_none() {
            return Err("only messages are protected by error correction".into());
        }
        if plan.connections > MOST_PROTECTED {
            return Err(format!(
                "messages are protected on at most {MOST_PROTECTED} connections"
            ));
        }
        if fec == Fec::Auto && plan.down && !self.stack.tells_losses() {
            return Err(format!(
                "this server's stack, {}, does not tell what it loses, by which `auto` chooses: \
                 name a code",
                self.stack
            ));
        }
        Ok(())
    }

    /// A client is held to the rate that it plans by the end that sends; to how often it may ask by
    /// nobody.
    fn allow_rate(&self, plan: &Plan) -> Result<(), String> {
        let Some(most) = self.most_rate else {
            return Ok(());
        };
        let most = most.as_bps() as f64;
        let mbit = most / 1e6;
        if plan.requests.is_some() {
            return Err(format!(
                "a test has at most {mbit} Mbit/s here, and nothing holds requests to a rate: \
                 leave out --requests and --responsiveness"
            ));
        }
        let loads = plan.up || plan.down;
        match plan.rate_bits_per_second {
            Some(rate) if rate <= most => Ok(()),
            None if !loads => Ok(()),
            Some(_) | None => Err(format!(
                "a test has at most {mbit} Mbit/s here: say --rate {mbit}Mbit"
            )),
        }
    }
}

/// That a test would last longer than a server allows, and what to say instead.
fn too_long(plan: &Plan, most: f64) -> String {
    let left = most - plan.warmup_seconds;
    let wanted = plan.seconds + plan.warmup_seconds;
    let warm_up = match plan.warmup_seconds > 0.0 {
        true => " with its warm-up",
        false => "",
    };
    let instead = if plan.ramp_seconds > most || left <= 0.0 {
        "shorten --warmup and --ramp".to_owned()
    } else if plan.bytes.is_some() {
        format!("say --duration {left} beside --bytes, and it ends then if not all has arrived")
    } else {
        format!("say --duration {left}")
    };
    format!(
        "a test lasts {most} s at most here{warm_up}, and this one would last {wanted} s: {instead}"
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sennit_packet::Bitrate;

    use super::*;
    use crate::loadtest::{requests::Requests, stack::StackName};

    fn options() -> Options {
        Options {
            listen: None,
            token: None,
            most_seconds: Duration::from_secs(300),
            most_rate: None,
            most_clients: 4,
            perf: false,
            stack: StackName::Sennit,
        }
    }

    fn messages(bytes: u16, rate: f64) -> Plan {
        Plan {
            token: None,
            up: true,
            down: true,
            connections: 1,
            streams: 0,
            congestion: "auto".into(),
            seconds: 8.0,
            warmup_seconds: 0.0,
            ramp_seconds: 0.0,
            bytes: None,
            message_bytes: Some(bytes),
            fec: None,
            rate_bits_per_second: Some(rate),
            requests: None,
        }
    }

    /// One each 0.1 ns would never be done with.
    #[test]
    fn more_messages_than_any_machine_sends_are_refused() {
        let refused = options().allow(&messages(17, 1e12));

        assert!(refused.is_err_and(|why| why.contains("10000000 messages a second")));
        assert_eq!(options().allow(&messages(17, 1e9)), Ok(()));
    }

    #[test]
    fn a_load_says_a_rate_where_there_is_a_limit() {
        let slow = Options {
            most_rate: Some(Bitrate::bps(2_500_000)),
            ..options()
        };
        let all = Plan {
            rate_bits_per_second: None,
            ..messages(100, 1e6)
        };
        let asks = Plan {
            requests: Some(Requests {
                request_bytes: 100,
                answer_bytes: 1000,
                concurrency: 1,
                per_second: Some(1.0),
            }),
            ..messages(100, 1e6)
        };
        assert_eq!(slow.allow(&messages(100, 2.5e6)), Ok(()));
        assert_eq!(options().allow(&all), Ok(()));
        for (plan, why) in [
            (messages(100, 2.6e6), "say --rate 2.5Mbit"),
            (all, "say --rate 2.5Mbit"),
            (asks, "leave out --requests"),
        ] {
            assert!(slow.allow(&plan).is_err_and(|it| it.contains(why)), "{why}");
        }
    }

    /// One that fits no packet would be refused by the stack for ever.
    #[test]
    fn a_message_fits_a_packet() {
        let allowed = |bytes| options().allow(&messages(bytes, 1e6)).is_ok();
        let sizes = [16, 17, 1100, 1101, u16::MAX].map(allowed);
        assert_eq!(sizes, [false, true, true, false, false]);
    }

    #[test]
    fn messages_are_protected_by_a_code_that_there_is_and_on_few_connections() {
        let allowed = |word: &str, connections, bytes: Option<u16>| {
            options().allow(&Plan {
                fec: Some(word.into()),
                connections,
                message_bytes: bytes,
                ..messages(100, 1e6)
            })
        };
        for word in ["rs:10+2", "auto"] {
            assert_eq!(allowed(word, MOST_PROTECTED, Some(100)), Ok(()));
        }
        for (word, connections, bytes, why) in [
            ("turbo", 1, Some(100), "no such error correction: `turbo`"),
            ("xor:300+1", 1, Some(100), "1 to 255 packets"),
            ("rlc:1/8", 17, Some(100), "at most 16 connections"),
            ("rlc:1/8", 1, None, "only messages"),
        ] {
            let refused = allowed(word, connections, bytes);
            assert!(refused.is_err_and(|it| it.contains(why)), "{word} {why}");
        }
    }

    #[test]
    fn auto_is_refused_where_the_sender_does_not_tell_what_it_loses() {
        let quinn = Options {
            stack: StackName::Quinn,
            ..options()
        };
        let plan = |down| Plan {
            fec: Some("auto".into()),
            congestion: "bbr".into(),
            down,
            ..messages(100, 1e6)
        };

        let refused = quinn.allow(&plan(true));

        assert!(refused.is_err_and(|why| why.contains("quinn, does not tell what it loses")));
        assert_eq!(quinn.allow(&plan(false)), Ok(()), "it only receives");
    }
}

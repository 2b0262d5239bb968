//! The decoder of `sennit-fec`.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use sennit_fec::{Code, Decoder, Encoder, Recovered, Repair};

use crate::input::Input;

const CODES: [Code; 4] = [
    Code::Xor { sources: 4 },
    Code::Rs {
        sources: 10,
        repairs: 3,
    },
    Code::Rlc { every: 3 },
    Code::Rlc { every: 8 },
];
/// What the decoder may take, in bytes.
const MEMORY: usize = 8 << 20;

/// Sources and repairs of an honest encoder, some of which are lost or late, and forged ones.
/// Script: which code (1), then per step an opcode (1): a source that arrives or is lost, repairs
/// that are due arrive, are lost or wait; time passes; a forged repair or source (a block).
pub fn decoder(data: &[u8]) {
    let mut input = Input::new(data);
    let code = CODES[usize::from(input.byte()) % CODES.len()];
    let mut ends = Ends {
        encoder: Encoder::new(code),
        decoder: Decoder::new(),
        sent: BTreeMap::new(),
        honest: true,
        now: Instant::now(),
    };
    while !input.is_empty() {
        let opcode = input.byte();
        match opcode % 8 {
            0..=2 => ends.source(opcode, true),
            3 => ends.source(opcode, false),
            4 => ends.repairs(true),
            5 => ends.repairs(false),
            6 => {
                ends.now += Duration::from_millis(u64::from(opcode));
                ends.encoder.handle_timeout(ends.now);
            }
            _ => ends.forged(input.block()),
        }
        assert!(ends.decoder.memory() <= MEMORY);
    }
}

struct Ends {
    encoder: Encoder,
    decoder: Decoder,
    sent: BTreeMap<u16, Vec<u8>>,
    /// Nothing was forged yet.
    honest: bool,
    now: Instant,
}

impl Ends {
    fn source(&mut self, opcode: u8, arrives: bool) {
        let (head, body) = ([opcode; 6], vec![opcode ^ 0x55; usize::from(opcode) * 6]);
        let id = self.encoder.push(&head, &body, self.now);
        let id = id.expect("it is short enough");
        self.sent.insert(id, [&head[..], &body].concat());
        if arrives {
            let check = check(&self.sent, self.honest);
            self.decoder.handle_source(id, &head, &body, check);
        }
    }

    fn repairs(&mut self, arrive: bool) {
        while let Some((repair, symbol)) = self.encoder.poll_repair() {
            if arrive {
                let check = check(&self.sent, self.honest);
                self.decoder.handle_repair(&repair, symbol, check);
            }
        }
    }

    fn forged(&mut self, bytes: &[u8]) {
        self.honest = false;
        match (bytes, Repair::decode(bytes)) {
            (_, Some((repair, symbol))) => {
                assert_eq!(&bytes[..Repair::LEN], repair.encode());
                self.decoder.handle_repair(&repair, symbol, |_| {});
            }
            ([a, b, body @ ..], None) => {
                let id = u16::from_be_bytes([*a, *b]);
                self.decoder.handle_source(id, &[], body, |_| {});
            }
            _ => {}
        }
    }
}

/// What comes back is what was sent, as long as nobody lies.
fn check(sent: &BTreeMap<u16, Vec<u8>>, honest: bool) -> impl FnMut(Recovered<'_>) {
    move |recovered| {
        if honest {
            let sent = sent.get(&recovered.id).expect("it was sent");
            let zeros = recovered.bytes.strip_prefix(&sent[..]).expect("as it was");
            assert!(zeros.iter().all(|byte| *byte == 0));
        }
    }
}

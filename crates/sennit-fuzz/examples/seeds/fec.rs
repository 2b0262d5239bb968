//! Scripts for the decoder of `sennit-fec`.

use crate::Seed;

pub(crate) fn all() -> Vec<Seed> {
    // Arrives, is lost, repairs arrive, are lost, time, forged.
    const HERE: u8 = 8;
    const GONE: u8 = 11;
    const REPAIR: u8 = 12;
    const NO_REPAIR: u8 = 13;
    const TIME: u8 = 62;
    let group = |code: u8, lost: &[usize], sources: usize, then: u8| {
        let fate = |n| if lost.contains(&n) { GONE } else { HERE };
        let mut script = vec![code];
        script.extend((0..sources).map(fate));
        script.push(then);
        script
    };
    let mut forged = group(2, &[3, 4], 12, REPAIR);
    forged.extend([7, 0, 6, 0x80, 0, 4, 255, 1, 2]);
    forged.extend([7, 0, 6, 0x41, 255, 250, 10, 0, 0, REPAIR]);
    [
        ("sum", group(0, &[2], 4, REPAIR)),
        ("sum-not-enough", group(0, &[1, 2], 4, REPAIR)),
        ("group", group(1, &[1, 5, 9], 10, REPAIR)),
        ("group-without-repairs", group(1, &[1], 10, NO_REPAIR)),
        ("window", group(2, &[5, 6], 18, REPAIR)),
        (
            "closed-by-time",
            [group(1, &[1, 2], 3, TIME), vec![REPAIR]].concat(),
        ),
        ("forged", forged),
    ]
    .map(|(name, bytes)| ("fec_decoder", name, bytes))
    .into()
}

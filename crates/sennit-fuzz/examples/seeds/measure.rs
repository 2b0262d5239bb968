//! Inputs for the targets of [`sennit_fuzz::measure`].

use crate::Seed;
use crate::script::Script;

pub(crate) fn all() -> Vec<Seed> {
    let plans = plans()
        .into_iter()
        .map(|(name, seed)| ("sennit_plan", name, seed));
    let messages = messages().into_iter();
    let messages = messages.map(|(name, seed)| ("load_arrivals", name, seed));
    plans.chain(messages).collect()
}

fn plans() -> Vec<(&'static str, Vec<u8>)> {
    let streams = r#"{"token":null,"up":true,"down":true,"connections":4,"streams":2,"congestion":"bbr3",
"seconds":8.0,"warmup_seconds":1.0,"ramp_seconds":0.5,"bytes":200000000,"message_bytes":null,
"rate_bits_per_second":null,"requests":null}"#;
    let messages = streams
        .replace(r#""message_bytes":null"#, r#""message_bytes":200"#)
        .replace("second\":null", "second\":1e6");
    let asks =
        r#""requests":{"request_bytes":100,"answer_bytes":2000,"concurrency":4,"per_second":10.5}"#;
    let of = |text: &str| text.as_bytes().to_vec();
    vec![
        ("streams", of(streams)),
        ("messages", of(&messages)),
        ("messages-too-many", of(&messages.replace("1e6", "1e12"))),
        ("requests", of(&streams.replace(r#""requests":null"#, asks))),
        ("no-seconds", of(&streams.replace("8.0", "-0.0"))),
        ("long", of(&streams.replace("8.0", "1e308"))),
        ("long-ramp", of(&streams.replace("0.5", "1e300"))),
        ("no-controller", of(&streams.replace("bbr3", "fast"))),
        ("many-connections", of(&streams.replace(":4,", ":65535,"))),
        ("cut", of(&streams[..40])),
    ]
}

/// A message: how its number is made, that, its length, when it was sent and when it arrived.
fn message(script: Script, number: &[u8], times: [u64; 2]) -> Script {
    let script = script.bytes(number).u16(200);
    times
        .into_iter()
        .fold(script, |script, time| script.bytes(&time.to_be_bytes()))
}

fn messages() -> Vec<(&'static str, Vec<u8>)> {
    let any = |number: u64| [&[2][..], &number.to_be_bytes()].concat();
    let all = |numbers: &[Vec<u8>], times: [u64; 2]| {
        let add = |script, number: &Vec<u8>| message(script, number, times);
        numbers.iter().fold(Script::default(), add).done()
    };
    let next = vec![0];
    vec![
        (
            "in-order",
            all(&[any(0), next.clone(), next.clone()], [0, 1_000_000]),
        ),
        ("twice", all(&[any(5), any(5)], [0, 1_000_000])),
        ("backwards", all(&[any(9), any(8), any(7)], [0, 5])),
        (
            "far-apart",
            all(&[any(0), any(u64::MAX - 1), any(1)], [0, 1]),
        ),
        ("greatest", all(&[any(u64::MAX), next], [0, 1])),
        ("from-the-future", all(&[any(0), any(1)], [u64::MAX, 0])),
        ("some-before", all(&[any(70_000), vec![1, 0, 0]], [3, 4])),
    ]
}

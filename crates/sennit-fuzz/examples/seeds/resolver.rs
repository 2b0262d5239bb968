//! Inputs for the target of [`sennit_fuzz::resolver`].

use crate::Seed;
use crate::script::Script;

pub(crate) fn all() -> Vec<Seed> {
    let seeds = answers().into_iter();
    let seeds = seeds.map(|(name, seed)| ("sennit_answer", name, seed));
    seeds.collect()
}

const ID: u16 = 7;
/// The name that there is when the script makes none.
const HUB: &[u8] = b"\x03vpn\x07example\x03org\0";
/// A pointer to the name of the question.
const ASKED: [u8; 2] = [0xc0, 12];
/// An answer without an error.
const FINE: [u8; 2] = [0x81, 0x80];

/// A whole message.
fn whole(bytes: &[u8]) -> Vec<u8> {
    Script::default()
        .u16(ID)
        .block(&[])
        .bytes(&[0])
        .bytes(bytes)
        .done()
}

/// What follows our question, and the numbers of records in the three sections.
fn after(flags: [u8; 2], counts: [u16; 3], records: &[u8]) -> Vec<u8> {
    let script = Script::default().u16(ID).block(&[]).bytes(&[1]);
    let script = counts.into_iter().fold(script.bytes(&flags), Script::u16);
    script.bytes(records).done()
}

/// Records of an honest answer, about a name of these letters.
fn honest(name: &[u8], family: u8, records: &[u8]) -> Vec<u8> {
    let script = Script::default().u16(ID).block(name);
    script.bytes(&[2 + family]).bytes(records).done()
}

fn record(owner: &[u8], kind: u8, class: u16, data: &[u8]) -> Vec<u8> {
    let script = Script::default().bytes(owner).bytes(&[0, kind]).u16(class);
    script.bytes(&60_u32.to_be_bytes()).block(data).done()
}

fn answers() -> Vec<(&'static str, Vec<u8>)> {
    let v4 = [0, 203, 0, 113, 10];
    let v6 = [&[1, 0x20, 1, 0xd, 0xb8][..], &[0; 11], &[1]].concat();
    let longest = [
        &[1; 63][..],
        &[38],
        &[2; 63],
        &[38],
        &[3; 63],
        &[38],
        &[4; 61],
    ]
    .concat();
    let a = |owner: &[u8]| record(owner, 1, 1, &[203, 0, 113, 10]);
    let head = |counts: [u16; 4]| {
        let head = Script::default().u16(ID).bytes(&FINE);
        counts.into_iter().fold(head, Script::u16)
    };
    let question = |name: &[u8]| [name, &[0, 1, 0, 1]].concat();
    let here = |name: &[u8]| whole(&head([1, 0, 0, 0]).bytes(&question(name)).done());
    let root = record(&[0], 41, 1232, &[]);
    let extended = Script::default().bytes(&[0, 0, 41]).u16(1232);
    let extended = extended.bytes(&[1, 0, 0, 0, 0, 0]).done();
    vec![
        ("v4", honest(&[], 0, &v4)),
        ("v6", honest(&[], 1, &v6)),
        ("alias", honest(b"hub", 0, &[&[2][..], &v4].concat())),
        ("other-family", honest(&[], 1, &v4)),
        (
            "unusable",
            honest(&[], 0, &[0, 0, 0, 0, 0, 0, 224, 0, 0, 1]),
        ),
        ("nothing", honest(&[], 0, &[])),
        ("many", honest(&[], 0, &v4.repeat(40))),
        ("longest-name", honest(&longest, 0, &v4)),
        ("no-such-name", after([0x81, 0x83], [0; 3], &[])),
        ("failed", after([0x81, 0x82], [0; 3], &[])),
        ("truncated", after([0x83, 0x80], [1, 0, 0], &a(&ASKED)[..9])),
        (
            "other-class",
            after(FINE, [1, 0, 0], &record(&ASKED, 1, 3, &[203, 0, 113, 10])),
        ),
        (
            "unknown-class",
            after(FINE, [1, 0, 0], &record(&ASKED, 1, 77, &[203, 0, 113, 10])),
        ),
        (
            "unknown-type",
            after(FINE, [1, 0, 0], &record(&ASKED, 250, 1, &[1, 2, 3])),
        ),
        (
            "empty-address",
            after(FINE, [1, 0, 0], &record(&ASKED, 1, 1, &[])),
        ),
        (
            "long-address",
            after(FINE, [1, 0, 0], &record(&ASKED, 1, 1, &[9; 9])),
        ),
        (
            "extended",
            after(FINE, [1, 0, 1], &[a(&ASKED), root].concat()),
        ),
        (
            "extended-code",
            after(FINE, [1, 0, 1], &[a(&ASKED), extended].concat()),
        ),
        ("points-at-itself", after(FINE, [1, 0, 0], &a(&[0xc0, 33]))),
        ("points-ahead", after(FINE, [1, 0, 0], &a(&[0xff, 0xff]))),
        ("announces-much", after(FINE, [u16::MAX; 3], &a(&ASKED))),
        ("announces-all", whole(&head([u16::MAX; 4]).done())),
        ("head-only", whole(&head([0; 4]).done())),
        ("in-capitals", here(&HUB.to_ascii_uppercase())),
        ("another-name", here(b"\x04evil\x03org\0")),
        ("dot-in-a-label", here(b"\x0bvpn.example\x03org\0")),
        ("not-utf8", here(b"\x03vpn\x07exam\xffle\x03org\0")),
        (
            "two-questions",
            whole(&head([2, 0, 0, 0]).bytes(&question(HUB).repeat(2)).done()),
        ),
        ("garbage", whole(b"garbage")),
    ]
}

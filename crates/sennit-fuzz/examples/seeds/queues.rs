//! Frames and scripts for the structures of `sennit-core`.

use std::time::Duration;

use sennit_core::frame::{Fare, Half, Header, PathReport, Queue, Report};
use sennit_packet::Bitrate;

use crate::Seed;
use crate::script::Script;

pub(crate) fn all() -> Vec<Seed> {
    [frames(), halves(), numbers(), queues()].concat()
}

fn frames() -> Vec<Seed> {
    let header = Header {
        flow: 0xcd,
        ordered: true,
        early: Duration::from_millis(20),
        seq: u32::MAX,
        sent_micros: 7,
    };
    let half = Half {
        last: true,
        partial: true,
        len: 4,
    };
    let entry = |path| PathReport {
        path,
        heard: path % 2 == 0,
        shrunk: false,
        away: None,
        spacing: std::time::Duration::ZERO,
    };
    let report = |count| {
        let paths = (0..count).map(entry).collect();
        let mut wire = Vec::new();
        Report {
            sent_micros: 7,
            paths,
            ..Report::default()
        }
        .encode(&mut wire);
        wire
    };
    let items = {
        let mut wire = Vec::new();
        let fare = Fare {
            path: 1,
            held: true,
            link_rate: Bitrate::mbit(50),
            others: vec![(0, Bitrate::mbit(1)), (2, Bitrate::mbit(8))],
            ..Fare::default()
        };
        Report {
            sent_micros: 7,
            paths: (0..2).map(entry).collect(),
            templates: vec![(1, 2)],
            fares: vec![fare; 2],
            queue: Some(Queue::default()),
        }
        .encode_items(&mut wire);
        wire
    };
    let inputs = [
        ("report-items", items.clone()),
        ("report-items-cut", items[..items.len() - 50].to_vec()),
        ("header", [&header.encode()[..], b"packet"].concat()),
        ("half", [&half.encode()[..], b"half", b"padding"].concat()),
        ("report", report(3)),
        ("report-full", report(64)),
        ("report-too-long", [report(64), report(1)].concat()),
        ("report-cut", report(3)[..12].to_vec()),
        ("empty", Vec::new()),
    ];
    inputs
        .into_iter()
        .map(|(name, bytes)| ("core_frame", name, bytes))
        .collect()
}

fn halves() -> Vec<Seed> {
    let half = |script: Script, last: bool, seq: u8, bytes: &[u8]| {
        let opcode = if last { 0x82 } else { 0x02 };
        script.bytes(&[opcode, 3, seq]).block(bytes)
    };
    let both = half(half(Script::default(), false, 1, b"ab"), true, 1, b"cd");
    let swapped = half(half(both.clone(), true, 2, b"34"), false, 2, b"12");
    let copied = half(half(both.clone(), false, 4, b"x"), false, 4, b"x");
    let waits = half(Script::default(), false, 7, b"first");
    let inputs = [
        ("both", both.done()),
        ("swapped", swapped.done()),
        ("copied", half(copied, true, 4, b"y").done()),
        (
            "late",
            half(waits.clone().bytes(&[0, 100]), true, 7, b"last").done(),
        ),
        (
            "in-time",
            half(waits.clone().bytes(&[0, 99]), true, 7, b"last").done(),
        ),
        (
            "crowded",
            half(waits.bytes(&[1]).u16(1024), true, 7, b"last").done(),
        ),
    ];
    inputs
        .into_iter()
        .map(|(name, bytes)| ("core_halves", name, bytes))
        .collect()
}

fn numbers() -> Vec<Seed> {
    let near_wrap = Script::default()
        .bytes(&[0x80])
        .bytes(&(u32::MAX - 3).to_be_bytes());
    let jump = |script: Script, by: i16| script.bytes(&[0x7f]).u16(by.cast_unsigned());
    let inputs = [
        ("in-order", vec![2; 100]),
        ("swapped", [4, 0xfe, 4].repeat(40)),
        ("twice", [2, 0].repeat(50)),
        ("wrap", near_wrap.bytes(&[2; 20]).bytes(&[0xf0; 5]).done()),
        (
            "window",
            jump(jump(Script::default().bytes(&[2; 9]), 4096), -4096)
                .bytes(&[2; 9])
                .done(),
        ),
        (
            "far",
            jump(Script::default().bytes(&[2; 9]), 30_000)
                .bytes(&[0xfe; 9])
                .done(),
        ),
    ];
    inputs
        .into_iter()
        .map(|(name, bytes)| ("core_dedup", name, bytes))
        .collect()
}

fn queues() -> Vec<Seed> {
    let push = |flow: u8, len: u16, ecn: u8| {
        Script::default()
            .bytes(&[0, flow])
            .u16(len)
            .bytes(&[ecn])
            .done()
    };
    let pop = vec![3];
    let wait = |millis: u16| Script::default().bytes(&[5]).u16(millis * 100).done();
    let two_flows = [push(1, 1400, 0), push(2, 100, 0)].concat();
    let standing = [push(1, 1400, 2), wait(20), pop.clone()].concat();
    let inputs = [
        ("two-flows", [two_flows.repeat(20), pop.repeat(45)].concat()),
        (
            "jumbo",
            [push(1, 8999, 0), push(1, 8999, 0), pop.repeat(3)].concat(),
        ),
        (
            "marks",
            [push(1, 1400, 2).repeat(40), standing.repeat(30)].concat(),
        ),
        (
            "drops",
            [
                push(1, 1400, 0).repeat(40),
                [wait(20), pop.clone()].concat().repeat(40),
            ]
            .concat(),
        ),
        (
            "overflow",
            [vec![6, 1, 255], vec![6, 2, 255]].concat().repeat(3),
        ),
        (
            "choosy",
            [two_flows.repeat(5), vec![4, 0, 0, 0, 2], pop.clone()]
                .concat()
                .repeat(3),
        ),
        (
            "ahead-of-turn",
            [
                push(1, 1400, 0).repeat(30),
                [vec![4, 255, 255, 255, 255, 0, 255], pop.clone()]
                    .concat()
                    .repeat(9),
                wait(400),
                pop.repeat(20),
            ]
            .concat(),
        ),
        (
            "target",
            [vec![7, 30], push(1, 1400, 0).repeat(9), wait(30), pop].concat(),
        ),
    ];
    inputs
        .into_iter()
        .map(|(name, bytes)| ("core_fq_codel", name, bytes))
        .collect()
}

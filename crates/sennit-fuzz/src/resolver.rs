//! What resolvers answer to an edge that looks for its hub: a link's network brings these packets,
//! before anything is encrypted.

use std::net::{IpAddr, Ipv6Addr};

use sennit::{
    dns::{ANSWER, answer, questions},
    remote::Remote,
};

use crate::input::Input;

/// Bytes of a message before its sections.
const HEAD: usize = 12;
/// Where the name of the question stands, as the owner of a record (RFC 1035 §4.1.4).
const ASKED: [u8; 2] = [0xc0, HEAD as u8];
/// Records of an honest answer: so many IPv6 addresses fit behind the longest name.
const MOST_RECORDS: usize = 32;

/// An answer. Script: number of the question (2), what the name is made of (block), and kind of the
/// message (1); 0: all of it, 1: flags and three counts of records (2 each) and what follows our
/// question, else the records of an honest answer: type (1; 0: IPv4, 1: IPv6, else an alias) and
/// address (4 or 16).
pub fn answers(data: &[u8]) {
    let mut input = Input::new(data);
    let id = input.u16();
    let ids = [id, id ^ 1];
    let name = name(input.block());
    let asked: Vec<_> = questions(ids, &name).collect();
    assert_eq!(asked.len(), 2, "{name} can be asked for");
    for question in &asked {
        assert_eq!(answer(question, ids, &name), None, "a question is none");
    }
    match input.byte() {
        0 => check(input.rest(), ids, &name),
        1 => {
            let [flags, counts] = [input.array::<2>().to_vec(), input.array::<6>().to_vec()];
            let message = reply(&asked[0], &flags, &counts, input.rest());
            check(&message, ids, &name);
        }
        family => {
            let family = usize::from(family % 2);
            let (records, addresses) = records(&mut input, family);
            let counts = [0, addresses.1, 0, 0, 0, 0];
            let message = reply(&asked[family], &[0x81, 0x80], &counts, &records);
            let found = answer(&message, ids, &name);
            assert_eq!(found, Some((family, addresses.0)), "an honest answer");
            check(&message, ids, &name);
        }
    }
}

/// A name that a config may have for the hub.
fn name(bytes: &[u8]) -> String {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789-_..";
    let letter = |byte: &u8| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]);
    let text: String = bytes.iter().map(letter).collect();
    match format!("{text}:443").parse() {
        Ok(Remote::Name { host, .. }) => host,
        Ok(Remote::Address(_)) | Err(_) => "vpn.example.org".into(),
    }
}

/// A message with this question, and other flags and counts than it has.
fn reply(question: &[u8], flags: &[u8], counts: &[u8], records: &[u8]) -> Vec<u8> {
    let (head, section) = question.split_at(HEAD);
    let head = [&head[..2], flags, &head[4..6], counts].concat();
    let mut message = [&head, section, records].concat();
    message.truncate(ANSWER);
    message
}

/// Records about the name that was asked for, and of them the addresses that can be used, with the
/// number of all.
fn records(input: &mut Input<'_>, family: usize) -> (Vec<u8>, (Vec<IpAddr>, u8)) {
    let (mut bytes, mut addresses, mut count) = (Vec::new(), Vec::new(), 0);
    while !input.is_empty() && usize::from(count) < MOST_RECORDS {
        let (kind, data, address) = match input.byte() % 3 {
            0 => {
                let v4: [u8; 4] = input.array();
                (1, v4.to_vec(), (family == 0).then(|| IpAddr::from(v4)))
            }
            1 => {
                let v6: [u8; 16] = input.array();
                let address = IpAddr::from(Ipv6Addr::from(v6));
                (28, v6.to_vec(), (family == 1).then_some(address))
            }
            _ => (5, ASKED.to_vec(), None),
        };
        bytes.extend(ASKED);
        // Type, class, how long it may be kept, length.
        bytes.extend([0, kind, 0, 1, 0, 0, 0, 60, 0, data.len() as u8]);
        bytes.extend(data);
        addresses.extend(address.filter(is_usable));
        count += 1;
    }
    (bytes, (addresses, count))
}

fn is_usable(address: &IpAddr) -> bool {
    !address.is_unspecified() && !address.is_multicast()
}

/// What is taken for an answer is one to a question of ours, and names what can be sent to.
fn check(message: &[u8], ids: [u16; 2], name: &str) {
    let Some((family, addresses)) = answer(message, ids, name) else {
        return;
    };
    assert_eq!(message[..2], ids[family].to_be_bytes());
    // An IPv4 address takes 15 bytes with its record, whose owner is a byte at least.
    assert!(addresses.len() * 15 <= message.len() - HEAD);
    for address in addresses {
        assert_eq!(usize::from(address.is_ipv6()), family);
        assert!(is_usable(&address), "{address}");
    }
    let others = ids.map(|id| id ^ 0x8000);
    assert_eq!(answer(message, others, name), None, "other numbers");
    let other = format!("x{name}");
    assert_eq!(answer(message, ids, &other), None, "another name");
    let mut asks = message.to_vec();
    asks[2] &= 0x7f;
    assert_eq!(answer(&asks, ids, name), None, "it asks");
}

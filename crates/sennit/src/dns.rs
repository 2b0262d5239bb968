//! What is asked of resolvers, and what they answer, as bytes (RFC 1035 §4).
//!
//! An answer is whatever has come to the socket that asked: a stranger may have sent it who guessed
//! the port, and a resolver that is in a network which nobody trusts. It can only name addresses.
//! Whether the hub is there is proven by its certificate.

use std::net::IpAddr;

use simple_dns::{CLASS, Name, Packet, PacketFlag, Question, RCODE, TYPE, rdata::RData};

/// The largest answer that we are ready for (RFC 9715 §3).
pub const ANSWER: usize = 1232;

/// Bytes of a message before its sections, and of a question and a record at least: each has a name
/// of one byte or more (RFC 1035 §4.1).
const HEAD: usize = 12;
const QUESTION: usize = 5;
const RECORD: usize = 11;

/// The questions for the IPv4 and the IPv6 addresses of a name, with these numbers; nothing if it
/// is no name.
pub fn questions(ids: [u16; 2], name: &str) -> impl Iterator<Item = Vec<u8>> {
    let families = ids.into_iter().zip([TYPE::A, TYPE::AAAA]);
    families.filter_map(move |(id, family)| question(id, name, family))
}

fn question(id: u16, name: &str, family: TYPE) -> Option<Vec<u8>> {
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let name = Name::new(name).ok()?;
    packet
        .questions
        .push(Question::new(name, family.into(), CLASS::IN.into(), false));
    packet.build_bytes_vec().ok()
}

/// Reads an answer to one of our [`questions`]: 0 for IPv4 or 1 for IPv6, and the addresses. Names
/// that do not exist have none.
pub fn answer(bytes: &[u8], ids: [u16; 2], name: &str) -> Option<(usize, Vec<IpAddr>)> {
    if !may_be_whole(bytes) {
        return None;
    }
    let packet = Packet::parse(bytes).ok()?;
    let family = ids.iter().position(|&id| id == packet.id())?;
    let asked = packet.questions.first()?.qname.to_string();
    let ours = packet.has_flags(PacketFlag::RESPONSE) && asked.eq_ignore_ascii_case(name);
    let failed = !matches!(packet.rcode(), RCODE::NoError | RCODE::NameError);
    if !ours || failed {
        return None;
    }
    let addresses = packet
        .answers
        .iter()
        .filter_map(|record| match &record.rdata {
            RData::A(a) if family == 0 => Some(IpAddr::from(a.address.to_be_bytes())),
            RData::AAAA(aaaa) if family == 1 => Some(IpAddr::from(aaaa.address.to_be_bytes())),
            _ => None,
        });
    let usable = |ip: &IpAddr| !ip.is_unspecified() && !ip.is_multicast();
    Some((family, addresses.filter(usable).collect()))
}

/// Whether all can be there that the head announces. The parser makes room for that first, which
/// would be megabytes for a packet of twelve bytes.
fn may_be_whole(bytes: &[u8]) -> bool {
    let Some((head, sections)) = bytes.split_first_chunk::<HEAD>() else {
        return false;
    };
    let count = |at: usize| usize::from(u16::from_be_bytes([head[at], head[at + 1]]));
    let records = count(6) + count(8) + count(10);
    count(4) * QUESTION + records * RECORD <= sections.len()
}

#[cfg(test)]
mod tests {
    use simple_dns::{
        ResourceRecord,
        rdata::{A, CNAME},
    };

    use super::*;

    const HUB: &str = "vpn.example.org";

    /// What a resolver says to question `id`: an alias and the address of it.
    fn reply(id: u16, asked: &str) -> Vec<u8> {
        let mut packet = Packet::new_reply(id);
        let name = |text| Name::new_unchecked(text);
        let question = Question::new(name(asked), TYPE::A.into(), CLASS::IN.into(), false);
        packet.questions.push(question);
        let record = |owner, data| ResourceRecord::new(name(owner), CLASS::IN, 60, data);
        let alias = RData::CNAME(CNAME(name("hub.example.net")));
        packet.answers.push(record(asked, alias));
        let address = RData::A(A {
            address: u32::from_be_bytes([203, 0, 113, 10]),
        });
        packet.answers.push(record("hub.example.net", address));
        packet.build_bytes_vec().unwrap()
    }

    #[test]
    fn an_answer_gives_the_addresses_behind_an_alias() {
        let found = answer(&reply(7, "VPN.example.org"), [7, 8], HUB);

        assert_eq!(found, Some((0, vec!["203.0.113.10".parse().unwrap()])));
    }

    #[test]
    fn what_was_not_asked_is_no_answer() {
        assert_eq!(answer(&reply(9, HUB), [7, 8], HUB), None, "another number");
        assert_eq!(answer(&reply(7, "evil.org"), [7, 8], HUB), None);
        assert_eq!(answer(b"garbage", [7, 8], HUB), None);
        for question in questions([7, 8], HUB) {
            assert_eq!(answer(&question, [7, 8], HUB), None, "our own question");
        }
    }

    #[test]
    fn an_answer_with_fewer_records_than_it_announces_is_none() {
        let mut bytes = reply(7, HUB);
        for at in [4, 6, 8, 10] {
            bytes[at] = 0xff;
            assert_eq!(answer(&bytes, [7, 8], HUB), None);
            bytes[at] = 0;
        }
        assert!(answer(&bytes, [7, 8], HUB).is_some());
    }
}

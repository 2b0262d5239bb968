//! What quic-go 0.65 and connect-ip-go 0.7 put on the wire, recorded: Huffman strings, a setting
//! we do not know, a capsule we do not know.

use super::super::*;
use super::scripted::events;
use crate::capsule::{AssignedAddress, IpAddressRange, RequestedAddress};
use crate::connect_ip::{self, Scope};
use crate::prefix::IpPrefix;

const CLIENT_CONTROL: &str = "0004070680a000003301";
const CLIENT_REQUEST: &str = "01405d0000508b089d5c0b8170dc6c2d85dfcf5195617f05a285bad47f153148d1dad2b06ad8f9\
    63e58fd72f00b95d8749c87a3f8721eaa8a44ac6af2f0420eb45b4156aec3a4e43d182ff035f10839bd9ab5f508bed6988\
    b4c7531efdfad867";
const CLIENT_ADDRESS_REQUEST: &str = "001c021a010400000000200206fd00000000000000000000000000000040";
/// A ROUTE_ADVERTISEMENT, and a PREF64 (draft-ietf-masque-connect-ip-dns).
const CLIENT_ROUTE_AND_PREF64: &str =
    "000c030a04c0a80800c0a808ff000012a74c0fbc0d600064ff9b0000000000000000";
const CLIENT_POST: &str = "01310000508b089d5c0b8170dc6c2d85dfd4518463a1cd57d7ee54836c00075f10839bd9ab5f508b\
    ed6988b4c7531efdfad867005388";

const PROXY_CONTROL: &str = "000409068010000033010801";
/// The response, an ADDRESS_ASSIGN and a ROUTE_ADVERTISEMENT.
const PROXY_GRANT: &str = "012b0000d92f0420eb45b4156aec3a4e43d182ff035696dc34fd2820a9a4fdd41004e2820dc13d70\
    0ea98b46ff0009010700040ac8000920000c030a0400000000ffffffff00";
const PROXY_GOAWAY: &str = "070108";

fn feed(connection: &mut Connection, stream: u64, hex: &str) {
    let digits: Vec<_> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let bytes: Vec<u8> = digits
        .chunks(2)
        .map(|pair| str::from_utf8(pair).expect("ASCII"))
        .map(|pair| u8::from_str_radix(pair, 16).expect("hex"))
        .collect();
    connection.handle_stream_data(StreamId(stream), bytes.into(), false);
}

fn prefix(text: &str) -> IpPrefix {
    text.parse().expect("a prefix")
}

#[test]
fn a_client_of_connect_ip_go_is_understood() {
    let mut server = Connection::server();
    feed(&mut server, 2, CLIENT_CONTROL);
    feed(&mut server, 0, CLIENT_REQUEST);
    let [Event::Settings(settings), Event::Request { head, .. }] = &events(&mut server)[..] else {
        panic!("settings and a request")
    };
    assert!(settings.h3_datagram);
    assert_eq!(settings.max_field_section_size, Some(10 << 20));
    assert_eq!(connect_ip::accept(head), Ok(Scope::ANY));
    assert!(connect_ip::speaks_capsules(&head.fields));
    assert_eq!(head.fields.text("user-agent"), Some("quic-go HTTP/3"));

    feed(&mut server, 0, CLIENT_ADDRESS_REQUEST);
    feed(&mut server, 0, CLIENT_ROUTE_AND_PREF64);
    let stream = StreamId(0);
    let requests =
        [(1, "0.0.0.0/32"), (2, "fd00::/64")].map(|(request_id, text)| RequestedAddress {
            request_id,
            prefix: prefix(text),
        });
    let lan = IpAddressRange::of_prefix(&prefix("192.168.8.0/24"));
    assert_eq!(
        events(&mut server),
        [
            Capsule::AddressRequest(requests.into()),
            Capsule::RouteAdvertisement(vec![lan])
        ]
        .map(|capsule| Event::Capsule { stream, capsule })
    );
}

#[test]
fn a_post_of_quic_go_is_understood() {
    let mut server = Connection::server();
    feed(&mut server, 0, CLIENT_POST);
    let [Event::Request { head, .. }] = &events(&mut server)[..] else {
        panic!("a request")
    };
    assert_eq!(
        (&*head.method, head.path.as_deref()),
        ("POST", Some("/join"))
    );
    assert_eq!(head.fields.text("content-type"), Some("application/json"));
    assert_eq!(head.fields.text("content-length"), Some("5000"));
}

#[test]
fn a_proxy_of_connect_ip_go_is_understood() {
    let mut client = Connection::client();
    feed(&mut client, 3, PROXY_CONTROL);
    let head = connect_ip::request("127.0.0.1:443", &Scope::ANY.path());
    client
        .send_request(StreamId(0), &head, None)
        .expect("settings have come");
    client
        .send_request(StreamId(8), &head, None)
        .expect("settings have come");
    feed(&mut client, 0, PROXY_GRANT);
    let stream = StreamId(0);
    let [
        Event::Settings(_),
        Event::Response { head, .. },
        capsules @ ..,
    ] = &events(&mut client)[..]
    else {
        panic!("settings and a response")
    };
    assert!(head.is_success() && connect_ip::speaks_capsules(&head.fields));
    let assigned = AssignedAddress::unsolicited(prefix("10.200.0.9/32"));
    let all = IpAddressRange::of_prefix(&prefix("0.0.0.0/0"));
    assert_eq!(
        capsules,
        [
            Capsule::AddressAssign(vec![assigned]),
            Capsule::RouteAdvertisement(vec![all])
        ]
        .map(|capsule| Event::Capsule { stream, capsule })
    );

    feed(&mut client, 3, PROXY_GOAWAY);
    let (stream, error) = (StreamId(8), StreamError::Rejected);
    assert_eq!(
        events(&mut client),
        [Event::GoAway, Event::Failed { stream, error }]
    );
}

//! The helper, which is root: what its daemon may ask of it once somebody has taken that over, and
//! the files that it reads.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sennit_linux::hostile;

use crate::input::Input;

/// Orders of a daemon. Script: kind (1; 0: bytes of the socket, else one message), then that.
pub fn orders(data: &[u8]) {
    let mut input = Input::new(data);
    match input.byte() {
        0 => hostile::messages(input.rest()),
        _ => hostile::message(input.rest()),
    }
}

/// Files of the host. Script: kind (1; 0: the record of switches, else the file of name servers, of
/// which there are one less than that, three at most), then the file.
pub fn files(data: &[u8]) {
    let servers = [
        IpAddr::V4(Ipv4Addr::new(10, 200, 0, 1)),
        IpAddr::V6(Ipv6Addr::new(0xfd5e, 1, 0, 0, 0, 0, 0, 1)),
        IpAddr::V4(Ipv4Addr::new(9, 9, 9, 9)),
    ];
    let mut input = Input::new(data);
    let kind = input.byte();
    let text = String::from_utf8_lossy(input.rest());
    match kind % 5 {
        0 => hostile::record(&text),
        kind => hostile::name_servers(&servers[..usize::from(kind) - 1], &text),
    }
}

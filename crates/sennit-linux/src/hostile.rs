//! What the helper reads of whoever has taken its daemon over, without doing it: for fuzz targets.
//!
//! Each of these panics if what must be true of any bytes is not.

use std::{
    io::Write as _,
    net::IpAddr,
    os::{fd::OwnedFd, unix::net::UnixStream},
};

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    DeviceName, Instance,
    footprint::Order,
    helper::{Line, Task},
    nameservers::{self, Wish},
    nft, service, sysctl,
};

/// The interface index of the only device of the daemon.
pub const DEVICE: u32 = 7;
/// It fits what a socket holds until it is read.
const LONGEST: usize = 32 << 10;
/// Bytes of a length.
const LENGTH: usize = 4;

/// Bytes of the socket: what is a message is within them, and is tried as one.
pub fn messages(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(LONGEST)];
    let (mut daemon, helper) = UnixStream::pair().expect("there are sockets");
    daemon.write_all(bytes).expect("it fits");
    drop(daemon);
    let mut line = Line::from(OwnedFd::from(helper));
    let mut read = 0;
    while let Ok(Some((text, about))) = line.receive() {
        read += LENGTH + text.len();
        assert!(read <= bytes.len() && about.is_none());
        message(&text);
    }
}

/// One message, to whichever thread of the helper it goes.
pub fn message(text: &[u8]) {
    read_again::<Task>(text);
    read_again::<Wish>(text);
    let Some(order) = read_again::<Order>(text) else {
        return;
    };
    let devices = service::Devices::default();
    service::lock(&devices).insert(DEVICE);
    if service::permit(&order, &devices).is_ok() {
        try_permitted(&order);
    }
}

/// The record of a daemon's switches, without its first line.
pub fn record(lines: &str) {
    sysctl::try_record(lines);
}

/// The host's file of name servers, which the helper replaces and puts back. Carriage returns at
/// the ends of lines do not come back.
pub fn name_servers(servers: &[IpAddr], text: &str) {
    let text = text.replace('\r', "");
    nameservers::try_file(&device(), servers, &text);
}

fn device() -> DeviceName {
    "sennit0".parse().expect("it is a name")
}

/// What was read is written, and read again to the same.
fn read_again<T: Serialize + DeserializeOwned>(text: &[u8]) -> Option<T> {
    let read: T = serde_json::from_slice(text).ok()?;
    let written = serde_json::to_vec(&read).expect("an order becomes JSON");
    let again: T = serde_json::from_slice(&written).expect("it was just written");
    assert_eq!(serde_json::to_vec(&again).ok(), Some(written));
    Some(read)
}

/// What a permitted order is about is the daemon's own.
fn try_permitted(order: &Order) {
    assert!(order.devices().iter().all(|index| *index == DEVICE));
    match order {
        Order::RouteLink { interface, .. } | Order::LoosenReversePath(interface) => {
            sysctl::try_switch(interface);
        }
        Order::Route { classes, .. } => {
            let own = Instance::of(&device());
            let mut tables = classes.iter().map(|it| own.class_table(it.class));
            assert!(tables.all(|table| own.tables().contains(&table) && table != own.hub_table()));
        }
        Order::SetRules(rules) => try_script(&nft::script(&device(), rules)),
        Order::HoldBlock
        | Order::SetBlocked(_)
        | Order::UnrouteLink(_)
        | Order::KeepOutside
        | Order::RefreshRoutes
        | Order::Networks
        | Order::SetAddresses { .. }
        | Order::Forward(_)
        | Order::RestoreRules
        | Order::SilenceRedirects
        | Order::End(_) => {}
    }
}

/// It is about the table of the device, and nothing in it ends that early.
fn try_script(script: &str) {
    let table = "table inet sennit_sennit0";
    let outside = script.lines().filter(|line| !line.starts_with("  "));
    let wanted = [
        format!("add {table}"),
        format!("delete {table}"),
        format!("{table} {{"),
        "}".to_owned(),
    ];
    assert!(outside.eq(&wanted), "{script}");
    let mut depth = 0_usize;
    for letter in script.chars() {
        assert!(
            letter == '\n' || (' '..='~').contains(&letter),
            "{letter:?}"
        );
        match letter {
            '{' => depth += 1,
            '}' => depth = depth.checked_sub(1).expect("each ends what has begun"),
            _ => {}
        }
    }
    assert_eq!((depth, script.matches('"').count() % 2), (0, 0));
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// One that is not read tries nothing.
    #[test]
    fn the_messages_of_the_corpus_are_such_as_daemons_send() {
        let corpus = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../fuzz/corpus/linux_orders"
        );
        for file in fs::read_dir(corpus).unwrap() {
            let input = fs::read(file.unwrap().path()).unwrap();
            let Some((1, text)) = input.split_first() else {
                continue;
            };
            let is_read = read_again::<Task>(text).is_some()
                || read_again::<Wish>(text).is_some()
                || read_again::<Order>(text).is_some();
            assert!(is_read, "{}", String::from_utf8_lossy(text));
        }
    }
}

//! What a daemon asks of its helper, and what the helper finds on the host.

use crate::Seed;

pub(crate) fn all() -> Vec<Seed> {
    let order = |(name, text): (&'static str, &str)| {
        let message = [&[1][..], text.as_bytes()].concat();
        ("linux_orders", name, message)
    };
    let file = |(name, kind, text): (&'static str, u8, &str)| {
        let file = [&[kind][..], text.as_bytes()].concat();
        ("linux_files", name, file)
    };
    let orders = TASKS.into_iter().chain(ORDERS).map(order);
    orders.chain(streams()).chain(FILES.map(file)).collect()
}

const TASKS: [(&str, &str); 9] = [
    (
        "begin",
        r#"{"Begin":{"device":"sennit0","directory":"/run/sennit","blocked":["0.0.0.0/0","::/0"]}}"#,
    ),
    (
        "bind",
        r#"{"BindToLink":{"device":"eth1","address":"192.0.2.7","mark":1393000001}}"#,
    ),
    ("mark", r#"{"Mark":1393000001}"#),
    (
        "attach",
        r#"{"Attach":{"device":"sennit0","queues":2,"first":true}}"#,
    ),
    ("raise", r#"{"Raise":{"device":"lo","mtu":1280}}"#),
    (
        "entrust",
        r#"{"File":{"Entrust":{"user":{"uid":990,"gid":990},"config":"/etc/sennit/hub.toml","removed":["/run/a"]}}}"#,
    ),
    ("draft", r#"{"File":{"DraftConfig":"[hub]\n"}}"#),
    ("remove", r#"{"File":{"Remove":"/etc/passwd"}}"#),
    ("names", r#"{"Set":["10.200.0.1","fd5e:1::1"]}"#),
];

const ORDERS: [(&str, &str); 11] = [
    ("hold", r#""HoldBlock""#),
    ("blocked", r#"{"SetBlocked":["10.0.0.0/8","fd00::/8"]}"#),
    ("link", r#"{"RouteLink":{"link":0,"interface":"eth1.20"}}"#),
    (
        "link-of-two-lines",
        r#"{"RouteLink":{"link":0,"interface":"lo/rp_filter 0 0\nnet/ipv4/ip_forward"}}"#,
    ),
    (
        "loosen-outside",
        r#"{"LoosenReversePath":"../../../kernel"}"#,
    ),
    ("loosen-two-words", r#"{"LoosenReversePath":"eth0 0"}"#),
    (
        "route",
        r#"{"Route":{"routes":[{"prefix":"0.0.0.0/0","device":7,"source":"10.200.0.2"}],"classes":[{"class":31,"device":7,"only":{"mark":[1,255],"incoming":"br0","uids":[0,1000],"protocol":17,"source":"192.168.8.0/24","destination":null,"source_ports":null,"destination_ports":[5060,5061]}}]}}"#,
    ),
    (
        "route-of-others",
        r#"{"Route":{"routes":[{"prefix":"0.0.0.0/0","device":8,"source":null}],"classes":[]}}"#,
    ),
    (
        "addresses",
        r#"{"SetAddresses":{"index":7,"addresses":["10.200.0.2/32","fd5e:1::2/128"]}}"#,
    ),
    (
        "rules",
        r#"{"SetRules":{"masquerade":{"sources":["10.200.0.0/16","fd5e:1::/64"],"inside":["bulk0"]},"filter":{"confined":[{"sources":["10.200.0.7/32"],"allowed":{"Only":{"internet":true,"own_device":true,"host":false,"prefixes":["10.9.0.0/16","fd09::/16"]}}},{"sources":["fd5e:1::7/128"],"allowed":"Everything"}],"others":{"Only":{"internet":false,"own_device":false,"host":true,"prefixes":[]}}}}}"#,
    ),
    ("end", r#"{"End":"Restart"}"#),
];

/// Bytes of the socket: lengths, and messages of those or of others.
fn streams() -> Vec<Seed> {
    let message = |text: &str, length: usize| {
        let length = u32::try_from(length).expect("seeds are small");
        [&length.to_be_bytes()[..], text.as_bytes()].concat()
    };
    let whole = |text: &str| message(text, text.len());
    let two = [whole(r#""RefreshRoutes""#), whole(r#"{"Forward":"V6"}"#)].concat();
    let cut = [whole(r#""KeepOutside""#), vec![0, 0]].concat();
    let stream = |name, bytes: Vec<u8>| ("linux_orders", name, [vec![0], bytes].concat());
    vec![
        stream("stream", two),
        stream("stream-cut", cut),
        stream("stream-short", message(r#""Networks""#, 100)),
        stream("stream-too-long", message("", (16 << 20) + 1)),
        stream("stream-empty", message("", 0)),
    ]
}

const FILES: [(&str, u8, &str); 12] = [
    (
        "record",
        0,
        "net/ipv4/ip_forward 0 1\nnet/ipv6/conf/eth0.7/accept_ra 1 2\n",
    ),
    (
        "record-outside",
        0,
        "net/ipv4/../../kernel/modprobe /tmp/mine /sbin/modprobe\n",
    ),
    (
        "record-elsewhere",
        0,
        "/etc/passwd 0 1\nkernel/modprobe a b\n",
    ),
    ("record-cut", 0, "net/ipv4/ip_forward 0"),
    ("record-no-value", 0, "net/ipv4/ip_forward  1\n"),
    ("record-return", 0, "net/ipv4/ip_forward 0 1\r\r\n"),
    (
        "names",
        3,
        "# by DHCP\nsearch example.org\nnameserver 192.168.8.1\n",
    ),
    ("names-none", 1, ""),
    ("names-no-end", 2, "nameserver 192.168.8.1"),
    (
        "names-ours",
        4,
        "# Written by sennit for sennit1; what was here before follows as comments.\nnameserver 10.9.0.1\n#before: nameserver 192.168.8.1\n",
    ),
    (
        "names-nearly-ours",
        2,
        "# Written by sennit for ../x; what\n#before: #before: # Written by sennit for sennit0;\n",
    ),
    (
        "names-comments",
        2,
        "#before: nameserver 192.168.8.1\n\n#\n",
    ),
];

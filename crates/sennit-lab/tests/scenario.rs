//! Scenario files: what they say, and what is wrong with them.

use std::time::Duration;

use sennit_lab::scenario::{Action, Fault, Traffic};
use sennit_lab::{Error, Kind, Role, Scenario, TunnelKind};
use sennit_netem::{Bitrate, Dependence, Direction, Jitter, Loss, Motion, Queue, Shape};

const LINK: &str = "name = \"t\"\n[[link]]\nname = \"a\"\n";

fn error(text: &str) -> String {
    Scenario::parse(text).expect_err("it is wrong").to_string()
}

#[test]
fn a_link_means_what_it_says_in_both_directions() {
    let text = "
        name = \"t\"
        [[link]]
        name = \"a\"
        rate_mbit = 100
        delay_ms = 12.5
        jitter_ms = 2
        jitter_shape = \"normal\"
        reorder = true
        loss_percent = 2
        queue_ms = 80
        mtu = 1400
        up = { rate_mbit = 10, loss_percent = 5, burst = 3 }
    ";

    let spec = Scenario::parse(text)
        .and_then(|scenario| scenario.spec())
        .expect("it is right");

    let link = &spec.links[0];
    assert_eq!(
        (link.kind, link.mtu, link.shape.up.mtu),
        (Kind::Emulated, 1400, 1400)
    );
    assert_eq!(link.shape.down.rate, Some(Bitrate::mbit(100)));
    assert_eq!(link.config(Direction::Up).rate, Some(Bitrate::mbit(10)));
    assert_eq!(link.shape.down.delay, Duration::from_micros(12_500));
    let spread = Duration::from_millis(2);
    assert_eq!(
        link.shape.up.jitter,
        Jitter {
            spread,
            shape: Shape::Normal,
            reorder: true
        }
    );
    assert_eq!(link.shape.down.loss, Loss::Random(0.02));
    assert_eq!(link.shape.up.loss, Loss::bursts(0.05, 3.0));
    assert_eq!(link.shape.up.queue, Queue::Time(Duration::from_millis(80)));
}

#[test]
fn a_link_may_begin_with_its_short_text() {
    let keys = "spec = \"10:100/12.5±2r/2%\"\nmtu = 1400\nup = { delay_ms = 30 }\n";
    let text = format!("{LINK}{keys}");

    let spec = Scenario::parse(&text)
        .and_then(|scenario| scenario.spec())
        .expect("it is right");

    let shape = &spec.links[0].shape;
    assert_eq!(shape.to_string(), "10:100/30±2r/2%");
    assert_eq!(shape.down.delay, Duration::from_micros(12_500));
    assert_eq!((shape.up.mtu, shape.down.mtu), (1400, 1400));

    let wrong = Scenario::parse(&text.replace("12.5±2r", "x")).expect_err("no delay");
    assert!(
        wrong
            .to_string()
            .contains("the delay `x` is not 0 to 60000 ms"),
        "{wrong}"
    );
}

#[test]
fn a_link_moves_hides_behind_a_box_and_carries_small_packets_only() {
    let text = format!(
        "{LINK}trace = \"lte@7\"\nup = {{ path_mtu = 1280, path_mtu_icmp = true }}\n\
         nat = {{ filtering = \"endpoint-independent\", timeout_s = 5 }}\n"
    );

    let spec = Scenario::parse(&text).and_then(|scenario| scenario.spec());
    let link = &spec.expect("it is right").links[0];

    let lte = Motion::Lte.trace(7, 1.0);
    assert_eq!(link.shape.down.rate, lte.mean_rate());
    assert_eq!(link.shape.down.trace.as_deref(), Some(&lte));
    assert_eq!(link.shape.down.queue, Motion::Lte.queue());
    assert_eq!(
        (link.mtu, link.shape.up.mtu, link.shape.up.tells_mtu),
        (1500, 1280, true)
    );
    assert_eq!(
        (link.shape.down.mtu, link.shape.down.tells_mtu),
        (1500, false)
    );
    let nat = link.nat.expect("it has a box");
    assert_eq!(nat.mapping, Dependence::AddressAndPort);
    assert_eq!(nat.filtering, Dependence::Endpoint);
    assert_eq!(nat.timeout, Duration::from_secs(5));
}

#[test]
fn unknown_keys_are_errors_at_every_level() {
    let step = format!("{LINK}[tunnel]\n[[step]]\nname = \"s\"\n");
    for text in [
        format!("sped = 1\n{LINK}"),
        format!("{LINK}rate_mbits = 3\n"),
        format!("{LINK}up = {{ rate_mbits = 3 }}\n"),
        format!("{LINK}[tunnel]\nclasses = []\n"),
        format!("{step}second = 3\n"),
        format!("{step}[[step.traffic]]\nkind = \"tcp\"\nstream = 4\n"),
        format!("{step}[[step.traffic]]\nkind = \"ping\"\nstreams = 4\n"),
        format!("{step}[[step.fault]]\nat_s = 1\nlink = \"a\"\naction = \"outage\"\nfor = 3\n"),
    ] {
        assert!(
            error(&text).contains("unknown field"),
            "{text}\n{}",
            error(&text)
        );
    }
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    let step = format!("{LINK}[[step]]\nname = \"s\"\n");
    let traffic = |rest: &str| error(&format!("{step}[[step.traffic]]\n{rest}"));
    let fault = |rest: &str| error(&format!("{step}[[step.fault]]\n{rest}"));

    assert!(traffic("kind = \"test\"\nvia = \"tunnel\"\n").contains("link:NAME"));
    let published = "what = \"w\"\nby = \"b\"\nstep = \"s\"\nfigure = \"goodput\"\ntraffic = 2\n";
    assert!(error(&format!("{step}[[published]]\n{published}")).contains("no traffic 2"));
    assert!(error(&format!("{LINK}rate_mbit = 0\n")).contains("rate_mbit"));
    assert!(error(&format!("{LINK}loss_percent = 100\n")).contains("outage"));
    assert!(error(&format!("{LINK}burst = 0.5\n")).contains("burst"));
    for burst in ["inf", "nan"] {
        let told = error(&format!("{LINK}loss_percent = 1\nburst = {burst}\n"));
        assert!(told.contains("`burst` is a number"), "{told}");
    }
    let told = error(&format!("{LINK}loss_percent = 80\nburst = 3\n"));
    assert!(told.contains("75 % is the most"), "{told}");
    assert!(error(&format!("{LINK}lose_sizes = [[9, 8]]\n")).contains("least"));
    assert!(error(&format!("{LINK}lose_sizes = []\nburst = 2\n")).contains("excludes"));
    let udp = "kind = \"udp\"\nrate_mbit = 1\n";
    assert!(traffic(&format!("{udp}grow = 9\n")).contains("delays"));
    assert!(traffic(&format!("{udp}delays = true\ngrow = 90\n")).contains("1472"));
    assert!(error(&format!("{LINK}delay_ms = -1\n")).contains("delay_ms"));
    assert!(error(&format!("{LINK}queue_ms = 1\nqueue_bytes = 1\n")).contains("excludes"));
    assert!(error(&format!("{LINK}kind = \"veth\"\ndelay_ms = 1\n")).contains("veth"));
    assert!(error(&format!("{LINK}trace = \"walk@1\"\n")).contains("none of lte, starlink"));
    assert!(error(&format!("{LINK}trace = \"lte@x\"\n")).contains("whole number"));
    assert!(error(&format!("{LINK}path_mtu = 20\n")).contains("path_mtu"));
    assert!(
        error(&format!(
            "{LINK}kind = \"tbf\"\nrate_mbit = 5\npath_mtu = 1400\n"
        ))
        .contains("tbf")
    );
    assert!(error(&format!("{LINK}kind = \"veth\"\nnat = {{}}\n")).contains("emulated"));
    assert!(error(&format!("{LINK}uso = false\n")).contains("only a veth"));
    assert!(traffic("kind = \"tcp\"\n").contains("no [tunnel]"));
    assert!(traffic("kind = \"tcp\"\nvia = \"link:b\"\n").contains("no link \"b\""));
    assert!(traffic("kind = \"tcp\"\nvia = \"link:\"\n").contains("no link"));
    assert!(traffic("kind = \"tcp\"\nvia = \"a\"\n").contains("link:NAME"));
    assert!(traffic("kind = \"tcp\"\nvia = \"mptcp\"\nstreams = 0\n").contains("streams"));
    assert!(traffic("kind = \"tcp\"\nvia = \"mptcp\"\nfrom = \"hub\"\n").contains("near host"));
    assert!(traffic("kind = \"ping\"\nvia = \"mptcp\"\n").contains("no ping"));
    assert!(traffic("kind = \"quic\"\nvia = \"mptcp\"\n").contains("no QUIC"));
    assert!(traffic("kind = \"tcp\"\nvia = \"link:a\"\nto = \"lan\"\n").contains("far host"));
    assert!(traffic("kind = \"packets\"\nvia = \"mptcp\"\n").contains("no UDP"));
    assert!(traffic("kind = \"packets\"\nvia = \"link:a\"\nbytes = 8\n").contains("bytes"));
    assert!(traffic("kind = \"ping\"\nvia = \"link:a\"\ninterval_ms = 1\n").contains("interval"));
    assert!(fault("at_s = 1\nlink = \"b\"\naction = \"outage\"\n").contains("no link \"b\""));
    assert!(fault("at_s = 1\naction = \"outage\"\n").contains("link"));
    assert!(fault("at_s = 1\nlink = \"a\"\naction = \"set\"\n").contains("belong together"));
    assert!(fault("at_s = 1\nlink = \"a\"\naction = \"restore\"\nfor_s = 1\n").contains("for_s"));
    assert!(fault("at_s = 1\nlink = \"a\"\naction = \"outage\"\ntimes = 2\n").contains("every_s"));
    let mtu = "at_s = 1\nlink = \"a\"\naction = \"device_mtu\"\nmtu = 1600\n";
    assert!(fault(mtu).contains("more than the 1500 of its link"));
    assert!(fault("at_s = -1\nlink = \"a\"\naction = \"outage\"\n").contains("within a day"));
}

#[test]
fn what_one_class_sends_can_be_dropped_by_its_mark() {
    let step = format!("{LINK}[[step]]\nname = \"s\"\n[[step.fault]]\nat_s = 1\n");
    let drop = |rest: &str| format!("{step}link = \"a\"\naction = \"drop_marked\"\n{rest}\n");

    let parsed = Scenario::parse(&drop("marked = { dscp = 8, percent = 30 }\nfor_s = 2"));

    let scenario = parsed.expect("it is right");
    let fault = &scenario.step[0].fault[0];
    assert_eq!(fault.action, Action::DropMarked);
    assert_eq!(fault.marked.map(|it| (it.dscp, it.percent)), Some((8, 30)));
    let together = "`marked` and action = \"drop_marked\" belong together";
    assert!(error(&drop("")).contains(together));
    let outage = "link = \"a\"\naction = \"outage\"\nmarked = { dscp = 8, percent = 3 }\n";
    assert!(error(&format!("{step}{outage}")).contains(together));
    for (dscp, percent) in [(64, 10), (8, 0), (8, 101)] {
        let wrong = drop(&format!(
            "marked = {{ dscp = {dscp}, percent = {percent} }}"
        ));
        assert!(
            error(&wrong).contains("dscp is 0 to 63, percent 1 to 100"),
            "{wrong}"
        );
    }
    for wrong in ["marked = { dscp = 8 }", "marked = { percent = 8 }"] {
        assert!(error(&drop(wrong)).contains("missing field"), "{wrong}");
    }
    let unknown = drop("marked = { dscp = 8, percent = 1, flow = 2 }");
    assert!(error(&unknown).contains("unknown field"));
    let whose = format!("{step}action = \"drop_marked\"\nmarked = {{ dscp = 8, percent = 1 }}\n");
    assert!(error(&whose).contains("`link` is missing"));
}

#[test]
fn what_one_class_sends_can_be_dropped_at_its_own_device() {
    let step = format!("{LINK}[[step]]\nname = \"s\"\n[[step.fault]]\nat_s = 1\nlink = \"a\"\n");
    let drop = |rest: &str| format!("{step}action = \"drop_on_tun\"\n{rest}\n");

    let parsed = Scenario::parse(&drop(
        "tun = { device = \"bulk0\", percent = 30 }\nfor_s = 2",
    ));

    let scenario = parsed.expect("it is right");
    let [begins, ends] = &scenario.step[0].fault[..] else {
        panic!("it begins and ends")
    };
    let tun = begins.tun.as_ref();
    let tun = tun.map(|it| (it.device.as_str(), it.percent));
    assert_eq!(tun, Some(("bulk0", 30)));
    assert_eq!((ends.action, &ends.tun), (Action::Accept, &None));
    assert!(error(&drop("")).contains("belong together"));
    for percent in [0, 101] {
        let wrong = drop(&format!(
            "tun = {{ device = \"bulk0\", percent = {percent} }}"
        ));
        assert!(error(&wrong).contains("percent is 1 to 100"), "{wrong}");
    }
    let unnamed = drop("tun = { device = \"a device\", percent = 10 }");
    assert!(error(&unnamed).contains("a device"), "{}", error(&unnamed));
}

#[test]
fn fetches_and_timed_packets_are_traffic() {
    let step = format!("{LINK}[[step]]\nname = \"s\"\n[[step.traffic]]\nvia = \"link:a\"\n");

    let fetch = Scenario::parse(&format!("{step}kind = \"fetch\"\nevery_s = 2\n"));
    let timed = "kind = \"udp\"\nrate_mbit = 1\ndelays = true\n";
    let timed = Scenario::parse(&format!("{step}{timed}"));

    let fetch = &fetch.expect("it is right").step[0].traffic[0];
    let Traffic::Fetch(fetch) = fetch else {
        panic!("it is a fetch: {fetch:?}")
    };
    assert_eq!(
        (fetch.bytes, fetch.every_s.0),
        (1_000_000, Duration::from_secs(2))
    );
    let timed = &timed.expect("it is right").step[0].traffic[0];
    assert!(
        matches!(timed, Traffic::Udp(udp) if udp.delays),
        "{timed:?}"
    );
    let wrong = format!("{step}kind = \"fetch\"\nbytes = 0\n");
    assert!(error(&wrong).contains("a fetch has `bytes`"));
    let often = format!("{step}kind = \"fetch\"\nevery_s = 0.001\n");
    assert!(error(&often).contains("0.01 or more"));
}

#[test]
fn a_token_bucket_has_a_rate_and_a_queue_and_nothing_else() {
    let link = format!("{LINK}kind = \"tbf\"\n");
    let plain = format!("{link}rate_mbit = 20\nqueue_ms = 40\nup = {{ rate_mbit = 5 }}\n");

    let spec = Scenario::parse(&plain)
        .and_then(|scenario| scenario.spec())
        .expect("it is right");

    let link_spec = &spec.links[0];
    assert_eq!((link_spec.kind, spec.edges), (Kind::Tbf, 1));
    assert_eq!(link_spec.shape.up.rate, Some(Bitrate::mbit(5)));
    let bucket = format!("{plain}bucket_ms = ");
    let saves = Scenario::parse(&format!("{bucket}32\n")).and_then(|scenario| scenario.spec());
    let saves = saves.expect("it may save up for longer").links[0].bucket;
    assert_eq!(saves, Duration::from_millis(32));
    assert!(error(&format!("{bucket}1\n")).contains("4 to 250"));
    let emulated = format!("{LINK}rate_mbit = 20\nbucket_ms = 32\n");
    assert!(error(&emulated).contains("only a tbf has `bucket_ms`"));
    for more in ["delay_ms = 1\n", "loss_percent = 1\n", "jitter_ms = 1\n"] {
        let text = format!("{link}rate_mbit = 20\n{more}");
        assert!(error(&text).contains("a rate and a queue, and nothing else"));
    }
    assert!(
        error(&link).contains("a rate and a queue"),
        "it has no rate"
    );
    assert!(error(&format!("{link}rate_mbit = 20\nuso = false\n")).contains("only a veth"));
}

#[test]
fn what_several_edges_cannot_do_is_refused_with_the_reason() {
    let several = |edges: u32, rest: &str| format!("edges = {edges}\n{LINK}{rest}");
    let step = |traffic: &str, rest: &str| {
        let step = format!("[[step]]\nname = \"s\"\ntraffic = [{{ {traffic} }}]\n{rest}");
        several(3, &format!("[tunnel]\n{step}"))
    };
    let tcp = "kind = \"tcp\"";
    let fault = "fault = [{ at_s = 1, action = \"restart_hub\" }]";

    let scenario = Scenario::parse(&step(tcp, "")).expect("it is right");

    assert_eq!(scenario.spec().expect("it was checked").edges, 3);
    assert!(Scenario::parse(&several(240, "")).is_ok());
    assert!(error(&several(0, "")).contains("0 edges"));
    assert!(error(&several(241, "")).contains("241 edges with 1 links each"));
    let two_links = several(121, "[[link]]\nname = \"b\"\n");
    assert!(error(&two_links).contains("121 edges with 2 links each"));
    let long_name = several(10, "").replace("\"a\"", "\"ninechars\"");
    assert!(error(&long_name).contains("not 1 to 8"));
    assert!(
        Scenario::parse(&step(tcp, fault)).is_ok(),
        "the hub is everybody's"
    );
    let outage = "fault = [{ at_s = 1, link = \"a\", action = \"outage\" }]";
    assert!(error(&step(tcp, outage)).contains("say which, like `edge = 2`"));
    assert!(error(&step(&format!("{tcp}, port = 80"), "")).contains("`port` of its own"));
    assert!(error(&step(&format!("{tcp}, via = \"mptcp\""), "")).contains("MPTCP joins"));
    assert!(error(&step("kind = \"packets\"", "")).contains("what one edge can do"));
    let rivals = step(tcp, "").replace("[tunnel]", "[tunnel]\nkind = [\"ideal\"]");
    assert!(error(&rivals).contains("ideal joins one edge"));
}

#[test]
fn one_of_several_edges_is_named_by_its_number() {
    let several = |tunnel: &str, step: &str| {
        format!("edges = 2\n{LINK}[tunnel]\n{tunnel}\n[[step]]\nname = \"s\"\n{step}")
    };
    let only = "only.2 = { edge = { lan = [] }, link.a = { tier = 2 } }";
    let step = "traffic = [{ kind = \"tcp\", edge = 2, port = 80 }]
        fault = [{ at_s = 1, edge = 2, link = \"a\", action = \"outage\" },
                 { at_s = 2, edge = 2, action = \"revoke\" }]";

    let scenario = Scenario::parse(&several(only, step)).expect("it is right");

    let faults: Vec<_> = scenario.step[0]
        .fault
        .iter()
        .map(Fault::edge_index)
        .collect();
    assert_eq!(
        (scenario.step[0].traffic[0].edge(), faults),
        (Some(2), vec![1, 1])
    );
    assert!(error(&several("only.3 = {}", step)).contains("numbered 1 to 2"));
    assert!(error(&several("only.2 = { edges = {} }", step)).contains("unknown field"));
    assert!(error(&several(only, &step.replace("edge = 2", "edge = 3"))).contains("no edge 3"));
    assert!(error(&several(only, &step.replace("edge = 2", "edge = 0"))).contains("no edge 0"));
}

#[test]
fn steps_do_not_mix_ways_that_disturb_each_other() {
    let links = format!("{LINK}[[link]]\nname = \"b\"\n[tunnel]\n[[step]]\nname = \"s\"\n");
    let both = |one: &str, two: &str| {
        let traffic = |via: &str| format!("[[step.traffic]]\nkind = \"tcp\"\nvia = \"{via}\"\n");
        error(&format!("{links}{}{}", traffic(one), traffic(two)))
    };

    assert!(both("link:a", "link:b").contains("different steps"));
    assert!(both("link:a", "tunnel").contains("different steps"));
    assert!(both("tunnel", "mptcp").contains("different steps"));
}

#[test]
fn a_step_whose_traffic_contends_goes_both_ways_at_once() {
    let traffic = |via: &str| format!("[[step.traffic]]\nkind = \"tcp\"\nvia = \"{via}\"\n");
    let text = format!(
        "{LINK}[tunnel]\n[[step]]\nname = \"s\"\ncontend = true\n{}{}",
        traffic("tunnel"),
        traffic("link:a")
    );

    assert!(Scenario::parse(&text).unwrap().step[0].contend);
}

#[test]
fn faults_come_in_order_of_time() {
    let fault =
        |at: u32| format!("[[step.fault]]\nat_s = {at}\nlink = \"a\"\naction = \"outage\"\n");
    let text = format!("{LINK}[[step]]\nname = \"s\"\n{}{}", fault(3), fault(2));

    assert!(error(&text).contains("order of time"));
}

#[test]
fn a_fault_happens_and_ends_as_often_as_it_says() {
    let text = format!(
        "{LINK}[[step]]\nname = \"s\"\nfault = [
            {{ at_s = 1, link = \"a\", action = \"drop_in\", for_s = 2, every_s = 4, times = 2 }},
            {{ at_s = 4, link = \"a\", action = \"outage\" }},
        ]"
    );

    let scenario = Scenario::parse(&text).expect("it is right");

    let faults = scenario.step[0].fault.iter();
    let happens: Vec<_> = faults
        .map(|fault| (fault.at_s.0.as_secs(), fault.action))
        .collect();
    assert_eq!(
        happens,
        [
            (1, Action::DropIn),
            (3, Action::Accept),
            (4, Action::Outage),
            (5, Action::DropIn),
            (7, Action::Accept)
        ]
    );
}

#[test]
fn what_happens_to_every_edge_happens_to_one_after_the_other() {
    let text = |fault: &str| {
        format!(
            "edges = 3\n{LINK}[tunnel]\n[[step]]\nname = \"s\"\nfault = [{{ at_s = 1, {fault} }}]"
        )
    };

    let every = text("each_s = 2, action = \"device_mtu\", mtu = 1300, link = \"a\", for_s = 1");
    let scenario = Scenario::parse(&every).expect("it is right");

    let happens = |fault: &Fault| (fault.at_s.0.as_secs(), fault.edge, fault.action, fault.mtu);
    let happens: Vec<_> = scenario.step[0].fault.iter().map(happens).collect();
    let [small, back] = [Action::DeviceMtu, Action::DeviceMtuBack];
    assert_eq!(
        happens,
        [
            (1, Some(1), small, Some(1300)),
            (2, Some(1), back, None),
            (3, Some(2), small, Some(1300)),
            (4, Some(2), back, None),
            (5, Some(3), small, Some(1300)),
            (6, Some(3), back, None),
        ]
    );
    let wrong = [
        (
            "each_s = 2, edge = 1, action = \"restart_edge\"",
            "every edge",
        ),
        ("each_s = 2, action = \"kill_hub\"", "every edge"),
        (
            "edge = 1, action = \"device_mtu\", link = \"a\"",
            "belong together",
        ),
        (
            "edge = 1, action = \"device_mtu\", link = \"a\", mtu = 60",
            "1280",
        ),
        ("action = \"fill_disk\"", "disk_mb"),
    ];
    for (fault, words) in wrong {
        assert!(error(&text(fault)).contains(words), "{fault}");
    }
}

#[test]
fn each_variant_is_the_scenario_with_its_own_links() {
    let variant = |name: &str, delay: u32| {
        format!("[[variant]]\nname = \"{name}\"\nlink = [{{ name = \"a\", delay_ms = {delay} }}]\n")
    };
    let step = "[[step]]\nname = \"s\"\ntraffic = [{ kind = \"ping\", via = \"link:a\" }]\n";
    let text = format!(
        "name = \"t\"\n{}{}{step}",
        variant("near", 5),
        variant("far", 50)
    );

    let variants = Scenario::parse(&text).expect("it is right").variants();

    let delays = variants.iter().map(|variant| {
        let spec = variant.spec().expect("it was checked");
        (
            variant.name.as_str(),
            spec.links[0].shape.up.delay.as_millis(),
        )
    });
    assert_eq!(delays.collect::<Vec<_>>(), [("t-near", 5), ("t-far", 50)]);
    assert!(error("name = \"t\"\n").contains("either [[link]] or [[variant]]"));
    assert!(error(&format!("{LINK}{}", variant("near", 5))).contains("either"));
    let broken = text.replace("link:a", "link:b");
    assert!(error(&broken).contains("t-near, step \"s\": there is no link \"b\""));
}

#[test]
fn steps_are_played_over_each_tunnel_and_baselines_once() {
    let text = format!(
        "{LINK}[tunnel]
        kind = [\"sennit\", \"wireguard-go\", \"ideal\"]
        [[step]]
        name = \"up\"
        traffic = [{{ kind = \"tcp\", from = \"edge\", to = \"hub\" }}]
        [[step]]
        name = \"bare\"
        traffic = [{{ kind = \"packets\", via = \"link:a\" }}]
        [[step]]
        name = \"quiet\"
        traffic = [{{ kind = \"idle\" }}]"
    );

    let scenario = Scenario::parse(&text).expect("it is right");

    let names: Vec<_> = scenario
        .step
        .iter()
        .map(|step| step.name.as_str())
        .collect();
    assert_eq!(
        names,
        [
            "bare",
            "Sennit, up",
            "Sennit, quiet",
            "wireguard-go, up",
            "wireguard-go, quiet",
            "ideal, up",
            "ideal, quiet"
        ]
    );
}

#[test]
fn one_tunnel_leaves_names_and_order_as_they_are() {
    let text = format!(
        "{LINK}[tunnel]
        kind = [\"ideal\"]
        [[step]]
        name = \"quiet\"
        traffic = [{{ kind = \"idle\" }}]
        [[step]]
        name = \"bare\"
        traffic = [{{ kind = \"ping\", via = \"link:a\" }}]"
    );

    let scenario = Scenario::parse(&text).expect("it is right");

    let steps = scenario.step.iter();
    let played: Vec<_> = steps
        .map(|step| (step.name.as_str(), step.tunnel, step.uses_tunnel()))
        .collect();
    assert_eq!(
        played,
        [
            ("quiet", TunnelKind::Ideal, true),
            ("bare", TunnelKind::Ideal, false)
        ]
    );
}

#[test]
fn other_tunnels_join_edge_and_hub_and_nothing_else() {
    let step = |kind: &str, traffic: &str, rest: &str| {
        let tunnel = format!("[tunnel]\nkind = [{kind}]\n");
        let step = format!("[[step]]\nname = \"s\"\ntraffic = [{{ {traffic} }}]\n{rest}");
        Scenario::parse(&format!("{LINK}{tunnel}{step}"))
    };
    let (lan, ends) = ("kind = \"tcp\"", "kind = \"idle\"");
    let fault = "fault = [{ at_s = 1, link = \"a\", action = \"outage\" }]";
    let error = |parsed: Result<Scenario, Error>| parsed.expect_err("it is wrong").to_string();

    assert!(step("\"sennit\"", lan, fault).is_ok());
    assert!(step("\"sennit\", \"ideal\"", ends, "").is_ok());
    assert!(error(step("\"ideal\"", lan, "")).contains("edge to the hub only"));
    assert!(error(step("\"sennit\", \"wireguard-go\"", ends, fault)).contains("broken"));
    assert!(error(step("", ends, "")).contains("names no tunnel"));
    assert!(error(step("\"openvpn\"", ends, "")).contains("unknown variant"));
}

#[test]
fn an_error_points_at_the_line() {
    let error = error("name = \"t\"\nlink = 3\n");

    assert!(error.contains("line 2"), "{error}");
}

/// What it says of each scenario.
const READ_ME: &str = include_str!("../../../lab/README.md");

#[test]
fn the_shipped_scenarios_are_right() {
    let entries = ["/../../lab", "/../../lab/seeds"].map(|directory| {
        let directory = format!("{}{directory}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_dir(directory).expect("the scenarios are there")
    });
    let mut names = Vec::new();
    for entry in entries.into_iter().flatten() {
        let path = entry.expect("the directory can be read").path();
        let is_other = path.ends_with("targets.toml") || path.ends_with("matrix.toml");
        let is_scenario = path
            .extension()
            .is_some_and(|extension| extension == "toml")
            && !is_other;
        if is_scenario {
            let text = std::fs::read_to_string(&path).expect("a scenario can be read");
            let scenario = Scenario::parse(&text);
            let scenario = scenario.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            assert_eq!(path.file_stem(), Some(std::ffi::OsStr::new(&scenario.name)));
            let seed = path.parent().is_some_and(|it| it.ends_with("seeds"));
            let line = format!("| `{}.toml` |", scenario.name);
            assert!(
                seed || READ_ME.contains(&line),
                "lab/README.md lacks {line}"
            );
            names.push(scenario.name);
        }
    }
    assert!(names.contains(&"demo".to_owned()), "{names:?}");
    assert!(names.contains(&"headers".to_owned()), "{names:?}");
}

#[test]
fn a_step_knows_how_many_sockets_it_fills_with_udp_at_a_host() {
    let text = format!(
        "edges = 3
        {LINK}
        [tunnel]
        [[step]]
        name = \"calls\"
        traffic = [
            {{ kind = \"udp\", rate_mbit = 1 }},
            {{ kind = \"quic\", edge = 2 }},
            {{ kind = \"udp\", rate_mbit = 1, direction = \"up\" }},
            {{ kind = \"tcp\" }},
        ]
        "
    );
    let scenario = Scenario::parse(&text).expect("it is right");
    let readers = |role, edge| scenario.step[0].udp_readers(role, edge, 3);

    assert_eq!([1, 2, 3].map(|edge| readers(Role::Lan, edge)), [1, 2, 1]);
    assert_eq!(readers(Role::Server, 1), 3, "one of each edge");
    assert_eq!(readers(Role::Edge, 1), 0);
}

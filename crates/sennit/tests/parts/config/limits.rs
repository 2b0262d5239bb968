//! How much a config may hold, and how much is said of one that is all wrong.

use super::*;

#[test]
fn more_than_a_daemon_can_have_is_refused_where_it_begins() {
    let table = |count: usize, text: &str| -> String {
        (0..count)
            .map(|n| text.replace('#', &n.to_string()))
            .collect()
    };
    let class = "[[class]]\nname = 'c#'\nmatch = ['udp port 1']\n";
    let rules = |count: usize| {
        let rules = table(count, "'udp port 1', ");
        format!(
            "[[class]]\nname = 'a'\nmatch = [{rules}]\n[[class]]\nname = 'b'\nmatch = ['icmp']\n"
        )
    };
    let servers = |count: usize| {
        SMALL_EDGE.replace(
            "[edge]",
            &format!("[edge]\ndns = [{}]", table(count, "'10.0.0.1', ")),
        )
    };
    for (most, is_one_too_many, said) in [
        (
            format!("{SMALL_EDGE}{}", table(64, class)),
            format!("{SMALL_EDGE}{}", table(20_000, class)),
            "at most 64 [[class]] are allowed, and here are 20000",
        ),
        (
            format!("{SMALL_EDGE}{}", rules(1023)),
            format!("{SMALL_EDGE}{}", rules(1024)),
            "all classes together have at most 1024 rules, and here are 1025",
        ),
        (
            format!("{HUB}{}", table(1024, class)),
            format!("{HUB}{}", table(1025, class)),
            "at most 1024 [[class]] are allowed, and here are 1025",
        ),
        (
            format!(
                "{SMALL_EDGE}{}",
                table(15, "[[link]]\nname = 'l#'\ninterface = 'e#'\n")
            ),
            format!(
                "{SMALL_EDGE}{}",
                table(16, "[[link]]\nname = 'l#'\ninterface = 'e#'\n")
            ),
            "at most 16 [[link]] are allowed, and here are 17",
        ),
        (
            servers(1024),
            servers(1025),
            "`dns` has at most 1024 items, and here are 1025",
        ),
    ] {
        let parse = |text: &str| Config::parse("any.toml", text.as_bytes());
        let read = parse(&most).unwrap_or_else(|report| panic!("{said}: {report}"));
        assert!(!read.warnings.has_errors());

        let report = parse(&is_one_too_many).unwrap_err();

        let errors = report.findings().iter();
        let errors: Vec<_> = errors
            .filter(|it| it.severity() == Severity::Error)
            .collect();
        assert_eq!(errors.len(), 1, "{said}: {report}");
        assert!(errors[0].message().starts_with(said), "{report}");
    }
}

#[test]
fn of_a_large_file_that_is_all_wrong_the_first_hundred_errors_are_said() {
    let lines = |line: &str| line.repeat((1 << 20) / line.len());
    let keys: String = (0..60_000).map(|n| format!("mut{n} = 1\n")).collect();
    let inside = |key: &str| SMALL_EDGE.replace("[edge]", &format!("[edge]\n{key}"));
    for text in [
        lines("x\n"),
        lines("a = \n"),
        lines("]]\n"),
        inside(&format!("routes = [{}]", lines("'0', "))),
        inside(&format!("dns = [{}]", lines("0,"))),
        inside(&keys),
        format!("{SMALL_EDGE}{}", lines("[[class]]\n")),
        format!(
            "{SMALL_EDGE}{}",
            lines("[[notify]]\nevents = ['tunnel_upp']\n")
        ),
        format!(
            "{SMALL_EDGE}[[class]]\nname = 'a'\nmatch = [{}]",
            lines("'udp prt 1',")
        ),
        format!("{SMALL_EDGE}{} = 1", "k".repeat(1 << 20)),
        format!("{SMALL_EDGE}{} = 1", "k.".repeat(1 << 19)),
        lines("[["),
        lines("a."),
        lines("{a="),
    ] {
        let report = Config::parse("any.toml", text.as_bytes()).unwrap_err();

        assert!(
            report.findings().len() <= 100,
            "{}",
            report.findings().len()
        );
        assert_eq!(report.located().count(), report.findings().len());
        assert!(report.has_errors());
        let told = report.to_string();
        assert!(told.contains("any.toml"));
        assert!(told.len() < 100 * 2000, "{} bytes", told.len());
    }
}

#[test]
fn a_daemon_has_one_to_sixty_four_workers() {
    for (config, section) in [(HUB, "[hub]\n"), (EDGE, "[edge]\n")] {
        let workers = |count: &str| {
            let text = config.replace(section, &format!("{section}workers = {count}\n"));
            let loaded = Config::parse("any.toml", text.as_bytes());
            loaded.map(|loaded| match loaded.config {
                Config::Hub(hub) => hub.workers,
                Config::Edge(edge) => edge.workers,
            })
        };

        assert_eq!(workers("1").unwrap(), Some(1));
        assert_eq!(workers("64").unwrap(), Some(64));
        for wrong in ["0", "65", "-1", "'all'", "1.5"] {
            let report = workers(wrong).unwrap_err();
            assert!(report.to_string().contains("`workers`"), "{report}");
        }
    }
}

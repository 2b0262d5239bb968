//! How a class shares links, in both directions where both are known.

use super::{Cell, Mood, PathStatus, Role, Side, Text, TunnelStatus, known, rate};
use crate::status::{QueueStatus, SharedStatus};

impl Text {
    /// What a class has of each link that it shares, why the link is taken to carry so much, and
    /// how long packets of the class wait.
    pub(super) fn shares(&mut self, tunnel: &TunnelStatus, role: Role) {
        let ours = match role {
            Role::Edge => "up",
            Role::Hub => "down",
        };
        let rows = |path: &PathStatus| {
            let link = path.link.clone().unwrap_or_else(|| "-".into());
            let ways = [
                (ours, path.shared.clone()),
                ("down", path.shared_down.clone()),
            ];
            ways.map(|(way, shared)| Some(row(&link, way, &shared?)))
        };
        let rows: Vec<_> = tunnel.paths.iter().flat_map(rows).flatten().collect();
        if rows.is_empty() {
            return;
        }
        let columns = [
            ("SHARED", Side::Left),
            ("WAY", Side::Left),
            ("CARRIES", Side::Right),
            ("GIVEN", Side::Right),
            ("SENDS", Side::Right),
            ("LINK QUEUE", Side::Right),
            ("HELD", Side::Left),
            ("WHY", Side::Left),
        ];
        self.table("  ", &columns, rows);
        let mut waits = queue(ours, &tunnel.queue);
        if let Some(far) = &tunnel.queue_down {
            waits += &format!("; {}", queue("down", &far.queue));
        }
        self.lines.push(format!("  waits {waits}"));
    }
}

fn row(link: &str, way: &str, shared: &SharedStatus) -> ([Cell; 8], Option<String>) {
    let (held, mood) = if shared.held {
        ("yes", Mood::Uneasy)
    } else {
        ("no", Mood::Plain)
    };
    // The word of programs is long beside all the numbers.
    let why = match shared.link_cause.as_str() {
        "configured" => "config",
        cause => cause,
    };
    let cells = [
        link.into(),
        way.into(),
        known(shared.link_bytes_per_second, rate),
        known(shared.given_bytes_per_second, rate),
        rate(shared.sent_bytes_per_second).into(),
        known(shared.link_queue_seconds, |queue| {
            format!("{:.1} ms", queue * 1e3)
        }),
        Cell {
            text: held.into(),
            mood,
        },
        why.into(),
    ];
    (cells, None)
}

fn queue(way: &str, queue: &QueueStatus) -> String {
    format!(
        "{way} {:.1} ms, {} dropped, {} marked",
        queue.delay_seconds * 1e3,
        queue.dropped_packets + queue.overflowed_packets,
        queue.marked_packets
    )
}

#[cfg(test)]
mod tests {
    use crate::status::{Status, WIDTH, render};

    #[test]
    fn both_directions_of_a_shared_link_are_shown() {
        let full = include_str!("../../../tests/parts/schema/full.json");
        let status: Status = serde_json::from_str(full).unwrap();
        let text = render(&status, false, WIDTH);
        for line in [
            "  SHARED  WAY     CARRIES      GIVEN      SENDS  LINK QUEUE  HELD  WHY",
            "  lte     up    48.0 Mb/s  32.0 Mb/s  32.0 Mb/s      1.0 ms  yes   clear",
            "  lte     down  96.0 Mb/s  72.0 Mb/s  64.0 Mb/s      2.0 ms  no    config",
            "  waits up 12.0 ms, 4 dropped, 2 marked; down 4.0 ms, 10 dropped, 5 marked",
        ] {
            assert!(
                text.lines().any(|it| it == line),
                "{line:?} is not in\n{text}"
            );
        }
    }
}

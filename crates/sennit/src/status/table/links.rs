//! The links of an edge: what there is room for.

use super::{
    Cell, Mood, Side, Text, UNKNOWN, bytes, duration, known, limits, rate, trouble, widths,
};
use crate::status::{LinkAccount, LinkState, LinkStatus, Status};

/// Seconds without anything that arrives of which a person is told: links in use hear each other
/// twenty times a second.
const UNHEARD: f64 = 5.0;

/// A column of the table.
struct Column {
    title: &'static str,
    side: Side,
    cell: fn(&LinkStatus) -> Cell,
    /// Those with the highest number are left out first where there is no room; 0 is always there.
    spare: u8,
}

static COLUMNS: [Column; 12] = [
    column("LINK", Side::Left, 0, |link| link.name.as_str().into()),
    column("INTERFACE", Side::Left, 2, |link| {
        link.interface.as_str().into()
    }),
    column("ADDRESS", Side::Left, 3, |link| {
        let address = link.address.map(|address| address.to_string());
        address.unwrap_or_else(|| UNKNOWN.into()).into()
    }),
    column("PUBLIC", Side::Left, 5, |link| public(link).into()),
    column("STATE", Side::Left, 0, state),
    column("TIER", Side::Right, 1, |link| link.tier.to_string().into()),
    column("WEIGHT", Side::Right, 4, |link| {
        link.weight.to_string().into()
    }),
    column("RTT", Side::Right, 0, |link| {
        known(link.traffic.rtt_seconds, |rtt| {
            format!("{:.1} ms", rtt * 1e3)
        })
    }),
    column("LOSS", Side::Right, 0, |link| {
        known(link.traffic.loss_ratio, |loss| {
            format!("{:.1} %", loss * 100.0)
        })
    }),
    column("DOWN", Side::Right, 0, |link| {
        known(link.received_bytes_per_second, rate)
    }),
    column("UP", Side::Right, 0, |link| {
        known(link.sent_bytes_per_second, rate)
    }),
    column("CYCLE", Side::Right, 0, |link| match &link.account {
        Some(account) => cycle(account).into(),
        None => UNKNOWN.into(),
    }),
];

const fn column(
    title: &'static str,
    side: Side,
    spare: u8,
    cell: fn(&LinkStatus) -> Cell,
) -> Column {
    Column {
        title,
        side,
        cell,
        spare,
    }
}

impl Text {
    pub(super) fn links(&mut self, links: &[LinkStatus]) {
        self.lines.push(String::new());
        let columns = self.chosen(links);
        let titles: Vec<_> = columns.iter().map(|it| (it.title, it.side)).collect();
        let rows = links.iter().map(|link| (cells(&columns, link), note(link)));
        self.table("", &titles, rows.collect());
        for link in links {
            let shortfall = link.account.as_ref().and_then(LinkAccount::shortfall);
            if let Some((cap, forecast)) = shortfall {
                let (name, cap, forecast) = (&link.name, bytes(cap), bytes(forecast));
                self.note(&format!(
                    "{name}: its cap of {cap} will not last: {forecast} by its end"
                ));
            }
        }
    }

    /// Links that count as up, and on which nothing has arrived of late in any class: while nothing
    /// flows, a dead one is found out only when it is asked.
    pub(super) fn unheard(&mut self, status: &Status) {
        let up = status.links.iter().filter(|it| it.state == LinkState::Up);
        for link in up {
            let paths = status.tunnels.iter().flat_map(|it| &it.paths);
            let paths = paths.filter(|it| it.link.as_ref() == Some(&link.name));
            let heard = paths.filter_map(|it| it.heard_seconds).reduce(f64::min);
            if let Some(seconds) = heard.filter(|seconds| *seconds >= UNHEARD) {
                let (name, since) = (&link.name, duration(seconds));
                self.note(&format!("{name}: nothing has arrived for {since}"));
            }
        }
    }

    /// Those columns that there is room for; of accounts, and of what the hub sees, only if there
    /// is anything.
    fn chosen(&self, links: &[LinkStatus]) -> Vec<&'static Column> {
        let metered = links.iter().any(|link| link.account.is_some());
        let mut columns: Vec<&Column> = COLUMNS.iter().collect();
        columns.retain(|column| metered || column.title != "CYCLE");
        let seen = links.iter().any(|link| !link.public.is_empty());
        columns.retain(|column| seen || column.title != "PUBLIC");
        for least in (1..=5).rev() {
            if width(&columns, links) <= self.width {
                break;
            }
            columns.retain(|column| column.spare < least);
        }
        columns
    }
}

fn width(columns: &[&Column], links: &[LinkStatus]) -> usize {
    let rows: Vec<Vec<Cell>> = links.iter().map(|link| cells(columns, link)).collect();
    let rows: Vec<&[Cell]> = rows.iter().map(Vec::as_slice).collect();
    let titles: Vec<_> = columns.iter().map(|it| (it.title, it.side)).collect();
    widths(&titles, &rows).iter().sum::<usize>() + 2 * (columns.len() - 1)
}

fn cells(columns: &[&Column], link: &LinkStatus) -> Vec<Cell> {
    columns.iter().map(|column| (column.cell)(link)).collect()
}

/// Where the hub sees the link, with the port if a NAT gave it that.
fn public(link: &LinkStatus) -> String {
    let seen = link.public.first().and_then(|public| {
        let seen = public.seen.first()?;
        Some(match public.translated {
            true => seen.to_string(),
            false => seen.ip().to_string(),
        })
    });
    seen.unwrap_or_else(|| UNKNOWN.into())
}

fn word(link: &LinkStatus) -> (&'static str, Mood) {
    match link.state {
        LinkState::Up if link.standby => ("standby", Mood::Plain),
        LinkState::Up => ("up", Mood::Good),
        LinkState::Down => ("down", Mood::Bad),
    }
}

fn state(link: &LinkStatus) -> Cell {
    let (word, mood) = word(link);
    Cell {
        text: word.into(),
        mood,
    }
}

/// What is used of a cap and how many days it has to last, or without one what was carried.
fn cycle(account: &LinkAccount) -> String {
    match account.cap_bytes {
        Some(cap) => {
            let used = account.used_bytes as f64 / cap.max(1) as f64;
            format!("{:.0} %, {} d", used * 100.0, account.days_left)
        }
        None => bytes(account.used_bytes),
    }
}

fn note(link: &LinkStatus) -> Option<String> {
    let (word, _) = word(link);
    let note = trouble(&link.name, word, link.since_seconds, link.reason.as_ref());
    let hub = || Some(format!("{}: {}", link.name, link.hub.as_ref()?));
    let limit = || Some(format!("{}: {}", link.name, limits(link)?));
    note.or_else(hub).or_else(limit)
}

//! The status for people: 80 columns, numbers to the right, colour only where it is wanted.

mod leak;
mod links;
mod shares;
mod sites;
mod sizes;

use super::{
    LinkStatus, PathState, PathStatus, RefusedPrefix, Role, State, Status, TunnelStatus,
    WorkerStatus,
};

/// Half a terminal of 1985 and all of most windows since; what is no terminal has as much.
pub const WIDTH: usize = 80;
const UNKNOWN: &str = "-";

/// What a link carries at most, and who says so, if anybody does.
pub(crate) fn limits(link: &LinkStatus) -> Option<String> {
    let up = link.up_limit_bytes_per_second;
    let down = link.down_limit_bytes_per_second;
    let said = |rates, by_operator| {
        let who = match by_operator {
            true => "an operator wants",
            false => "the config says",
        };
        bounds(rates).map(|bounds| format!("{bounds}, as {who}"))
    };
    let (of_up, of_down) = (link.up_limited_by_operator, link.down_limited_by_operator);
    if up.is_none() || down.is_none() || of_up == of_down {
        return said([up, down], of_up || of_down);
    }
    let each = [said([up, None], of_up), said([None, down], of_down)];
    Some(each.map(Option::unwrap_or_default).join("; "))
}

/// The bounds of what is sent up and down, in words, if there are any.
pub(crate) fn bounds(rates: [Option<f64>; 2]) -> Option<String> {
    let directions = rates.into_iter().zip(["up", "down"]);
    let words = directions.filter_map(|(bound, way)| Some(format!("{} {way}", rate(bound?))));
    let words: Vec<String> = words.collect();
    (!words.is_empty()).then(|| format!("at most {}", words.join(" and ")))
}

/// The whole document as text, in lines of at most `width`, which is at least [`WIDTH`].
pub fn render(status: &Status, color: bool, width: usize) -> String {
    let mut text = Text {
        lines: Vec::new(),
        color,
        width: width.max(WIDTH),
    };
    text.heading(status);
    if !status.links.is_empty() {
        text.links(&status.links);
        text.unheard(status);
    }
    for tunnel in &status.tunnels {
        text.tunnel(tunnel, status.role);
    }
    text.away(&status.sites);
    text.lines.join("\n") + "\n"
}

/// A table of 80 columns at most, with the notes of its rows below it. Its first `left` columns are
/// words, the others numbers.
pub(crate) fn columns<const N: usize>(
    titles: [&str; N],
    left: usize,
    rows: &[([String; N], Vec<String>)],
) -> String {
    let mut text = Text {
        lines: Vec::new(),
        color: false,
        width: WIDTH,
    };
    let mut index = 0..N;
    let columns = titles.map(|title| match index.next() {
        Some(index) if index >= left => (title, Side::Right),
        _ => (title, Side::Left),
    });
    let cells = rows
        .iter()
        .map(|(cells, _)| (cells.clone().map(Cell::from), None));
    text.table("", &columns, cells.collect());
    for note in rows.iter().flat_map(|(_, notes)| notes) {
        text.note(note);
    }
    text.lines.join("\n") + "\n"
}

/// How good or bad a word is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mood {
    Plain,
    Good,
    Uneasy,
    Bad,
}

impl Mood {
    fn paint(self, word: &str) -> String {
        match self {
            Self::Plain => word.into(),
            Self::Good => format!("\x1b[32m{word}\x1b[0m"),
            Self::Uneasy => format!("\x1b[33m{word}\x1b[0m"),
            Self::Bad => format!("\x1b[31m{word}\x1b[0m"),
        }
    }
}

struct Text {
    lines: Vec<String>,
    color: bool,
    /// Of a line, in columns.
    width: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

struct Cell {
    text: String,
    mood: Mood,
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self {
            text: text.into(),
            mood: Mood::Plain,
        }
    }
}

impl Text {
    fn heading(&mut self, status: &Status) {
        let (word, mood) = state(status.state);
        let role = match status.role {
            Role::Edge => "edge",
            Role::Hub => "hub",
        };
        let word = if self.color {
            mood.paint(word)
        } else {
            word.into()
        };
        let uptime = duration(status.uptime_seconds);
        // A hub has many.
        let own = status.tunnels.first().filter(|_| status.role == Role::Edge);
        let site = own.map_or_else(String::new, |it| format!(", site {}", it.site));
        self.lines.push(format!(
            "{word}  {role} on {}{site}, running for {uptime}, version {}",
            status.device, status.version
        ));
        if let Some(reason) = &status.reason {
            self.note(reason);
        }
        for note in &status.notes {
            self.note(note);
        }
        if !status.addresses.is_empty() {
            let addresses: Vec<String> = status.addresses.iter().map(ToString::to_string).collect();
            self.lines
                .push(format!("  inner addresses {}", addresses.join(", ")));
        }
        if let Some(leak) = &status.leak {
            self.leak(leak, status.state);
        }
        for refused in &status.refused_lan {
            let RefusedPrefix { prefix, reason } = refused;
            self.note(&format!("the hub does not route {prefix}: {reason}"));
        }
        self.refused(&status.sites);
        if status.workers.len() > 1 {
            self.workers(&status.workers);
        }
    }

    /// How evenly the work is spread.
    fn workers(&mut self, workers: &[WorkerStatus]) {
        let tunnels: Vec<String> = workers.iter().map(|it| it.tunnels.to_string()).collect();
        let handed: u64 = workers.iter().map(|it| it.handed_packets).sum();
        let lost = workers
            .iter()
            .map(|it| it.overflowed_packets + it.unowned_packets);
        let line = format!(
            "  {} workers, {handed} packets handed over, {} of them lost, tunnels {}",
            workers.len(),
            lost.sum::<u64>(),
            tunnels.join(" "),
        );
        self.lines.push(shorten(&line, WIDTH));
    }

    fn tunnel(&mut self, tunnel: &TunnelStatus, role: Role) {
        let (word, mood) = state(tunnel.state);
        let word = if self.color {
            mood.paint(word)
        } else {
            word.into()
        };
        let site = match role {
            Role::Edge => String::new(),
            Role::Hub => format!("site {}, ", tunnel.site),
        };
        self.lines.push(String::new());
        let class = shorten(&tunnel.class, WIDTH);
        let since = duration(tunnel.since_seconds);
        self.lines
            .push(format!("TUNNEL {site}class {class}: {word} for {since}"));
        self.lines.push(format!(
            "  {}, {}; sent {}, received {}",
            tunnel.policy,
            tunnel.delivery,
            bytes(tunnel.sent_bytes),
            bytes(tunnel.received_bytes),
        ));
        if let Some(reason) = &tunnel.reason {
            self.note(reason);
        }
        if let Some(group) = &tunnel.key_exchange {
            let how = match (tunnel.resumed, tunnel.early) {
                (true, true) => ", resumed with 0-RTT",
                (true, false) => ", resumed",
                (false, _) => "",
            };
            let renewed = match tunnel.key_updates {
                0 => String::new(),
                1 => ", keys renewed once".into(),
                times => format!(", keys renewed {times} times"),
            };
            self.lines
                .push(format!("  key exchange {group}{how}{renewed}"));
        }
        if tunnel.wrong_source_packets > 0 {
            let count = tunnel.wrong_source_packets;
            self.note(&format!(
                "{count} packets dropped: their source is not the site's"
            ));
        }
        if tunnel.wrong_destination_packets > 0 {
            let count = tunnel.wrong_destination_packets;
            self.note(&format!(
                "{count} packets dropped: nobody may send to their destination from afar"
            ));
        }
        if !tunnel.paths.is_empty() {
            self.paths(&tunnel.paths, role);
            self.sizes(&tunnel.paths);
            self.shares(tunnel, role);
        }
    }

    fn paths(&mut self, paths: &[PathStatus], role: Role) {
        // Congestion control knows what is sent from here.
        let rate_title = match role {
            Role::Edge => "RATE UP",
            Role::Hub => "RATE DOWN",
        };
        let columns = [
            ("PATH", Side::Left),
            ("STATE", Side::Left),
            ("RTT", Side::Right),
            ("LOSS", Side::Right),
            (rate_title, Side::Right),
            ("SENT", Side::Right),
            ("RECEIVED", Side::Right),
            ("SHARE", Side::Right),
        ];
        let rows = paths.iter().map(|path| {
            let (word, mood) = path_state(path.state);
            let name = path.name();
            let cells = [
                name.as_str().into(),
                Cell {
                    text: word.into(),
                    mood,
                },
                known(path.rtt_seconds, |rtt| format!("{:.1} ms", rtt * 1e3)),
                known(path.loss_ratio, |loss| format!("{:.1} %", loss * 100.0)),
                known(path.rate_bytes_per_second, rate),
                bytes(path.sent_bytes).into(),
                bytes(path.received_bytes).into(),
                known(path.share_ratio, |share| format!("{:.0} %", share * 100.0)),
            ];
            let note = trouble(&name, word, path.since_seconds, path.reason.as_ref());
            (cells, note)
        });
        self.table("  ", &columns, rows.collect());
    }

    /// A table, and below it the notes of its rows.
    fn table<C: AsRef<[Cell]>>(
        &mut self,
        indent: &str,
        columns: &[(&str, Side)],
        rows: Vec<(C, Option<String>)>,
    ) {
        let cells: Vec<&[Cell]> = rows.iter().map(|(cells, _)| cells.as_ref()).collect();
        let mut widths = widths(columns, &cells);
        let gaps = 2 * columns.len().saturating_sub(1);
        fit(&mut widths, self.width.saturating_sub(indent.len() + gaps));
        let (titles, sides): (Vec<Cell>, Vec<Side>) = columns
            .iter()
            .map(|&(title, side)| (title.into(), side))
            .unzip();
        for cells in std::iter::once(&*titles).chain(cells) {
            self.row(indent, cells, &widths, &sides);
        }
        for note in rows.into_iter().filter_map(|(_, note)| note) {
            self.note(&note);
        }
    }

    fn row(&mut self, indent: &str, cells: &[Cell], widths: &[usize], sides: &[Side]) {
        let mut line = indent.to_owned();
        for (n, cell) in cells.iter().enumerate() {
            let text = shorten(&cell.text, widths[n]);
            let blank = " ".repeat(widths[n] - text.chars().count());
            let text = if self.color {
                cell.mood.paint(&text)
            } else {
                text
            };
            let padded = match sides[n] {
                Side::Left => text + &blank,
                Side::Right => blank + &text,
            };
            line += if n == 0 { "" } else { "  " };
            line += &padded;
        }
        self.lines.push(line.trim_end().into());
    }

    fn note(&mut self, note: &str) {
        let note: String = note
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        self.lines.push(format!("  ! {note}"));
    }
}

/// Which link or path is in which state, since when and why, if there is a reason.
fn trouble(name: &str, state: &str, seconds: f64, reason: Option<&String>) -> Option<String> {
    let since = duration(seconds);
    reason.map(|reason| format!("{name} is {state} for {since}: {reason}"))
}

/// How wide each column has to be.
fn widths(columns: &[(&str, Side)], rows: &[&[Cell]]) -> Vec<usize> {
    let width = |(n, (title, _)): (usize, &(&str, Side))| {
        let cells = rows.iter().map(|cells| cells[n].text.chars().count());
        cells.max().unwrap_or(0).max(title.len())
    };
    columns.iter().enumerate().map(width).collect()
}

/// Takes from the widest column until all fit.
fn fit(widths: &mut [usize], room: usize) {
    while widths.iter().sum::<usize>() > room {
        let Some(widest) = widths.iter_mut().max() else {
            return;
        };
        *widest -= 1;
    }
}

fn shorten(text: &str, width: usize) -> String {
    let text: String = text
        .chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect();
    if text.chars().count() <= width {
        return text;
    }
    text.chars()
        .take(width.saturating_sub(1))
        .chain(['…'])
        .collect()
}

/// Words in lines of at most `width`, all but the first indented.
pub(crate) fn wrap(indent: &str, words: &str, width: usize) -> String {
    let mut text = String::new();
    let mut line = indent.to_owned();
    for word in words.split(' ') {
        let fits = line.chars().count() + 1 + word.chars().count() <= width;
        if !fits && line.trim() != "" {
            text += &format!("{}\n", line.trim_end());
            line = " ".repeat(indent.len());
        }
        line += word;
        line.push(' ');
    }
    text + line.trim_end() + "\n"
}

fn state(state: State) -> (&'static str, Mood) {
    match state {
        State::Up => ("up", Mood::Good),
        State::Connecting => ("connecting", Mood::Uneasy),
        State::Degraded => ("degraded", Mood::Uneasy),
        State::Down => ("down", Mood::Bad),
    }
}

fn path_state(state: PathState) -> (&'static str, Mood) {
    match state {
        PathState::Up => ("up", Mood::Good),
        PathState::Probation => ("probation", Mood::Uneasy),
        PathState::Suspect => ("suspect", Mood::Uneasy),
        PathState::Down => ("down", Mood::Bad),
    }
}

fn known(value: Option<f64>, show: impl Fn(f64) -> String) -> Cell {
    value.map_or_else(|| UNKNOWN.into(), |value| show(value).into())
}

/// IEC multiples.
pub(crate) fn bytes(bytes: u64) -> String {
    scaled(
        bytes as f64,
        1024.0,
        &["B", "KiB", "MiB", "GiB", "TiB", "PiB"],
    )
}

/// Bits per second, as links are sold.
pub(crate) fn rate(bytes_per_second: f64) -> String {
    scaled(
        bytes_per_second * 8.0,
        1000.0,
        &["b/s", "kb/s", "Mb/s", "Gb/s", "Tb/s"],
    )
}

fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    // A sum of no numbers is -0.0, and would be written so.
    let mut value = value + 0.0;
    let mut unit = 0;
    // What would round to a four-digit number belongs to the next unit.
    while value >= step - 0.5 && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    let digits = usize::from(unit > 0 && value < 99.95);
    format!("{value:.digits$} {}", units[unit])
}

pub(crate) fn duration(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as u64;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min"),
        (0, _, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_unit_that_fits() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1024), "1.0 KiB");
        assert_eq!(bytes(5_368_709_120), "5.0 GiB");
        assert_eq!(bytes(1_048_575), "1.0 MiB");
        assert_eq!(rate(125_000_000.0), "1.0 Gb/s");
        assert_eq!(rate(std::iter::empty::<f64>().sum()), "0 b/s");
        assert_eq!(rate(18_500_000.0), "148 Mb/s");
        assert_eq!(bytes(u64::MAX), "16384 PiB");
    }

    #[test]
    fn durations_have_two_units_at_most() {
        let shown = [0.0, 59.9, 60.0, 3_661.0, 90_000.0, -1.0].map(duration);
        assert_eq!(
            shown,
            ["0 s", "59 s", "1 min", "1 h 1 min", "1 d 1 h", "0 s"]
        );
    }
}

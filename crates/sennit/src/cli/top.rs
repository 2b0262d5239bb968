//! `sennit top`: links, tunnels and sites with what passes now, for people who watch.

mod rates;
mod view;

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};

use self::rates::{Now, Seen};
use super::{Exit, Failure, output, status, values};
use crate::control::{Client, Request};

/// A daemon answers within one turn of its loop.
const PATIENCE: Duration = Duration::from_secs(5);
/// Columns of what `--once` prints.
const WIDTH: u16 = 80;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sennit top
  sennit top --once                  # one look, as text
  sennit top --once --json | jq .links

Keys: q ends it, the arrows scroll, p stops the picture. What passes is counted in bits a second.")]
pub(super) struct TopArgs {
    /// Control socket of the daemon [default: the edge's, else the hub's, in /run/sennit]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Seconds between two looks, 0.2 to 60
    #[arg(long, value_name = "S", default_value = "1", value_parser = interval)]
    interval: Duration,
    /// Look once, print it, and end
    #[arg(long)]
    once: bool,
    /// Print JSON (sennit.top/1)
    #[arg(long, requires = "once")]
    json: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    let span = values::seconds(text)?;
    if !(0.2..=60.0).contains(&span.as_secs_f64()) {
        return Err("0.2 to 60 seconds are allowed".into());
    }
    Ok(span)
}

pub(super) fn run(args: &TopArgs) -> Result<Exit, Failure> {
    let control = args.control.clone().map_or_else(status::find_control, Ok)?;
    let look = || -> Result<Seen, Failure> {
        let mut client = Client::connect(&control, PATIENCE)?;
        let document = client.request(&Request::Status)?;
        Ok(Seen::new(status::read(&document)?, Instant::now()))
    };
    let before = look()?;
    if args.once {
        thread::sleep(args.interval);
        let now = Now::between(&before, &look()?);
        if args.json {
            return output::print_json(&now);
        }
        return output::print(&view::text(&now, WIDTH));
    }
    if !io::stdout().is_terminal() {
        return Err(
            Failure::usage("this is no terminal").hint("for a single look: sennit top --once")
        );
    }
    watch(before, args.interval, look)
}

/// Draws until somebody has seen enough, also while the daemon is started again. The terminal is
/// put back in any case.
fn watch(
    mut before: Seen,
    interval: Duration,
    mut look: impl FnMut() -> Result<Seen, Failure>,
) -> Result<Exit, Failure> {
    let mut terminal = ratatui::try_init().map_err(Failure::runtime)?;
    let mut view = View::default();
    let mut now = Now::between(&before, &before);
    let outcome = loop {
        view.stay_within(now.rows());
        let drawn = terminal.draw(|frame| view::draw(&now, view.skipped, frame));
        if let Err(error) = drawn {
            break Err(Failure::runtime(error));
        }
        match view.wait(Instant::now() + interval) {
            Ok(Next::Look) if view.stopped => {}
            Ok(Next::Look) => match look() {
                Ok(seen) => {
                    now = Now::between(&before, &seen);
                    before = seen;
                }
                Err(failure) => now = now.unanswered(failure.message().into()),
            },
            Ok(Next::Draw) => {}
            Ok(Next::End) => break Ok(Exit::Ok),
            Err(error) => break Err(Failure::runtime(error)),
        }
    };
    ratatui::restore();
    outcome
}

/// What keys have changed.
#[derive(Default)]
struct View {
    /// Lines at the top that are not shown.
    skipped: u16,
    stopped: bool,
}

enum Next {
    Look,
    Draw,
    End,
}

impl View {
    /// Keeps the last of so many rows in the picture.
    fn stay_within(&mut self, rows: usize) {
        let last = u16::try_from(rows.saturating_sub(1)).unwrap_or(u16::MAX);
        self.skipped = self.skipped.min(last);
    }

    /// Waits for a key or until it is time to look again.
    fn wait(&mut self, until: Instant) -> io::Result<Next> {
        while event::poll(until.saturating_duration_since(Instant::now()))? {
            match event::read()? {
                Event::Key(key) => return Ok(self.handle_key(key)),
                Event::Resize(_, _) => return Ok(Next::Draw),
                _ => {}
            }
        }
        Ok(Next::Look)
    }

    fn handle_key(&mut self, key: KeyEvent) -> Next {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Next::End,
            KeyCode::Char('c') if control => return Next::End,
            KeyCode::Char('p') => self.stopped = !self.stopped,
            KeyCode::Up | KeyCode::Char('k') => self.skipped = self.skipped.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.skipped = self.skipped.saturating_add(1),
            _ => {}
        }
        Next::Draw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scrolling_ends_at_the_last_row() {
        let mut view = View::default();
        let mut press = |code| {
            view.handle_key(KeyEvent::new(code, KeyModifiers::NONE));
            view.stay_within(3);
            view.skipped
        };

        let down = [KeyCode::Down; 5].map(&mut press);
        let up = [KeyCode::Up; 3].map(&mut press);

        assert_eq!(down, [1, 2, 2, 2, 2]);
        assert_eq!(up, [1, 0, 0]);
    }
}

//! What somebody who watches has chosen, and what keys do.

use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::widgets::TableState;

use super::entries::{Entry, Key, Kind, More, Order};
use super::errands::{Errand, Outcome};
use super::picture::Picture;
use super::rates::Seen;
use crate::status::Role;

/// Rows that a page up or down goes over.
const PAGE: isize = 10;
/// Characters of a filter.
const LONGEST_FILTER: usize = 64;

pub(super) struct App {
    live: Picture,
    /// What is shown instead while it is to stand still.
    frozen: Option<Picture>,
    pub(super) color: bool,
    pub(super) mode: Mode,
    pub(super) filter: String,
    pub(super) order: Order,
    selected: Option<Key>,
    /// What runs for an operator, and how far it is.
    pub(super) busy: Option<String>,
    /// What came of that, in a line.
    pub(super) said: Option<String>,
    /// What came of that, in several lines, until a key is pressed.
    pub(super) told: Option<String>,
    /// How far both tables are scrolled: links, and classes or sites.
    pub(super) tables: [TableState; 2],
}

/// What keys are for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    #[default]
    Watch,
    /// The filter is typed.
    Filter,
    /// Something is to be agreed to.
    Ask(Question),
    /// One thing has the whole screen, so many lines scrolled.
    Page(Page, u16),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Page {
    Help,
    Why,
    Flows,
    Events,
}

/// What is done if somebody says yes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) text: String,
    pub(super) errand: Errand,
}

/// What a key wants of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    End,
    Errand(Errand),
    /// The errand that runs is to end.
    Stop,
}

impl App {
    pub(super) fn new(first: Seen, interval: Duration, color: bool) -> Self {
        Self {
            live: Picture::new(first, interval),
            frozen: None,
            color,
            mode: Mode::default(),
            filter: String::new(),
            order: Order::default(),
            selected: None,
            busy: None,
            said: None,
            told: None,
            tables: Default::default(),
        }
    }

    /// What there is to show.
    pub(super) fn picture(&self) -> &Picture {
        self.frozen.as_ref().unwrap_or(&self.live)
    }

    /// What is known by now, also while the picture stands still.
    pub(super) fn live(&mut self) -> &mut Picture {
        &mut self.live
    }

    pub(super) fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    /// The rows that are shown, links first.
    pub(super) fn rows(&self) -> Vec<&Entry> {
        let shown = |entry: &&Entry| self.lets_pass(&entry.row.name);
        let all = self.picture().entries.iter().filter(shown);
        let (mut links, mut others): (Vec<&Entry>, Vec<&Entry>) =
            all.partition(|entry| entry.key.kind == Kind::Link);
        self.order.sort(&mut links);
        self.order.sort(&mut others);
        links.append(&mut others);
        links
    }

    /// Whether the filter shows what is called so.
    pub(super) fn lets_pass(&self, text: &str) -> bool {
        self.filter.is_empty() || text.to_lowercase().contains(&self.filter.to_lowercase())
    }

    /// Which of the rows is selected.
    pub(super) fn cursor(&self, rows: &[&Entry]) -> usize {
        let is_it = |entry: &&Entry| Some(&entry.key) == self.selected.as_ref();
        rows.iter().position(is_it).unwrap_or(0)
    }

    pub(super) fn selected(&self) -> Option<&Entry> {
        let rows = self.rows();
        rows.get(self.cursor(&rows)).copied()
    }

    /// Takes what came of an errand.
    pub(super) fn handle_outcome(&mut self, outcome: Outcome) {
        self.busy = None;
        match outcome {
            Outcome::Said(line) => self.said = Some(line),
            Outcome::Told(lines) => self.told = Some(lines),
            Outcome::Asks { question, errand } if matches!(self.mode, Mode::Watch) => {
                self.ask(question, errand);
            }
            // What is typed now is no answer to it.
            Outcome::Asks { question, .. } => self.said = Some(format!("{question} Start again")),
        }
    }

    // ---- keys -----------------------------------------------------------------------------------

    pub(super) fn handle_key(&mut self, key: KeyEvent) -> Option<Wish> {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return (key.code == KeyCode::Char('c')).then_some(Wish::End);
        }
        if self.told.take().is_some() {
            return None;
        }
        match self.mode {
            Mode::Watch => self.handle_watching(key.code),
            Mode::Filter => {
                self.handle_typing(key.code);
                None
            }
            Mode::Ask(_) => self.handle_answer(key.code),
            Mode::Page(page, scrolled) => {
                self.handle_reading(key.code, page, scrolled);
                None
            }
        }
    }

    fn handle_watching(&mut self, code: KeyCode) -> Option<Wish> {
        self.said = None;
        match code {
            KeyCode::Char('q') => return Some(Wish::End),
            KeyCode::Esc if self.filter.is_empty() => return Some(Wish::End),
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Up | KeyCode::Char('k') => self.go(-1),
            KeyCode::Down | KeyCode::Char('j') => self.go(1),
            KeyCode::PageUp => self.go(-PAGE),
            KeyCode::PageDown => self.go(PAGE),
            KeyCode::Home | KeyCode::Char('g') => self.go(isize::MIN),
            KeyCode::End | KeyCode::Char('G') => self.go(isize::MAX),
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.mode = Mode::Page(Page::Help, 0),
            KeyCode::Enter | KeyCode::Char('w') => self.mode = Mode::Page(Page::Why, 0),
            KeyCode::Char('f') => self.mode = Mode::Page(Page::Flows, 0),
            KeyCode::Char('e') => self.mode = Mode::Page(Page::Events, 0),
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Char('p' | ' ') => self.freeze(),
            KeyCode::Char('x') if self.busy.is_some() => return Some(Wish::Stop),
            KeyCode::Char(key @ ('o' | 'd' | 't')) => return self.command(key),
            _ => {}
        }
        None
    }

    fn freeze(&mut self) {
        self.frozen = match self.frozen {
            Some(_) => None,
            None => Some(self.live.clone()),
        };
    }

    fn go(&mut self, by: isize) {
        let rows = self.rows();
        let last = rows.len().saturating_sub(1);
        let to = self.cursor(&rows).saturating_add_signed(by).min(last);
        self.selected = rows.get(to).map(|entry| entry.key.clone());
    }

    fn handle_typing(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.mode = Mode::Watch,
            KeyCode::Esc => {
                self.filter.clear();
                self.mode = Mode::Watch;
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(typed) if self.filter.chars().count() < LONGEST_FILTER => {
                self.filter.push(typed);
            }
            _ => {}
        }
    }

    fn handle_answer(&mut self, code: KeyCode) -> Option<Wish> {
        let Mode::Ask(question) = std::mem::take(&mut self.mode) else {
            return None;
        };
        if matches!(code, KeyCode::Char('y' | 'Y')) {
            return self.send(question.errand);
        }
        self.said = Some("nothing was done".into());
        None
    }

    fn handle_reading(&mut self, code: KeyCode, page: Page, scrolled: u16) {
        let lines = PAGE.unsigned_abs() as u16;
        let scrolled = match code {
            KeyCode::Up | KeyCode::Char('k') => scrolled.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => scrolled.saturating_add(1),
            KeyCode::PageUp => scrolled.saturating_sub(lines),
            KeyCode::PageDown | KeyCode::Char(' ') => scrolled.saturating_add(lines),
            KeyCode::Home | KeyCode::Char('g') => 0,
            _ => {
                self.mode = Mode::Watch;
                return;
            }
        };
        self.mode = Mode::Page(page, scrolled);
    }

    // ---- what is done to links ------------------------------------------------------------------

    /// Pauses or resumes the selected link, loses it on purpose, or measures it.
    fn command(&mut self, key: char) -> Option<Wish> {
        if self.picture().now.role == Role::Hub {
            self.said = Some("this is the edge's to do: run `sennit top` there".into());
            return None;
        }
        let entry = self.selected()?;
        let name = entry.row.name.clone();
        let is_link = matches!(entry.more, More::Link(_));
        let is_paused = entry.state == "paused";
        let mut others = self.picture().entries.iter();
        let alone =
            match others.any(|it| it.key.kind == Kind::Link && it.key != entry.key && it.row.up) {
                true => "",
                false => " No other link is up.",
            };
        match key {
            't' => {
                let link = is_link.then_some(name);
                let what = match &link {
                    Some(link) => format!("Measure `{link}`? Meanwhile all goes over it alone."),
                    None => "Measure the tunnel with all its links?".into(),
                };
                let metered = false;
                self.ask(what, Errand::Measure { link, metered });
            }
            _ if !is_link => self.said = Some("select a link first".into()),
            'o' if is_paused => return self.send(Errand::Resume(name)),
            'o' => self.ask(
                format!("Have `{name}` carry nothing until it is resumed?{alone}"),
                Errand::Pause(name),
            ),
            _ => self.ask(
                format!("Lose `{name}` on purpose while pings pass?{alone}"),
                Errand::Drill(name),
            ),
        }
        None
    }

    fn ask(&mut self, text: String, errand: Errand) {
        self.mode = Mode::Ask(Question { text, errand });
    }

    fn send(&mut self, errand: Errand) -> Option<Wish> {
        if self.busy.is_some() {
            self.said = Some("one thing at a time: x stops what runs".into());
            return None;
        }
        self.busy = Some(errand.in_words());
        Some(Wish::Errand(errand))
    }
}

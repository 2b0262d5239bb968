//! Writes down what links carry, and says which of them have used up their caps.
//!
//! A thread of its own asks the workers every few seconds and writes; packets wait for none of it.
//! A file that cannot be written is said once, and counting goes on.

mod tally;

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant, SystemTime},
};

use self::tally::Tally;
use super::{answer::Answer, letter::Letter, running::Running};
use crate::{
    config::{self, EdgeConfig},
    control::{Request, Response},
    daemon::{
        mailbox::{self, Question, Slot},
        reload::Reloader,
    },
    journal::{CapState, Event, Journal},
    usage::{Carried, Cycle, Day, Ledger, UsageDay, UsageDocument, UsageLink},
};

/// What a crash costs at most.
const EVERY: Duration = Duration::from_secs(5);
/// Days that are told of, beside the cycle.
const SHOWN: Day = 35;
/// From this part of a cap on, somebody should know.
const NEARLY: f64 = 0.8;

/// The counters and who is over its cap.
pub(super) struct Accounts {
    state: PathBuf,
    started: Instant,
    reloader: Arc<Reloader<Running>>,
    journal: Journal,
    workers: Vec<Slot<Question<Answer>>>,
    letters: Arc<[Slot<Letter>]>,
    books: Mutex<Books>,
}

#[derive(Default)]
struct Books {
    ledger: Option<Ledger>,
    /// Said once, until it works again.
    failed: bool,
    tally: Tally,
    over: BTreeSet<String>,
    /// What was said of a link, in the cycle that began on a day: the file may be lost.
    said: BTreeSet<(String, String, CapState)>,
}

impl Accounts {
    /// Starts the thread, which ends when nobody else holds what this returns.
    pub(super) fn start(
        reloader: &Arc<Reloader<Running>>,
        journal: &Journal,
        workers: &[Slot<Question<Answer>>],
        letters: &Arc<[Slot<Letter>]>,
    ) -> std::io::Result<Arc<Self>> {
        let accounts = Arc::new(Self {
            state: reloader.running().config.records.clone(),
            started: Instant::now(),
            reloader: Arc::clone(reloader),
            journal: journal.clone(),
            workers: workers.to_vec(),
            letters: Arc::clone(letters),
            books: Mutex::default(),
        });
        let own = Arc::downgrade(&accounts);
        thread::Builder::new()
            .name("accounts".into())
            .spawn(move || {
                sennit_linux::confine::keep_files_only();
                while let Some(accounts) = own.upgrade() {
                    drop(accounts.look(SystemTime::now()));
                    drop(accounts);
                    thread::sleep(EVERY);
                }
            })?;
        Ok(accounts)
    }

    /// Asks what was carried since the last time, and writes it down; the books as they are then.
    ///
    /// Nobody else asks before it is written: who asked earlier must not write later.
    fn look(&self, now: SystemTime) -> MutexGuard<'_, Books> {
        let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(reports) = mailbox::ask_all(&self.workers, &Request::Usage) {
            let seen = reports.into_iter().map(|report| report.seen.links);
            books.tally.note(seen);
            self.write(&mut books, now);
            self.judge(&mut books, &self.reloader.running().config, now);
        }
        books
    }

    fn write(&self, books: &mut Books, now: SystemTime) {
        let carried = books.tally.take();
        let outcome = self.open(books).and_then(|ledger| {
            let day = ledger.day(now, self.started.elapsed());
            let rows = carried.iter().map(|(link, it)| (link.as_str(), *it));
            ledger.add(day, rows).map_err(|error| error.to_string())
        });
        match outcome {
            Ok(()) => books.failed = false,
            Err(error) => {
                books.ledger = None;
                if !std::mem::replace(&mut books.failed, true) {
                    tracing::warn!(error, "what links carry is not written down");
                }
                books.tally.put_back(carried);
            }
        }
    }

    fn open<'b>(&self, books: &'b mut Books) -> Result<&'b mut Ledger, String> {
        if books.ledger.is_none() {
            books.ledger = Some(Ledger::open(&self.state).map_err(|error| error.to_string())?);
        }
        books.ledger.as_mut().ok_or_else(String::new)
    }

    /// Finds who is over its cap, and tells the workers if that has changed.
    fn judge(&self, books: &mut Books, config: &EdgeConfig, now: SystemTime) {
        let capped = config.links.iter().filter(|link| link.cap.is_some());
        let mut over = BTreeSet::new();
        for link in capped {
            let Some(told) = self.tell(books, link, now) else {
                return;
            };
            if told.over {
                over.insert(link.name.clone());
            }
            books.warn(&told, &self.journal);
        }
        if over != books.over {
            books.over = over.clone();
            let over = Arc::new(over);
            for slot in self.letters.iter() {
                slot.post(Letter::Over(Arc::clone(&over)));
            }
        }
    }

    /// What there is to say of a link.
    fn tell(&self, books: &mut Books, link: &config::Link, now: SystemTime) -> Option<UsageLink> {
        let running = self.started.elapsed();
        let ledger = self.open(books).ok()?;
        let today = ledger.day(now, running);
        let cycle = Cycle::around(today, link.reset_day);
        let first = cycle.first.min(today - SHOWN);
        let mut days = ledger.days(first, today + 1).ok()?;
        let days = days.remove(&link.name).unwrap_or_default();
        let mut used = Carried::default();
        days.range(cycle.first..).for_each(|(_, it)| used.add(*it));
        let seconds = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let moment = (seconds.as_secs_f64() / 86_400.0).max(today as f64);
        let forecast = cycle.forecast(used.total(), moment);
        Some(UsageLink {
            link: link.name.clone(),
            cost: link.cost,
            cap_bytes: link.cap,
            cycle_first: date(cycle.first),
            cycle_end: date(cycle.end),
            used,
            used_ratio: link.cap.map(|cap| used.total() as f64 / cap.max(1) as f64),
            forecast_bytes: forecast.map(|it| it.bytes),
            over: link.cap.is_some_and(|cap| used.total() >= cap),
            days: days
                .into_iter()
                .map(|(day, carried)| UsageDay {
                    day: date(day),
                    carried,
                })
                .collect(),
        })
    }

    /// The answer to `usage`.
    pub(super) fn document(&self) -> Response {
        let mut books = self.look(SystemTime::now());
        let running = self.reloader.running();
        let now = SystemTime::now();
        let links = running.config.links.iter();
        let links: Option<Vec<UsageLink>> =
            links.map(|link| self.tell(&mut books, link, now)).collect();
        match links {
            Some(links) => Response::document(&UsageDocument {
                schema: UsageDocument::SCHEMA.into(),
                links,
            }),
            None => Response::refused("no_usage", "what links have carried cannot be read"),
        }
    }
}

impl Books {
    /// Says once a cycle that a cap is nearly used up, used up, or will be.
    fn warn(&mut self, told: &UsageLink, journal: &Journal) {
        let Some(cap) = told.cap_bytes else { return };
        let UsageLink { link, .. } = told;
        let ratio = told.used_ratio.unwrap_or_default();
        let state = if told.over {
            CapState::Over
        } else if ratio >= NEARLY {
            CapState::Nearly
        } else if told.forecast_bytes.is_some_and(|bytes| bytes > cap) {
            CapState::Forecast
        } else {
            return;
        };
        if self.is_news(link, &told.cycle_first, state) {
            let (used, until) = (told.used.total(), &told.cycle_end);
            tracing::warn!(
                link,
                used_bytes = used,
                cap_bytes = cap,
                until,
                "the cap {state}"
            );
            journal.note(Event::Cap {
                link: link.clone(),
                state,
                used_bytes: used,
                cap_bytes: cap,
                until: until.clone(),
            });
        }
    }

    /// Whether nobody has said this of a link in the cycle that began on a day, also before a
    /// restart.
    fn is_news(&mut self, link: &str, cycle: &str, state: CapState) -> bool {
        if !self.said.insert((link.into(), cycle.into(), state)) {
            return false;
        }
        let told = self.ledger.as_mut().map(|it| it.tell(link, cycle, state));
        told.is_none_or(|told| told.unwrap_or(true))
    }
}

fn date(day: Day) -> String {
    crate::usage::date(day).to_string()
}

#[cfg(test)]
mod tests {
    use sennit_linux::poller::Poller;

    use super::*;
    use crate::{config, daemon::edge::tests::config, journal::Keeper};

    #[test]
    fn while_the_workers_are_asked_nobody_else_looks() {
        let (poller, state) = (Poller::new().unwrap(), tempfile::tempdir().unwrap());
        let (worker, slot) = mailbox::open(&poller, 0).unwrap();
        let keeper = Keeper::start(&state.path().join("journal.db")).unwrap();
        let journal = keeper.journal();
        let running = Running::new(config("", &["all"]), config::effective(""));
        let accounts = Accounts {
            state: state.path().into(),
            started: Instant::now(),
            reloader: Arc::new(Reloader::new(
                "edge.toml".into(),
                &Arc::new(running),
                journal.clone(),
                |_| unreachable!("nobody reloads"),
            )),
            journal: journal.clone(),
            workers: vec![slot],
            letters: Vec::new().into(),
            books: Mutex::default(),
        };

        thread::scope(|scope| {
            let looks = scope.spawn(|| drop(accounts.look(SystemTime::now())));
            let asked: Question<Answer> = loop {
                match worker.next() {
                    Some(question) => break question,
                    None => thread::yield_now(),
                }
            };
            assert!(accounts.books.try_lock().is_err());
            // The worker ends without an answer.
            drop(asked);
            looks.join().unwrap();
        });
        assert!(accounts.books.try_lock().is_ok());
    }
}

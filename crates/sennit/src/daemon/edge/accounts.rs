//! Writes down what links carry, and says which of them have used up their caps.
//!
//! A thread of its own asks the workers every few seconds and writes; packets wait for none of it.
//! A file that cannot be written is said once, and counting goes on.

mod tally;

use std::{
    collections::{BTreeMap, BTreeSet},
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
    status::{LinkAccount, LinkStatus},
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
    /// What a status tells of links, as the books were last: who asks for it waits for no disk.
    told: Mutex<BTreeMap<String, LinkAccount>>,
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
            told: Mutex::default(),
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

    /// Finds what links that cost something have carried and who is over its cap, and tells the
    /// workers if that has changed.
    fn judge(&self, books: &mut Books, config: &EdgeConfig, now: SystemTime) {
        let metered = config.links.iter();
        let metered = metered.filter(|link| link.cap.is_some() || link.cost > 0);
        let told: Option<Vec<UsageLink>> =
            metered.map(|link| self.tell(books, link, now)).collect();
        let accounts = told.iter().flatten();
        *self.told() = accounts.map(|it| (it.link.clone(), account(it))).collect();
        let Some(told) = told else { return };
        for link in &told {
            books.warn(link, &self.journal);
        }
        let over = told.into_iter().filter(|it| it.over).map(|it| it.link);
        let over: BTreeSet<String> = over.collect();
        if over != books.over {
            books.over = over.clone();
            let over = Arc::new(over);
            for slot in self.letters.iter() {
                slot.post(Letter::Over(Arc::clone(&over)));
            }
        }
    }

    fn told(&self) -> MutexGuard<'_, BTreeMap<String, LinkAccount>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says of links what they have carried, of those that cost something or have a cap.
    pub(super) fn describe(&self, links: &mut [LinkStatus]) {
        let told = self.told();
        for link in links {
            link.account = told.get(&link.name).cloned();
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
            days_left: u64::try_from(cycle.end - today).unwrap_or(0),
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

fn account(told: &UsageLink) -> LinkAccount {
    LinkAccount {
        cost: told.cost,
        cap_bytes: told.cap_bytes,
        used_bytes: told.used.total(),
        forecast_bytes: told.forecast_bytes,
        cycle_end: told.cycle_end.clone(),
        days_left: told.days_left,
        demoted: told.over,
    }
}

fn date(day: Day) -> String {
    crate::usage::date(day).to_string()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sennit_linux::poller::Poller;

    use super::*;
    use crate::{
        config,
        daemon::{edge::tests::config, reload, tests::link},
        journal::Keeper,
    };

    fn accounts(
        state: &Path,
        config: EdgeConfig,
        workers: Vec<Slot<Question<Answer>>>,
    ) -> (Accounts, Keeper) {
        let keeper = Keeper::start(&state.join("journal.db")).unwrap();
        let journal = keeper.journal().clone();
        let running = Running::new(config, config::effective(""));
        let reloader = Reloader::new(
            "edge.toml".into(),
            &Arc::new(running),
            journal.clone(),
            reload::tests::secrets(),
            |_| unreachable!("nobody reloads"),
        );
        let accounts = Accounts {
            state: state.into(),
            started: Instant::now(),
            reloader: Arc::new(reloader),
            journal,
            workers,
            letters: Vec::new().into(),
            books: Mutex::default(),
            told: Mutex::default(),
        };
        (accounts, keeper)
    }

    #[test]
    fn while_the_workers_are_asked_nobody_else_looks() {
        let (poller, state) = (Poller::new().unwrap(), tempfile::tempdir().unwrap());
        let (worker, slot) = mailbox::open(&poller, 0).unwrap();
        let (accounts, _keeper) = accounts(state.path(), config("", &["all"]), vec![slot]);

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

    #[test]
    fn a_link_with_a_cap_says_what_is_left_of_it_and_one_that_costs_nothing_says_nothing() {
        const USED: u64 = 600_000_000;
        let state = tempfile::tempdir().unwrap();
        let mut config = config("", &["all"]);
        (config.links[0].cap, config.links[0].reset_day) = (Some(1_000_000_000), 5);
        let (accounts, _keeper) = accounts(state.path(), config.clone(), Vec::new());
        // 2024-10-03, a day and a half before the next cycle.
        let (day, now) = (
            19_999,
            SystemTime::UNIX_EPOCH + Duration::from_secs((19_999 * 24 + 12) * 3_600),
        );
        let used = Carried {
            sent_bytes: 1,
            received_bytes: USED - 1,
        };
        let mut books = accounts.books.lock().unwrap();
        let ledger = accounts.open(&mut books).unwrap();
        ledger.add(day, [("lte", used)].into_iter()).unwrap();

        accounts.judge(&mut books, &config, now);
        drop(books);
        let mut links = [link("lte"), link("dsl")];
        accounts.describe(&mut links);

        let account = links[0].account.clone().unwrap();
        assert_eq!(
            (account.used_bytes, account.cap_bytes),
            (USED, config.links[0].cap)
        );
        assert_eq!(
            (account.cycle_end.as_str(), account.days_left),
            ("2024-10-05", 2)
        );
        assert!(account.forecast_bytes.unwrap() > USED && account.shortfall().is_none());
        assert!(!account.demoted);
        assert_eq!(links[1].account, None);

        config.links[0].cap = Some(USED);
        accounts.judge(&mut accounts.books.lock().unwrap(), &config, now);
        accounts.describe(&mut links);
        assert!(links[0].account.as_ref().unwrap().demoted);
    }
}

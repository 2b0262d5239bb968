//! Requests to a daemon at a constant rate, and viewers who follow it.

use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use sennit_load::quantile;

use super::{AskFigures, Context};
use crate::api;
use crate::error::Error;
use crate::scenario::Ask;

/// Threads that ask in turn, so that one slow answer does not hold up the others.
const ASKERS: u32 = 8;

pub(super) fn run(ask: &Ask, context: &Context<'_>) -> Result<AskFigures, Error> {
    let control = context.control(ask.of)?;
    let start = Instant::now();
    let end = start + context.span();
    let (answers, waits) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for asker in 0..ASKERS.min(ask.rate) {
            let answers = &answers;
            scope.spawn(move || {
                for due in (asker..).step_by(ASKERS as usize) {
                    let at = start + Duration::from_secs(1) * due / ask.rate;
                    if at >= end {
                        break;
                    }
                    thread::sleep(at.saturating_duration_since(Instant::now()));
                    let answer = answer(control, &ask.path, at);
                    lock(answers).push(answer);
                }
            });
        }
        for _ in 0..ask.viewers {
            scope.spawn(|| {
                let wait = longest_wait(control, start, end);
                lock(&waits).push(wait);
            });
        }
        // Who asks for nothing has the daemon to itself for as long.
        thread::sleep(end.saturating_duration_since(Instant::now()));
    });
    let answers = answers.into_inner().unwrap_or_default();
    let times: Vec<f64> = answers.iter().copied().flatten().collect();
    let waits: Option<Vec<f64>> = waits.into_inner().unwrap_or_default().into_iter().collect();
    let waits = waits.ok_or_else(|| Error::Traffic {
        name: "ask".into(),
        reason: "a viewer was sent away".into(),
    })?;
    Ok(AskFigures {
        asked: answers.len() as u64,
        answered: times.len() as u64,
        p50_seconds: quantile(&times, 0.5),
        p95_seconds: quantile(&times, 0.95),
        p99_seconds: quantile(&times, 0.99),
        longest_wait_seconds: quantile(&waits, 1.0),
    })
}

/// From when it was to be asked until the answer; `None` for none.
fn answer(control: &Path, path: &str, at: Instant) -> Option<f64> {
    api::get(control, path).ok()?;
    Some(at.elapsed().as_secs_f64())
}

/// The longest time in which a viewer saw nothing new; `None` if it was sent away.
fn longest_wait(control: &Path, start: Instant, end: Instant) -> Option<f64> {
    let seen = api::follow(control, end).ok()?;
    let starts = [start].into_iter().chain(seen.iter().copied());
    let waits = starts.zip(seen.iter().copied().chain([end]));
    waits
        .map(|(from, to)| to.saturating_duration_since(from).as_secs_f64())
        .reduce(f64::max)
}

fn lock<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    shared
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

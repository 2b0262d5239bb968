//! Questions that take seconds, asked at once.

use std::thread::{self, Builder};

/// Does `work` for each of them, on a thread each. There is nothing of one that panicked, or that
/// the host had no thread for.
pub(super) fn at_once<I: Send, T: Send>(
    items: impl IntoIterator<Item = I>,
    work: impl Fn(I) -> T + Sync,
) -> Vec<Option<T>> {
    let work = &work;
    thread::scope(|scope| {
        let begin = |item| Builder::new().spawn_scoped(scope, move || work(item));
        let threads: Vec<_> = items.into_iter().map(begin).collect();
        let join =
            |thread: std::io::Result<thread::ScopedJoinHandle<'_, T>>| thread.ok()?.join().ok();
        threads.into_iter().map(join).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_panics_costs_the_others_nothing() {
        let done = at_once(0..3, |number| match number {
            1 => panic!("as asked"),
            other => other,
        });
        assert_eq!(done, [Some(0), None, Some(2)]);
    }
}

//! Finding a packet among those in flight, which are in the order they left.

use std::collections::VecDeque;

/// Index of the first entry that is not `before`, as [`VecDeque::partition_point`] says it.
///
/// Acknowledgements come for what left first, so the search begins there and widens: a binary
/// search through everything in flight would touch memory that has long left the caches.
pub(crate) fn first_not<T>(queue: &VecDeque<T>, before: impl Fn(&T) -> bool) -> usize {
    let (mut low, mut step) = (0, 1);
    while queue.get(low + step - 1).is_some_and(&before) {
        low += step;
        step *= 2;
    }
    let mut high = queue.len().min(low + step - 1);
    while low < high {
        let middle = low.midpoint(high);
        if before(&queue[middle]) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_agrees_with_a_binary_search() {
        for len in 0..40 {
            let queue: VecDeque<u32> = (0..len).map(|index| 3 * index).collect();
            for wanted in 0..=3 * len + 1 {
                let expected = queue.partition_point(|&entry| entry < wanted);
                assert_eq!(first_not(&queue, |&entry| entry < wanted), expected);
            }
        }
    }
}

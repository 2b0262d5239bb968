//! How many connections there may be.
//!
//! Who comes when all seats are taken gets that of whoever has sat idle for longest; so a crowd of
//! idle or slow clients keeps nobody out.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::Notify;

/// Connections at once: a page has up to six, a monitor one.
pub(super) const SEATS: usize = 256;
/// Of them with a stream of live data.
const STREAMS: usize = 64;

/// All seats.
#[derive(Debug, Default)]
pub(super) struct Seats {
    taken: Mutex<Vec<Place>>,
    streams: Arc<AtomicUsize>,
    next: AtomicUsize,
}

#[derive(Debug)]
struct Place {
    number: usize,
    busy: Arc<AtomicUsize>,
    leave: Arc<Notify>,
}

/// One connection's seat.
pub(super) struct Seat {
    seats: Arc<super::Shared>,
    number: usize,
    busy: Arc<AtomicUsize>,
    /// Notified when it has to leave.
    pub(super) leave: Arc<Notify>,
}

/// Says that a seat's connection is served now, until it is dropped.
#[derive(Debug)]
pub(super) struct Busy(Arc<AtomicUsize>);

impl Busy {
    fn new(counter: Arc<AtomicUsize>) -> Self {
        counter.fetch_add(1, Ordering::AcqRel);
        Self(counter)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Seat {
    /// Takes a seat; nothing if all are taken and busy.
    pub(super) fn take(shared: &Arc<super::Shared>) -> Option<Self> {
        let seats = &shared.seats;
        let mut taken = seats.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.len() >= SEATS {
            let idle = |place: &Place| place.busy.load(Ordering::Acquire) == 0;
            let oldest = taken.iter().position(idle)?;
            taken.remove(oldest).leave.notify_one();
        }
        let place = Place {
            number: seats.next.fetch_add(1, Ordering::Relaxed),
            busy: Arc::default(),
            leave: Arc::default(),
        };
        let seat = Self {
            seats: Arc::clone(shared),
            number: place.number,
            busy: Arc::clone(&place.busy),
            leave: Arc::clone(&place.leave),
        };
        taken.push(place);
        Some(seat)
    }

    /// It is served until the answer is dropped, and has sat idle for least time after that.
    pub(super) fn serve(&self) -> Busy {
        let mut taken = self.lock();
        if let Some(at) = taken.iter().position(|it| it.number == self.number) {
            let place = taken.remove(at);
            taken.push(place);
        }
        Busy::new(Arc::clone(&self.busy))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Place>> {
        let taken = self.seats.seats.taken.lock();
        taken.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.lock().retain(|place| place.number != self.number);
    }
}

impl Seats {
    /// Room for a stream; nothing if there are too many.
    pub(super) fn stream(&self) -> Option<Busy> {
        if self.streams.load(Ordering::Acquire) >= STREAMS {
            return None;
        }
        Some(Busy::new(Arc::clone(&self.streams)))
    }
}

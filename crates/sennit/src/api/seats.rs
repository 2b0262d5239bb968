//! How many connections there may be, and how many of them may have what costs much.
//!
//! Who comes when all seats are taken gets that of whoever has sat idle for longest; so a crowd of
//! idle or slow clients keeps nobody out. Streams of live data and large answers have places of
//! their own, each kind in a [`Room`]. When all of those are taken, one that does not take what it
//! is sent has to leave for the next.

use std::{
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

/// Connections at once: a page has up to six, a monitor one.
pub(super) const SEATS: usize = 256;
/// Of them with a stream of live data.
const STREAMS: usize = 64;
/// Of them with a part of the history that is not sent yet: all that a hub has kept of a year.
const HISTORIES: usize = 4;
/// Of them with another large answer that is not sent yet: the status of a hub with many sites.
const ANSWERS: usize = 16;
/// Those that may wait for a place in a room: some have their answers already, and hold them.
const WAITING: usize = 32;
/// Who takes nothing of what it is sent for so long may lose its place.
const STUCK: Duration = Duration::from_secs(10);
/// Who has had the place of an answer for so long may lose it, also if it takes that in sips. At
/// 64 kbit/s it takes 131 s to send 1 MiB.
const SENT_WITHIN: Duration = Duration::from_secs(300);
/// Until one that has to leave is gone.
pub(super) const AT_ONCE: Duration = Duration::from_millis(100);

/// All seats, and the places that few of those who sit may have.
#[derive(Debug)]
pub(super) struct Seats {
    taken: Mutex<Vec<Arc<Client>>>,
    pub(super) streams: Room,
    pub(super) histories: Room,
    pub(super) answers: Room,
}

impl Default for Seats {
    fn default() -> Self {
        Self {
            taken: Mutex::default(),
            streams: Room::new(STREAMS, Duration::MAX),
            histories: Room::new(HISTORIES, SENT_WITHIN),
            answers: Room::new(ANSWERS, SENT_WITHIN),
        }
    }
}

/// One connection, as those see it who want its place.
#[derive(Debug, Default)]
pub(super) struct Client {
    /// Requests of it that are served now.
    busy: AtomicUsize,
    /// Since when it does not take what it is sent.
    waits: Mutex<Option<Instant>>,
    /// Notified when it has to leave.
    pub(super) leave: Notify,
}

impl Client {
    /// Whether it takes what it is sent.
    pub(super) fn note(&self, takes: bool) {
        let mut waits = lock(&self.waits);
        match takes {
            true => *waits = None,
            false => _ = waits.get_or_insert_with(Instant::now),
        }
    }

    fn is_stuck(&self) -> bool {
        lock(&self.waits).is_some_and(|since| since.elapsed() >= STUCK)
    }
}

/// One connection's seat.
pub(super) struct Seat {
    seats: Arc<super::Shared>,
    pub(super) client: Arc<Client>,
}

/// Says that a connection is served now, until it is dropped.
#[derive(Debug)]
pub(super) struct Busy(Arc<Client>);

impl Busy {
    /// The connection.
    pub(super) fn client(&self) -> &Arc<Client> {
        &self.0
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Seat {
    /// Takes a seat; nothing if all are taken and busy.
    pub(super) fn take(shared: &Arc<super::Shared>) -> Option<Self> {
        let mut taken = lock(&shared.seats.taken);
        if taken.len() >= SEATS {
            let idle = |client: &Arc<Client>| client.busy.load(Ordering::Acquire) == 0;
            let oldest = taken.iter().position(idle)?;
            taken.remove(oldest).leave.notify_one();
        }
        let client = Arc::<Client>::default();
        taken.push(Arc::clone(&client));
        Some(Self {
            seats: Arc::clone(shared),
            client,
        })
    }

    /// It is served until the answer is dropped, and has sat idle for least time after that.
    pub(super) fn serve(&self) -> Busy {
        let mut taken = lock(&self.seats.seats.taken);
        if let Some(at) = taken.iter().position(|it| Arc::ptr_eq(it, &self.client)) {
            let client = taken.remove(at);
            taken.push(client);
        }
        self.client.busy.fetch_add(1, Ordering::AcqRel);
        Busy(Arc::clone(&self.client))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        lock(&self.seats.seats.taken).retain(|it| !Arc::ptr_eq(it, &self.client));
    }
}

/// Places for what costs much.
#[derive(Debug)]
pub(super) struct Room {
    places: Arc<Semaphore>,
    waiting: Semaphore,
    /// In the order in which they came.
    guests: Guests,
    /// Whoever has been there for longer has to leave for another.
    longest: Duration,
}

type Guests = Arc<Mutex<Vec<(Instant, Arc<Client>)>>>;

/// One of its places, until it is dropped.
#[derive(Debug)]
pub(super) struct Stay {
    guests: Guests,
    client: Arc<Client>,
    _place: OwnedSemaphorePermit,
}

impl Room {
    fn new(places: usize, longest: Duration) -> Self {
        Self {
            places: Arc::new(Semaphore::new(places)),
            waiting: Semaphore::new(WAITING),
            guests: Guests::default(),
            longest,
        }
    }

    /// A place for a connection, if there is one within `patience`.
    pub(super) async fn enter(&self, client: &Arc<Client>, patience: Duration) -> Option<Stay> {
        let _waits = self.waiting.try_acquire().ok()?;
        let mut place = pin!(Arc::clone(&self.places).acquire_owned());
        let deadline = Instant::now() + patience;
        let place = loop {
            if self.places.available_permits() == 0 {
                self.dismiss();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            // Some guest may be to leave only later.
            match timeout(left.min(AT_ONCE), place.as_mut()).await {
                Ok(place) => break place.ok()?,
                Err(_) if left <= AT_ONCE => return None,
                Err(_) => {}
            }
        };
        lock(&self.guests).push((Instant::now(), Arc::clone(client)));
        Some(Stay {
            guests: Arc::clone(&self.guests),
            client: Arc::clone(client),
            _place: place,
        })
    }

    /// Has the first one leave who may be sent away.
    fn dismiss(&self) {
        let mut guests = lock(&self.guests);
        let may_go = |(since, client): &(Instant, Arc<Client>)| {
            client.is_stuck() || since.elapsed() >= self.longest
        };
        if let Some(at) = guests.iter().position(may_go) {
            guests.remove(at).1.leave.notify_one();
        }
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        let mut guests = lock(&self.guests);
        let own = |(_, client): &(Instant, Arc<Client>)| Arc::ptr_eq(client, &self.client);
        if let Some(at) = guests.iter().position(own) {
            guests.remove(at);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(test);
    }

    #[test]
    fn who_waits_gets_the_place_of_a_guest_that_has_to_leave_only_later() {
        run(async {
            let room = Room::new(1, Duration::from_secs(2));
            let [guest, other] = [(); 2].map(|()| Arc::<Client>::default());
            let stay = room.enter(&guest, AT_ONCE).await.unwrap();
            tokio::spawn(async move {
                guest.leave.notified().await;
                drop(stay);
            });
            assert!(room.enter(&other, AT_ONCE).await.is_none());

            let stay = room.enter(&other, Duration::from_secs(20)).await;

            assert!(stay.is_some());
        });
    }

    #[test]
    fn those_who_fetch_the_history_keep_nobody_from_the_status() {
        run(async {
            let (seats, client) = (Seats::default(), Arc::default());
            let mut stays = Vec::new();
            while let Some(stay) = seats.histories.enter(&client, AT_ONCE).await {
                stays.push(stay);
            }
            assert_eq!(stays.len(), HISTORIES);

            assert!(seats.answers.enter(&client, AT_ONCE).await.is_some());
        });
    }
}

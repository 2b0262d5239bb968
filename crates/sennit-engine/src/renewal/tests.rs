use super::*;

/// Its seal is the number of the generation, which is also what its owner must have.
struct Seal(u8);

impl PacketKey for Seal {
    fn encrypt(&self, _: PathId, _: u64, packet: &mut [u8], _: usize) {
        let end = packet.len() - 1;
        packet[end] = self.0;
    }

    fn decrypt(
        &self,
        _: PathId,
        _: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        assert_eq!(header[0] & !PHASE, 0x40, "what the peer has sealed");
        let seal = *payload.last().unwrap();
        payload.fill(0xff);
        (seal == self.0).then_some(()).ok_or(CryptoError)
    }

    fn tag_len(&self) -> usize {
        1
    }

    fn confidentiality_limit(&self) -> u64 {
        100
    }

    fn integrity_limit(&self) -> u64 {
        1000
    }
}

/// Headers without protection.
struct Bare;

impl HeaderKey for Bare {
    fn decrypt(&self, _: usize, _: &mut [u8]) {}

    fn encrypt(&self, _: usize, _: &mut [u8]) {}

    fn sample_size(&self) -> usize {
        0
    }
}

struct Numbers(u8);

impl Source for Numbers {
    fn next(&mut self) -> Option<Pair> {
        self.0 += 1;
        Some(pair(self.0))
    }
}

fn pair(generation: u8) -> Pair {
    KeyPair {
        local: Box::new(Seal(generation)),
        remote: Box::new(Seal(generation)),
    }
}

const REKEY: Rekey = Rekey {
    packets: 10,
    bytes: 1000,
};
const PATIENCE: Duration = Duration::from_millis(300);

/// One end, as noq sees it.
struct End {
    keys: Arc<Keys>,
    noq: crypto::Keys,
    now: Instant,
}

/// On the wire.
type Sealed = (PathId, u64, [u8; 2]);

impl End {
    fn new() -> Self {
        let keys = Keys::new(pair(0), Box::new(Numbers(0)));
        let header = KeyPair {
            local: Box::new(Bare) as Box<dyn HeaderKey>,
            remote: Box::new(Bare) as Box<dyn HeaderKey>,
        };
        let noq = keys.wrapped(header);
        let _in_advance = keys.next_pair();
        Self {
            keys,
            noq,
            now: Instant::now(),
        }
    }

    fn seal(&self, path: u32, number: u64) -> Sealed {
        let mut packet = [0x40, 0];
        let path = PathId::from(path);
        self.noq.packet.local.encrypt(path, number, &mut packet, 1);
        (path, number, packet)
    }

    fn opens(&self, (path, number, packet): Sealed) -> bool {
        let mut header = [packet[0]];
        self.noq.header.remote.decrypt(1, &mut header);
        assert_eq!(header[0] & PHASE, 0, "noq is in its first phase");
        let mut payload = BytesMut::from(&packet[1..]);
        let remote = &self.noq.packet.remote;
        remote.decrypt(path, number, &header, &mut payload).is_ok()
    }

    fn wait(&mut self, span: Duration) -> Result<(), Exhausted> {
        self.now += span;
        self.keys.handle_time(REKEY, || PATIENCE, self.now)
    }

    fn renewals(&self) -> u64 {
        self.keys.renewals()
    }
}

/// Two ends, of which the first has sent as much as a key may seal, and renews.
fn renewed() -> (End, End) {
    let (mut one, other) = (End::new(), End::new());
    for number in 0..10 {
        assert!(other.opens(one.seal(0, number)));
    }
    assert!(one.opens(other.seal(0, 0)));
    one.wait(Duration::ZERO).unwrap();
    assert_eq!((one.renewals(), other.renewals()), (1, 0));
    (one, other)
}

#[test]
fn the_other_end_follows_when_one_renews() {
    let (one, other) = renewed();
    let first = one.seal(0, 10);
    assert_eq!(first.2, [0x40 | PHASE, 1]);
    assert!(other.opens(first));
    assert_eq!(other.renewals(), 1);
    assert!(one.opens(other.seal(0, 1)));
    assert_eq!(one.renewals(), 1, "that was the answer");
}

#[test]
fn bytes_count_as_well() {
    let (mut one, other) = (End::new(), End::new());
    assert!(one.opens(other.seal(0, 0)));
    let mut packet = [0; 1000];
    let local = &one.noq.packet.local;
    local.encrypt(PathId::ZERO, 0, &mut packet, 1);
    one.wait(Duration::ZERO).unwrap();
    assert_eq!(one.renewals(), 1);
}

#[test]
fn what_is_on_the_way_on_other_paths_opens_whatever_its_number() {
    let (one, other) = renewed();
    // Path 0 is far ahead in numbers, and path 1 is the first on which new keys are seen.
    let late: Vec<Sealed> = (100..105).map(|number| other.seal(0, number)).collect();
    assert!(other.opens(one.seal(1, 0)));
    assert!(one.opens(other.seal(1, 0)));
    for packet in late {
        assert!(one.opens(packet), "{packet:?}");
    }
    assert_eq!((one.renewals(), other.renewals()), (1, 1));
}

#[test]
fn old_keys_open_nothing_that_comes_after_new_ones_on_the_same_path() {
    let (one, other) = renewed();
    let (before, after) = (other.seal(0, 20), other.seal(0, 30));
    assert!(other.opens(one.seal(0, 10)));
    assert!(one.opens(other.seal(0, 25)));
    assert!(one.opens(before));
    // RFC 9001 §6.4.
    assert!(!one.opens(after));
}

#[test]
fn old_keys_are_forgotten_and_only_then_may_the_new_ones_be_renewed() {
    let (mut one, other) = renewed();
    let late = [other.seal(0, 100), other.seal(0, 101)];
    for number in 10..30 {
        assert!(other.opens(one.seal(0, number)));
    }
    one.wait(PATIENCE * 10).unwrap();
    assert_eq!(one.renewals(), 1, "the peer has not shown that it has them");
    assert!(one.opens(other.seal(1, 0)));
    one.wait(Duration::ZERO).unwrap();
    one.wait(PATIENCE / 2).unwrap();
    assert_eq!(one.renewals(), 1);
    assert!(one.opens(late[0]));
    one.wait(PATIENCE / 2).unwrap();
    assert_eq!(one.renewals(), 2);
    assert!(!one.opens(late[1]));
}

#[test]
fn a_packet_whose_phase_is_forged_changes_nothing() {
    let (one, other) = renewed();
    let (path, number, [first, seal]) = other.seal(0, 1);
    for end in [&one, &other] {
        let renewals = end.renewals();
        assert!(!end.opens((path, number, [first ^ PHASE, seal])));
        assert_eq!(end.renewals(), renewals);
    }
    assert!(one.opens((path, number, [first, seal])));
    assert!(other.opens(one.seal(0, 10)));
}

#[test]
fn nobody_renews_twice_before_this_end_has_sent_anything() {
    let (one, other) = renewed();
    assert!(other.opens(one.seal(0, 10)));
    one.keys.state().renew();
    // RFC 9001 §6.2.
    assert!(!other.opens(one.seal(0, 11)));
    assert!(one.renewals() == 2 && other.renewals() == 1);
    let _answer = other.seal(0, 1);
    assert!(other.opens(one.seal(0, 12)));
    assert_eq!(other.renewals(), 2);
}

#[test]
fn ends_that_renew_at_once_have_renewed_once() {
    let (mut one, mut other) = (End::new(), End::new());
    for number in 0..10 {
        assert!(other.opens(one.seal(0, number)) && one.opens(other.seal(0, number)));
    }
    one.wait(Duration::ZERO).unwrap();
    other.wait(Duration::ZERO).unwrap();
    assert!(other.opens(one.seal(0, 10)) && one.opens(other.seal(0, 10)));
    assert_eq!((one.renewals(), other.renewals()), (1, 1));
}

#[test]
fn keys_whose_limit_is_reached_are_not_used_if_the_peer_never_follows() {
    let (mut one, _) = renewed();
    for number in 10..109 {
        one.seal(0, number);
    }
    assert_eq!(one.wait(PATIENCE), Ok(()));
    one.seal(0, 109);
    // RFC 9001 §6.6.
    assert_eq!(one.wait(PATIENCE), Err(Exhausted));
}

#[test]
fn a_peer_that_never_follows_is_read_until_the_limit_and_old_keys_are_kept_for_it() {
    let (mut one, other) = renewed();
    for number in 10..109 {
        one.seal(0, number);
        for path in 0..3 {
            assert!(one.opens(other.seal(path, number)), "{number}");
        }
        assert_eq!(one.wait(PATIENCE), Ok(()));
    }
    assert_eq!((one.renewals(), other.renewals()), (1, 0));
}

#[test]
fn a_peer_that_renews_with_each_packet_is_followed_and_leaves_nothing_behind() {
    let (one, mut other) = (End::new(), End::new());
    for number in 0..200 {
        one.keys.state().renew();
        // RFC 9001 §6.1 forbids that; what it loses is the peer's own.
        assert!(other.opens(one.seal(number % 3, number.into())));
        assert!(one.opens(other.seal(0, number.into())));
        other.wait(PATIENCE / 100).unwrap();
        let state = other.keys.state();
        assert!(
            state
                .previous
                .as_ref()
                .is_some_and(|it| it.firsts.len() <= 1)
        );
    }
    assert_eq!((one.renewals(), other.renewals()), (200, 200));
}

/// Small random numbers.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

#[test]
fn whatever_is_lost_late_or_forged_on_three_paths_what_arrives_in_time_opens() {
    const MS: Duration = Duration::from_millis(1);
    for seed in 0..20 {
        let mut dice = Dice(seed);
        let mut ends = [End::new(), End::new()];
        let mut numbers = [[0; 3]; 2];
        // When it arrives, and where.
        let mut flying: Vec<(u64, usize, Sealed)> = Vec::new();
        for now in 0..5000 {
            for end in 0..2 {
                // Each end is silent for a while now and then.
                if (now / 700 + seed) % 5 == end as u64 {
                    continue;
                }
                let path = dice.roll(3) as usize;
                let number = &mut numbers[end][path];
                let sealed = ends[end].seal(path as u32, *number);
                *number += 1;
                if dice.roll(10) >= 3 {
                    flying.push((now + 1 + dice.roll(299), 1 - end, sealed));
                }
            }
            for (_, to, sealed) in flying.extract_if(.., |(at, _, _)| *at <= now) {
                let (path, number, [first, seal]) = sealed;
                let forged = (path, number, [first ^ PHASE, seal]);
                assert!(!ends[to].opens(forged), "seed {seed}, {now} ms: {forged:?}");
                assert!(ends[to].opens(sealed), "seed {seed}, {now} ms: {sealed:?}");
            }
            for end in &mut ends {
                // More is sealed in a round trip than these keys are good for.
                let _ = end.wait(MS);
            }
        }
        let [one, other] = ends.map(|end| end.renewals());
        assert!(one >= 4 && one.abs_diff(other) <= 1, "{one}, {other}");
    }
}

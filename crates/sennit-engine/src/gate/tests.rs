//! What a gate shows noq and the driver.

use super::*;

fn gate() -> (Box<dyn Controller>, Arc<GateState>) {
    let factory = Arc::new(GateFactory(Congestion::Cubic));
    let controller = factory.build(Instant::now(), 1200);
    let state = Gate::state_of(controller.as_ref()).unwrap();
    (controller, state)
}

#[test]
fn a_closed_gate_shows_a_window_too_small_to_send() {
    let (controller, state) = gate();
    assert_eq!(controller.window(), 12_000);
    state.set_open(false);
    assert_eq!(controller.window(), 1);
    assert_eq!(controller.metrics().congestion_window, ENDLESS);
    assert_eq!(state.window(), 12_000);
}

#[test]
fn bytes_in_flight_follow_what_is_sent_lost_and_acknowledged() {
    let (mut controller, state) = gate();
    let now = Instant::now();
    for pn in 0..4 {
        controller.on_packet_sent(now, 1200, pn);
    }
    assert_eq!(state.room(), 12_000 - 4800);
    controller.on_packet_lost(1200, 0, now);
    assert_eq!(state.room(), 12_000 - 3600);
    controller.on_end_acks(now, 1200, false, Some(3));
    assert_eq!(state.room(), 12_000 - 1200);
}

#[test]
fn what_is_known_to_be_lost_takes_no_room() {
    let (mut controller, state) = gate();
    let start = Instant::now();
    controller.on_congestion_event(start, start, false, false, 1200, 0);
    assert!(!state.is_in_slow_start());
    let sent = |pn| start + Duration::from_millis(10) * pn as u32;
    for pn in 1..=3 {
        state.ledger().stage(Payload {
            bytes: vec![0; 1100].into(),
            first_sent: start,
            repeats: 0,
            twins: None,
            half_of: None,
        });
        controller.on_packet_sent(sent(pn), 1200, pn);
    }
    assert_eq!(state.room(), state.window() - 3600);
    let now = sent(3) + Duration::from_millis(20);
    state.ledger().on_acked(3, sent(3), now);
    controller.on_end_acks(now, 2400, false, Some(3));
    // noq still counts the two that were overtaken.
    assert_eq!((state.in_flight(), state.room()), (2400, state.window()));
    assert_eq!(controller.window(), state.window() + 2400);
    controller.on_packet_lost(1200, 1, now);
    controller.on_packet_lost(1200, 2, now);
    controller.on_congestion_event(now, sent(2), false, false, 2400, 2);
    assert_eq!((state.in_flight(), state.room()), (0, state.window()));
    assert_eq!(controller.window(), state.window());
}

#[test]
fn another_controller_takes_over() {
    let (mut controller, state) = gate();
    let now = Instant::now();
    state.set_congestion(Congestion::Cubic);
    controller.on_end_acks(now, 0, false, None);
    assert_eq!(state.window(), 12_000);
    state.set_congestion(Congestion::Bbr);
    controller.on_end_acks(now, 0, false, None);
    assert_eq!((controller.window(), state.window()), (36_000, 36_000));
    let runs = state.choice().map(|choice| choice.controller);
    assert_eq!(runs, Some(Congestion::Bbr));
}

#[test]
fn the_floor_holds_for_noq_and_for_the_driver() {
    let (controller, state) = gate();
    state.set_floor(20_000);
    assert_eq!((controller.window(), state.window()), (20_000, 20_000));
    state.set_open(false);
    assert_eq!(controller.window(), 1);
}

#[test]
fn a_frozen_window_does_not_shrink() {
    let (mut controller, state) = gate();
    let now = Instant::now();
    state.set_frozen(true);
    controller.on_congestion_event(now, now, true, false, 12_000, 9);
    assert_eq!(state.window(), 12_000);
    state.set_frozen(false);
    controller.on_congestion_event(now, now, true, false, 12_000, 9);
    assert_eq!(state.window(), 2400);
}

#[test]
fn the_peak_of_two_rounds_is_remembered() {
    let mut usage = Usage::default();
    usage.on_sent(0, 1000);
    usage.on_sent(1, 2000);
    usage.on_ack(0, 1000);
    assert_eq!(usage.peak(), 2000);
    usage.on_sent(2, 1500);
    usage.on_ack(2, 0);
    assert_eq!(usage.peak(), 1500);
}

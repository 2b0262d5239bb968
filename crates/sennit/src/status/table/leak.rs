//! What becomes of packets that belong into the tunnel while there is none.

use super::Text;
use crate::{
    policy::Leak,
    status::{LeakStatus, State},
};

impl Text {
    /// Says so where it matters: if packets may leave in the clear, and while there is no tunnel.
    pub(super) fn leak(&mut self, leak: &LeakStatus, state: State) {
        match (leak.policy, leak.in_force) {
            (Leak::Allow, _) => self.note(
                "without a tunnel, what belongs into it leaves in the clear (leak = \"allow\")",
            ),
            (Leak::Block, Some(false)) => self.note(
                "leak = \"block\" does not hold: somebody has taken its routes or rules from this host; \
                 an edge that runs puts them back",
            ),
            (Leak::Block, None | Some(true)) if state.is_usable() => {}
            (Leak::Block, None) => {
                self.note("nobody can see whether what belongs into the tunnel leaves in the clear");
            }
            (Leak::Block, Some(true)) => {
                let unreachable = "what belongs into the tunnel is unreachable meanwhile";
                self.lines
                    .push(format!("  {unreachable} (leak = \"block\")"));
                if !leak.held_before_start {
                    self.note("before this edge started it was not: sennit-guard sees to that");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{Status, WIDTH, render};

    fn shown(policy: Leak, in_force: Option<bool>, state: State) -> String {
        let full = include_str!("../../../tests/parts/schema/full.json");
        let mut status: Status = serde_json::from_str(full).unwrap();
        status.state = state;
        status.leak = Some(LeakStatus {
            policy,
            in_force,
            held_before_start: false,
            routes: vec!["0.0.0.0/0".into()],
            beside: Vec::new(),
            beside_count: 0,
        });
        render(&status, false, WIDTH)
    }

    #[test]
    fn a_block_is_told_of_while_there_is_no_tunnel_or_it_does_not_hold() {
        let held = "what belongs into the tunnel is unreachable meanwhile";
        let block = |in_force, state| shown(Leak::Block, in_force, state);
        assert!(!block(Some(true), State::Up).contains(held));
        for state in [State::Down, State::Connecting] {
            let told = block(Some(true), state);
            assert!(
                told.contains(held) && told.contains("sennit-guard"),
                "{told}"
            );
        }
        for state in [State::Up, State::Down] {
            let told = block(Some(false), state);
            assert!(told.contains("! leak = \"block\" does not hold"), "{told}");
        }
        assert!(block(None, State::Down).contains("nobody can see"));
    }

    #[test]
    fn that_leaks_are_allowed_is_always_told() {
        for state in [State::Up, State::Down] {
            let told = shown(Leak::Allow, Some(false), state);
            assert!(
                told.contains("leaves in the clear (leak = \"allow\")"),
                "{told}"
            );
        }
    }
}

//! A way out by each link for somebody who asks while no daemon keeps one.

use super::{Routing, State};
use crate::{DeviceName, Error, instance::is_running, netlink::Interface};

/// Number of the first link of a passage, above those of any daemon: who starts meanwhile, or after
/// somebody was killed who held one, does not want its routes and rules and so removes them.
const FIRST: usize = 128;

/// While it is held, packets with the marks of its links leave by them, past what is unreachable
/// without a tunnel; all others are held back as before. Where the process is killed, its routes
/// and rules stay until the daemon starts or somebody cleans up: nobody has their marks.
#[derive(Debug)]
pub struct Passage {
    routing: Routing,
    state: State,
}

impl Passage {
    /// A passage by these links, of which some may have no interface now. There is none where
    /// nothing is held back for a daemon with `device`, or where that runs: it keeps ways itself.
    pub fn open(
        device: &DeviceName,
        links: impl IntoIterator<Item = Option<Interface>>,
    ) -> Result<Option<Self>, Error> {
        let mut routing = Routing::open(device)?;
        // They are not put down in `routing`: for a daemon, what is sent from a link's address may
        // leave by that link.
        if routing.find_blocked()?.is_empty() || is_running(device) {
            return Ok(None);
        }
        for (link, interface) in links.into_iter().enumerate() {
            let table = routing.instance.link_mark(FIRST + link)?;
            routing.links.extend(interface.map(|it| (table, it)));
        }
        let mut state = State::default();
        routing.want_links(&mut state);
        // What is there already goes too if the rest of it is refused.
        let mut passage = Self { routing, state };
        passage.add()?;
        Ok(Some(passage))
    }

    /// The mark of packets that are to leave by this link.
    pub fn mark(&self, link: usize) -> Result<u32, Error> {
        self.routing.instance.link_mark(FIRST + link)
    }

    fn add(&mut self) -> Result<(), Error> {
        let Self { routing, state } = self;
        let mut routes = state.routes.iter();
        routes.try_for_each(|route| routing.netlink.add_route(route).map(drop))?;
        let mut rules = state.rules.iter();
        rules.try_for_each(|rule| routing.netlink.add_rule(rule).map(drop))
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        let Self { routing, state } = self;
        let mut outcome = Ok(());
        for rule in &state.rules {
            outcome = outcome.and(routing.netlink.delete_rule(rule));
        }
        for route in &state.routes {
            outcome = outcome.and(routing.netlink.delete_route(route));
        }
        if let Err(error) = outcome {
            tracing::warn!(%error, "a way out by a link stays; `sennit cleanup` removes it");
        }
    }
}

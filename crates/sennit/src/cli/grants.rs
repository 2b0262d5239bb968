//! `sennit sites allow`, `deny`, `reach` and `forget`: what a hub lets a site do.

use std::time::SystemTime;

use clap::Args;

use super::{DenyArgs, Exit, Failure, GrantArgs, ReachArgs, StateArg, output};
use crate::config::Prefix;
use crate::lan;
use crate::reach::Reach;
use crate::site::SiteName;
use crate::store::Store;

#[derive(Debug, Args)]
pub(super) struct ForgetArgs {
    /// Name of the site
    #[arg(value_name = "SITE")]
    site: SiteName,
    #[command(flatten)]
    state: StateArg,
}

pub(super) fn allow(args: &GrantArgs) -> Result<Exit, Failure> {
    let mut store = Store::open(&args.state.dir)?;
    if args.prefixes.is_empty() {
        let granted = store.site(&args.site, SystemTime::now())?.granted;
        return list(&args.site, &granted);
    }
    check(&store, &args.prefixes)?;
    let granted = store.allow(&args.site, &args.prefixes)?;
    warn(&store, &args.site, &args.prefixes)?;
    list(&args.site, &granted)
}

pub(super) fn deny(args: &DenyArgs) -> Result<Exit, Failure> {
    let mut store = Store::open(&args.state.dir)?;
    let granted = store.deny(&args.site, &args.prefixes)?;
    for denied in &args.prefixes {
        if let Some(wider) = granted.iter().find(|held| held.contains(denied)) {
            output::say!(
                "warning: `{}` still has {denied}, as part of {wider}",
                args.site
            );
        }
    }
    list(&args.site, &granted)
}

pub(super) fn reach(args: &ReachArgs) -> Result<Exit, Failure> {
    let mut store = Store::open(&args.state.dir)?;
    if args.default {
        store.set_reach(&args.site, None)?;
    } else if !args.places.is_empty() {
        let reach = match args.places.as_slice() {
            [nothing] if nothing == "nothing" => Reach::default(),
            places => places.join(" ").parse().map_err(Failure::usage)?,
        };
        store.set_reach(&args.site, Some(&reach))?;
    }
    let reach = store.site(&args.site, SystemTime::now())?.reach;
    let words = match reach {
        None => "what the hub's config says of all\n".into(),
        Some(nothing) if nothing == Reach::default() => "nothing\n".into(),
        Some(reach) => format!("{reach}\n"),
    };
    output::print(&words)
}

/// Whether all of them can be granted: all or none of them is.
pub(super) fn check(store: &Store, prefixes: &[Prefix]) -> Result<(), Failure> {
    let mut checked = prefixes.iter().map(|prefix| store.can_grant(prefix));
    Ok(checked.try_for_each(|it| it)?)
}

pub(super) fn forget(args: &ForgetArgs) -> Result<Exit, Failure> {
    Store::open(&args.state.dir)?.forget(&args.site)?;
    output::say!(
        "Site `{0}` is forgotten: who still has a token or a certificate of it is refused.",
        args.site
    );
    Ok(Exit::Ok)
}

/// Warns of what was granted to a site and may be hardly meant.
pub(super) fn warn(store: &Store, site: &SiteName, prefixes: &[Prefix]) -> Result<(), Failure> {
    warn_of_public(prefixes);
    let sites = store.sites(SystemTime::now())?;
    let others = sites
        .iter()
        .filter(|it| it.name != *site && it.revoked.is_none());
    for other in others {
        let touched = |prefix: &&Prefix| {
            let mut granted = other.granted.iter();
            granted.any(|held| held.contains(*prefix) || prefix.contains(held))
        };
        for prefix in prefixes.iter().filter(touched) {
            output::say!(
                "warning: site `{}` may announce {prefix} too, or a part of it: who announces it \
                 first has it, and the other is refused",
                other.name
            );
        }
    }
    Ok(())
}

fn warn_of_public(prefixes: &[Prefix]) {
    for prefix in prefixes.iter().filter(|prefix| !lan::is_private(prefix)) {
        output::say!(
            "warning: {prefix} is public space: what the hub and all sites send there goes to this \
             site once it announces it"
        );
    }
}

fn list(site: &SiteName, granted: &[Prefix]) -> Result<Exit, Failure> {
    if granted.is_empty() {
        output::say!("`{site}` may announce nothing.");
        return Ok(Exit::Ok);
    }
    let lines: Vec<String> = granted.iter().map(|prefix| format!("{prefix}\n")).collect();
    output::print(&lines.concat())
}

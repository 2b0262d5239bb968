//! `sennit join`: who this edge is, and its first config.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::{Exit, Failure, JoinArgs, output, starter};
use crate::config::EdgeConfig;
use crate::control::{Client, ClientError, Request};
use crate::daemon::{self, edge::Asked};
use crate::date;
use crate::identity::{self, Credential, EdgeIdentity, Invitation};

/// A token is a few hundred characters.
const MAX_TOKEN_BYTES: u64 = 16 * 1024;
/// For an edge that runs to hear of it: its packet thread may be late.
const PATIENCE: Duration = Duration::from_secs(8);

pub(super) fn join(args: &JoinArgs) -> Result<Exit, Failure> {
    let invitation = token(&args.token)?.parse()?;
    let state = &args.state.dir;
    let was_there = state.exists();
    let alone = EdgeIdentity::alone(state)?;
    let joined = join_alone(args, invitation);
    drop(alone);
    if joined.is_err() && !was_there {
        // Unless something of it is there, to go on with.
        let _ = fs::remove_dir(state);
    }
    joined
}

fn join_alone(args: &JoinArgs, invitation: Invitation) -> Result<Exit, Failure> {
    let (now, state) = (SystemTime::now(), &args.state.dir);
    let wishes = starter::Wishes {
        file: args.config.as_deref(),
        links: &args.links,
        route_all: args.route_all,
        lans: &args.lans,
        absent: args.absent || args.offline,
    };
    let known = EdgeIdentity::of_invitation(state, &invitation);
    let begun = EdgeIdentity::of_invitation(&draft(state), &invitation);
    let is_enrolled =
        |it: &Option<EdgeIdentity>| it.as_ref().is_some_and(EdgeIdentity::is_enrolled);
    let invitation = match is_enrolled(&known) || is_enrolled(&begun) {
        true => invitation,
        false => invitation.still_valid(now)?,
    };
    if known.is_none() && !args.force {
        EdgeIdentity::must_be_free(state)?;
    }
    // All that can be wrong here is looked at before the hub hears the token.
    let starter = starter::Starter::prepare(state, &invitation, &wishes)?;
    look_at_hub(state, &invitation, &starter)?;
    let (identity, asked) = match known {
        Some(known) if known.is_enrolled() || args.offline => (known, None),
        known => {
            let (identity, asked) = exchange(args, &invitation, [known, begun], &starter.config)?;
            (identity, Some(asked))
        }
    };
    if EdgeIdentity::load(&draft(state)).is_ok_and(|it| it.has_key_of(&identity)) {
        EdgeIdentity::discard(&draft(state));
    }
    starter.publish()?;
    say_joined(&identity, asked.as_ref(), now);
    if daemon::edge::runs_with(state) {
        have_taken_up(&identity, &starter);
    } else {
        output::say!("Start it:");
        starter::say_start("edge", &starter.path);
        starter::say_asked(&starter.config);
    }
    Ok(Exit::Ok)
}

/// Where an identity is until the hub has had its say.
fn draft(state: &Path) -> PathBuf {
    state.join("joining")
}

/// A config that is there may name another hub than the one that invites.
fn look_at_hub(
    state: &Path,
    invitation: &Invitation,
    starter: &starter::Starter,
) -> Result<(), Failure> {
    let named = &starter.config.hub;
    if invitation.hubs.iter().any(|hub| named.contains(hub)) {
        return Ok(());
    }
    let hubs: Vec<String> = invitation
        .hubs
        .iter()
        .map(|hub| format!("\"{hub}\""))
        .collect();
    let (path, hubs) = (starter.path.display(), hubs.join(", "));
    let before = EdgeIdentity::load(state);
    if before.is_ok_and(|before| before.authority != invitation.authority) {
        let what = format!("another hub invites this edge than {path} names");
        return Err(Failure::usage(what).hint(format!("first write hub = [{hubs}] there")));
    }
    output::say!(
        "warning: {path} names other addresses of the hub than the token, which has {hubs}"
    );
    Ok(())
}

/// Has the edge that runs here go on with the new identity.
fn have_taken_up(identity: &EdgeIdentity, starter: &starter::Starter) {
    let edge = Client::connect(&starter.config.control, PATIENCE);
    let answer = edge.and_then(|mut edge| edge.request(&Request::Identity));
    let why = match answer {
        Ok(answer) if answer["site"].as_str() == Some(identity.site.as_str()) => {
            return output::say!("The edge that runs here goes on with that.");
        }
        Err(ClientError::Refused(refused)) => refused.message,
        other => {
            let why = other.err().map(|error| format!(" ({error})"));
            return output::say!(
                "An edge runs here with the identity of before, and by another config than {}{}: start it again.",
                starter.path.display(),
                why.unwrap_or_default()
            );
        }
    };
    output::say!("The edge that runs here stays who it was: {why}. Start it again:");
    starter::say_restart("edge", &starter.path);
}

/// Has the hub exchange the token for a certificate, if it is in reach. The key is that of an
/// earlier attempt, if there was one: the hub may have taken the token although the answer, or what
/// came after it, was lost.
fn exchange(
    args: &JoinArgs,
    invitation: &Invitation,
    [known, begun]: [Option<EdgeIdentity>; 2],
    config: &EdgeConfig,
) -> Result<(EdgeIdentity, Asked), Failure> {
    let state = &args.state.dir;
    let in_place = known.is_some();
    let mut identity = match known.or(begun) {
        Some(begun) => begun,
        // Beside what is there, until the hub has had its say.
        None => EdgeIdentity::join(&draft(state), invitation, true)?,
    };
    let asked = if args.offline {
        Asked::NoAnswer(None)
    } else if identity.is_enrolled() {
        Asked::Certified
    } else {
        output::say!("Asking the hub ...");
        daemon::edge::ask(&mut identity, config)?
    };
    if let Asked::NoAnswer(said) = &asked
        && !args.offline
    {
        let silence = silence(&identity, said.as_deref());
        // The key stays beside the identity, for the same token again: the hub may have taken it.
        match EdgeIdentity::load(state) {
            Ok(before) if before.is_enrolled() && !in_place => {
                let site = before.site;
                let what = format!("{silence}; this edge stays `{site}`");
                let hint = "try the same token again, or take it unseen: --offline";
                return Err(Failure::new(Exit::Unreachable, what).hint(hint));
            }
            _ => output::say!("warning: {silence}"),
        }
    }
    if let Asked::Refused(reason) = asked {
        EdgeIdentity::discard(&draft(state));
        return Err(Failure::runtime(reason)
            .hint("ask the hub for a new token: sennit invite SITE --hub HOST:PORT"));
    }
    if !in_place {
        identity = identity.move_to(state)?;
    }
    Ok((identity, asked))
}

/// What there is to say of hubs that have not decided.
fn silence(identity: &EdgeIdentity, said: Option<&str>) -> String {
    let hubs: Vec<String> = identity.hubs.iter().map(ToString::to_string).collect();
    let hubs = hubs.join(", ");
    match said {
        Some(said) => format!("no hub has let this site in yet at {hubs}: {said}"),
        None => format!(
            "no hub has let this site in yet at {hubs}: does the name resolve, does a hub run there, and is UDP open on the way?"
        ),
    }
}

/// Who this edge is now. `asked` is what the hub has said just now, if it was asked.
fn say_joined(identity: &EdgeIdentity, asked: Option<&Asked>, now: SystemTime) {
    output::say!(
        "This edge is `{}` of hub {}.",
        identity.site,
        identity.authority
    );
    if let Some(hub) = identity.other_clock(now) {
        let (hub, here) = (date::seconds(hub), date::seconds(now));
        output::say!(
            "The hub's clock says {hub}, and this host's {here}: set the one that is wrong."
        );
    }
    match &identity.credential {
        Credential::Enrolled { .. } if asked.is_none() => {
            output::say!("It has used this token before, and keeps its key.");
        }
        Credential::Enrolled { .. } => output::say!("The hub has taken the token."),
        Credential::Pending { expires, .. } => {
            let until = date::seconds(*expires);
            output::say!(
                "Whether the token is good is not known yet. The edge must connect for the first time \
                 before {until}."
            );
        }
    }
}

/// The token itself, from wherever the command line says it is.
fn token(source: &str) -> Result<String, Failure> {
    let mut token = String::new();
    let read = match source.strip_prefix("file:") {
        Some(path) => File::open(path)
            .inspect(|_| identity::warn_if_exposed(Path::new(path)))
            .and_then(|file| file.take(MAX_TOKEN_BYTES).read_to_string(&mut token)),
        None if source == "-" => io::stdin().take(MAX_TOKEN_BYTES).read_to_string(&mut token),
        None => return Ok(source.into()),
    };
    let failed = |error: io::Error| {
        let exit = match error.kind() {
            io::ErrorKind::NotFound => Exit::NotFound,
            io::ErrorKind::PermissionDenied => Exit::Permission,
            _ => Exit::Runtime,
        };
        let from = source.strip_prefix("file:").unwrap_or("standard input");
        Failure::new(exit, format!("cannot read the token from {from}: {error}"))
    };
    read.map(|_| token).map_err(failed)
}

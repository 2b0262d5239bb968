//! `sennit hub authority`: by which authority sites know this hub, and another in its place.

use std::path::Path;
use std::time::SystemTime;

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::cli::{Exit, Failure, StateArg, output};
use crate::date;
use crate::identity::{self, Authority, Rotation};

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  sennit hub authority               # how far a rotation is
  sennit hub authority rotate        # make another; sites move to it by themselves
  sennit hub authority finish        # drop the former one, once all have

A running hub does what these say within a second, and tunnels go on."
)]
pub(super) struct AuthorityArgs {
    #[command(subcommand)]
    command: Option<AuthorityCommand>,
    #[command(flatten)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum AuthorityCommand {
    /// Make an authority beside the one there is; both are good until that is finished
    Rotate {
        #[command(flatten)]
        what: What,
    },
    /// Drop the former authority; refused while a site knows only that one
    Finish {
        #[command(flatten)]
        what: What,
        /// Also if that locks sites out: each of them then needs a new invitation
        #[arg(long)]
        force: bool,
    },
}

#[derive(Debug, Args)]
struct What {
    #[command(flatten)]
    state: StateArg,
    /// Print JSON (sennit.authority/1)
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Document {
    schema: &'static str,
    /// Fingerprint of the authority that sites are invited by.
    authority: String,
    /// Of the one before, while that is good too.
    former: Option<String>,
    since: Option<String>,
    /// Sites that know only the former one.
    behind: Vec<Behind>,
}

#[derive(Serialize)]
struct Behind {
    site: String,
    last_seen: Option<String>,
    /// It has an invitation that names the former one.
    invited: bool,
    /// Its Sennit takes another authority.
    moves: bool,
}

pub(super) fn run(args: &AuthorityArgs) -> Result<Exit, Failure> {
    let now = SystemTime::now();
    match &args.command {
        None => show(&args.what, now),
        Some(AuthorityCommand::Rotate { what }) => {
            identity::rotate(&what.state.dir, now)?;
            output::say!(
                "This hub has another authority, and the former one stays good. Sites move to it \
                 when they are here, as soon as the hub runs.\n\
                 Clients with a CA file of this hub need the present one: sennit hub ca\n\
                 A copy of {} from before does not have it: make a new one.\n\
                 When all sites have moved: sennit hub authority finish",
                what.state.dir.display()
            );
            show(what, now)
        }
        Some(AuthorityCommand::Finish { what, force }) => {
            let dropped = identity::finish_rotation(&what.state.dir, *force, now)?;
            let locked_out = dropped.locked_out();
            if !locked_out.is_empty() {
                let sites = locked_out.join(", ");
                output::say!("These sites need a new invitation now: {sites}");
            }
            output::say!("The former authority {} is dropped.", dropped.former);
            show(what, now)
        }
    }
}

fn show(what: &What, now: SystemTime) -> Result<Exit, Failure> {
    let state: &Path = &what.state.dir;
    let authority = Authority::load(state)?.fingerprint().to_string();
    let rotation = identity::rotation(state, now)?;
    if what.json {
        return output::print_json(&Document::new(authority, rotation.as_ref()));
    }
    let Some(rotation) = rotation else {
        return output::print(&format!("authority  {authority}\n"));
    };
    let document = Document::new(authority, Some(&rotation));
    output::print(&document.text(rotation.is_complete()))
}

impl Document {
    fn new(authority: String, rotation: Option<&Rotation>) -> Self {
        let sites = rotation.into_iter().flat_map(|rotation| {
            let behind = rotation.behind.iter().map(|site| (site, false));
            behind.chain(rotation.invited.iter().map(|site| (site, true)))
        });
        let behind = sites.map(|(site, invited)| Behind {
            site: site.name.to_string(),
            last_seen: site.seen.map(date::seconds),
            invited,
            moves: site.moves,
        });
        Self {
            schema: "sennit.authority/1",
            authority,
            former: rotation.map(|it| it.former.to_string()),
            since: rotation.and_then(|it| it.since).map(date::seconds),
            behind: behind.collect(),
        }
    }

    fn text(&self, is_complete: bool) -> String {
        let mut text = format!("authority  {}\n", self.authority);
        if let Some(former) = &self.former {
            text += &format!("former     {former}\n");
        }
        if let Some(since) = &self.since {
            text += &format!("rotated    {since}\n");
        }
        if is_complete {
            return text + "\nNo site knows only the former one: sennit hub authority finish\n";
        }
        let width = self.behind.iter().map(|it| it.site.len()).max();
        let width = width.unwrap_or(0).max(4);
        text += &format!(
            "\nOnly the former one is known to:\n{:width$}  SEEN\n",
            "SITE"
        );
        for Behind {
            site,
            last_seen,
            invited,
            moves,
        } in &self.behind
        {
            let seen = last_seen.as_deref().unwrap_or("never");
            let why = match (invited, moves) {
                (true, _) => "  has an invitation from before",
                (false, false) => "  its Sennit is too old: update it",
                (false, true) => "",
            };
            text += &format!("{site:width$}  {seen}{why}\n");
        }
        text
    }
}

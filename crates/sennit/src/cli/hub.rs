//! `sennit hub`: the daemon, and what makes one ready.

mod authority;
mod given;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::{Args, Subcommand};

use super::{Exit, Failure, StateArg, UserArg, load, output, starter, values};
use crate::config::{self, HubConfig};
use crate::daemon;
use crate::identity::{Authority, HubIdentity, IdentityError};
use crate::site::SiteName;

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  sennit hub init                    # then: systemctl enable --now sennit-hub
  sennit hub withdraw van-07         # its invitation, before anybody uses it
  sennit hub authority rotate        # other keys, without a visit to any site
  sennit hub --config /etc/sennit/hub.toml"
)]
pub(super) struct HubArgs {
    #[command(subcommand)]
    command: Option<HubCommand>,
    /// The hub's config
    #[arg(long, value_name = "FILE", default_value = config::DEFAULT_HUB_FILE)]
    config: PathBuf,
    #[command(flatten)]
    user: UserArg,
}

#[derive(Debug, Subcommand)]
enum HubCommand {
    /// Make the hub's identity (keys, certificates and an empty store) and its first config
    ///
    /// Keys, an authority and a config that are there stay as they are.
    Init {
        #[command(flatten)]
        state: StateArg,
        /// Where to write the first config [default: /etc/sennit/hub.toml, or hub.toml in another
        /// state directory than the usual one]
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// A DNS name or IP address under which third-party clients know the hub; repeatable. For
        /// an identity that is there: its certificate is made anew, with these names alone
        #[arg(long = "name", value_name = "NAME", value_parser = values::server_name)]
        names: Vec<String>,
    },
    /// List the invitations that nobody has used
    Invitations {
        #[command(flatten)]
        state: StateArg,
    },
    /// Take back a site's invitation before anybody uses it; a site that has joined stays
    Withdraw {
        /// Name of the site
        #[arg(value_name = "SITE")]
        site: SiteName,
        #[command(flatten)]
        state: StateArg,
    },
    /// List the inner addresses that sites have, also those of sites that are away
    Leases {
        #[command(flatten)]
        state: StateArg,
        /// Print JSON (sennit.leases/1)
        #[arg(long)]
        json: bool,
    },
    /// Show by which authority sites know this hub, or put another in its place
    Authority(authority::AuthorityArgs),
    /// Print the hub's CA certificate (PEM), for third-party CONNECT-IP clients; while it is being
    /// replaced, both
    Ca {
        #[command(flatten)]
        state: StateArg,
    },
}

impl HubArgs {
    /// Whether the daemon is to run.
    pub(super) fn runs(&self) -> bool {
        self.command.is_none()
    }
}

pub(super) fn run(args: HubArgs) -> Result<Exit, Failure> {
    match args.command {
        None => {
            let config = load(HubConfig::load(&args.config))?;
            daemon::hub::run(config, &args.config, args.user.name.as_deref()).map(|()| Exit::Ok)
        }
        Some(HubCommand::Init {
            state,
            config,
            names,
        }) => {
            let file = starter::place_of_hub(&state.dir, config.as_deref())?;
            let identity = init(&state.dir, &names)?;
            output::say!("This hub is {}.", identity.authority.fingerprint());
            output::say!(
                "Its identity is in {}; whoever has ca.key from there is the hub.",
                state.dir.display()
            );
            starter::write_hub(&state.dir, &file)?;
            output::say!("Start it:");
            starter::say_start("hub", &file);
            starter::say_beside(&state.dir, &file);
            Ok(Exit::Ok)
        }
        Some(HubCommand::Invitations { state }) => given::invitations(&state.dir),
        Some(HubCommand::Withdraw { site, state }) => given::withdraw(&state.dir, &site),
        Some(HubCommand::Leases { state, json }) => given::leases(&state.dir, json),
        Some(HubCommand::Authority(args)) => authority::run(&args),
        Some(HubCommand::Ca { state }) => {
            let authorities = HubIdentity::load(&state.dir)?.into_authorities();
            let all: String = authorities.iter().map(Authority::pem).collect();
            output::print(&all)
        }
    }
}

/// Makes an identity, or completes the one that is there.
fn init(state: &Path, names: &[String]) -> Result<HubIdentity, Failure> {
    let now = SystemTime::now();
    match HubIdentity::init(state, names, now) {
        Err(IdentityError::HubExists { .. }) => {}
        made => return Ok(made?),
    }
    let identity = HubIdentity::complete(state, names, now)?;
    output::say!("There is an identity already, and its keys and authority stay.");
    if !names.is_empty() {
        output::say!(
            "Its certificate is a new one, for {}: a hub that runs shows it once it is started again.",
            names.join(", ")
        );
    }
    Ok(identity)
}

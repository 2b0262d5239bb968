//! `sennit config`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::{Exit, Failure, find_config, output};
use crate::config::{self, Config, ConfigError, Entry};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sennit config show --effective
  sennit config show /etc/sennit/hub.toml")]
pub(super) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Show what a config file says
    Show {
        /// A hub's or an edge's config [default: the edge's, else the hub's, in /etc/sennit]
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
        /// Also what holds without being said
        #[arg(long)]
        effective: bool,
        /// Print JSON (sennit.config/1)
        #[arg(long)]
        json: bool,
    },
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document {
    schema: &'static str,
    file: String,
    keys: Vec<Entry>,
}

pub(super) fn run(args: &ConfigArgs) -> Result<Exit, Failure> {
    let ConfigCommand::Show {
        file,
        effective,
        json,
    } = &args.command;
    let file = &file.clone().unwrap_or_else(find_config);
    // What is shown is valid.
    let config = super::load(Config::load(file))?;
    let source = config::read_file(file).map_err(|source| ConfigError::Read {
        path: file.clone(),
        source,
    })?;
    let mut keys = config::effective(&String::from_utf8_lossy(&source));
    if let Config::Edge(edge) = &config {
        keys.extend(config::implied(&keys, &edge.classes));
    }
    keys.retain(|entry| *effective || !entry.is_default);
    if *json {
        return output::print_json(&Document {
            schema: "sennit.config/1",
            file: file.display().to_string(),
            keys,
        });
    }
    output::print(&config::render(&keys))
}

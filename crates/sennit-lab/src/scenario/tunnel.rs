//! The `[tunnel]` table.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// A tunnel that steps can run over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TunnelKind {
    /// Ours.
    #[default]
    Sennit,
    /// WireGuard in user space, as its authors have written it in Go.
    WireguardGo,
    /// The least that an encrypted tunnel must do: `src/bin/ideal-tunnel.rs`.
    Ideal,
}

impl fmt::Display for TunnelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sennit => "Sennit",
            Self::WireguardGo => "wireguard-go",
            Self::Ideal => "ideal",
        })
    }
}

/// The `[tunnel]` table: what is added to the configs of edge and hub.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TunnelTable {
    /// The tunnels that each step which uses one is played over, in this order.
    pub kind: Vec<TunnelKind>,
    /// Keys of `[edge]`.
    pub edge: toml::Table,
    /// Keys of `[hub]`.
    pub hub: toml::Table,
    /// Keys of `[api]`, of hub and edges.
    pub api: toml::Table,
    /// Keys of the edge's `[[link]]`, by link name.
    pub link: BTreeMap<String, toml::Table>,
    /// The edge's `[[class]]` tables.
    pub class: Vec<toml::Table>,
    /// The size of a disk of their own for what the daemons write.
    pub disk_mb: Option<u32>,
    /// Whether the hosts are looked at before the daemons start; once parsed, if a step asks.
    #[serde(skip)]
    pub(crate) watched: bool,
    /// What an edge has besides after each second `reload`.
    other: OnlyTable,
    /// What one edge has besides, by its number.
    only: BTreeMap<String, OnlyTable>,
}

/// A `[tunnel.only.2]` or `[tunnel.other]` table: what is added to the config of an edge.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct OnlyTable {
    edge: toml::Table,
    link: BTreeMap<String, toml::Table>,
    class: Vec<toml::Table>,
}

impl Default for TunnelTable {
    fn default() -> Self {
        Self {
            kind: vec![TunnelKind::Sennit],
            edge: toml::Table::new(),
            hub: toml::Table::new(),
            api: toml::Table::new(),
            link: BTreeMap::new(),
            class: Vec::new(),
            disk_mb: None,
            watched: false,
            other: OnlyTable::default(),
            only: BTreeMap::new(),
        }
    }
}

impl TunnelTable {
    /// The table as it is for the edge at this index.
    pub(crate) fn of_edge(&self, index: usize) -> Self {
        let mut own = self.clone();
        if let Some(only) = own.only.remove(&(index + 1).to_string()) {
            own.add(only);
        }
        own
    }

    /// Makes it what an edge has after each second `reload`.
    pub(crate) fn add_other(&mut self) {
        let other = std::mem::take(&mut self.other);
        self.add(other);
    }

    fn add(&mut self, more: OnlyTable) {
        self.edge.extend(more.edge);
        for (name, keys) in more.link {
            self.link.entry(name).or_default().extend(keys);
        }
        if !more.class.is_empty() {
            self.class = more.class;
        }
    }

    pub(super) fn check_only(&self, edges: usize) -> Result<(), Error> {
        let known = |number: &&String| (1..=edges).any(|edge| edge.to_string() == **number);
        match self.only.keys().find(|number| !known(number)) {
            Some(number) => Err(Error::Scenario(format!(
                "`only.{number}` of [tunnel]: there is no such edge, they are numbered 1 to {edges}"
            ))),
            None => Ok(()),
        }
    }
}

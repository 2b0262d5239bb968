//! `[[step.fault]]` tables.

use sennit_linux::DeviceName;
use sennit_netem::Direction;
use serde::{Deserialize, Serialize};

use super::{LinkTable, Seconds, Shape};

/// A `[[step.fault]]` table.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// After the start of the step.
    pub at_s: Seconds,
    /// The link it happens to; absent for those of daemons.
    pub link: Option<String>,
    /// The number of the edge it happens to; absent only where there is one, or if it is the hub.
    pub edge: Option<usize>,
    /// What happens.
    pub action: Action,
    /// The change, with `action = "set"`.
    pub set: Option<Shape>,
    /// The mark of the packets that are dropped, and how many, with `action = "drop_marked"`.
    pub marked: Option<Marked>,
    /// The device and how many of its packets are dropped, with `action = "drop_on_tun"`.
    pub tun: Option<OnTun>,
    /// The devices' MTU, with `action = "device_mtu"`.
    pub mtu: Option<u32>,
    /// The direction of an outage or change; absent = both.
    pub direction: Option<Direction>,
    /// How long it lasts; absent = until something else ends it.
    for_s: Option<Seconds>,
    /// From one time to the next, with `times`.
    every_s: Option<Seconds>,
    /// How often it happens.
    #[serde(default = "once")]
    times: u32,
    /// It happens to every edge, from one to the next after so long.
    each_s: Option<Seconds>,
}

/// Packets with a mark of which a part is lost: what one class sends, if it has a mark.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Marked {
    /// The outer packet's, as a number.
    pub dscp: u8,
    /// How many of them, each by chance.
    pub percent: u8,
}

/// Packets of a class before they are in the tunnel, and after: those of its own TUN device.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OnTun {
    /// What the edge calls it.
    pub device: DeviceName,
    /// How many of its packets are dropped, each by chance.
    pub percent: u8,
}

/// What a fault does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Everything is lost, and nobody is told.
    Outage,
    /// The end of an outage, and of every change made by `set`.
    Restore,
    /// The properties in `set` change.
    Set,
    /// The edge's device loses its carrier.
    CarrierDown,
    /// It has it again.
    CarrierUp,
    /// The edge's device is set down by its administrator.
    DeviceDown,
    /// It is up again, with addresses and routes.
    DeviceUp,
    /// The edge's addresses on the link are removed.
    AddressRemove,
    /// They are back.
    AddressAdd,
    /// They are replaced by others.
    AddressChange,
    /// The edge's device is deleted, as when a modem is pulled out.
    DeviceDelete,
    /// There is one of that name again, with addresses and routes.
    DeviceCreate,
    /// The devices at both ends have the MTU in `mtu`.
    DeviceMtu,
    /// They have their own again.
    DeviceMtuBack,
    /// The edge's firewall drops what arrives on the link.
    DropIn,
    /// The edge's firewall drops what leaves by the link; senders on the edge get an error.
    DropOut,
    /// Both firewalls drop a part of what arrives on the link with the mark in `marked`.
    DropMarked,
    /// The edge's firewall drops a part of what it forwards into the device in `tun` or out of it.
    DropOnTun,
    /// The firewalls drop nothing any more.
    Accept,
    /// The link's NAT box loses all mappings: connections have other ports from then on.
    NatForget,
    /// Its mappings let nothing pass any more, for as long as anybody goes on sending through them.
    NatWedge,
    /// The hub is stopped and started.
    RestartHub,
    /// The hub is killed and started.
    KillHub,
    /// The edge is killed and started.
    RestartEdge,
    /// All daemons are stopped, what they have left on their hosts is listed, and they are started.
    StopAll,
    /// The disk of all daemons (`disk_mb` of `[tunnel]`) is full.
    FillDisk,
    /// It is not any more.
    FreeDisk,
    /// No daemon that runs can open another file or socket.
    TakeFiles,
    /// They can again.
    GiveFiles,
    /// The hub shuts the edge out for good.
    Revoke,
    /// The edge is invited again, joins with a new key and is started again.
    JoinAnew,
    /// Somebody on the edge's host tries to join with the token that the edge has used up.
    JoinUsed,
    /// The edge takes its config as `[tunnel.other]` has it; the next time, as it was.
    Reload,
    /// The histories of the edges that were killed are read, and what they lack is counted.
    ReadHistory,
    /// The edge cuts the link on purpose by `sennit links drill`, which says how long the gap was.
    Drill,
}

impl Action {
    /// As a scenario writes it, with spaces.
    pub(crate) fn word(self) -> String {
        let written = serde_json::to_value(self).unwrap_or_default();
        written.as_str().unwrap_or_default().replace('_', " ")
    }

    /// Whether it ends a trouble, so that recovery counts from it.
    pub(crate) fn repairs(self) -> bool {
        match self {
            Self::Restore
            | Self::CarrierUp
            | Self::DeviceUp
            | Self::AddressAdd
            | Self::AddressChange
            | Self::Accept
            | Self::DeviceCreate
            | Self::DeviceMtuBack
            | Self::RestartHub
            | Self::KillHub
            | Self::RestartEdge
            | Self::StopAll
            | Self::FreeDisk
            | Self::GiveFiles
            | Self::JoinAnew => true,
            Self::Outage
            | Self::Set
            | Self::CarrierDown
            | Self::DeviceDown
            | Self::AddressRemove
            | Self::DeviceDelete
            | Self::DeviceMtu
            | Self::FillDisk
            | Self::TakeFiles
            | Self::DropIn
            | Self::DropOut
            | Self::DropMarked
            | Self::DropOnTun
            | Self::NatForget
            | Self::NatWedge
            | Self::Revoke
            | Self::JoinUsed
            | Self::Reload
            | Self::ReadHistory
            | Self::Drill => false,
        }
    }

    /// Whether it happens to a daemon and not to a link.
    fn is_of_daemon(self) -> bool {
        match self {
            Self::RestartHub
            | Self::KillHub
            | Self::RestartEdge
            | Self::StopAll
            | Self::FillDisk
            | Self::FreeDisk
            | Self::TakeFiles
            | Self::GiveFiles
            | Self::Revoke
            | Self::JoinAnew
            | Self::JoinUsed
            | Self::Reload
            | Self::ReadHistory => true,
            Self::Drill
            | Self::DeviceDelete
            | Self::DeviceCreate
            | Self::DeviceMtu
            | Self::DeviceMtuBack
            | Self::Outage
            | Self::Restore
            | Self::Set
            | Self::CarrierDown
            | Self::CarrierUp
            | Self::DeviceDown
            | Self::DeviceUp
            | Self::AddressRemove
            | Self::AddressAdd
            | Self::AddressChange
            | Self::DropIn
            | Self::DropOut
            | Self::DropMarked
            | Self::DropOnTun
            | Self::Accept
            | Self::NatForget
            | Self::NatWedge => false,
        }
    }

    /// Whether it happens to the hub, or to all.
    fn is_of_all(self) -> bool {
        matches!(
            self,
            Self::RestartHub
                | Self::KillHub
                | Self::StopAll
                | Self::FillDisk
                | Self::FreeDisk
                | Self::TakeFiles
                | Self::GiveFiles
                | Self::ReadHistory
        )
    }

    /// What ends it.
    fn end(self) -> Option<Self> {
        match self {
            Self::Outage | Self::Set => Some(Self::Restore),
            Self::CarrierDown => Some(Self::CarrierUp),
            Self::DeviceDown => Some(Self::DeviceUp),
            Self::AddressRemove | Self::AddressChange => Some(Self::AddressAdd),
            Self::DropIn | Self::DropOut | Self::DropMarked | Self::DropOnTun => Some(Self::Accept),
            Self::DeviceDelete => Some(Self::DeviceCreate),
            Self::DeviceMtu => Some(Self::DeviceMtuBack),
            Self::FillDisk => Some(Self::FreeDisk),
            Self::TakeFiles => Some(Self::GiveFiles),
            Self::DeviceCreate
            | Self::DeviceMtuBack
            | Self::FreeDisk
            | Self::GiveFiles
            | Self::KillHub
            | Self::StopAll
            | Self::Restore
            | Self::CarrierUp
            | Self::DeviceUp
            | Self::AddressAdd
            | Self::Accept
            | Self::NatForget
            | Self::NatWedge
            | Self::RestartHub
            | Self::RestartEdge
            | Self::Revoke
            | Self::JoinAnew
            | Self::JoinUsed
            | Self::Reload
            | Self::ReadHistory
            | Self::Drill => None,
        }
    }
}

impl OnTun {
    fn check(&self) -> Result<(), String> {
        match (1..=100).contains(&self.percent) {
            true => Ok(()),
            false => Err("`tun`: percent is 1 to 100".into()),
        }
    }
}

impl Fault {
    pub(super) fn check(&self) -> Result<(), String> {
        if self.action.is_of_daemon() == self.link.is_some() {
            return Err(format!(
                "fault {:?}: `link` is missing or too much",
                self.action
            ));
        }
        if (self.action == Action::Set) != self.set.is_some() {
            return Err("`set` and action = \"set\" belong together".into());
        }
        if (self.action == Action::DropMarked) != self.marked.is_some() {
            return Err("`marked` and action = \"drop_marked\" belong together".into());
        }
        if let Some(Marked { dscp, percent }) = self.marked
            && (dscp > 63 || !(1..=100).contains(&percent))
        {
            return Err("`marked`: dscp is 0 to 63, percent 1 to 100".into());
        }
        if (self.action == Action::DropOnTun) != self.tun.is_some() {
            return Err("`tun` and action = \"drop_on_tun\" belong together".into());
        }
        self.tun.as_ref().map_or(Ok(()), OnTun::check)?;
        if (self.action == Action::DeviceMtu) != self.mtu.is_some() {
            return Err("`mtu` and action = \"device_mtu\" belong together".into());
        }
        if self.mtu.is_some_and(|mtu| !(1280..=9000).contains(&mtu)) {
            return Err("`mtu` is 1280 to 9000".into());
        }
        if self.each_s.is_some() && (self.edge.is_some() || self.action.is_of_all()) {
            return Err(format!(
                "fault {:?}: `each_s` is for what happens to every edge",
                self.action
            ));
        }
        if self.for_s.is_some() && self.action.end().is_none() {
            return Err(format!(
                "fault {:?}: `for_s`, but nothing ends it",
                self.action
            ));
        }
        if self.every_s.is_some() != (self.times != 1) {
            return Err("`every_s` and `times` belong together".into());
        }
        Ok(())
    }

    /// What cannot happen to this link, if it is the fault's.
    pub(super) fn check_on(&self, link: &LinkTable) -> Result<(), String> {
        let (own, most) = (self.link.as_ref() == Some(&link.name), link.mtu_most());
        match self.mtu.filter(|mtu| own && *mtu > most) {
            Some(mtu) => Err(format!(
                "`mtu` {mtu} of a fault is more than the {most} of its link: give the link that \
                 `mtu`, and take it away by a fault at first"
            )),
            None => Ok(()),
        }
    }

    /// The index of the edge it happens to.
    pub fn edge_index(&self) -> usize {
        self.edge.unwrap_or(1).saturating_sub(1)
    }

    /// Where there are several edges it says to which of them it happens.
    pub(super) fn check_edges(&self) -> Result<(), String> {
        let says = self.edge.is_some() || self.each_s.is_some() || self.action.is_of_all();
        match !says {
            true => Err(format!(
                "fault {:?} happens to one edge, and there are several: say which, like `edge = 2`",
                self.action
            )),
            false => Ok(()),
        }
    }

    /// It and its end, each time it happens, at each of so many edges if it happens to all.
    pub(super) fn occurrences(&self, edges: usize) -> Vec<Self> {
        let Some(apart) = self.each_s else {
            return self.occurrences_here();
        };
        let at_edge = |number: usize| Self {
            at_s: Seconds(self.at_s.0 + apart.0 * (number - 1) as u32),
            edge: Some(number),
            each_s: None,
            ..self.clone()
        };
        (1..=edges)
            .flat_map(|number| at_edge(number).occurrences_here())
            .collect()
    }

    fn occurrences_here(&self) -> Vec<Self> {
        let every = self.every_s.unwrap_or_default().0;
        let occurrence = |number| {
            let at = self.at_s.0 + every * number;
            let single = Self {
                at_s: Seconds(at),
                for_s: None,
                every_s: None,
                times: 1,
                ..self.clone()
            };
            let end = self
                .for_s
                .zip(self.action.end())
                .map(|(lasts, action)| Self {
                    at_s: Seconds(at + lasts.0),
                    action,
                    set: None,
                    marked: None,
                    tun: None,
                    mtu: None,
                    ..single.clone()
                });
            [Some(single), end].into_iter().flatten()
        };
        (0..self.times).flat_map(occurrence).collect()
    }
}

fn once() -> u32 {
    1
}

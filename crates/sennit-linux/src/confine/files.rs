//! Files that may be written, by landlock(7).

use std::{fs::File, path::PathBuf, sync::OnceLock};

use landlock::{
    ABI, AccessFs, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
    path_beneath_rules,
};

/// The newest that says more about writing files. Later ones have `ioctl` of devices, which a TUN
/// device needs anyway.
const FILES: ABI = ABI::V3;

/// What [`Scope::Signal`] needs.
const PARTLY: &str = "before Linux 6.12 it does not keep signals from other processes";

/// Kernel switches of the network. The directory is held open, because a rule is about the inode
/// that the kernel has for it now, and one in `/proc` is forgotten when nobody uses it.
pub(super) const SWITCHES: &str = "/proc/sys/net";
static HELD_OPEN: OnceLock<Option<File>> = OnceLock::new();

/// The calling thread, and all that it starts, writes at or below these paths only, and sends
/// signals to nobody else; what an older kernel does not hold of that.
pub(super) fn write_only_in(writable: &[PathBuf]) -> Result<Option<&'static str>, String> {
    if writable.iter().any(|path| path.starts_with(SWITCHES)) {
        HELD_OPEN.get_or_init(|| File::open(SWITCHES).ok());
    }
    let writing = AccessFs::from_write(FILES);
    let restrict = || {
        Ruleset::default()
            .handle_access(writing)?
            .scope(Scope::Signal)?
            .create()?
            .add_rules(path_beneath_rules(writable, writing))?
            .restrict_self()
    };
    match restrict() {
        Ok(status) if status.ruleset == RulesetStatus::NotEnforced => {
            Err("this kernel has it not, or it is switched off".into())
        }
        Ok(status) if status.ruleset == RulesetStatus::PartiallyEnforced => Ok(Some(PARTLY)),
        Ok(_) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

//! System calls that are refused, by seccomp(2).
//!
//! A list of what is refused and not of what is allowed: what a daemon never needs is known, and
//! what a C library or a command such as `nft` calls next year is not.

#[cfg(any(
    target_arch = "x86_64",
    target_arch = "aarch64",
    target_arch = "riscv64"
))]
pub(super) use known::{refuse_local_sockets, refuse_needless, refuse_to_carriers};

#[cfg(not(any(
    target_arch = "x86_64",
    target_arch = "aarch64",
    target_arch = "riscv64"
)))]
mod unknown {
    const WHY: &str = "not for this kind of processor";

    pub(in super::super) fn refuse_needless() -> Result<(), String> {
        Err(WHY.into())
    }

    pub(in super::super) fn refuse_local_sockets() -> Result<(), String> {
        Err(WHY.into())
    }

    pub(in super::super) fn refuse_to_carriers() -> Result<(), String> {
        Err(WHY.into())
    }
}

#[cfg(not(any(
    target_arch = "x86_64",
    target_arch = "aarch64",
    target_arch = "riscv64"
)))]
pub(super) use unknown::{refuse_local_sockets, refuse_needless, refuse_to_carriers};

#[cfg(any(
    target_arch = "x86_64",
    target_arch = "aarch64",
    target_arch = "riscv64"
))]
mod known {
    use std::{collections::BTreeMap, env::consts::ARCH};

    use seccompiler::{
        BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
        SeccompFilter, SeccompRule, TargetArch, apply_filter,
    };

    /// Other processes, the kernel's own workings, file systems, keys, the clock: no business of a
    /// daemon, nor of the commands that it starts.
    const NEEDLESS: &[i64] = &[
        libc::SYS_acct,
        libc::SYS_add_key,
        libc::SYS_adjtimex,
        libc::SYS_bpf,
        libc::SYS_chroot,
        libc::SYS_clock_adjtime,
        libc::SYS_clock_settime,
        libc::SYS_delete_module,
        libc::SYS_fanotify_init,
        libc::SYS_finit_module,
        libc::SYS_fsconfig,
        libc::SYS_fsmount,
        libc::SYS_fsopen,
        libc::SYS_fspick,
        libc::SYS_init_module,
        libc::SYS_kcmp,
        libc::SYS_kexec_file_load,
        libc::SYS_kexec_load,
        libc::SYS_keyctl,
        libc::SYS_mount,
        libc::SYS_mount_setattr,
        libc::SYS_move_mount,
        libc::SYS_open_by_handle_at,
        libc::SYS_open_tree,
        libc::SYS_perf_event_open,
        libc::SYS_pidfd_getfd,
        libc::SYS_pivot_root,
        libc::SYS_process_madvise,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_ptrace,
        libc::SYS_quotactl,
        libc::SYS_reboot,
        libc::SYS_request_key,
        libc::SYS_setdomainname,
        libc::SYS_sethostname,
        libc::SYS_setns,
        libc::SYS_settimeofday,
        libc::SYS_swapoff,
        libc::SYS_swapon,
        libc::SYS_syslog,
        // Landlock cannot refuse it before Linux 6.2; files are shortened by their descriptor.
        libc::SYS_truncate,
        libc::SYS_umount2,
        libc::SYS_unshare,
        libc::SYS_userfaultfd,
        libc::SYS_vhangup,
    ];

    #[cfg(target_arch = "x86_64")]
    const NEEDLESS_HERE: &[i64] = &[libc::SYS_ioperm, libc::SYS_iopl, libc::SYS_modify_ldt];
    #[cfg(not(target_arch = "x86_64"))]
    const NEEDLESS_HERE: &[i64] = &[];

    /// Said not to exist, as on older kernels, so that callers do without: the flags of the first
    /// are out of a filter's sight, and the second makes system calls that no filter sees.
    const ABSENT: &[i64] = &[libc::SYS_clone3, libc::SYS_io_uring_setup];

    /// Who has an own one is whoever it wants to be there.
    const NAMESPACES: &[libc::c_int] = &[
        libc::CLONE_NEWCGROUP,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWUTS,
    ];

    /// A thread that carries packets has its descriptors, and runs no other program.
    const NOT_FOR_CARRIERS: &[i64] = &[
        libc::SYS_accept,
        libc::SYS_accept4,
        libc::SYS_execve,
        libc::SYS_execveat,
        libc::SYS_listen,
        libc::SYS_memfd_create,
        libc::SYS_pidfd_open,
        libc::SYS_pidfd_send_signal,
        libc::SYS_socket,
        libc::SYS_socketpair,
    ];

    #[cfg(target_arch = "x86_64")]
    const NOT_FOR_CARRIERS_HERE: &[i64] = &[libc::SYS_fork, libc::SYS_vfork];
    #[cfg(not(target_arch = "x86_64"))]
    const NOT_FOR_CARRIERS_HERE: &[i64] = &[];

    type Rules = BTreeMap<i64, Vec<SeccompRule>>;

    /// Refuses what no part of a daemon needs.
    pub(in super::super) fn refuse_needless() -> Result<(), String> {
        install(|| {
            let mut rules = always(&[NEEDLESS, NEEDLESS_HERE].concat());
            let spaces = NAMESPACES.iter().map(|&flag| has(0, flag));
            rules.insert(libc::SYS_clone, spaces.collect::<Result<_, _>>()?);
            let absent = filter(always(ABSENT), libc::ENOSYS)?;
            Ok([absent, filter(rules, libc::EPERM)?].into())
        })
    }

    /// Refuses sockets for talking to other programs of this host. Pairs of streams lead to each
    /// other for good, but those of datagrams may be connected anew.
    pub(in super::super) fn refuse_local_sockets() -> Result<(), String> {
        install(|| {
            let local = bits(0, !0, libc::AF_UNIX)?;
            const KIND: libc::c_int = 0xf;
            let [datagrams, raw] = [libc::SOCK_DGRAM, libc::SOCK_RAW].map(|it| bits(1, KIND, it));
            let rules = Rules::from([
                (libc::SYS_socket, vec![local]),
                (libc::SYS_socketpair, vec![datagrams?, raw?]),
            ]);
            Ok(vec![filter(rules, libc::EACCES)?])
        })
    }

    /// Refuses what a thread that carries packets does not need either.
    pub(in super::super) fn refuse_to_carriers() -> Result<(), String> {
        install(|| {
            let mut rules = always(&[NOT_FOR_CARRIERS, NOT_FOR_CARRIERS_HERE].concat());
            // Another thread is no other process.
            let process = bits(0, libc::CLONE_THREAD, 0)?;
            rules.insert(libc::SYS_clone, vec![process]);
            for call in [libc::SYS_mmap, libc::SYS_mprotect, libc::SYS_pkey_mprotect] {
                rules.insert(call, vec![has(2, libc::PROT_EXEC)?]);
            }
            Ok(vec![filter(rules, libc::EPERM)?])
        })
    }

    /// The argument with this number has all bits of `flag`.
    fn has(argument: u8, flag: libc::c_int) -> Result<SeccompRule, BackendError> {
        bits(argument, flag, flag)
    }

    /// Of the bits of `mask`, the argument with this number has exactly those of `value`.
    fn bits(
        argument: u8,
        mask: libc::c_int,
        value: libc::c_int,
    ) -> Result<SeccompRule, BackendError> {
        let [mask, value] = [mask, value].map(|it| u64::from(it.cast_unsigned()));
        let compare = SeccompCmpOp::MaskedEq(mask);
        let length = SeccompCmpArgLen::Dword;
        SeccompRule::new(vec![SeccompCondition::new(
            argument, length, compare, value,
        )?])
    }

    /// These calls, whatever their arguments are.
    fn always(calls: &[i64]) -> Rules {
        calls.iter().map(|&call| (call, Vec::new())).collect()
    }

    fn filter(rules: Rules, errno: libc::c_int) -> Result<BpfProgram, BackendError> {
        // On x86-64 each call has a second number, of the ABI with short pointers (x32).
        const SHORT_POINTERS: i64 = 0x4000_0000;
        let mut all = rules.clone();
        if cfg!(target_arch = "x86_64") {
            let twins = rules
                .into_iter()
                .map(|(call, rules)| (call | SHORT_POINTERS, rules));
            all.extend(twins);
        }
        let (allow, refuse) = (
            SeccompAction::Allow,
            SeccompAction::Errno(errno.cast_unsigned()),
        );
        let target = TargetArch::try_from(ARCH)?;
        SeccompFilter::new(all, allow, refuse, target)?.try_into()
    }

    fn install(
        programs: impl FnOnce() -> Result<Vec<BpfProgram>, BackendError>,
    ) -> Result<(), String> {
        let programs = programs().map_err(|error| error.to_string())?;
        let mut applied = programs.iter().map(|program| apply_filter(program));
        applied.try_for_each(|outcome| outcome.map_err(|error| error.to_string()))
    }
}

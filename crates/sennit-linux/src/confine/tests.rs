use std::{
    fs, io,
    net::UdpSocket,
    os::unix::net::{UnixDatagram, UnixStream},
    path::Path,
    process::Command,
    thread,
};

use super::*;

/// Runs `work` on a thread of its own, which may be confined for good.
fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join().unwrap())
}

fn unshare() -> io::Result<()> {
    crate::netns::Netns::anonymous().map(drop)
}

#[test]
fn a_confined_process_starts_threads_and_commands_and_leaves_the_kernel_alone() {
    let dir = tempfile::tempdir().unwrap();
    let here = dir.path().to_owned();
    apart(|| {
        let held = process(&[here], None).unwrap();
        assert!(
            held.no_new_privs && held.capabilities && held.calls,
            "{held:?}"
        );

        let error = unshare().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
        let said = apart(|| Command::new("echo").arg("well").output().unwrap().stdout);
        assert_eq!(said, b"well\n");
        UdpSocket::bind("127.0.0.1:0").unwrap();
        let error = UnixDatagram::unbound().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
        let error = UnixDatagram::pair().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
        UnixStream::pair().unwrap();
        let now = capabilities(None).unwrap();
        let rest = CapabilitySet::SYS_ADMIN | CapabilitySet::SYS_PTRACE;
        assert!(!now.permitted.intersects(rest), "{:?}", now.permitted);
    });
}

#[test]
fn a_confined_process_writes_in_its_directories_and_nowhere_else() {
    let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let missing = Path::new("/nowhere/at/all").to_owned();
    let outside = other.path().join("file");
    fs::write(&outside, "theirs").unwrap();
    apart(|| {
        let held = process(&[own.path().to_owned(), missing], None).unwrap();
        if !held.files {
            assert!(held.missing.iter().any(|it| it.starts_with("landlock")));
            return;
        }
        let draft = own.path().join("draft");
        fs::write(&draft, "ours").unwrap();
        fs::rename(&draft, own.path().join("file")).unwrap();

        assert!(fs::write(&outside, "ours").is_err());
        assert!(fs::write(other.path().join("new"), "ours").is_err());
        assert!(fs::remove_file(&outside).is_err());
        assert_eq!(fs::read_to_string(&outside).unwrap(), "theirs");

        apart(|| {
            write_nothing().unwrap();
            assert!(fs::write(own.path().join("file"), "").is_err());
        });
        fs::write(own.path().join("file"), "").unwrap();
    });
}

#[test]
fn a_thread_that_carries_packets_has_what_it_has() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    apart(|| {
        carry_packets().unwrap();

        socket
            .send_to(b"packet", socket.local_addr().unwrap())
            .unwrap();
        assert_eq!(socket.recv(&mut [0; 10]).unwrap(), 6);
        let refused = |error: io::Error| error.kind() == io::ErrorKind::PermissionDenied;
        assert!(UdpSocket::bind("127.0.0.1:0").is_err_and(refused));
        assert!(Command::new("echo").spawn().is_err_and(refused));
        let now = capabilities(None).unwrap();
        assert!(
            CapabilitySet::SYS_NICE.contains(now.permitted),
            "{:?}",
            now.permitted
        );
        assert_eq!(apart(|| 6 * 7), 42, "its look-ups and probes are threads");
    });
    UdpSocket::bind("127.0.0.1:0").unwrap();
}

#[test]
fn a_thread_that_keeps_files_is_not_told_to_change_the_network() {
    apart(|| {
        keep_files_only();
        let text = fs::read_to_string("/proc/thread-self/status").unwrap();
        assert!(!may_change_the_network(&text), "{text}");
        assert!(may_change_the_network(
            "Name:\tx\nCapEff:\t0000000000001000\n"
        ));
    });
}

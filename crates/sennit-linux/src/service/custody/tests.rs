use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

use rustix::process::geteuid;

use super::*;
use crate::User;

const UID: u32 = 1_234_567;

/// What a helper sees to of a config and a file to be removed in these directories.
fn custody(config: &Path, removed: &Path) -> Custody {
    let entrusted = Entrusted {
        user: User::find(&UID.to_string()).unwrap(),
        config: config.into(),
        read: vec![removed.into()],
        removed: vec![removed.into()],
    };
    let judge: Judge = |[first, _], after| match after.contains(first) {
        true => Ok(()),
        false => Err("it takes something away".into()),
    };
    Custody::begin(entrusted, Some(judge))
}

/// A directory that others may pass, with a file in it that they may not read.
fn directory() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let file = directory.path().join("edge.toml");
    fs::write(&file, "[edge]\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    (directory, file)
}

#[test]
fn a_config_of_roots_is_read_and_replaced_by_what_is_allowed() {
    let (directory, file) = directory();
    let mut custody = custody(&file, &file);
    assert!(custody.keeps_config());
    let read = |custody: &mut Custody| io::read_to_string(custody.open_config().unwrap()).unwrap();

    assert_eq!(read(&mut custody), "[edge]\n");
    assert!(custody.draft_config(Some("".into())).is_err());
    assert!(custody.publish_config().is_err(), "nothing is drafted");
    custody
        .draft_config(Some("[edge]\n# mine\n".into()))
        .unwrap();
    assert_eq!(read(&mut custody), "[edge]\n", "it is on trial");
    custody.draft_config(None).unwrap();
    assert!(custody.publish_config().is_err(), "it was forgotten");
    custody
        .draft_config(Some("[edge]\n# mine\n".into()))
        .unwrap();
    custody.publish_config().unwrap();

    assert_eq!(read(&mut custody), "[edge]\n# mine\n");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_name_that_leads_elsewhere_by_now_is_not_followed() {
    let (directory, file) = directory();
    let name = directory.path().join("name.toml");
    symlink(&file, &name).unwrap();
    let mut custody = custody(&name, &file);
    custody.open_config().unwrap();

    fs::remove_file(&name).unwrap();
    symlink("/etc/passwd", &name).unwrap();

    let error = io::Error::from(custody.open_config().unwrap_err());
    assert!(error.to_string().contains("leads elsewhere"), "{error}");
    fs::remove_file(&file).unwrap();
    assert!(custody.open_config().is_err());
}

#[test]
fn a_file_that_was_named_at_the_start_is_read_also_when_another_has_its_name_by_now() {
    let (directory, file) = directory();
    let name = directory.path().join("live.pem");
    symlink(&file, &name).unwrap();
    let custody = custody(&file, &name);
    let read = || io::read_to_string(custody.open_named(&name).unwrap()).unwrap();
    assert_eq!(read(), "[edge]\n");

    // As an ACME client renews it.
    let renewed = directory.path().join("live2.pem");
    fs::write(&renewed, "renewed").unwrap();
    fs::remove_file(&name).unwrap();
    symlink(&renewed, &name).unwrap();
    assert_eq!(read(), "renewed");

    let error = io::Error::from(custody.open_named(&renewed).unwrap_err());
    assert!(error.to_string().contains("restart"), "{error}");
    if !geteuid().is_root() {
        eprintln!("SKIPPED: the rest needs root");
        return;
    }
    let (his, in_his) = self::directory();
    chown(his.path(), Some(UID), Some(UID)).unwrap();
    fs::remove_file(&name).unwrap();
    symlink(&in_his, &name).unwrap();
    let error = io::Error::from(custody.open_named(&name).unwrap_err());
    assert!(error.to_string().contains("another file"), "{error}");
}

#[test]
fn files_where_the_user_may_put_something_else_are_not_seen_to() {
    if !geteuid().is_root() {
        eprintln!("SKIPPED: it needs root");
        return;
    }
    let (_directory, file) = directory();
    let (his, in_his) = directory();
    chown(his.path(), Some(UID), Some(UID)).unwrap();

    let mut other = custody(&in_his, &in_his);
    assert!(!other.keeps_config());
    assert!(other.open_config().is_err());
    assert!(other.draft_config(Some("[edge]\n".into())).is_err());
    assert!(other.remove(&in_his).is_err());
    let own = custody(&file, &file);
    assert!(own.remove(Path::new("/etc/passwd")).is_err());
    own.remove(&file).unwrap();
    assert!(!file.exists() && in_his.exists());
}

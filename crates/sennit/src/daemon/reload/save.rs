//! A file is replaced by another text in one step, and stays whose it was.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown},
    path::{Path, PathBuf},
};

/// Another text of a file, beside it until it takes its place; nothing is left if it does not.
#[derive(Debug)]
pub(super) struct Draft {
    draft: PathBuf,
    /// The file itself, where the name is a symbolic link.
    file: PathBuf,
    published: bool,
}

impl Draft {
    /// Writes a text beside the file, with its mode and owner.
    pub(super) fn write(file: &Path, text: &[u8]) -> io::Result<Self> {
        let file = fs::canonicalize(file)?;
        let draft = Self {
            draft: file.with_added_extension("draft"),
            file,
            published: false,
        };
        // One that a crash has left.
        match fs::remove_file(&draft.draft) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let before = fs::metadata(&draft.file)?;
        let mut new = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&draft.draft)?;
        new.write_all(text)?;
        let now = new.metadata()?;
        if (now.uid(), now.gid()) != (before.uid(), before.gid()) {
            fchown(&new, Some(before.uid()), Some(before.gid()))?;
        }
        new.set_permissions(Permissions::from_mode(before.mode() & 0o7777))?;
        new.sync_all()?;
        Ok(draft)
    }

    /// Puts it in the file's place, also across a power cut.
    pub(super) fn publish(mut self) -> io::Result<()> {
        fs::rename(&self.draft, &self.file)?;
        self.published = true;
        let folder = self.file.parent().unwrap_or(Path::new("/"));
        File::open(folder)?.sync_all()
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.published {
            // What is not wanted is of no use to anybody.
            let _ = fs::remove_file(&self.draft);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let found = fs::read_dir(folder).unwrap();
        let names = found.map(|it| it.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_keeps_its_mode_and_its_name_may_be_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link] = ["real.toml", "edge.toml"].map(|name| folder.path().join(name));
        fs::write(&file, "before").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        symlink("real.toml", &link).unwrap();

        Draft::write(&link, b"after").unwrap().publish().unwrap();

        assert_eq!(fs::read_to_string(&file).unwrap(), "after");
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o640);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(names(folder.path()), ["edge.toml", "real.toml"]);
    }

    #[test]
    fn a_draft_that_is_not_wanted_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("edge.toml");
        fs::write(&file, "before").unwrap();
        fs::write(folder.path().join("edge.toml.draft"), "of a crash").unwrap();

        drop(Draft::write(&file, b"after").unwrap());

        assert_eq!(fs::read_to_string(&file).unwrap(), "before");
        assert_eq!(names(folder.path()), ["edge.toml"]);
        assert!(Draft::write(&folder.path().join("none.toml"), b"x").is_err());
    }
}

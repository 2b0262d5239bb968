//! A file that comes about whole or not at all.

use std::{
    fs::{self, File, Metadata, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown},
    path::{Path, PathBuf},
    process,
};

/// A file to come: until it is published, what was there before stays.
///
/// It is written beside the file (`FILE.draft.PID`) and takes its place in one step, with the owner
/// and mode of what was there. Between its beginning and its text nothing lies there: whatever ends
/// a long measurement leaves no file behind. Where nothing can be made beside a file that can be
/// written, that is written when it is published. What is no plain file, such as `/dev/stdout`, is
/// written as it stands.
#[derive(Debug)]
pub struct Draft {
    path: PathBuf,
    place: Place,
}

/// Where its text goes first.
#[derive(Debug)]
enum Place {
    /// Into a file of this name, which is there from the text to its publication.
    Beside { name: PathBuf, is_there: bool },
    /// Nowhere until it is published.
    Kept { file: File, text: String },
}

impl Draft {
    /// Begins it, which shows whether it can be written there at all.
    ///
    /// # Errors
    ///
    /// Nothing can be written there.
    pub fn begin(path: &Path) -> io::Result<Self> {
        // The name may be a symbolic link.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let before = fs::metadata(&path).ok();
        if before.as_ref().is_some_and(|it| !it.is_file()) {
            let file = in_place(&path)?;
            return Ok(Self::kept(path, file));
        }
        let beside = path.with_added_extension(format!("draft.{}", process::id()));
        // Only to see whether it can be made.
        let made = create(&beside, before.as_ref()).and_then(|_| fs::remove_file(&beside));
        match made {
            Ok(()) => {
                let (name, is_there) = (beside, false);
                let place = Place::Beside { name, is_there };
                Ok(Self { path, place })
            }
            Err(error) if before.is_some() && is_of_folder(&error) => {
                let file = in_place(&path)?;
                Ok(Self::kept(path, file))
            }
            Err(error) => Err(error),
        }
    }

    fn kept(path: PathBuf, file: File) -> Self {
        let text = String::new();
        let place = Place::Kept { file, text };
        Self { path, place }
    }

    /// Where the file will be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes its text, and publishes it.
    ///
    /// # Errors
    ///
    /// There is no room, or the place is gone.
    pub fn finish(mut self, text: &str) -> io::Result<()> {
        self.fill(text)?;
        self.publish()
    }

    /// Writes its text, which takes no place yet.
    ///
    /// # Errors
    ///
    /// There is no room.
    pub fn fill(&mut self, text: &str) -> io::Result<()> {
        match &mut self.place {
            Place::Kept { text: kept, .. } => {
                *kept = text.into();
                Ok(())
            }
            Place::Beside { name, is_there } => {
                let before = fs::metadata(&self.path).ok();
                let mut file = create(name, before.as_ref())?;
                *is_there = true;
                file.write_all(text.as_bytes())?;
                // Else a power cut after it took its place could leave an empty file.
                file.sync_all()
            }
        }
    }

    /// Puts what was written in the file's place, also across a power cut.
    ///
    /// # Errors
    ///
    /// The place is gone.
    pub fn publish(mut self) -> io::Result<()> {
        let (beside, is_there) = match &mut self.place {
            Place::Kept { file, text } => return write_in_place(file, text.as_bytes()),
            Place::Beside { name, is_there } => (&*name, is_there),
        };
        match fs::rename(beside, &self.path) {
            // What a container has of its host is a mount, whose place nothing takes.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                return overwrite(&mut in_place(&self.path)?, &fs::read(beside)?);
            }
            renamed => renamed?,
        }
        *is_there = false;
        let folder = self.path.parent().filter(|it| !it.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

fn write_in_place(file: &mut File, text: &[u8]) -> io::Result<()> {
    match file.metadata()?.is_file() {
        true => overwrite(file, text),
        false => file.write_all(text),
    }
}

fn in_place(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).open(path)
}

/// Writes a plain file from its beginning on. It is never empty meanwhile, and takes no room that
/// it had not before unless the text is longer.
fn overwrite(file: &mut File, text: &[u8]) -> io::Result<()> {
    file.write_all(text)?;
    file.set_len(text.len() as u64)?;
    file.sync_all()
}

/// A new file, with the owner and mode of the one before.
fn create(beside: &Path, before: Option<&Metadata>) -> io::Result<File> {
    // One that a crash has left.
    match fs::remove_file(beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mode = if before.is_some() { 0o600 } else { 0o666 };
    let mut options = OpenOptions::new();
    let file = options
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(beside)?;
    let Some(before) = before else {
        return Ok(file);
    };
    let adopt = || {
        let new = file.metadata()?;
        if (new.uid(), new.gid()) != (before.uid(), before.gid()) {
            fchown(&file, Some(before.uid()), Some(before.gid()))?;
        }
        file.set_permissions(Permissions::from_mode(before.mode() & 0o7777))
    };
    let adopted: io::Result<()> = adopt();
    if let Err(error) = adopted {
        let _ = fs::remove_file(beside);
        return Err(error);
    }
    Ok(file)
}

/// Whether an error says that nothing can be made in a folder, or not as it was.
fn is_of_folder(error: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem)
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Place::Beside { name, is_there } = &self.place
            && *is_there
        {
            // What is not wanted is of no use to anybody.
            let _ = fs::remove_file(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_is_replaced_whole_or_stays_as_it_was() {
        let folder = tempfile::tempdir().expect("there is room");
        let file = folder.path().join("page.html");
        let names = || {
            let entries = fs::read_dir(folder.path()).expect("it is ours");
            entries.count()
        };
        fs::write(&file, "before").expect("there is room");

        let begun = Draft::begin(&file).expect("it can be written");
        assert_eq!(names(), 1, "who is killed now leaves nothing");
        drop(begun);
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "before");
        let draft = Draft::begin(&file).expect("it can be written");
        draft.finish("after").expect("there is room");

        assert_eq!(fs::read_to_string(&file).expect("it is there"), "after");
        assert_eq!(names(), 1);
        let full = Draft::begin(Path::new("/dev/full")).expect("it can be opened");
        full.finish("after").expect_err("there is never room");
        Draft::begin(folder.path()).expect_err("it is a directory");
        let nowhere = Draft::begin(&folder.path().join("nowhere/page.html"));
        nowhere.expect_err("nobody made that directory");
    }

    #[test]
    fn a_file_keeps_its_mode_and_its_name_may_be_a_link() {
        let folder = tempfile::tempdir().expect("there is room");
        let [file, link] = ["real.toml", "edge.toml"].map(|name| folder.path().join(name));
        fs::write(&file, "before, and longer").expect("there is room");
        fs::set_permissions(&file, Permissions::from_mode(0o640)).expect("it is ours");
        symlink("real.toml", &link).expect("there is room");

        let mut draft = Draft::begin(&link).expect("it can be written");
        draft.fill("after").expect("there is room");
        let before = fs::read_to_string(&file).expect("it is there");
        draft.publish().expect("its place is there");

        assert_eq!(before, "before, and longer");
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "after");
        let mode = fs::metadata(&file).expect("it is there").mode();
        assert_eq!(mode & 0o777, 0o640);
        let name = fs::symlink_metadata(&link).expect("it is there");
        assert!(name.is_symlink());
        let left = fs::read_dir(folder.path()).expect("it is ours").count();
        assert_eq!(left, 2, "nothing else is left");
    }

    /// A text on trial is dropped.
    #[test]
    fn a_file_that_is_written_in_place_stays_as_it_was_until_it_is_published() {
        let folder = tempfile::tempdir().expect("there is room");
        let path = folder.path().join("edge.toml");
        fs::write(&path, "before, and longer").expect("there is room");
        let in_place = || {
            let file = OpenOptions::new().write(true).open(&path);
            let mut draft = Draft::kept(path.clone(), file.expect("it is ours"));
            draft.fill("after").expect("it is kept");
            draft
        };

        drop(in_place());
        let dropped = fs::read_to_string(&path).expect("it is there");
        in_place().publish().expect("there is room");

        assert_eq!(dropped, "before, and longer");
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "after");
    }
}

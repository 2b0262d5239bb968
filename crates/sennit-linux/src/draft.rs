//! A file that comes about whole or not at all.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

/// A file to come: until it is finished, what was there before stays.
///
/// It is written beside the file (`FILE.draft`) and takes its place in one step. What is no plain
/// file, such as `/dev/stdout`, is written as it stands.
#[derive(Debug)]
pub struct Draft {
    path: PathBuf,
    file: File,
    /// Where it is written first.
    beside: Option<PathBuf>,
}

impl Draft {
    /// Begins it, which shows whether it can be written there at all.
    ///
    /// # Errors
    ///
    /// Nothing can be written there.
    pub fn begin(path: &Path) -> io::Result<Self> {
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let other = fs::metadata(&path).is_ok_and(|it| !it.is_file());
        let beside = (!other).then(|| path.with_added_extension("draft"));
        let file = File::create(beside.as_ref().unwrap_or(&path))?;
        Ok(Self { path, file, beside })
    }

    /// Where the file will be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Ends it.
    ///
    /// # Errors
    ///
    /// There is no room, or the place is gone.
    pub fn finish(mut self, text: &str) -> io::Result<()> {
        self.file.write_all(text.as_bytes())?;
        if let Some(beside) = &self.beside {
            fs::rename(beside, &self.path)?;
        }
        self.beside = None;
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(beside) = &self.beside {
            // What is not wanted is of no use to anybody.
            let _ = fs::remove_file(beside);
        }
    }
}

#[cfg(test)]
mod tests {
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

        drop(Draft::begin(&file).expect("it can be written"));
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
}

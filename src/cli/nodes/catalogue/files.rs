//! The files of a catalogue: which names they have, and their texts.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use zarrfs::hierarchy::DOCUMENT_NAMES;
use zarrfs::store::{is_remote, is_repository};

/// The ends of the names of a file and of a folder of files.
const FILE_END: &str = ".toml";
const FOLDER_END: &str = ".d";
/// The longest file that is read.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Returns whether a location is that of a catalogue.
pub fn is_catalogue(location: &str) -> bool {
    !is_remote(location) && !is_repository(location) && is_catalogue_path(Path::new(location))
}

/// Returns whether a path is that of a catalogue.
pub fn is_catalogue_path(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if name.ends_with(FILE_END) {
        return !path.is_dir();
    }
    name.ends_with(FOLDER_END)
        && path.is_dir()
        && DOCUMENT_NAMES.iter().all(|name| !path.join(name).exists())
        && files(path).is_ok_and(|files| !files.is_empty())
}

/// Returns the files of a catalogue that is a folder, sorted.
pub fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(FILE_END) && !name.starts_with('.') {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

/// Returns the text of a file. Fails for what is not a regular file, and for a long one.
pub fn text(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    // Without waiting: a pipe may have no writer.
    let opened =
        fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(file)?;
    if !opened.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    opened.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        let reason = format!("it has more than {MAX_FILE_BYTES} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    Ok(text)
}

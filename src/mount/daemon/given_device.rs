//! A mount that another program has made: the mount point is `/dev/fd/N`, where descriptor N is /dev/fuse as that program has opened and
//! mounted it. So libfuse and mountpoint-s3 take it, too.
//!
//! For containers without privileges: the program that may mount needs no store, and the one that serves the store needs no rights.
//! Invariant: nothing here mounts or unmounts. The program that mounted knows the place, and decides which users may enter.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use crate::error::{Error, Result};
use crate::sys;

const FOLDER: &str = "/dev/fd";
/// The device number of /dev/fuse (Documentation/admin-guide/devices.txt of Linux).
const FUSE_NUMBER: (u32, u32) = (10, 229);

/// Returns the number of the descriptor that a mount point names.
pub fn number(mountpoint: &Path) -> Option<i32> {
    let name = mountpoint.strip_prefix(FOLDER).ok()?.to_str()?;
    let is_number = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { name.parse().ok() } else { None }
}

/// Takes the device that a mount point names, if it names one, at most once. No program inherits it from now on.
pub fn take(mountpoint: &Path) -> Result<Option<OwnedFd>> {
    let Some(number) = number(mountpoint) else { return Ok(None) };
    let shown = mountpoint.display();
    let refused = |what: &str| {
        Err(Error::Usage(format!(
            "{shown} {what}: open /dev/fuse, mount it (mount(2) with fd={number}), and leave that descriptor open for this program"
        )))
    };
    let Ok(device) = sys::adopt_descriptor(number) else { return refused("is not open") };
    let copy = device.try_clone().map_err(|error| Error::Usage(format!("cannot copy {shown}: {error}")))?;
    let is_fuse = File::from(copy).metadata().is_ok_and(|about| {
        let device = about.rdev();
        about.file_type().is_char_device() && (libc::major(device), libc::minor(device)) == FUSE_NUMBER
    });
    if !is_fuse {
        return refused("is not /dev/fuse");
    }
    if sys::has_ended(device.as_fd()) {
        return refused("is not mounted");
    }
    Ok(Some(device))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_numbers_of_descriptors_are_taken() {
        assert_eq!(number(Path::new("/dev/fd/12")), Some(12));
        for path in ["/dev/fd", "/dev/fd/", "/dev/fd/x", "/dev/fd/+1", "/dev/fd/1/mnt", "/mnt/3", "dev/fd/3"]
        {
            assert_eq!(number(Path::new(path)), None, "{path}");
            assert!(take(Path::new(path)).unwrap().is_none());
        }
    }
}

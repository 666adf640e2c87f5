//! Mount points of zarrfs that begin with what is typed. Uses only the kernel's list, because a mount may hang.

use std::path::{Component, Path, PathBuf};

use zarrfs::mount::daemon::mounts::mounted;

/// The users whose mounts are offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountOwner {
    /// This user. Root may unmount all.
    ThisUser,
    /// All users.
    Anyone,
}

/// Returns the mount points that complete what is typed; `None` if there are none, so that the shell completes other paths, such as links to
/// mount points.
pub fn completing(typed: &str, owner: MountOwner) -> Option<Vec<String>> {
    let mountpoints = match owner {
        MountOwner::ThisUser if zarrfs::sys::effective_ids().0 != 0 => mounted::own_mountpoints(),
        MountOwner::ThisUser | MountOwner::Anyone => mounted::mountpoints(),
    };
    let here = std::env::current_dir().ok();
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let found = spelled(&mountpoints.ok()?, typed, here.as_deref(), home.as_deref());
    if found.is_empty() { None } else { Some(found) }
}

/// Returns the mount points that begin with what is typed, spelled in the same way: from the root, from home or from the working folder.
fn spelled(mountpoints: &[PathBuf], typed: &str, here: Option<&Path>, home: Option<&Path>) -> Vec<String> {
    let (folder, stem) = typed.split_at(typed.rfind('/').map_or(0, |slash| slash + 1));
    let base = match folder.strip_prefix("~/") {
        Some(below) => home.map(|home| home.join(below)),
        None if folder.starts_with('/') => Some(PathBuf::from(folder)),
        None => here.map(|here| here.join(folder)),
    };
    let base = base.map(|base| normal(&base));
    let mut found: Vec<String> = mountpoints
        .iter()
        .filter_map(|mountpoint| {
            let below = base.as_ref().and_then(|base| mountpoint.strip_prefix(base).ok()?.to_str());
            match below.filter(|below| !below.is_empty()) {
                Some(below) => below.starts_with(stem).then(|| format!("{folder}{below}")),
                None if typed.is_empty() => mountpoint.to_str().map(str::to_owned),
                None => None,
            }
        })
        .collect();
    // One mount may cover another one at the same place.
    found.sort();
    found.dedup();
    found
}

/// Returns a path without `.` and `..`. Links are not followed.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => _ = normal.pop(),
            part => normal.push(part),
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountpoints_are_spelled_as_they_are_begun() {
        let mountpoints = ["/mnt/a", "/home/ann/work/m 1", "/home/ann/b", "/mnt/a"].map(PathBuf::from);
        let spelled = |typed| {
            spelled(&mountpoints, typed, Some(Path::new("/home/ann/work")), Some(Path::new("/home/ann")))
        };
        assert_eq!(spelled(""), ["/home/ann/b", "/mnt/a", "m 1"]);
        assert_eq!(spelled("/"), ["/home/ann/b", "/home/ann/work/m 1", "/mnt/a"]);
        assert_eq!(spelled("/m"), ["/mnt/a"]);
        assert_eq!(spelled("/mnt/"), ["/mnt/a"]);
        assert_eq!(spelled("m"), ["m 1"]);
        assert_eq!(spelled("./"), ["./m 1"]);
        assert_eq!(spelled("../"), ["../b", "../work/m 1"]);
        assert_eq!(spelled("~/w"), ["~/work/m 1"]);
        assert_eq!(spelled("~/work/../"), ["~/work/../b", "~/work/../work/m 1"]);
        assert_eq!(spelled("x"), [""; 0]);
        assert_eq!(spelled("/mnt/a/"), [""; 0]);
    }
}

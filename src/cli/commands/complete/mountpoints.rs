//! Mount points of zarrfs that begin with what is typed. Uses the kernel's list alone: no mount is looked at, which may hang.

use std::path::{Component, Path, PathBuf};

use zarrfs::mount::daemon::mounted;

/// The users whose mounts are offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// This user; root may unmount all.
    Own,
    /// All users.
    Anyone,
}

/// The mount points; `None` if there is none, so that the shell completes other paths, such as links to them.
pub fn below(typed: &str, whose: Whose) -> Option<Vec<String>> {
    let mountpoints = match whose {
        Whose::Own if zarrfs::sys::effective_ids().0 != 0 => mounted::own_mountpoints(),
        Whose::Own | Whose::Anyone => mounted::mountpoints(),
    };
    let here = std::env::current_dir().ok();
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let found = spelled(&mountpoints.ok()?, typed, here.as_deref(), home.as_deref());
    if found.is_empty() { None } else { Some(found) }
}

/// The mount points that begin with what is typed, spelled as it is: from the root, from home or from the working folder.
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
    // Mounts may lie on each other.
    found.sort();
    found.dedup();
    found
}

/// A path without `.` and `..`; links are not followed.
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

//! The memory that this process may use: the machine's, or less where a control group has a limit.
//!
//! cgroup v2 gives `memory.max`, v1 `memory.limit_in_bytes`, in each folder from the process's own group up to the
//! root. Inside a container the path of `/proc/self/cgroup` may not exist; walking up ends at the container's own root,
//! which has the container's limit. Uses nothing.

use std::fs;
use std::path::Path;

/// Returns how many bytes this process may use; `None` where that is unknown.
pub fn limit_bytes() -> Option<u64> {
    limit_bytes_below(Path::new("/"))
}

fn limit_bytes_below(root: &Path) -> Option<u64> {
    let total = fs::read_to_string(root.join("proc/meminfo")).ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()?.checked_mul(1024)
    });
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    groups.lines().filter_map(|line| group_limit_bytes(root, line)).chain(total).min()
}

/// Returns the smallest limit of the group in a line of `/proc/self/cgroup` (`ID:CONTROLLERS:PATH`) and of the groups above it.
fn group_limit_bytes(root: &Path, line: &str) -> Option<u64> {
    let mut parts = line.splitn(3, ':');
    let (_id, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    let (tops, file): (&[&str], _) = if controllers.is_empty() {
        (&["sys/fs/cgroup", "sys/fs/cgroup/unified"], "memory.max")
    } else if controllers.split(',').any(|controller| controller == "memory") {
        (&["sys/fs/cgroup/memory"], "memory.limit_in_bytes")
    } else {
        return None;
    };
    // The path begins with `..` where the process's group is outside its cgroup namespace.
    let relative: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != "..").collect();
    let limits = tops.iter().flat_map(|top| {
        let relative = &relative;
        (0..=relative.len()).filter_map(move |depth| {
            let mut folder = root.join(top);
            folder.extend(relative.iter().take(depth));
            // `max` is not a number: this group has no limit.
            fs::read_to_string(folder.join(file)).ok()?.trim().parse::<u64>().ok()
        })
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal:       8388608 kB\nMemFree: 1 kB\n");

    #[test]
    fn without_groups_it_is_the_machines_memory() {
        let root = machine(&[MEMINFO]);
        assert_eq!(limit_bytes_below(root.path()), Some(8 << 30));
        assert_eq!(limit_bytes_below(machine(&[]).path()), None);
    }

    #[test]
    fn the_smallest_limit_up_the_tree_counts() {
        let root = machine(&[
            MEMINFO,
            ("proc/self/cgroup", "0::/user.slice/job/step\n"),
            ("sys/fs/cgroup/user.slice/memory.max", "max\n"),
            ("sys/fs/cgroup/user.slice/job/memory.max", "1073741824\n"),
            ("sys/fs/cgroup/user.slice/job/step/memory.max", "2147483648\n"),
        ]);
        assert_eq!(limit_bytes_below(root.path()), Some(1 << 30));
    }

    #[test]
    fn version_1_with_a_missing_path() {
        let root = machine(&[
            MEMINFO,
            ("proc/self/cgroup", "5:cpu:/docker/abc\n4:cpuset,memory:/docker/abc\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "536870912\n"),
        ]);
        assert_eq!(limit_bytes_below(root.path()), Some(512 << 20));
    }

    #[test]
    fn no_limit_in_version_1_is_a_huge_number() {
        let root = machine(&[
            MEMINFO,
            ("proc/self/cgroup", "4:memory:/../..\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ]);
        assert_eq!(limit_bytes_below(root.path()), Some(8 << 30));
    }
}

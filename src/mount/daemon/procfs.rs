//! Processes and mounts, read from /proc.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// The file system type of zarrfs mounts.
pub const FILESYSTEM_TYPE: &str = "fuse.zarrfs";

/// Returns the process that a thread belongs to.
pub fn thread_group(thread: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

/// One line of /proc/self/mountinfo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// The mount's number.
    pub id: u64,
    /// The device, `major:minor`.
    pub device: String,
    /// The mount point.
    pub mountpoint: PathBuf,
    /// The type with its subtype.
    pub filesystem_type: String,
    /// The mount is read-only.
    pub is_read_only: bool,
    /// The kernel's options of the mount, separated by commas.
    pub options: String,
    /// The mounted source.
    pub source: String,
    /// The user that mounted it, for a FUSE mount.
    pub user_id: Option<u32>,
}

/// Returns all mounts that this process sees, in the order of mounting.
pub fn mounts() -> io::Result<Vec<MountEntry>> {
    Ok(parse_mounts(&fs::read("/proc/self/mountinfo")?))
}

fn parse_mounts(text: &[u8]) -> Vec<MountEntry> {
    text.split(|&byte| byte == b'\n').filter_map(parse_mount).collect()
}

/// Returns whether any process that this one may look at sees a zarrfs mount at a mount point.
pub fn is_mounted_anywhere(mountpoint: &Path) -> bool {
    let has = |process: &Path| {
        let text = fs::read(process.join("mountinfo")).unwrap_or_default();
        parse_mounts(&text)
            .iter()
            .any(|entry| entry.filesystem_type == FILESYSTEM_TYPE && entry.mountpoint == mountpoint)
    };
    if has(Path::new("/proc/self")) {
        return true;
    }
    // Processes with the same namespace and the same root see the same.
    let mut seen = HashSet::from([view_of_mounts(Path::new("/proc/self"))]);
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes =
        entries.filter(|entry| entry.file_name().as_bytes().first().is_some_and(u8::is_ascii_digit));
    processes.map(|entry| entry.path()).any(|process| seen.insert(view_of_mounts(&process)) && has(&process))
}

/// Returns the namespace and the root, which decide the mounts that a process sees and their paths.
fn view_of_mounts(process: &Path) -> [PathBuf; 2] {
    ["ns/mnt", "root"].map(|link| fs::read_link(process.join(link)).unwrap_or_default())
}

/// Returns the topmost mount at a mount point.
pub fn mount_at(mountpoint: &Path) -> io::Result<Option<MountEntry>> {
    Ok(mounts()?.into_iter().rev().find(|entry| entry.mountpoint == mountpoint))
}

/// `ID PARENT MAJ:MIN ROOT MOUNTPOINT OPTIONS [TAG…] - TYPE SOURCE SUPER`
fn parse_mount(line: &[u8]) -> Option<MountEntry> {
    let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    let mut words = line.split(|&byte| byte == b' ');
    let id = text(words.next()?).parse().ok()?;
    let device = text(words.nth(1)?);
    let mountpoint = PathBuf::from(unescape(words.nth(1)?));
    let options = text(words.next()?);
    let is_read_only = options.split(',').any(|word| word == "ro");
    let mut words = words.skip_while(|word| *word != b"-");
    let filesystem_type = text(words.nth(1)?);
    let source = unescape(words.next()?).to_string_lossy().into_owned();
    let of_superblock = words.next().map(text).unwrap_or_default();
    let user_id = of_superblock.split(',').find_map(|word| word.strip_prefix("user_id=")?.parse().ok());
    Some(MountEntry { id, device, mountpoint, filesystem_type, is_read_only, options, source, user_id })
}

/// Space, tab, newline and backslash are written as three octal digits.
pub(super) fn unescape(word: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        let octal = if byte == b'\\' { tail.get(..3) } else { None };
        let code = octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match code {
            Some(code) => {
                bytes.push(code);
                rest = tail.get(3..).unwrap_or_default();
            }
            None => bytes.push(byte),
        }
    }
    OsString::from_vec(bytes)
}

/// The start time of a process in clock ticks since boot: distinguishes a process from a later one with the
/// same id.
pub fn start_ticks(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command name in parentheses may contain anything; field 22 is the 20th after it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// The number of processes that the system has ended for lack of memory (`oom_kill` in /proc/vmstat). They get SIGKILL, as if somebody had sent it.
pub struct MemoryKills {
    file: Option<File>,
    last: u64,
}

impl MemoryKills {
    /// Begins to count.
    pub fn open() -> Self {
        let mut kills = MemoryKills { file: File::open("/proc/vmstat").ok(), last: 0 };
        kills.last = kills.count();
        kills
    }

    /// Returns how many there were since the system started; 0 where that is not known. Opens no file.
    pub fn count(&self) -> u64 {
        let (mut text, mut part) = (Vec::new(), [0; 4096]);
        while let Some(file) = &self.file
            && let Ok(length @ 1..) = file.read_at(&mut part, text.len() as u64)
        {
            text.extend_from_slice(part.get(..length).unwrap_or_default());
        }
        let text = String::from_utf8_lossy(&text);
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok()).unwrap_or(0)
    }

    /// Returns whether there was one since the last call, or since the beginning.
    pub fn have_risen(&mut self) -> bool {
        let count = self.count();
        std::mem::replace(&mut self.last, count) < count
    }
}

/// Runs a call that may hang on its own thread. Returns `None` if it has not returned within `timeout`.
pub fn with_timeout<T: Send + 'static>(
    timeout: Duration,
    look: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    // A channel would be ten times the code for each type.
    let reply = Arc::new((Mutex::new(None), Condvar::new()));
    let sent = reply.clone();
    std::thread::Builder::new()
        .spawn(move || {
            let found = look();
            *sent.0.lock() = Some(found);
            sent.1.notify_one();
        })
        .ok()?;
    let mut found = reply.0.lock();
    reply.1.wait_while_for(&mut found, |found| found.is_none(), timeout);
    found.take()
}

/// The time after which reading a process in /proc counts as hanging.
const HANG_TIMEOUT: Duration = Duration::from_millis(300);
/// The number of threads that may be left hanging.
const MAX_HANGING: usize = 16;

/// Returns the number of threads of this process.
pub fn thread_count() -> usize {
    fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
}

/// The processes that use a mount: by an open file, a mapping, or their working folder. Processes that must
/// not be read (of other users) are left out, and so are those that cannot: reading a process that hangs in
/// the kernel can hang, too. Nothing in the mount itself is touched.
pub fn users_of(mount: &MountEntry) -> Vec<(u32, String)> {
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let pids: Vec<u32> = pids.filter(|&pid| pid != std::process::id()).collect();
    let mount = mount.clone();
    let looked = each_with_timeout(pids, move |pid| {
        uses(pid, &mount).then(|| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            (pid, name.trim_end().to_owned())
        })
    });
    let mut users: Vec<_> = looked.into_iter().flatten().collect();
    users.sort();
    users
}

/// Calls `look` for each item in turn; items at which it hangs are skipped by continuing on further threads.
fn each_with_timeout<I, T>(items: Vec<I>, look: impl Fn(I) -> T + Send + Sync + 'static) -> Vec<T>
where
    I: Copy + Send + Sync + 'static,
    T: Send + 'static,
{
    let (items, next, look) = (Arc::new(items), Arc::new(AtomicUsize::new(0)), Arc::new(look));
    let (sender, receiver) = channel();
    let mut found = Vec::new();
    for _ in 0..MAX_HANGING {
        let (list, place, look, sender) = (items.clone(), next.clone(), look.clone(), sender.clone());
        let run = move || {
            while let Some(&item) = list.get(place.fetch_add(1, Ordering::Relaxed)) {
                if sender.send(look(item)).is_err() {
                    return;
                }
            }
        };
        if std::thread::Builder::new().spawn(run).is_err() {
            break;
        }
        while let Ok(looked) = receiver.recv_timeout(HANG_TIMEOUT) {
            found.push(looked);
            if found.len() == items.len() {
                return found;
            }
        }
        if next.load(Ordering::Relaxed) >= items.len() {
            break;
        }
    }
    found
}

fn uses(pid: u32, mount: &MountEntry) -> bool {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let is_inside = |link: &str| {
        fs::read_link(process.join(link)).is_ok_and(|target| target.starts_with(&mount.mountpoint))
    };
    if is_inside("cwd") || is_inside("root") {
        return true;
    }
    let wanted = format!("mnt_id:\t{}", mount.id);
    let has_open_file = fs::read_dir(process.join("fdinfo")).into_iter().flatten().flatten().any(|entry| {
        fs::read_to_string(entry.path()).is_ok_and(|info| info.lines().any(|line| line == wanted))
    });
    has_open_file || fs::read(process.join("maps")).is_ok_and(|maps| maps_device(&maps, &mount.device))
}

/// Returns whether /proc/PID/maps has a mapping of this device: `START-END PERM OFFSET MAJ:MIN INODE PATH`, in hexadecimal.
fn maps_device(maps: &[u8], device: &str) -> bool {
    let Some((Ok(major), Ok(minor))) =
        device.split_once(':').map(|(major, minor)| (major.parse::<u32>(), minor.parse::<u32>()))
    else {
        return false;
    };
    let wanted = format!("{major:02x}:{minor:02x}");
    maps.split(|&byte| byte == b'\n').any(|line| {
        line.split(|&byte| byte == b' ').nth(3).is_some_and(|word| OsStr::from_bytes(word) == wanted.as_str())
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// `zarrfs umount` of a mount in use hung for as long as any process on the machine hung in the kernel.
    #[test]
    fn hanging_items_are_skipped() {
        let look = |item: u32| {
            if item.is_multiple_of(40) {
                std::thread::sleep(Duration::from_secs(3600));
            }
            item
        };
        let looked = each_with_timeout((1..=100).collect(), look);
        assert_eq!(looked, (1..=100).filter(|item| item % 40 != 0).collect::<Vec<u32>>());
    }

    #[test]
    fn mountinfo_lines() {
        let line = b"36 35 98:0 /mnt1 /mnt\\040two\\134x rw,noatime master:1 shared:2 - fuse.zarrfs a\\054b rw,user_id=0";
        let entry = parse_mount(line).unwrap();
        assert_eq!(entry.id, 36);
        assert_eq!(entry.device, "98:0");
        assert_eq!(entry.mountpoint, Path::new("/mnt two\\x"));
        assert_eq!(entry.filesystem_type, FILESYSTEM_TYPE);
        assert!(!entry.is_read_only);
        assert_eq!(
            (entry.options.as_str(), entry.source.as_str(), entry.user_id),
            ("rw,noatime", "a,b", Some(0))
        );
        assert_eq!(parse_mount(b""), None);
        assert_eq!(parse_mount(b"x y z"), None);
    }

    #[test]
    fn maps_lines() {
        let maps = b"7f00-7f01 r--p 00000000 00:2a 12 /mnt/t\n7f02-7f03 r--p 00000000 fe:00 12 /lib\n";
        assert!(maps_device(maps, "0:42"));
        assert!(maps_device(maps, "254:0"));
        assert!(!maps_device(maps, "0:43"));
    }

    #[test]
    fn this_process_is_there() {
        assert!(start_ticks(std::process::id()).is_some_and(|ticks| ticks > 0));
        assert!(thread_count() >= 1);
        assert!(mounts().unwrap().iter().any(|entry| entry.mountpoint == Path::new("/")));
    }
}

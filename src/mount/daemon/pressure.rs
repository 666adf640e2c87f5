//! Memory pressure (PSI, Documentation/accounting/psi.rst): a trigger on the control group's `memory.pressure` and on the
//! machine's, at which the daemon gives cache back.
//!
//! Where the kernel has no PSI, or refuses the trigger, there is no thread and nothing changes. Uses `sys`.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Weak;

use crate::mount::daemon::shutdown::spawn;
use crate::mount::fs::FileSystem;
use crate::sys;

/// Some task waits for memory for a tenth of a second within two. Users other than root may only have windows of whole
/// multiples of two seconds; the kernel reports at most once in each window.
const TRIGGER: &[u8] = b"some 100000 2000000\0";

/// Watches as long as the file system exists.
pub fn watch(fs: Weak<FileSystem>) {
    let triggers = open_triggers(Path::new("/"));
    if triggers.is_empty() {
        log::debug!("this system does not report memory pressure");
    }
    for (path, trigger) in triggers {
        let fs = fs.clone();
        let started = spawn("zarrfs-pressure", move || {
            let relieve = || {
                let Some(fs) = fs.upgrade() else { return false };
                let bytes = fs.relieve_memory();
                log::info!("memory is short ({}): {bytes} bytes are given back", path.display());
                true
            };
            run(|| sys::wait_for_event(trigger.as_fd()), relieve);
        });
        if let Err(error) = started {
            log::debug!("cannot watch memory pressure: {error}");
        }
    }
}

/// Calls `relieve` after each event, until it or the source ends.
fn run(mut wait: impl FnMut() -> io::Result<()>, mut relieve: impl FnMut() -> bool) {
    loop {
        match wait() {
            Ok(()) => {
                if !relieve() {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                // For example, the control group is gone.
                log::debug!("memory pressure is not watched any more: {error}");
                return;
            }
        }
    }
}

/// Returns the pressure files below `root` that take a trigger: that of the control group, which may reach its limit while the
/// machine has memory, and that of the machine.
fn open_triggers(root: &Path) -> Vec<(PathBuf, File)> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"));
    let of_group = group.map(|group| root.join("sys/fs/cgroup").join(group).join("memory.pressure"));
    let paths = of_group.into_iter().chain([root.join("proc/pressure/memory")]);
    let open = |path: PathBuf| {
        let mut file = File::options().read(true).write(true).open(&path).ok()?;
        file.write_all(TRIGGER).ok()?;
        Some((path, file))
    };
    paths.filter_map(open).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn group_and_machine_are_watched_and_neither_is_harmless() {
        let root = tempfile::tempdir().unwrap();
        let paths = || open_triggers(root.path()).into_iter().map(|(path, _)| path).collect::<Vec<_>>();
        assert!(paths().is_empty());
        let file = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            path
        };
        let of_machine = file("proc/pressure/memory", "");
        assert!(paths().iter().eq([&of_machine]));
        assert_eq!(fs::read(&of_machine).unwrap(), TRIGGER);
        file("proc/self/cgroup", "1:cpu:/x\n0::/user.slice/a\n");
        let of_group = file("sys/fs/cgroup/user.slice/a/memory.pressure", "");
        assert_eq!(paths(), [of_group, of_machine]);
    }

    #[test]
    fn every_event_relieves_until_the_source_ends() {
        let mut events = vec![Err(io::ErrorKind::Interrupted.into()), Ok(()), Ok(())].into_iter();
        let mut relieved = 0;
        let wait = || events.next().unwrap_or(Err(io::ErrorKind::BrokenPipe.into()));
        run(wait, || {
            relieved += 1;
            true
        });
        assert_eq!(relieved, 2);
        let mut relieved = 0;
        run(
            || Ok(()),
            || {
                relieved += 1;
                false
            },
        );
        assert_eq!(relieved, 1, "the file system has gone");
    }

    /// Out-of-band bytes of a socket are the other thing that poll(2) calls urgent.
    #[test]
    fn an_event_wakes_and_an_end_is_an_error() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let sender = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (receiver, _) = listener.accept().unwrap();
        sys::send_urgently(sender.as_fd()).unwrap();
        sys::wait_for_event(receiver.as_fd()).unwrap();
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        assert!(sys::wait_for_event(writer.as_fd()).is_err());
    }
}

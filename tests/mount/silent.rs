//! A daemon that takes requests and never replies: it is stopped, or it is a program of another user. No command hangs at its mount.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::support::{kinds, skip};

/// FUSE_INIT, the one request that gets a reply.
const INIT: [u8; 4] = 26_u32.to_ne_bytes();
/// The kernel offers no smaller buffer than this.
const REQUEST_BYTES: usize = 64 << 10;
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// A mount whose daemon replies only to the kernel's first request.
struct SilentMount {
    folder: TempDir,
    point: PathBuf,
    taken: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
    daemon: Option<JoinHandle<()>>,
}

impl SilentMount {
    fn new() -> Option<SilentMount> {
        let what = "a silent mount";
        let Ok(device) = File::options().read(true).write(true).open("/dev/fuse") else {
            skip(what, "/dev/fuse cannot be opened", true);
            return None;
        };
        if zarrfs::sys::effective_ids().0 != 0 {
            skip(what, "only root can mount it", true);
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let point = folder.path().join("mnt");
        fs::create_dir(&point).unwrap();
        let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let (target, data) =
            (CString::new(point.as_os_str().as_bytes()).unwrap(), CString::new(data).unwrap());
        zarrfs::sys::mount(c"silent", &target, c"fuse.zarrfs", 0, &data).unwrap();
        let (taken, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let daemon = {
            let (taken, is_over) = (Arc::clone(&taken), Arc::clone(&is_over));
            std::thread::spawn(move || take_requests(device, &taken, &is_over))
        };
        Some(SilentMount { folder, point, taken, is_over, daemon: Some(daemon) })
    }

    fn is_mounted(&self) -> bool {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        mounts.lines().any(|line| line.split(' ').nth(4) == self.point.to_str())
    }
}

/// Takes requests until the mount is over. With the device, the connection ends.
fn take_requests(mut device: File, taken: &AtomicUsize, is_over: &AtomicBool) {
    let mut request = vec![0; REQUEST_BYTES];
    while !is_over.load(Ordering::Relaxed) {
        if !zarrfs::sys::wait_readable(device.as_fd(), 20).unwrap() {
            continue;
        }
        let Ok(length) = device.read(&mut request) else { return };
        if length < 16 || request[4..8] != INIT {
            taken.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let mut reply = Vec::new();
        reply.extend(80_u32.to_ne_bytes());
        reply.extend(0_i32.to_ne_bytes());
        reply.extend(&request[8..16]);
        // Version, read-ahead, flags, requests at a time, the longest write, the grain of times, and what is not used.
        for word in [7_u32, 31, 0, 0, 9 << 16 | 12, 4096, 1] {
            reply.extend(word.to_ne_bytes());
        }
        reply.resize(80, 0);
        device.write_all(&reply).unwrap();
    }
}

impl Drop for SilentMount {
    fn drop(&mut self) {
        if self.is_mounted() {
            let target = CString::new(self.point.as_os_str().as_bytes()).unwrap();
            let _ = zarrfs::sys::unmount(&target, 2); // MNT_DETACH
        }
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.daemon.take().unwrap().join();
    }
}

fn start(arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_zarrfs"))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits for the end of a program. It must end although a request of it gets no reply, and must not leave a process that has its pipes.
fn end(mut program: Child, shown: &str) -> Output {
    let started = Instant::now();
    while program.try_wait().unwrap().is_none() {
        assert!(started.elapsed() < ENDS_WITHIN, "'{shown}' hangs");
        std::thread::sleep(Duration::from_millis(20));
    }
    program.wait_with_output().unwrap()
}

/// A thread that waited for a reply kept its process from ending, though it was waited for no longer than a moment.
#[test]
fn no_command_hangs_at_a_daemon_that_takes_requests_and_never_replies() {
    let Some(mount) = SilentMount::new() else { return };
    let store = mount.folder.path().join("s.zarr");
    kinds::write(&store);
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let (point, store) = (text(&mount.point), text(&store));
    let inside = format!("{point}/a/b");
    let line = format!("zarrfs info {inside} ");
    let commands: [(&[&str], Option<i32>, &str); 8] = [
        (&["mounts"], Some(0), &point),
        (&["stat", &point], Some(1), "does not respond"),
        (&["umount", &point], Some(1), "does not respond"),
        (&["umount", "--stale", &point], Some(0), ""),
        (&["mount", &store, &point], Some(1), "is busy: silent is mounted there"),
        (&["mount", &store, &inside], Some(1), "cannot be used"),
        (&["mount", "--mkdir", &store, &inside], Some(1), "cannot be used"),
        (&["__complete", "fish", &line], Some(0), ""),
    ];
    let programs: Vec<Child> = commands.iter().map(|(arguments, ..)| start(arguments)).collect();
    for (program, (arguments, code, expected)) in programs.into_iter().zip(commands) {
        let shown = arguments.join(" ");
        let output = end(program, &shown);
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(output.status.code() == code && said.contains(expected), "'{shown}': {said}");
    }
    assert!(mount.is_mounted());
    assert!(mount.taken.load(Ordering::Relaxed) > 0);
    let output = end(start(&["umount", "--force", &point]), "umount --force");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("is detached, but its daemon does not respond"), "{said}");
    assert!(!mount.is_mounted());
}

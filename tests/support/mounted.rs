//! A real mount by the built binary, which ends when the guard is dropped, whatever happens.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::skip;

const READY_WITHIN: Duration = Duration::from_secs(30);
/// A daemon that cannot store retries for 30 seconds.
const GONE_WITHIN: Duration = Duration::from_secs(60);

/// A mounted store.
pub struct Mount {
    point: PathBuf,
    daemon: Child,
    folder: TempDir,
}

impl Mount {
    /// Mounts `store` with further options. `None`, with a message, where there is no FUSE.
    pub fn new(store: &Path, options: &[&str], what: &str) -> Option<Mount> {
        Mount::with_environment(store, options, &[], what)
    }

    /// Mounts as [`Mount::new`] does, with further variables in the daemon's environment.
    pub fn with_environment(
        store: &Path,
        options: &[&str],
        environment: &[(&str, OsString)],
        what: &str,
    ) -> Option<Mount> {
        if File::options().read(true).write(true).open("/dev/fuse").is_err() {
            skip(what, "/dev/fuse cannot be opened", true);
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let point = folder.path().join("mnt");
        std::fs::create_dir(&point).unwrap();
        let log = File::create(folder.path().join("log")).unwrap();
        let daemon = Command::new(env!("CARGO_BIN_EXE_zarrfs"))
            .args(["mount", "--foreground"])
            .args(options)
            .arg(store)
            .arg(&point)
            .env_remove("RUST_LOG")
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut mount = Mount { point, daemon, folder };
        mount.wait_until_it_answers();
        Some(mount)
    }

    fn wait_until_it_answers(&mut self) {
        let started = Instant::now();
        while !is_mounted(&self.point) {
            if let Some(status) = self.daemon.try_wait().unwrap() {
                panic!("zarrfs mount ended with {status}: {}", self.log());
            }
            assert!(started.elapsed() < READY_WITHIN, "not mounted in time: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
        std::fs::metadata(&self.point).unwrap_or_else(|error| panic!("mounted, but {error}: {}", self.log()));
    }

    /// Returns the mount point.
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// Returns a path below the mount point.
    pub fn path(&self, below: &str) -> PathBuf {
        self.point.join(below)
    }

    /// Returns what the daemon wrote to standard error so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Returns a member of the daemon's /proc/PID/status in kB: `VmHWM` is the most memory it ever held.
    pub fn memory_kb(&self, member: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.daemon.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(member)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Returns the daemon's number.
    pub fn pid(&self) -> u32 {
        self.daemon.id()
    }

    /// Returns whether the daemon has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.daemon.try_wait().unwrap().is_some()
    }

    /// Returns how the daemon ended; waits for it.
    pub fn end(&mut self) -> ExitStatus {
        wait_for_end(&mut self.daemon).expect("the daemon has not ended")
    }

    /// Kills the daemon (kill -9), if it has not died yet.
    pub fn strike(&mut self) {
        let _ = self.daemon.kill();
    }

    /// Kills the daemon, and takes away the mount that it leaves.
    pub fn kill(mut self) {
        self.strike();
        self.daemon.wait().unwrap();
        let arguments = ["umount", "--stale"];
        let output =
            Command::new(env!("CARGO_BIN_EXE_zarrfs")).args(arguments).arg(&self.point).output().unwrap();
        assert!(output.status.success(), "umount --stale: {}", String::from_utf8_lossy(&output.stderr));
        assert!(!is_mounted(&self.point), "still mounted");
    }

    /// Runs `zarrfs umount` with these options.
    pub fn umount(&self, options: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_zarrfs"))
            .arg("umount")
            .args(options)
            .arg(&self.point)
            .output()
            .unwrap()
    }

    /// Returns whether it is still mounted.
    pub fn is_mounted(&self) -> bool {
        is_mounted(&self.point)
    }

    /// Unmounts as a user does, and asserts that the daemon ended well.
    pub fn unmount(mut self) {
        let output =
            Command::new(env!("CARGO_BIN_EXE_zarrfs")).arg("umount").arg(&self.point).output().unwrap();
        assert!(output.status.success(), "umount: {}", String::from_utf8_lossy(&output.stderr));
        assert!(!is_mounted(&self.point), "still mounted");
        let status = wait_for_end(&mut self.daemon).expect("the daemon is still there after umount");
        assert!(status.success(), "the daemon ended with {status}: {}", self.log());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.daemon.try_wait().is_ok_and(|status| status.is_some()) && !is_mounted(&self.point) {
            return;
        }
        let quietly = |program: &str, arguments: &[&str]| {
            let _ = Command::new(program)
                .args(arguments)
                .arg(&self.point)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
        };
        quietly(env!("CARGO_BIN_EXE_zarrfs"), &["umount"]);
        if is_mounted(&self.point) {
            quietly("umount", &["-l"]);
        }
        if is_mounted(&self.point) {
            quietly("fusermount3", &["-u", "-z"]);
        }
        if wait_for_end(&mut self.daemon).is_none() {
            let _ = self.daemon.kill();
            let _ = self.daemon.wait();
        }
    }
}

fn wait_for_end(daemon: &mut Child) -> Option<ExitStatus> {
    let started = Instant::now();
    while started.elapsed() < GONE_WITHIN {
        if let Ok(Some(status)) = daemon.try_wait() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    None
}

fn is_mounted(point: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let point = point.to_str().unwrap().replace(' ', "\\040");
    table.lines().any(|line| line.split(' ').nth(4) == Some(point.as_str()))
}

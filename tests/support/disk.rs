//! Filesystems of their own to keep stores on: small ones that fill up, ones that go read-only, ones that lose power. They
//! need root, and end with their guard.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::place::{is_mounted, is_root};
use super::skip;

/// A mounted filesystem.
pub struct Disk {
    point: PathBuf,
    folder: TempDir,
}

fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        return Err(format!("{program} {}: {complaint}", arguments.join(" ")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn run_or_fail(program: &str, arguments: &[&str]) {
    run(program, arguments).unwrap_or_else(|complaint| panic!("{complaint}"));
}

impl Disk {
    fn new(what: &str) -> Option<Disk> {
        if !is_root() {
            skip(what, "only root may mount", true);
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let point = folder.path().join("disk");
        fs::create_dir(&point).unwrap();
        Some(Disk { point, folder })
    }

    /// Mounts a disk in memory with these options (`size=64k`, `nr_inodes=20`).
    pub fn in_memory(options: &str, what: &str) -> Option<Disk> {
        let disk = Disk::new(what)?;
        run_or_fail("mount", &["-t", "tmpfs", "-o", options, "none", disk.text()]);
        Some(disk)
    }

    /// Returns a second view of a folder, which can be made read-only by itself.
    pub fn view(folder: &Path, what: &str) -> Option<Disk> {
        let disk = Disk::new(what)?;
        run_or_fail("mount", &["--bind", folder.to_str().unwrap(), disk.text()]);
        Some(disk)
    }

    /// Mounts `ext4` or `xfs` in a file behind a loop device. `None`, with a message, where the machine has neither.
    pub fn in_file(kind: &str, what: &str) -> Option<Disk> {
        let disk = Disk::new(what)?;
        let image = disk.image();
        File::create(&image).unwrap().set_len(320 << 20).unwrap();
        let made = run(&format!("mkfs.{kind}"), &["-q", image.to_str().unwrap()]);
        if let Err(complaint) = made.and_then(|_| disk.attach()) {
            skip(what, &complaint, true);
            return None;
        }
        Some(disk)
    }

    fn text(&self) -> &str {
        self.point.to_str().unwrap()
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    fn attach(&self) -> Result<(), String> {
        run("mount", &["-o", "loop", self.image().to_str().unwrap(), self.text()]).map(drop)
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.point
    }

    /// Changes its options.
    pub fn remount(&self, options: &str) {
        run_or_fail("mount", &["-o", &format!("remount,{options}"), self.text()]);
    }

    /// Gets to the disk what was written so far.
    pub fn sync(&self) {
        run_or_fail("sync", &["-f", self.text()]);
    }

    /// Cuts the power: nothing that is not on the disk yet gets there.
    pub fn cut_power(&self) {
        run_or_fail("xfs_io", &["-x", "-c", "shutdown", self.text()]);
    }

    /// Mounts what is on the disk after the power cut, when no program uses it any more.
    pub fn start_again(&self) {
        run_or_fail("umount", &[self.text()]);
        self.wait_until_gone();
        self.attach().unwrap_or_else(|complaint| panic!("{complaint}"));
    }
}

impl Disk {
    /// Waits until the filesystem has ended. A process that began a mount namespace of its own meanwhile has a copy of the mount, and with that
    /// the filesystem goes on without power: a new mount of the image would be the same one.
    fn wait_until_gone(&self) {
        let patience = Instant::now() + Duration::from_secs(60);
        while run("losetup", &["--associated", self.image().to_str().unwrap()])
            .is_ok_and(|found| !found.is_empty())
        {
            assert!(Instant::now() < patience, "another process keeps {} mounted", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if is_mounted(&self.point) {
            let _ = run("umount", &[self.text()]).or_else(|_| run("umount", &["-l", self.text()]));
        }
    }
}

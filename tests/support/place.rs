//! A store and a mount point in a folder of their own, for the tests of mounting and unmounting themselves.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant, UNIX_EPOCH};

use tempfile::TempDir;

use super::{say, skip};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_zarrfs");
/// Longer than anything here takes.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The first lines of a script that runs in a mount namespace of its own, in the folder of a [`Place`]: it lets go of the mounts
/// of other tests, which are below the same folder and would otherwise last as long as the namespace. What is entered in
/// /run/mount/utab, or removed, is not entered in the machine's.
pub const LEAVE_OTHER_MOUNTS: &str = r#"
if [ "$(id -u)" = 0 ]; then mount -t tmpfs tmpfs /run; fi
cut -d' ' -f5 /proc/self/mountinfo | grep "^$(dirname "$PWD")/" | while read -r other; do
    umount -i -c -l "$other" || true
done
"#;

/// Returns whether mounting is possible at all.
pub fn can_mount() -> bool {
    let can = fs::File::options().read(true).write(true).open("/dev/fuse").is_ok();
    if !can {
        skip("a test of mounting", "/dev/fuse cannot be opened", true);
    }
    can
}

pub fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

pub fn zarrfs(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// Returns what the program says on standard error, having failed with this exit code.
pub fn refusal(output: &Output, code: i32) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{text}");
    text
}

/// Puts the sample hierarchy into a folder that does not exist yet. The program writes it once for all tests of a build.
pub fn copy_demo(to: &Path) {
    static DEMO: OnceLock<PathBuf> = OnceLock::new();
    let demo = DEMO.get_or_init(|| {
        let built = fs::metadata(PROGRAM).unwrap().modified().unwrap().duration_since(UNIX_EPOCH).unwrap();
        let demos = Path::new(env!("CARGO_TARGET_TMPDIR")).join("demo");
        let demo = demos.join(format!("{}.zarr", built.as_nanos()));
        if !demo.exists() {
            let _ = fs::remove_dir_all(&demos);
            fs::create_dir_all(&demos).unwrap();
            let fresh = demos.join(format!("{}.fresh", std::process::id()));
            let made = zarrfs(&["demo", fresh.to_str().unwrap()]);
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
            // Another process may have made it meanwhile.
            if let Err(error) = fs::rename(&fresh, &demo) {
                assert!(demo.exists(), "{error}");
                fs::remove_dir_all(fresh).unwrap();
            }
        }
        demo
    });
    assert!(Command::new("cp").arg("-r").arg(demo).arg(to).status().unwrap().success());
}

/// A folder with a store and a mount point, unmounted in the end whatever happens.
pub struct Place {
    /// Holds the store, the mount point and whatever a test needs.
    pub folder: TempDir,
}

impl Drop for Place {
    fn drop(&mut self) {
        if is_mounted(&self.mountpoint()) {
            let mountpoint = self.mountpoint();
            let _ = Command::new(PROGRAM).arg("umount").arg("--force").arg(&mountpoint).output();
            if is_mounted(&mountpoint) {
                let _ = Command::new("fusermount3").arg("-uz").arg(&mountpoint).output();
            }
        }
    }
}

pub fn is_mounted(mountpoint: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.lines().any(|line| line.split(' ').nth(4) == mountpoint.to_str())
}

impl Place {
    /// Makes a place with an empty mount point and no store.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(folder.path().join("mnt")).unwrap();
        Place { folder }
    }

    /// Makes a place with the sample hierarchy.
    pub fn demo() -> Self {
        let place = Place::new();
        copy_demo(&place.store());
        place
    }

    /// Makes a place as [`Place::new`] does, for a test that mounts. `None` if mounting is impossible here, which is reported.
    pub fn mountable() -> Option<Self> {
        can_mount().then(Place::new)
    }

    /// Makes a place as [`Place::demo`] does, for a test that mounts. `None` if mounting is impossible here, which is reported.
    pub fn mountable_demo() -> Option<Self> {
        can_mount().then(Place::demo)
    }

    pub fn store(&self) -> PathBuf {
        self.folder.path().join("store.zarr")
    }

    pub fn mountpoint(&self) -> PathBuf {
        self.folder.path().join("mnt")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.mountpoint().join(name)
    }

    pub fn mount_command(&self, options: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.arg("mount").args(options).arg(self.store()).arg(self.mountpoint()).stdin(Stdio::null());
        command
    }

    pub fn mount(&self, options: &[&str]) {
        let output = self.mount_command(options).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Mounts in the foreground. Returns once the mount answers.
    pub fn mount_in_foreground(&self, options: &[&str]) -> Child {
        let mut options = options.to_vec();
        options.push("--foreground");
        let child = self.mount_command(&options).spawn().unwrap();
        wait_for(|| is_mounted(&self.mountpoint()) && fs::metadata(self.path("__zarrfs__/stats")).is_ok());
        child
    }

    pub fn umount(&self) -> Output {
        zarrfs(&["umount", self.mountpoint().to_str().unwrap()])
    }

    /// Copies the program into the folder. cp(1) does it: as long as a child of another test has a copy of the descriptor that
    /// wrote it, it cannot be run (ETXTBSY).
    pub fn copy_program(&self) {
        let copy = self.folder.path().join("zarrfs");
        assert!(Command::new("cp").arg(PROGRAM).arg(copy).status().unwrap().success());
    }

    pub fn put(&self, key: &str, content: impl AsRef<[u8]>) {
        let path = self.store().join(key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Returns what an array's bytes are without a mount.
    pub fn cat(&self, array: &str) -> Vec<u8> {
        let output = zarrfs(&["cat", self.store().to_str().unwrap(), array]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    pub fn daemon(&self) -> u32 {
        config(&self.mountpoint())["pid"].as_u64().unwrap().try_into().unwrap()
    }
}

/// Returns what a mount says of itself.
pub fn config(mountpoint: &Path) -> serde_json::Value {
    let path = mountpoint.join("__zarrfs__/config.json");
    let started = Instant::now();
    let text = loop {
        match fs::read_to_string(&path) {
            // Seen twice while daemons changed, and never when it was tried: the cause is unknown.
            Err(error) if error.raw_os_error() == Some(libc::ESTALE) && started.elapsed() < PATIENCE => {
                say(format!("{}: {error}", path.display()));
            }
            read => break read.unwrap(),
        }
    };
    serde_json::from_str(&text).unwrap()
}

pub fn wait_for(mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < PATIENCE, "it takes too long");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub fn is_running(pid: u32) -> bool {
    // A zombie has ended.
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    status.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

pub fn signal(pid: u32, name: &str) {
    assert!(Command::new("kill").args(["-s", name, &pid.to_string()]).status().unwrap().success());
}

pub fn array_document(rows: u64, fill: u8, data_type: &str) -> String {
    format!(
        r#"{{"zarr_format":3,"node_type":"array","shape":[{rows},1000],"data_type":"{data_type}","fill_value":{fill},
        "chunk_grid":{{"name":"regular","configuration":{{"chunk_shape":[10,1000]}}}},
        "chunk_key_encoding":{{"name":"default"}},"codecs":["bytes"],"attributes":{{}}}}"#
    )
}

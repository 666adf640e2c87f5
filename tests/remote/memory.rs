//! Memory while many large objects are on their way.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::scene::Scene;
use crate::support::misbehaving::Fault;
use crate::support::mounted::Mount;
use crate::support::say;

const CHUNK_BYTES: usize = 4 << 20;
const CACHE_MIB: u64 = 32;
/// What a daemon takes in addition to its cache: 64 MiB in any case, 64 MiB for transfers ahead of readers, and for each of the 64 requests
/// that are served at one time a chunk as it is stored (about 2.6 MiB here) and as it is decoded (4 MiB).
const ALLOWANCE_MIB: u64 = 64 + 64 + 64 * 7;
const FILES: usize = 500;
/// Requests for small chunks take little.
const SMALL_ALLOWANCE_MIB: u64 = 64 + 64 + 64;

/// Links the same array under other names.
fn link(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            link(&entry.path(), &to)
        } else {
            fs::hard_link(entry.path(), to).unwrap()
        }
    }
}

/// Reports and checks the most memory that the daemon has taken.
fn peak(mount: &Mount, what: &str, limit_mib: u64) {
    let peak = mount.memory_kb("VmHWM") / 1024;
    say(format!("{what}: the daemon took {peak} MiB at most, with a cache of {CACHE_MIB} MiB"));
    assert!(peak < CACHE_MIB + limit_mib, "{what}: {peak} MiB");
}

#[test]
fn many_large_objects() {
    let Some(scene) = Scene::new(&["large"], "memory") else { return };
    let cache = format!("{CACHE_MIB}M");
    let Some(mount) = scene.mount(&["--cache-size", &cache, "--tune", "request-deadline=60"], "memory")
    else {
        return;
    };
    for copy in 0..4 {
        link(&scene.path("large"), &scene.path(&format!("copy{copy}")));
    }
    let bytes = scene.bytes("large", 0);
    scene.service.misbehave(|asked| asked.is_chunk().then_some(Fault::Slow(Duration::from_millis(200))));
    thread::scope(|scope| {
        for reader in 0..64 {
            let (path, bytes) = (mount.path(&format!("copy{}", reader % 4)), &bytes);
            scope.spawn(move || {
                let file = File::open(path).unwrap();
                let mut buffer = vec![0; 4096];
                for step in 0..4 {
                    let offset = (reader / 4 + step) % 16 * CHUNK_BYTES + reader * 100;
                    file.read_exact_at(&mut buffer, offset as u64).unwrap();
                    assert!(buffer == bytes[offset..offset + 4096], "wrong bytes at {offset}");
                }
            });
        }
    });
    scene.service.be_well();
    say(scene.service.counts());
    peak(&mount, "64 readers of chunks of 4 MiB", ALLOWANCE_MIB);
    mount.unmount();
}

#[test]
#[ignore = "full: a campaign of readers"]
fn many_files_in_order() {
    let Some(scene) = Scene::new(&["zstd"], "memory") else { return };
    for copy in 0..FILES {
        link(&scene.path("zstd"), &scene.path(&format!("copy{copy}")));
    }
    let cache = format!("{CACHE_MIB}M");
    let Some(mount) = scene.mount(&["--cache-size", &cache, "--tune", "request-deadline=60"], "memory")
    else {
        return;
    };
    let bytes = scene.bytes("zstd", 0);
    thread::scope(|scope| {
        for reader in 0..FILES {
            let (path, bytes) = (mount.path(&format!("copy{reader}")), &bytes);
            scope.spawn(move || {
                let file = File::open(path).unwrap();
                let mut buffer = vec![0; 256 << 10];
                for offset in (0..bytes.len() / 2).step_by(buffer.len()) {
                    file.read_exact_at(&mut buffer, offset as u64).unwrap();
                    assert!(buffer == bytes[offset..offset + buffer.len()], "wrong bytes at {offset}");
                }
            });
        }
    });
    say(scene.service.counts());
    peak(&mount, &format!("{FILES} files in order"), SMALL_ALLOWANCE_MIB);
    mount.unmount();
}

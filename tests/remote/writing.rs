//! Writing to a service that misbehaves: what fsync(2) has acknowledged is in the store, whatever happens afterwards.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use crate::scene::{HANG, SHORT_DEADLINE, Scene};
use crate::support::misbehaving::{Asked, Fault};
use crate::support::mounted::Mount;
use crate::support::{Numbers, level, say};

const NAMES: [&str; 3] = ["raw", "zstd", "raw_shards"];
const CHUNK_BYTES: u64 = 512 << 10;
/// Longer than a program takes to write a chunk again.
const LATE: Duration = Duration::from_millis(1000);

fn rounds() -> u32 {
    level::pick(2, 3)
}

/// A file that is written, and the bytes that it must have.
struct Written {
    file: File,
    bytes: Vec<u8>,
}

fn open(mount: &Mount, scene: &Scene) -> BTreeMap<&'static str, Written> {
    let open = |name| File::options().read(true).write(true).open(mount.path(name)).unwrap();
    NAMES.map(|name| (name, Written { file: open(name), bytes: scene.bytes(name, 0) })).into()
}

impl Written {
    /// Writes somewhere: all of a chunk, or a few bytes.
    fn write(&mut self, numbers: &mut Numbers) {
        let size = self.bytes.len() as u64;
        let (offset, length) = match numbers.below(2) {
            0 => (numbers.below(size / CHUNK_BYTES) * CHUNK_BYTES, CHUNK_BYTES),
            _ => (numbers.below(size - 5000), numbers.below(5000) + 1),
        };
        let value = numbers.next() as u8;
        let bytes = &mut self.bytes[offset as usize..(offset + length) as usize];
        bytes.fill(value);
        self.file.write_all_at(bytes, offset).unwrap();
    }

    /// Returns whether the service has it all, as far as fsync(2) knows.
    fn is_acknowledged(&self) -> bool {
        let started = Instant::now();
        let result = self.file.sync_all();
        assert!(started.elapsed() < HANG, "fsync took {:?}", started.elapsed());
        result.is_ok()
    }
}

/// Returns a rule that hits `percent` of the puts of chunks.
fn some(
    percent: u64,
    mut fault: impl FnMut(u64) -> Fault + Send,
) -> impl FnMut(&Asked) -> Option<Fault> + Send {
    let mut numbers = Numbers(percent);
    move |asked| {
        let is_hit = asked.method == "PUT" && asked.is_chunk() && numbers.below(100) < percent;
        is_hit.then(|| fault(numbers.next() >> 8))
    }
}

fn compare(scene: &Scene, names: &[&str], expected: &[&[u8]], what: &str) {
    for ((name, expected), stored) in names.iter().zip(expected).zip(scene.stored(names)) {
        let lost: Vec<usize> =
            (0..expected.len()).filter(|&place| stored[place] != expected[place]).collect();
        assert!(lost.is_empty(), "{what}: {name}: {} bytes are lost, the first at {}", lost.len(), lost[0]);
    }
}

fn compare_all(scene: &Scene, files: &BTreeMap<&'static str, Written>, what: &str) {
    let names: Vec<&str> = files.keys().copied().collect();
    let expected: Vec<&[u8]> = files.values().map(|written| written.bytes.as_slice()).collect();
    compare(scene, &names, &expected, what);
}

fn phase(
    scene: &Scene,
    files: &mut BTreeMap<&'static str, Written>,
    what: &str,
    rule: impl FnMut(&Asked) -> Option<Fault> + Send + 'static,
) {
    scene.service.misbehave(rule);
    let (mut acknowledged, mut refused) = (0, 0);
    let mut numbers = Numbers(what.len() as u64);
    for _ in 0..rounds() {
        for written in files.values_mut() {
            written.write(&mut numbers);
            if written.is_acknowledged() { acknowledged += 1 } else { refused += 1 }
        }
    }
    scene.service.be_well();
    // A long body may be on its way for as long as a slow link needs for it.
    scene.service.hang_up();
    scene.service.settle();
    let started = Instant::now();
    for written in files.values() {
        while !written.is_acknowledged() {
            assert!(started.elapsed() < HANG, "{what}: nothing is stored any more");
        }
    }
    let counts = scene.service.counts();
    say(format!("{what}: {acknowledged} fsyncs acknowledged, {refused} not; in all {counts}"));
    compare_all(scene, files, what);
}

#[test]
fn what_is_acknowledged_is_stored() {
    let Some(scene) = Scene::new(&NAMES, "acknowledged writes") else { return };
    let options = ["--writable", "--cache-size", "16M", "--log-level", "error"];
    let options = [&options[..], &SHORT_DEADLINE].concat();
    let Some(mount) = scene.mount(&options, "acknowledged writes") else { return };
    let mut files = open(&mount, &scene);
    if level::is_full() {
        phase(&scene, &mut files, "busy", some(40, |_| Fault::Status(503, "SlowDown", Some(1))));
        phase(&scene, &mut files, "no reply", some(20, |_| Fault::NoReply));
    }
    phase(&scene, &mut files, "resets", some(40, |_| Fault::NoHead));
    phase(&scene, &mut files, "lost replies", some(40, |_| Fault::LostReply));
    phase(&scene, &mut files, "412", some(40, |_| Fault::Status(412, "PreconditionFailed", None)));
    phase(&scene, &mut files, "expired", some(40, |_| Fault::Status(403, "ExpiredToken", None)));
    phase(
        &scene,
        &mut files,
        "late",
        some(60, |number| match number % 3 {
            0 => Fault::LostReply,
            _ => Fault::Late(LATE),
        }),
    );
    // Here nothing may come after the acknowledgement but what is late.
    scene.service.misbehave(some(50, |number| match number % 4 {
        0 => Fault::LostReply,
        1 => Fault::NoHead,
        _ => Fault::Late(LATE),
    }));
    let mut numbers = Numbers(7);
    for written in files.values_mut() {
        for _ in 0..3 {
            written.write(&mut numbers);
        }
        let started = Instant::now();
        while !written.is_acknowledged() {
            assert!(started.elapsed() < HANG, "nothing is acknowledged");
        }
    }
    mount.kill();
    scene.service.settle();
    compare_all(&scene, &files, "killed");
}

/// A put that the service carries out after a later one does not replace what that one put.
#[test]
fn a_late_put_replaces_nothing() {
    let Some(scene) = Scene::new(&["raw"], "late puts") else { return };
    let Some(mount) = scene.mount(&[&["--writable"], &SHORT_DEADLINE[..]].concat(), "late puts") else {
        return;
    };
    let file = File::options().read(true).write(true).open(mount.path("raw")).unwrap();
    let mut is_first = true;
    scene.service.misbehave(move |asked| {
        let is_hit = asked.method == "PUT" && asked.is_chunk() && std::mem::take(&mut is_first);
        is_hit.then_some(Fault::Late(LATE))
    });
    let mut expected = scene.bytes("raw", 0);
    for value in [1, 2] {
        // All of a chunk, so that nothing of it has to be read.
        expected[..CHUNK_BYTES as usize].fill(value);
        file.write_all_at(&expected[..CHUNK_BYTES as usize], 0).unwrap();
        let _ = file.sync_all();
    }
    file.sync_all().unwrap();
    scene.service.settle();
    compare(&scene, &["raw"], &[&expected], "late puts");
    drop(file);
    mount.unmount();
}

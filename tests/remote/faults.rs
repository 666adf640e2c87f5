//! Services that misbehave: every read returns the right bytes or an error in time, and all is well once the service is.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crate::scene::{Expected, SHORT_DEADLINE, Scene, read_all, recovers};
use crate::support::misbehaving::{Asked, Fault};
use crate::support::mounted::Mount;
use crate::support::{Numbers, level, say};

const NAMES: [&str; 4] = ["raw", "zstd", "shards", "raw_shards"];
/// Returns how long readers are left with a service that misbehaves.
fn phase_time() -> Duration {
    level::pick(Duration::from_millis(700), Duration::from_secs(2))
}
const SMALL_CACHE: [&str; 2] = ["--cache-size", "2M"];

/// Returns a scene with a mount of it.
fn scene(what: &str) -> Option<(Scene, Mount, Expected)> {
    let scene = Scene::new(&NAMES, what)?;
    let mount = scene.mount(&[SMALL_CACHE, SHORT_DEADLINE].concat(), what)?;
    let expected = NAMES.map(|name| (name.to_owned(), scene.bytes(name, 0))).into();
    Some((scene, mount, expected))
}

/// Returns a rule that hits `percent` of the requests for chunks.
fn some(
    percent: u64,
    mut fault: impl FnMut(u64) -> Fault + Send,
) -> impl FnMut(&Asked) -> Option<Fault> + Send {
    let mut numbers = Numbers(percent);
    move |asked| (asked.is_chunk() && numbers.below(100) < percent).then(|| fault(numbers.next() >> 8))
}

fn phase(
    (scene, mount, expected): &(Scene, Mount, Expected),
    what: &str,
    rule: impl FnMut(&Asked) -> Option<Fault> + Send + 'static,
) {
    scene.service.renew();
    scene.service.misbehave(rule);
    let tally = read_all(mount, expected, phase_time());
    scene.report(what, tally);
    scene.service.be_well();
    scene.service.renew();
    let recovered = recovers(mount, expected);
    say(format!("{what}: all is well again after {recovered:.1?}"));
}

#[test]
#[ignore = "full: waits for many deadlines"]
fn busy_services() {
    let Some(all) = scene("busy services") else { return };
    phase(
        &all,
        "503 and 429",
        some(40, |number| match number % 4 {
            0 => Fault::Status(503, "SlowDown", None),
            1 => Fault::Status(503, "SlowDown", Some(1)),
            2 => Fault::Status(429, "TooManyRequests", None),
            _ => Fault::Status(429, "TooManyRequests", Some(30)),
        }),
    );
    let mut count = 0;
    phase(&all, "bursts of 503", move |asked| {
        count += 1;
        (asked.is_chunk() && count % 60 < 30).then_some(Fault::Status(503, "SlowDown", Some(1)))
    });
    phase(&all, "nothing but 503", |asked| asked.is_chunk().then_some(Fault::Status(503, "SlowDown", None)));
    all.1.unmount();
}

#[test]
fn broken_connections() {
    let Some(all) = scene("broken connections") else { return };
    phase(
        &all,
        "30 % resets",
        some(30, |number| match number % 3 {
            0 => Fault::NoHead,
            1 => Fault::Cut(0.0),
            _ => Fault::Cut((number % 100) as f64 / 100.0),
        }),
    );
    if level::is_full() {
        phase(&all, "nothing but resets", some(100, |_| Fault::Cut(0.5)));
    }
    phase(&all, "short bodies", some(30, |_| Fault::ShortLength));
    phase(
        &all,
        "long bodies",
        some(50, |number| if number % 2 == 0 { Fault::LongBody } else { Fault::LongChunked }),
    );
    all.1.unmount();
}

#[test]
#[ignore = "full: waits for many deadlines"]
fn slow_bodies() {
    let Some(all) = scene("slow bodies") else { return };
    phase(&all, "30 % silent", some(30, |_| Fault::Silence));
    phase(&all, "30 % without reply", some(30, |_| Fault::NoReply));
    phase(&all, "30 % drips", some(30, |_| Fault::Drip));
    phase(&all, "nothing but drips", some(100, |_| Fault::Drip));
    all.1.unmount();
}

#[test]
fn a_service_that_dies_and_comes_back() {
    let Some(all) = scene("a dead service") else { return };
    let (scene, mount, expected) = &all;
    recovers(mount, expected);
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(300));
            scene.service.die();
        });
        scene.service.renew();
        scene.report("a dead service", read_all(mount, expected, 2 * phase_time()));
    });
    scene.service.come_back();
    recovers(mount, expected);
    let mut count = 0;
    if !level::is_full() {
        return all.1.unmount();
    }
    phase(&all, "credentials that expire", move |asked| {
        count += 1;
        let code = if count % 2 == 0 { (403, "ExpiredToken") } else { (401, "ExpiredTokenException") };
        (asked.is_chunk() && count > 40).then_some(Fault::Status(code.0, code.1, None))
    });
    all.1.unmount();
}

/// The bug: the look of the command at the mount got no answer and kept the mount busy, which was laid to a program of another user.
#[test]
fn a_mount_of_a_dead_service_can_be_unmounted() {
    let Some(scene) = Scene::new(&["raw"], "a dead service") else { return };
    // Longer than the command waits.
    let options = ["--tune", "request-deadline=8"];
    let Some(mount) = scene.mount(&options, "a dead service") else { return };
    scene.service.die();
    let output = mount.umount(&[]);
    let sentence = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !mount.is_mounted(), "{sentence}");
    assert!(sentence.contains("is detached; its daemon does not respond now"), "{sentence}");
}

/// What leads into a mount, and what is said about it, does not wait for its service.
#[test]
fn the_reports_of_a_mount_of_a_dead_service_are_there() {
    let Some(scene) = Scene::new(&["raw"], "a dead service") else { return };
    let options = ["--revalidate", "1", "--tune", "request-deadline=60"];
    let Some(mount) = scene.mount(&options, "a dead service") else { return };
    scene.service.die();
    // What the kernel knows of the root expires.
    thread::sleep(Duration::from_millis(1100));
    let before = Instant::now();
    assert!(fs::metadata(mount.point()).unwrap().is_dir());
    assert!(fs::read_to_string(mount.path("__zarrfs__/stats")).unwrap().contains("zarrfs_"));
    let output = mount.umount(&[]);
    let sentence = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && sentence.is_empty() && !mount.is_mounted(), "{sentence}");
    assert!(before.elapsed() < Duration::from_secs(60), "it waits for the service");
}

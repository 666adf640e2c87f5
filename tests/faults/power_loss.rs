//! The power fails while programs write, on ext4 and on xfs: what fsync(2) acknowledged is on the disk, and no object that was safe
//! is torn or empty. (xfs emptied 200 of 200 objects that were renamed into place before their data were on the disk.)
//!
//! Needs root, loop devices, and xfsprogs for the shutdown ioctl. `ZARRFS_POWER_CUTS=20` is a long run.

use std::time::Duration;

use crate::support::disk::Disk;
use crate::support::faulty::{Faults, Operation, SKIP};
use crate::support::manifest::{Habits, Life, Work, write_pieces};
use crate::support::mounted::Mount;
use crate::support::scene::{AS_STORED, Scene};
use crate::support::{Numbers, say};
use crate::support::{level, own_process};

pub fn cuts() -> u64 {
    level::count("ZARRFS_POWER_CUTS", 1, 3)
}

/// Lets all programs write until the power fails.
pub fn live_until_the_power_fails(
    scene: &mut Scene,
    disk: &Disk,
    faults: &Faults,
    numbers: &mut Numbers,
) -> Option<Work> {
    let environment = faults.environment();
    let mount = Mount::with_environment(scene.store(), scene.options, &environment, "a power cut")?;
    let fills: Vec<Vec<u8>> = scene.kinds.iter().map(|kind| scene.fill_of(kind)).collect();
    // xfs lets fsync(2) of a folder succeed after it was shut down, when no program would run any more in a true power cut.
    let life = Life::default();
    let work = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for ((kind, regions), fill) in scene.kinds.iter().zip(&mut scene.regions).zip(&fills) {
            for region in regions {
                let (path, mut own, life) = (mount.path(kind.name), Numbers(numbers.next()), &life);
                threads.push(scope.spawn(move || {
                    let truncates = kind.name == "nofill";
                    let habits = Habits { writes: u64::MAX, sync_every: 5, fill, truncates, life };
                    write_pieces(&path, region, &habits, &mut own)
                }));
            }
        }
        life.last(Duration::from_millis(100 + numbers.below(700)));
        life.end();
        disk.cut_power();
        let mut work = Work::default();
        threads.into_iter().for_each(|thread| work += thread.join().unwrap());
        work
    });
    mount.kill();
    disk.start_again();
    Some(work)
}

/// Writes once to each array and syncs it, and does nothing else that would get anything to the disk.
fn live_quietly(scene: &mut Scene, disk: &Disk, faults: &Faults, numbers: &mut Numbers) -> Option<Work> {
    let environment = faults.environment();
    let mount = Mount::with_environment(scene.store(), scene.options, &environment, "a power cut")?;
    let mut work = Work::default();
    for (kind, regions) in scene.kinds.iter().zip(&mut scene.regions) {
        let habits =
            Habits { writes: 1, sync_every: 1, fill: &[1], truncates: false, life: &Life::default() };
        work += write_pieces(&mount.path(kind.name), &mut regions[0], &habits, numbers);
    }
    disk.cut_power();
    mount.kill();
    disk.start_again();
    Some(work)
}

/// Returns an empty store on a new disk.
fn prepared(kind: &str) -> Option<(Disk, Faults, Scene)> {
    let disk = Disk::in_file(kind, "a power cut")?;
    let scene = Scene::at(&disk.path().join("store.zarr"), AS_STORED, 2);
    // This test does not look at the documents.
    disk.sync();
    let faults = Faults::new(scene.store(), "a power cut")?;
    Some((disk, faults, scene))
}

fn lose_power_on(kind: &'static str) {
    let Some((disk, faults, mut scene)) = prepared(kind) else { return };
    let mut numbers = Numbers(kind.len() as u64);
    let mut work = Work::default();
    for cut in 0..cuts() {
        let Some(done) = live_until_the_power_fails(&mut scene, &disk, &faults, &mut numbers) else { return };
        work += done;
        if scene.check(&format!("{kind}, power cut {cut}")).is_none() {
            return;
        }
    }
    let Some(quiet) = live_quietly(&mut scene, &disk, &faults, &mut numbers) else { return };
    assert_eq!(quiet.syncs, scene.kinds.len() as u64);
    scene.check(&format!("{kind}, after one write each"));
    scene.compare_with_python("the store after power cuts");
    say(format!(
        "power loss: {} cuts on {kind}, {} writes, {} acknowledged syncs of {} bytes, {} unfinished files found",
        cuts(),
        work.writes,
        work.syncs,
        work.bytes,
        scene.leftovers
    ));
    assert!(work.syncs > cuts() && work.bytes > 0, "nothing was acknowledged, so nothing was tried");
}

#[test]
#[ignore = "full: the same on another file system"]
fn on_ext4() {
    if own_process::has_run() {
        return;
    }
    lose_power_on("ext4");
}

#[test]
fn on_xfs() {
    if own_process::has_run() {
        return;
    }
    lose_power_on("xfs");
}

/// Shows that these tests find what they look for: what is not synced is lost.
#[test]
#[ignore = "full: a test of the test"]
fn without_syncing_it_would_be_lost() {
    if own_process::has_run() {
        return;
    }
    let noise: fn(&mut Scene, &Disk, &Faults, &mut Numbers) -> Option<Work> = live_until_the_power_fails;
    for (operation, life) in [(Operation::Fdatasync, noise), (Operation::Fsync, live_quietly)] {
        let mut found = None;
        for attempt in 0..8 {
            let Some((disk, faults, mut scene)) = prepared("xfs") else { return };
            faults.arm(operation, SKIP, 1, u32::MAX);
            let Some(_) = life(&mut scene, &disk, &faults, &mut Numbers(attempt)) else { return };
            match scene.examine() {
                Some(Err(sentence)) => {
                    found = Some(sentence);
                    break;
                }
                Some(Ok(())) => {}
                None => return,
            }
        }
        let sentence = found.unwrap_or_else(|| panic!("nothing was lost without {operation:?}"));
        say(format!("power loss: without {operation:?}: {}", sentence.lines().next().unwrap_or("")));
    }
}

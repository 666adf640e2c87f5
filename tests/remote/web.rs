//! Web servers as they are: without lengths, with compression, without HEAD or ranges, and several hosts behind one name. Every read
//! returns the right bytes, and none is an error.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::scene::{Expected, SHORT_DEADLINE, Scene, age, read_all, recovers};
use crate::support::misbehaving::{Asked, Fault};
use crate::support::{Numbers, level};

/// Ranges of chunks, whole chunks, and inner chunks of a shard.
const ALL: [&str; 3] = ["raw", "zstd", "shards"];
/// For servers that send all of an object whatever was asked for: that of small ones.
const SMALL: [&str; 2] = ["raw", "zstd"];
/// The chunks do not fit, so each way of reading asks the server.
const SMALL_CACHE: [&str; 2] = ["--cache-size", "2M"];

/// Returns sharded arrays: index and chunks must come from one host.
fn sharded() -> &'static [&'static str] {
    level::pick(&["shards"], &["shards", "raw_shards"])
}

/// Reads arrays from a web server with this rule, and once more after open(2) has compared what was read.
fn is_read(what: &str, names: &[&str], rule: impl FnMut(&Asked) -> Option<Fault> + Send + 'static) {
    let Some(scene) = Scene::new(names, what) else { return };
    scene.service.misbehave(rule);
    let Some(mount) = scene.mount_web(&SMALL_CACHE, what) else { return };
    let expected: Expected = names.iter().map(|name| ((*name).to_owned(), scene.bytes(name, 0))).collect();
    for _ in 0..2 {
        let tally = read_all(&mount, &expected, crate::scene::HANG);
        scene.report(what, tally);
        let last_error = std::fs::read_to_string(mount.path("__zarrfs__/last_error")).unwrap_or_default();
        assert_eq!(tally.errors, 0, "{what}: {last_error}");
    }
    mount.unmount();
}

fn is_get(asked: &Asked) -> bool {
    asked.method == "GET" && !asked.is_listing
}

#[test]
fn bodies_without_a_length() {
    is_read("chunked", &ALL, |asked| is_get(asked).then_some(Fault::Chunked));
}

#[test]
fn bodies_that_are_compressed_unasked() {
    is_read("compressed", &SMALL, |asked| is_get(asked).then_some(Fault::Compressed));
}

#[test]
fn ranges_of_what_is_compressed() {
    is_read("ranges of what is compressed", &SMALL, |asked| is_get(asked).then_some(Fault::CompressedRange));
}

#[test]
fn ranges_without_a_total() {
    is_read("no totals", &ALL, |asked| is_get(asked).then_some(Fault::NoTotal));
}

#[test]
fn servers_without_ranges() {
    is_read("no ranges", &SMALL, |asked| is_get(asked).then_some(Fault::NoRanges));
}

#[test]
fn servers_without_head() {
    for status in [405, 501, 403] {
        let heads = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&heads);
        is_read(&format!("HEAD is {status}"), &SMALL, move |asked| {
            let is_head = asked.method == "HEAD";
            counted.fetch_add(u64::from(is_head), Ordering::Relaxed);
            is_head.then_some(Fault::Status(status, "", None))
        });
        // Those that were under way when the first was refused.
        assert!(heads.load(Ordering::Relaxed) <= 64, "{status}: {heads:?} requests that are always refused");
    }
}

/// The bug: the body was read as the reply to the next request of its connection, which failed with EIO at once.
#[test]
fn replies_to_head_with_a_body() {
    is_read("HEAD with a body", &SMALL, |asked| (asked.method == "HEAD").then_some(Fault::HeadWithBody));
}

#[test]
fn hosts_behind_one_name_that_take_turns() {
    let mut numbers = Numbers(7);
    is_read("hosts that take turns", sharded(), move |_| (numbers.below(2) == 0).then_some(Fault::OtherHost));
}

#[test]
fn hosts_behind_one_name_that_keep_connections() {
    is_read("a host for each connection", sharded(), |asked| {
        asked.connection.is_multiple_of(2).then_some(Fault::OtherHost)
    });
}

/// The bug: every object was another one at each reply, so that each read was stale.
#[test]
fn another_etag_for_each_reply() {
    for fault in [Fault::NewTag, Fault::NewTagUnconditionally] {
        let what = format!("{fault:?}");
        let Some(scene) = Scene::new(&ALL, &what) else { return };
        scene.service.tags(false);
        age(&scene.path(""));
        scene.service.misbehave(move |asked| (!asked.is_listing).then(|| fault.clone()));
        let Some(mount) = scene.mount_web(&SMALL_CACHE, &what) else { return };
        let version = |number| -> Expected {
            ALL.iter().map(|name| ((*name).to_owned(), scene.bytes(name, number))).collect()
        };
        for _ in 0..2 {
            let tally = read_all(&mount, &version(0), crate::scene::HANG);
            scene.report(&what, tally);
            assert_eq!(tally.errors, 0, "{what}: {}", mount.log());
        }
        assert_eq!(mount.log().matches("gives each reply another ETag").count(), 1, "{}", mount.log());
        // What is left distinguishes versions.
        scene.make(1, &ALL);
        recovers(&mount, &version(1));
        mount.unmount();
    }
}

/// The bug: each range cost a transfer of the whole object.
#[test]
fn lengths_known_only_from_the_whole_object() {
    let Some(scene) = Scene::new(&["shards"], "no lengths") else { return };
    let expected: Expected = [("shards".to_owned(), scene.bytes("shards", 0))].into();
    scene.service.misbehave(|asked| asked.is_chunk().then_some(Fault::NoLength));
    let what = "no lengths";
    let Some(mount) = scene.mount_web(&SMALL_CACHE, what) else { return };
    for _ in 0..2 {
        let tally = read_all(&mount, &expected, crate::scene::HANG);
        scene.report(what, tally);
        assert_eq!(tally.errors, 0, "{}", mount.log());
    }
    let wholes = scene.service.count("GET of all");
    // One by HEAD at the open, and one by the first of several ranges at once.
    assert!(wholes <= 3, "{wholes} transfers of the shard: {}", scene.service.counts());
    mount.unmount();
}

#[test]
fn short_bodies_without_ranges_are_tried_again() {
    let Some(scene) = Scene::new(&SMALL, "short bodies") else { return };
    let expected: Expected = SMALL.map(|name| (name.to_owned(), scene.bytes(name, 0))).into();
    let mut numbers = Numbers(3);
    scene.service.misbehave(move |asked| match numbers.below(3) {
        _ if !is_get(asked) => None,
        0 if asked.is_chunk() => Some(Fault::CutWithoutRanges(0.6)),
        _ => Some(Fault::NoRanges),
    });
    let Some(mount) = scene.mount_web(&SMALL_CACHE, "short bodies") else { return };
    let tally = read_all(&mount, &expected, crate::scene::HANG);
    scene.report("short bodies", tally);
    assert_eq!(tally.errors, 0, "{}", mount.log());
    mount.unmount();
    // A body that is always short is EIO, after several attempts.
    let Some(mount) = scene.mount_web(&[SMALL_CACHE, SHORT_DEADLINE].concat(), "short bodies") else {
        return;
    };
    scene.service.misbehave(|asked| {
        let fault = if asked.is_chunk() { Fault::CutWithoutRanges(0.6) } else { Fault::NoRanges };
        is_get(asked).then_some(fault)
    });
    let before = scene.service.count("GET");
    let error = std::fs::read(mount.path("zstd")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO), "{error}");
    assert!(scene.service.count("GET") > before + 5, "{}", scene.service.counts());
    scene.service.be_well();
    recovers(&mount, &expected);
    mount.unmount();
}

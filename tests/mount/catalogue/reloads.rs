//! Members that come, change and leave while programs use them.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{COLUMNS, Host, ROWS_OF_CHUNK, SECONDS, errno, state_of};
use crate::support::level;
use crate::support::mounted::Mount;
use crate::support::place::{signal, wait_for};

#[test]
fn reloads_leave_the_other_members_alone() {
    let host = Host::new();
    for (number, name) in ["stays", "comes", "other"].iter().enumerate() {
        host.store(&format!("{name}.zarr"), 10 + number as u8, 200);
    }
    let base = [("stays", host.at("stays.zarr")), ("kept", host.at("stays.zarr") + "\nwritable = true")];
    host.define(&base);
    let options = ["--direct-io", "--cache-size", "4M", "-o", "revalidate=0"];
    let Some(mount) = Mount::new(&host.catalogue(), &options, "a catalogue that changes") else { return };
    let (is_over, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let open = File::open(mount.path("stays/g/a")).unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    let mut bytes = vec![0; 200_000];
                    open.read_exact_at(&mut bytes, 0).unwrap();
                    assert!(bytes.iter().all(|byte| *byte == 10));
                    let again = fs::read(mount.path("kept/g/a")).unwrap();
                    assert!(again.len() == 200_000 && again.iter().all(|byte| *byte == 10));
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for round in 0..level::pick(10, 100) {
            let mut members = base.to_vec();
            match round % 4 {
                0 => members.push(("new", host.at("comes.zarr"))),
                1 => members.push(("new", host.at("other.zarr"))),
                2 => members.push(("broken", host.at("none.zarr"))),
                _ => {}
            }
            host.define(&members);
            signal(mount.pid(), "HUP");
            match round % 4 {
                0 | 1 => {
                    let expected = 11 + round as u8 % 4;
                    wait_for(|| {
                        fs::read(mount.path("new/g/a"))
                            .is_ok_and(|read| read.len() == 200_000 && read[0] == expected)
                    });
                    let read = fs::read(mount.path("new/g/a")).unwrap();
                    assert!(read.iter().all(|byte| *byte == expected));
                }
                2 => {
                    wait_for(|| state_of(mount.point(), "broken") == "failed" && !mount.path("new").exists())
                }
                _ => wait_for(|| !mount.path("broken").exists()),
            }
            let before = rounds.load(Ordering::Relaxed);
            wait_for(|| rounds.load(Ordering::Relaxed) > before);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    mount.unmount();
}

#[test]
fn a_member_that_leaves_is_stored_and_its_open_files_are_stale() {
    let host = Host::new();
    host.store("a.zarr", 1, 20);
    host.store("b.zarr", 1, 20);
    let writable = |name: &str| host.at(name) + "\nwritable = true";
    host.define(&[("a", writable("a.zarr")), ("b", writable("b.zarr"))]);
    let Some(mount) = Mount::new(&host.catalogue(), SECONDS, "a member that leaves") else { return };
    let open = |name: &str| File::options().read(true).write(true).open(mount.path(name)).unwrap();
    let (leaves, changes) = (open("a/g/a"), open("b/g/a"));
    leaves.write_all_at(&[5; 100], 0).unwrap();
    changes.write_all_at(&[6; 100], 0).unwrap();
    // The same array in another store is another array.
    host.store("c.zarr", 9, 20);
    host.define(&[("b", writable("c.zarr"))]);
    signal(mount.pid(), "HUP");
    wait_for(|| !mount.path("a").exists() && fs::read(mount.path("b/g/a")).is_ok_and(|read| read[0] == 9));
    let mut bytes = [0; 10];
    for file in [&leaves, &changes] {
        assert_eq!(errno(file.read_at(&mut bytes, 0)), libc::ESTALE);
        assert_eq!(errno(file.write_at(&bytes, 0)), libc::ESTALE);
    }
    assert_eq!(fs::read(host.path("a.zarr/g/a/c/0/0")).unwrap()[..100], [5; 100]);
    assert_eq!(fs::read(host.path("b.zarr/g/a/c/0/0")).unwrap()[..100], [6; 100]);
    assert_eq!(fs::read(host.path("c.zarr/g/a/c/0/0")).unwrap()[..100], [9; 100]);
    // A catalogue that cannot be read changes nothing.
    fs::write(host.catalogue(), "[b\n").unwrap();
    signal(mount.pid(), "HUP");
    wait_for(|| mount.log().contains("host.toml:1:"));
    assert_eq!(fs::read(mount.path("b/g/a")).unwrap()[0], 9);
    drop((leaves, changes));
    mount.unmount();
}

/// The files of before had the locks of the arrays, so that nobody could write until they were closed.
#[test]
fn files_of_before_keep_nobody_from_writing_to_a_member_with_other_options() {
    let host = Host::new();
    host.store("a.zarr", 1, 20);
    host.store("b.zarr", 1, 20);
    let overlay = format!("\nwritable = true\noverlay = {:?}", host.path("changes"));
    let define = |seconds: u32| {
        let tune = format!("\ntune = \"request-deadline={seconds}\"");
        let plain = host.at("a.zarr") + "\nwritable = true" + &tune;
        host.define(&[("plain", plain), ("over", host.at("b.zarr") + &overlay + &tune)]);
    };
    define(60);
    let Some(mount) = Mount::new(&host.catalogue(), SECONDS, "a member with other options") else { return };
    let open = |name: &str| File::options().write(true).open(mount.path(&format!("{name}/g/a")));
    let former = ["plain", "over"].map(|name| open(name).unwrap());
    former.iter().for_each(|file| file.write_all_at(&[5; 100], 0).unwrap());
    define(61);
    signal(mount.pid(), "HUP");
    for (name, file) in ["plain", "over"].iter().zip(&former) {
        wait_for(|| {
            file.write_at(&[6; 10], 0).is_err_and(|error| error.raw_os_error() == Some(libc::ESTALE))
        });
        wait_for(|| state_of(mount.point(), name) == "open");
        let now = open(name).unwrap_or_else(|error| panic!("{name}: {error}: {}", mount.log()));
        now.write_all_at(&[7; 10], 0).unwrap();
        now.sync_all().unwrap();
        let read = fs::read(mount.path(&format!("{name}/g/a"))).unwrap();
        assert_eq!((&read[..10], &read[10..100]), (&[7; 10][..], &[5; 90][..]), "{name}");
    }
    drop(former);
    mount.unmount();
}

/// What a program has written when its member leaves is in the store, up to the write that fails, however often the member comes and goes.
#[test]
fn writers_of_a_member_that_comes_and_goes_lose_nothing() {
    let host = Host::new();
    host.store("a.zarr", 1, 1000);
    let member = |round: u64| {
        ("a", format!("{}\nwritable = true\ntune = \"request-deadline={}\"", host.at("a.zarr"), 60 + round))
    };
    host.define(&[member(0)]);
    let Some(mount) = Mount::new(&host.catalogue(), SECONDS, "a member that comes and goes") else { return };
    let (is_over, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    let rows = ROWS_OF_CHUNK * 10;
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|writer: u64| {
                let (mount, is_over, rounds) = (&mount, &is_over, &rounds);
                scope.spawn(move || {
                    // Each has rows of its own. The last value that write(2) took of each row.
                    let mut taken = vec![1; rows as usize];
                    let mut value = 1;
                    while !is_over.load(Ordering::Relaxed) {
                        let Ok(open) = File::options().write(true).open(mount.path("a/g/a")) else {
                            continue;
                        };
                        value = value % 250 + 1;
                        for row in 0..rows {
                            let at = (writer * rows + row) * COLUMNS;
                            if open.write_all_at(&[value; COLUMNS as usize], at).is_err() {
                                break;
                            }
                            taken[row as usize] = value;
                        }
                        rounds.fetch_add(1, Ordering::Relaxed);
                    }
                    taken
                })
            })
            .collect();
        for round in 1..level::pick(8, 100) {
            let before = rounds.load(Ordering::Relaxed);
            host.define(&if round % 3 == 0 { vec![] } else { vec![member(round)] });
            signal(mount.pid(), "HUP");
            if round % 3 == 0 {
                wait_for(|| !mount.path("a").exists());
            } else {
                wait_for(|| rounds.load(Ordering::Relaxed) > before + 1);
            }
        }
        host.define(&[member(0)]);
        signal(mount.pid(), "HUP");
        let before = rounds.load(Ordering::Relaxed);
        wait_for(|| rounds.load(Ordering::Relaxed) > before + 3);
        is_over.store(true, Ordering::Relaxed);
        let taken: Vec<Vec<u8>> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        let read = fs::read(mount.path("a/g/a")).unwrap();
        for (row, value) in taken.concat().into_iter().enumerate() {
            let at = row * COLUMNS as usize;
            assert!(
                read[at..at + COLUMNS as usize].iter().all(|byte| *byte == value),
                "row {row}: {} is not {value}",
                read[at]
            );
        }
    });
    assert!(!mount.log().contains("lost"), "{}", mount.log());
    mount.unmount();
}

//! Tests of a disk cache: what it finds, what it refuses, and its limit. Two caches on one folder stand for two processes.
#![allow(clippy::unwrap_used)]

use super::*;

pub(super) fn cache(folder: &Path, limit_bytes: u64) -> DiskCache {
    let options = DiskCacheOptions {
        folder: folder.to_owned(),
        limit_bytes: Some(limit_bytes),
        is_offline: false,
        must_keep: false,
    };
    DiskCache::open(&options).unwrap()
}

pub(super) fn object(path: &str) -> ObjectName {
    ObjectName { store: "s3://bucket".to_owned(), path: path.to_owned() }
}

fn meta(e_tag: &str, size_bytes: u64) -> ObjectMeta {
    ObjectMeta { e_tag: e_tag.to_owned(), version: None, size_bytes, modified_micros: 1_000_000 }
}

pub(super) fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 % 251) as u8).collect()
}

impl DiskCache {
    fn put(&self, path: &str, e_tag: &str, range: Range<u64>, all: &[u8]) {
        let new = new_bytes(path, e_tag, range, all);
        let times = self.learned(path, &Observation::Version(new.meta.clone()));
        self.keep(new, times);
        self.filler.wait(Duration::from_secs(60));
    }

    /// Records the reply to a request that is answered immediately.
    fn learned(&self, path: &str, seen: &Observation) -> EntryTimes {
        self.learn(&object(path), seen, self.now()).unwrap().unwrap()
    }

    fn put_missing(&self, path: &str) {
        let times = self.learned(path, &Observation::Missing);
        self.keep_missing_now(object(path), times).unwrap();
    }

    fn put_listing(&self, path: &str, folders: &[&str], objects: &[&str]) {
        self.keep_listing(&object(path), names(folders, objects), self.now()).unwrap();
    }

    fn is_missing(&self, path: &str) -> bool {
        self.presence(&object(path)) == Presence::Missing
    }

    fn take(&self, path: &str, wanted: &Wanted, tag: Option<&str>) -> Option<Vec<u8>> {
        let found = self.find(&object(path), wanted, tag)?;
        self.read(&found).map(|bytes| bytes.to_vec())
    }

    fn files(&self) -> Vec<PathBuf> {
        self.space.entries().unwrap().into_iter().map(|entry| entry.path).collect()
    }
}

pub(super) fn new_bytes(path: &str, e_tag: &str, range: Range<u64>, all: &[u8]) -> NewBytes {
    let bytes = all[range.start as usize..range.end as usize].to_vec();
    let meta = meta(e_tag, all.len() as u64);
    NewBytes { object: object(path), meta, start: range.start, bytes: Arc::new(bytes.into()) }
}

fn names(folders: &[&str], objects: &[&str]) -> FolderNames {
    let owned = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
    FolderNames::new(owned(folders), owned(objects))
}

const WHOLE: Wanted = Wanted::Whole { at_most: u64::MAX };

#[test]
fn an_unlisted_object_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(folder.path(), 1 << 30);
    assert!(!cache.is_missing("a/c/0"), "nothing is known");
    cache.put_listing("a", &["d", "c"], &["zarr.json"]);
    let is_missing = |path: &str| cache.is_missing(path);
    assert!(is_missing("a/x") && is_missing("a/x/0") && is_missing("a/c"), "a folder is not an object");
    assert!(!is_missing("a/zarr.json") && !is_missing("a/c/0") && !is_missing("b/c/0"));
    assert!(!is_missing("a/.zarray"), "a web server may hide it");
    assert_eq!(cache.listing(&object("a/x")), Some(FolderNames::default()));
    assert_eq!(cache.listing(&object("a/c")), None);
    cache.put_listing("a/c", &[], &["10", "9"]);
    assert!(is_missing("a/c/0") && !is_missing("a/c/9") && !is_missing("a/c/10"));
    cache.put("a/c/1", "\"1\"", 0..10, &content(20));
    assert!(!is_missing("a/c/1"), "the listing is older");
    cache.put_missing("b");
    assert!(is_missing("b"));
}

/// A reply is newer than a fact if its request was sent after the fact was known.
#[test]
fn replies_that_overtake_each_other_are_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let caches = [cache(folder.path(), 1 << 30), cache(folder.path(), 1 << 30)];
    let (all, seen) = (content(20), |tag: &str| Observation::Version(meta(tag, 20)));
    for other in &caches {
        let asked = caches[0].now();
        caches[0].put("a", "new", 0..20, &all);
        assert_eq!(
            other.learn(&object("a"), &seen("new"), asked).unwrap().map(|times| times.asked),
            Some(asked)
        );
        assert_eq!(other.learn(&object("a"), &seen("old"), asked).unwrap(), None);
        assert_eq!(other.take("a", &WHOLE, None), None, "which one is newer is not known");
        // An entry waits to be written when something else becomes known.
        let (times, new) = (caches[0].learned("a", &seen("1")), new_bytes("a", "1", 0..20, &all));
        other.learned("a", &seen("2"));
        assert_eq!(caches[0].keep_now(new, times).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        // A write takes place while others send requests.
        let asked = other.now();
        caches[0].outdate(&object("a"), true).unwrap();
        assert_eq!(other.learn(&object("a"), &seen("2"), asked).unwrap(), None);
        other.put("a", "3", 0..20, &all);
        assert!(caches[0].take("a", &WHOLE, Some("3")).is_some());
        caches[0].clear().unwrap();
    }
}

/// Objects share slots of the clock, but in one process no object makes another one uncertain.
#[test]
fn many_objects_at_one_time_are_all_cached() {
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(folder.path(), 1 << 30);
    let asked = cache.now();
    let learned: Vec<_> = (0..5000)
        .map(|number| {
            let (name, seen) = (object(&format!("a/{number}")), Observation::Version(meta("1", 20)));
            (number, cache.learn(&name, &seen, asked).unwrap().unwrap())
        })
        .collect();
    for (number, times) in learned {
        let new = new_bytes(&format!("a/{number}"), "1", 0..20, &content(20));
        cache.keep_now(new, times).unwrap();
    }
}

#[test]
fn a_written_object_is_forgotten_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(folder.path(), 1 << 30);
    cache.put_listing("", &["a"], &["x"]);
    cache.put_listing("a", &[], &["0", "1"]);
    cache.put("a/0", "1", 0..20, &content(20));
    let asked = cache.now();
    cache.outdate(&object("a/0"), true).unwrap();
    assert_eq!(cache.take("a/0", &WHOLE, None), None);
    assert_eq!(cache.listing(&object("a")), Some(names(&[], &["0", "1"])));
    cache.outdate(&object("a/2"), true).unwrap();
    assert_eq!((cache.listing(&object("a")), cache.presence(&object("a/2"))), (None, Presence::Unknown));
    assert!(cache.listing(&object("")).is_some());
    let late = cache.keep_listing(&object("a"), names(&[], &["0", "1"]), asked);
    assert_eq!(late.unwrap_err().kind(), io::ErrorKind::ResourceBusy);
    cache.put_listing("a", &[], &["0", "1", "2"]);
    cache.outdate(&object("a/2"), false).unwrap();
    assert_eq!((cache.listing(&object("a")), cache.listing(&object(""))), (None, None));
    // One listing lacks an object that was read before, and a later one has it again.
    cache.put_listing("b", &[], &["0"]);
    cache.put("b/0", "1", 0..20, &content(20));
    cache.put_listing("b", &[], &[]);
    assert!(cache.is_missing("b/0"));
    cache.put_listing("b", &[], &["0"]);
    assert_eq!((cache.presence(&object("b/0")), cache.take("b/0", &WHOLE, None)), (Presence::Unknown, None));
}

#[test]
fn the_clock_is_ahead_of_earlier_runs() {
    let folder = tempfile::tempdir().unwrap();
    let known = {
        let cache = cache(folder.path(), 1 << 30);
        for number in 0..10 {
            cache.put("a", &number.to_string(), 0..20, &content(20));
        }
        cache.now()
    };
    std::fs::write(folder.path().join(ABOUT), "0123 1\n").unwrap();
    std::fs::write(folder.path().join("clock"), []).unwrap();
    let cache = cache(folder.path(), 1 << 30);
    assert!(cache.now() >= known, "{} after {known}", cache.now());
    cache.put("a", "new", 0..20, &content(20));
    assert!(cache.take("a", &WHOLE, Some("new")).is_some());
}

#[test]
fn an_entry_that_must_be_cached_and_cannot_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(folder.path(), 100_000);
    let keep = |length: usize| {
        let new = new_bytes("a", "\"1\"", 0..length as u64, &content(length));
        let times = cache.learned("a", &Observation::Version(new.meta.clone()));
        cache.keep_now(new, times).map_err(|error| error.kind())
    };
    assert_eq!(keep(200_000), Err(io::ErrorKind::StorageFull));
    assert_eq!((keep(50_000), keep(50_000)), (Ok(()), Ok(())), "it is there already");
    assert_eq!(cache.files().len(), 1);
}

#[test]
fn entries_are_found_by_each_process() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (cache(folder.path(), 1 << 30), cache(folder.path(), 1 << 30));
    let all = content(100_000);
    one.put("a", "\"1\"", 0..100_000, &all);
    assert_eq!(other.take("a", &WHOLE, None).as_deref(), Some(&*all));
    assert_eq!(other.take("a", &Wanted::Range(10..20), Some("\"1\"")).as_deref(), Some(&all[10..20]));
    assert_eq!(other.take("a", &Wanted::Range(99_990..200_000), None).as_deref(), Some(&all[99_990..]));
    assert_eq!(other.take("a", &Wanted::Last(16), None).as_deref(), Some(&all[99_984..]));
    assert_eq!(other.take("a", &WHOLE, Some("\"2\"")), None, "another version");
    assert_eq!(other.take("b", &WHOLE, None), None, "another object");
    one.put("empty", "\"1\"", 0..0, &[]);
    assert_eq!(other.take("empty", &WHOLE, None), Some(Vec::new()));
    assert_eq!(other.counts().read_bytes, 100_000 + 10 + 10 + 16);
}

#[test]
fn ranges_are_found_together() {
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(folder.path(), 1 << 30);
    let all = content(10_000);
    for range in [0..1000, 500..2000, 2000..3000, 4000..10_000] {
        cache.put("shard", "\"1\"", range, &all);
    }
    assert_eq!(cache.take("shard", &Wanted::Range(100..2900), None).as_deref(), Some(&all[100..2900]));
    assert_eq!(cache.take("shard", &Wanted::Range(5000..6000), None).as_deref(), Some(&all[5000..6000]));
    assert_eq!(cache.take("shard", &Wanted::Range(2500..4500), None), None, "there is a gap");
    assert_eq!(cache.take("shard", &WHOLE, None), None);
    cache.put("shard", "\"1\"", 600..900, &all);
    assert_eq!(cache.files().len(), 4, "what is there is not written again");
    cache.put("shard", "\"2\"", 0..10, &all);
    assert_eq!(cache.files().len(), 1, "the old version goes");
}

#[test]
fn missing_and_listed_objects() {
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(folder.path(), 1 << 30);
    cache.put("a", "\"1\"", 0..10, &content(10));
    cache.put_missing("a");
    cache.put_listing("", &["c"], &["b"]);
    assert!(cache.is_missing("a") && !cache.is_missing("b"));
    assert_eq!((cache.take("a", &WHOLE, None), cache.meta(&object("a"))), (None, None));
    assert_eq!(cache.listing(&object("")), Some(names(&["c"], &["b"])));
    cache.put("a", "\"2\"", 0..10, &content(10));
    assert!(!cache.is_missing("a"));
    assert_eq!(cache.listing(&object("")), None, "it lacks what is there");
    assert_eq!(cache.meta(&object("a")), Some(meta("\"2\"", 10)));
    cache.put_listing("", &["c"], &["a", "b"]);
    assert_eq!(cache.verify(|_, _| {}).unwrap(), DiskCacheVerified { sound: 2, damaged: 0 });
    assert_eq!((cache.clear().unwrap(), cache.clear().unwrap()), (2, 0));
}

#[test]
fn no_damage_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let all = content(3000);
    let damages: [fn(&mut Vec<u8>, usize); 3] =
        [|file, at| file[at] ^= 1, |file, at| file.truncate(at), |file, at| file[at..].fill(0)];
    let mut misses = 0;
    for damage in damages {
        for at in (0..4096 + 3000).step_by(100) {
            let cache = cache(folder.path(), 1 << 30);
            cache.put("a", "\"1\"", 0..3000, &all);
            let path = cache.files().pop().unwrap();
            let mut file = std::fs::read(&path).unwrap();
            damage(&mut file, at);
            std::fs::write(&path, file).unwrap();
            match cache.take("a", &WHOLE, None) {
                // The rest of the first page is unused.
                Some(bytes) => assert_eq!(bytes, all, "byte {at}"),
                None => {
                    misses += 1;
                    assert!(cache.files().is_empty() && cache.counts().damaged == 1, "byte {at}");
                }
            }
            cache.clear().unwrap();
        }
    }
    assert!(misses > 100, "{misses}");
}

#[test]
fn parts_of_an_entry_are_checked_block_by_block() {
    const BLOCK: u64 = 64 << 10;
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(folder.path(), 1 << 30);
    let all = content(5 * BLOCK as usize + 1000);
    let read = |found: &CachedBytes, range: Range<u64>| {
        let mut out = vec![0xAA; (range.end - range.start) as usize];
        cache.read_at(found, range.start, &mut out).then_some(out)
    };
    cache.put("a", "\"1\"", 100..all.len() as u64, &all);
    let found = cache.find(&object("a"), &Wanted::Range(200..all.len() as u64), None).unwrap();
    assert!(found.is_one_entry());
    let ends =
        [100, 101, 200, 99 + BLOCK, 100 + BLOCK, 101 + BLOCK, 3 * BLOCK, 100 + 5 * BLOCK, all.len() as u64];
    for (number, &start) in ends.iter().enumerate() {
        for &end in &ends[number..] {
            let expected = &all[start as usize..end as usize];
            assert_eq!(read(&found, start..end).as_deref(), Some(expected), "{start}..{end}");
        }
    }
    for outside in [0..10, 99..200, 200..all.len() as u64 + 1] {
        assert_eq!(read(&found, outside), None);
    }
    let path = cache.files().pop().unwrap();
    let mut file = std::fs::read(&path).unwrap();
    file[4096 + 3 * BLOCK as usize + 5] ^= 1;
    std::fs::write(&path, file).unwrap();
    // The block with the damage has the bytes of 3 * BLOCK + 100 to 4 * BLOCK + 100.
    let before = 1000..3 * BLOCK + 100;
    assert_eq!(
        read(&found, before.clone()).as_deref(),
        Some(&all[before.start as usize..before.end as usize])
    );
    assert!(path.exists() && cache.counts().damaged == 0);
    assert_eq!(read(&found, 4 * BLOCK..4 * BLOCK + 10), None, "of the damaged block");
    assert!(!path.exists() && cache.counts().damaged == 1);
    assert_eq!(read(&found, 200..300), None, "it is gone");
}

#[test]
fn verify_removes_damaged_entries() {
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(folder.path(), 1 << 30);
    for name in ["a", "b", "c"] {
        cache.put(name, "\"1\"", 0..3000, &content(3000));
    }
    let paths = cache.files();
    std::fs::write(&paths[0], "short").unwrap();
    std::fs::rename(&paths[1], paths[1].with_file_name("of another name")).unwrap();
    assert_eq!(cache.summary().unwrap().entries, 3);
    assert_eq!(cache.verify(|_, _| {}).unwrap(), DiskCacheVerified { sound: 1, damaged: 2 });
    assert_eq!(cache.summary().unwrap().stores, [("s3://bucket".to_owned(), 1, 8192)]);
}

#[test]
fn the_limit_holds_for_all_processes_together() {
    let folder = tempfile::tempdir().unwrap();
    let limit = 40 * (8 << 10);
    let caches = [cache(folder.path(), limit), cache(folder.path(), limit)];
    // Without the lock an entry could be evicted after it was counted, and the entry that takes its space be counted, too.
    let about = File::open(folder.path().join(ABOUT)).unwrap();
    let size = |cache: &DiskCache| {
        about.lock().unwrap();
        let size = cache.summary().unwrap().size_bytes;
        about.unlock().unwrap();
        size
    };
    let writers: Vec<_> = (0..2)
        .map(|number| {
            let folder = folder.path().to_owned();
            std::thread::spawn(move || {
                let cache = cache(&folder, limit);
                for entry in 0..200 {
                    cache.put(&format!("{number}/{entry}"), "\"1\"", 0..3000, &content(3000));
                }
            })
        })
        .collect();
    while writers.iter().any(|writer| !writer.is_finished()) {
        let size = size(&caches[0]);
        assert!(size <= limit, "{size}");
    }
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    assert!(size(&caches[1]) > limit / 2);
    caches[0].put("1/199", "\"1\"", 0..3000, &content(3000));
    caches[1].put("large", "\"1\"", 0..limit, &content(limit as usize));
    assert!(caches[1].take("large", &WHOLE, None).is_none(), "more than the limit");
    // Unused entries are evicted first.
    let old = SystemTime::now() - Duration::from_secs(1000);
    let files = caches[0].files();
    for path in &files {
        File::options().write(true).open(path).unwrap().set_modified(old).unwrap();
    }
    assert!(caches[0].take("1/199", &WHOLE, None).is_some());
    for entry in 0..35 {
        caches[0].put(&format!("new/{entry}"), "\"1\"", 0..3000, &content(3000));
    }
    assert!(caches[0].take("1/199", &WHOLE, None).is_some(), "it was used");
    let left = files.iter().filter(|path| path.exists()).count();
    assert!(left <= 5, "{left} of {} old ones are left", files.len());
}

#[test]
fn files_of_a_dead_process_are_counted_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let one = cache(folder.path(), 1 << 20);
    one.put("a", "\"1\"", 0..3000, &content(3000));
    let left = one.space.take(100_000).unwrap().unwrap();
    assert_eq!(one.space.recount().unwrap(), 8192 + 102_400);
    left.file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
    let other = cache(folder.path(), 1 << 20);
    other.filler.wait(Duration::from_secs(60));
    assert!(!left.path.exists());
    assert_eq!(other.counts().size_bytes, 8192);
    // A count from another run of the machine does not count.
    std::fs::write(folder.path().join(ABOUT), "0123 1\n").unwrap();
    other.put("b", "\"1\"", 0..3000, &content(3000));
    assert_eq!(other.counts().size_bytes, 2 * 8192);
}

#[test]
fn folders_that_are_not_its_own_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let sentence = |path: &Path| {
        let options = DiskCacheOptions {
            folder: path.to_owned(),
            limit_bytes: None,
            is_offline: false,
            must_keep: false,
        };
        DiskCache::open(&options).err().map(|error| error.to_string()).unwrap_or_default()
    };
    let new = folder.path().join("a/b");
    assert_eq!(sentence(&new), "");
    assert_eq!(std::fs::metadata(&new).unwrap().mode() & 0o777, 0o700);
    std::fs::set_permissions(&new, Permissions::from_mode(0o770)).unwrap();
    assert!(sentence(&new).contains("others may write to it"));
    std::fs::set_permissions(&new, Permissions::from_mode(0o755)).unwrap();
    assert_eq!(sentence(&new), "");
    assert_eq!(std::fs::metadata(&new).unwrap().mode() & 0o777, 0o700);
    let full = folder.path().join("full");
    std::fs::create_dir(&full).unwrap();
    std::fs::write(full.join("thesis.tex"), "text").unwrap();
    assert!(sentence(&full).contains("has other files"));
    assert!(sentence(&full.join("thesis.tex")).contains("cannot be used"));
    let error = DiskCache::open_existing(&full).err().unwrap().to_string();
    assert!(error.contains("no disk cache is in this folder"));
}

//! Commits of a mount over a repository in memory: programs go on, and nothing is lost where the outcome is not known.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::*;
use crate::store::overlay::{Access, OverlayOptions, OverlayStore};
use crate::store::versions::in_memory::{CommitFault, Repository};
use crate::store::{RemoteOptions, Store};

/// Eight bytes in chunks of two.
const BYTES: &str = r#"{"zarr_format":3,"node_type":"array","shape":[8],"data_type":"uint8","fill_value":48,
    "chunk_grid":{"name":"regular","configuration":{"chunk_shape":[2]}},
    "chunk_key_encoding":{"name":"default"},"codecs":[{"name":"bytes"}]}"#;

struct Scene {
    repository: Repository,
    fs: FileSystem,
    _folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let objects = [("zarr.json", GROUP), ("t/zarr.json", BYTES), ("t/c/0", "ab"), ("t/c/1", "cd")];
        let repository = Repository::new(&objects);
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("store");
        std::fs::create_dir(&place).unwrap();
        let overlay = OverlayOptions { folder: folder.path().join("overlay"), access: Access::Write };
        let base = repository.on_branch("main").unwrap();
        let store =
            OverlayStore::open(base, place.to_str().unwrap(), &RemoteOptions::default(), &overlay, None)
                .unwrap();
        let store: Arc<dyn Store> = Arc::new(store);
        let mut options = Options::new("/data/repository", "/mnt");
        (options.threads, options.writable, options.revalidate_seconds) = (1, true, 0.0);
        Scene { repository, fs: FileSystem::new(Arc::new(options), store), _folder: folder }
    }

    fn open(&self, path: &[&str]) -> u64 {
        let mut inode = ROOT;
        for name in path {
            inode = self.fs.lookup(inode, name, Blocking::Yes).unwrap().attributes.inode;
        }
        self.fs.opens().open(inode, libc::O_RDWR, &Cancellation::never()).unwrap().handle
    }

    fn read(&self, handle: u64) -> String {
        let mut buffer = ReplyBuffer::default();
        let data = self.fs.read(handle, 0, 4096, &mut buffer, &Cancellation::never()).unwrap();
        String::from_utf8(data.to_vec()).unwrap()
    }

    /// The report of a commit, and its errno.
    fn commit(&self, message: &str) -> (Value, i32) {
        let handle = self.open(&["__zarrfs__", "commit"]);
        self.fs.write(handle, 0, message.as_bytes(), false).unwrap();
        let errno = self.fs.sync(handle).map_or_else(|failure| failure.errno(), |()| 0);
        // It is reported once.
        self.fs.flush(handle).unwrap();
        let report = serde_json::from_str(&self.read(handle)).unwrap();
        self.fs.opens().release(handle);
        (report, errno)
    }

    fn content(&self) -> String {
        let chunk = |n: u64| self.repository.text("main", &format!("t/c/{n}")).unwrap_or("00".to_owned());
        (0..4).map(chunk).collect()
    }
}

#[test]
fn what_is_written_and_not_synced_is_committed() {
    let scene = Scene::new();
    let t = scene.open(&["t"]);
    assert_eq!(scene.commit("none"), (json!({"snapshot": null, "changes": 0}), 0));
    scene.fs.write(t, 1, b"BCDE", false).unwrap();
    assert_eq!(scene.commit("first").0, json!({"snapshot": "S2", "branch": "main", "changes": 3}));
    assert_eq!((scene.content().as_str(), scene.read(t).as_str()), ("aBCDE000", "aBCDE000"));
    // The handle goes on over the new snapshot, with what others have published.
    scene.repository.change("main", &[("t/c/3", Some("xy"))]).unwrap();
    scene.fs.write(t, 0, b"A", false).unwrap();
    assert_eq!(scene.commit("second").0["changes"], 1);
    assert_eq!(scene.content(), "ABCDE0xy");
    scene.fs.write(t, 6, b"6", false).unwrap();
    assert_eq!(scene.commit("third").1, 0);
    assert_eq!((scene.content().as_str(), scene.read(t).as_str()), ("ABCDE06y", "ABCDE06y"));
    let (report, errno) = scene.commit(" \n");
    assert!(errno == libc::EINVAL && report["error"].as_str().unwrap().contains("message"), "{report}");
    let own = scene.fs.lookup(ROOT, "__zarrfs__", Blocking::Yes).unwrap().attributes.inode;
    assert_eq!(scene.fs.lookup(own, "commit", Blocking::Yes).unwrap().attributes.mode, 0o600);
    scene.fs.opens().release(t);
}

#[test]
fn conflicts_are_reported_and_kept() {
    let scene = Scene::new();
    let t = scene.open(&["t"]);
    scene.fs.write(t, 0, b"AB", false).unwrap();
    scene.repository.change("main", &[("t/c/0", Some("xy"))]).unwrap();
    for _ in 0..2 {
        let (report, errno) = scene.commit("in conflict");
        assert_eq!((errno, &report["conflicts"][0]["key"]), (libc::EBUSY, &json!("t/c/0")), "{report}");
        assert_eq!(scene.read(t), "ABcd0000");
    }
    assert_eq!(scene.repository.messages("main"), ["another program's", ""]);
}

#[test]
fn nothing_is_stored_until_the_outcome_is_known() {
    let scene = Scene::new();
    let t = scene.open(&["t"]);
    scene.fs.write(t, 0, b"AB", false).unwrap();
    scene.repository.inject([CommitFault::ReplyLostThenGone]);
    let (report, errno) = scene.commit("unknown");
    assert!(errno == libc::EIO && report["error"].as_str().unwrap().contains("not known"), "{report}");
    assert_eq!(scene.fs.write(t, 2, b"C", false).unwrap(), 1, "memory takes it");
    assert_eq!(scene.fs.sync(t).unwrap_err().errno(), libc::EIO);
    assert_eq!(scene.read(t), "ABCd0000");
    scene.repository.set_gone(false);
    let begun = Instant::now();
    while scene.fs.sync(t).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(120));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(scene.content(), "ABcd0000", "the first was published");
    assert_eq!(scene.commit("then").0["changes"], 1);
    assert_eq!(scene.content(), "ABCd0000");
    assert_eq!(scene.repository.messages("main"), ["then", "unknown", ""]);
}

#[test]
fn no_snapshot_has_half_a_write() {
    let scene = Scene::new();
    let t = scene.open(&["t"]);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut last = 0;
            for number in 0..10_000_000_u32 {
                last = (number % 10) as u8 + b'0';
                scene.fs.write(t, 0, &[last; 8], false).unwrap();
                if number % 7 == 0 {
                    scene.fs.sync(t).unwrap();
                }
                if is_over.load(Ordering::Acquire) {
                    break;
                }
            }
            last
        });
        for round in 0..30 {
            let (report, errno) = scene.commit(&format!("round {round}"));
            assert_eq!(errno, 0, "{report}");
            let content = scene.content();
            let first = content.as_bytes()[0];
            if content != "abcd0000" {
                assert!(content.bytes().all(|byte| byte == first), "{content}");
            }
        }
        is_over.store(true, Ordering::Release);
        let last = writer.join().unwrap();
        assert_eq!(scene.commit("last").1, 0);
        assert_eq!(scene.content().as_bytes(), [last; 8]);
    });
}

//! Members of a catalogue that leave while programs use them: what was accepted is stored, or the member stays. And members with stores
//! that hang, next to others that do not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{OnceLock, Weak, mpsc};
use std::time::Instant;

use parking_lot::Mutex;

use super::*;
use crate::mount::fs::names::{Caller, FolderName};
use crate::store::{CatalogueStore, MemberDefinition, MemberRights, OpenedMember, Store};
use crate::test_store::{Hook, Hooked, Operation, Request};

const CALLER: Caller = Caller { uid: 0, gid: 0, thread: 0, request: 0 };

/// Is called with each key that is put.
type BeforePut = Box<dyn Fn(&str) -> crate::error::Result<()> + Send + Sync>;

struct Puts(BeforePut);

impl Hook for Puts {
    fn before(&self, request: &Request<'_>) -> crate::error::Result<()> {
        if request.operation == Operation::Put { (self.0)(request.key()) } else { Ok(()) }
    }
}

/// A mount of a catalogue with the members `a` and `b`.
#[derive(Clone)]
struct Scene {
    fs: Arc<FileSystem>,
    /// The objects of `a` and `b`.
    objects: [Arc<MemoryStore>; 2],
    /// The members that are defined, with a number that changes with the definition.
    defined: Arc<Mutex<Vec<(&'static str, u32)>>>,
}

impl Scene {
    /// Calls `before_put` with each key that is put in the member `a`.
    fn new(
        before_put: impl Fn(&Scene, &str) -> crate::error::Result<()> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Scene::with_dirty_limit(1 << 20, before_put)
    }

    fn with_dirty_limit(
        dirty_limit_bytes: u64,
        before_put: impl Fn(&Scene, &str) -> crate::error::Result<()> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let scene = Arc::new(OnceLock::<Weak<Scene>>::new());
        let known = scene.clone();
        let in_a: BeforePut = Box::new(move |key| match known.get().and_then(Weak::upgrade) {
            Some(scene) => before_put(&scene, key),
            None => Ok(()),
        });
        let objects = [Arc::new(MemoryStore::new()), Arc::new(MemoryStore::new())];
        for objects in &objects {
            objects.put("zarr.json", GROUP.as_bytes()).unwrap();
            for name in ["t", "u"] {
                let document = array(&[4, 3], 9).to_string();
                objects.put(&format!("{name}/zarr.json"), document.as_bytes()).unwrap();
            }
        }
        let a = Hooked::new(objects[0].clone() as _, Puts(in_a));
        let b = Hooked::new(objects[1].clone() as _, Puts(Box::new(|_| Ok(()))));
        let defined = Arc::new(Mutex::new(vec![("a", 1), ("b", 1)]));
        let (wanted, stores) = (defined.clone(), [a, b]);
        let read = move || {
            let definition = |&(name, number): &(&str, u32)| {
                let store = stores[usize::from(name == "b")].clone();
                MemberDefinition {
                    name: name.to_owned(),
                    location: format!("memory:{name}"),
                    path: None,
                    is_remote: false,
                    rights: MemberRights { write: true, create: true, delete: true },
                    signature: format!("{name} {number}"),
                    text: format!("[{name}]\n"),
                    overlay: None,
                    open: Arc::new(move || Ok(OpenedMember { store: store.clone(), is_array: false })),
                }
            };
            Ok(wanted.lock().iter().map(definition).collect())
        };
        let store: Arc<dyn Store> =
            Arc::new(CatalogueStore::open("/etc/host.toml", 0, Box::new(read)).unwrap());
        let mut options = Options::new("/etc/host.toml", "/mnt");
        (options.threads, options.revalidate_seconds) = (1, 0.0);
        (options.writable, options.create, options.delete) = (true, true, true);
        options.scratch_limit_bytes = 64 << 20;
        options.request_deadline = Duration::from_secs(3);
        options.dirty_limit_bytes = dirty_limit_bytes;
        let fs = Arc::new(FileSystem::new(Arc::new(options), store));
        let made = Arc::new(Scene { fs, objects, defined });
        scene.set(Arc::downgrade(&made)).unwrap();
        made
    }

    fn inode(&self, path: &str) -> Result<u64, i32> {
        path.split('/').try_fold(ROOT, |inode, name| {
            let found = self.fs.lookup(inode, name, Blocking::Yes).map_err(|failure| failure.errno())?;
            Ok(found.attributes.inode)
        })
    }

    fn open(&self, path: &str) -> Result<u64, i32> {
        let opened = self.fs.opens().open(self.inode(path)?, libc::O_RDWR, &Cancellation::never());
        opened.map(|opened| opened.handle).map_err(|failure| failure.errno())
    }

    fn create(&self, path: &str) -> Result<u64, i32> {
        let (folder, name) = path.rsplit_once('/').unwrap();
        let flags = libc::O_RDWR | libc::O_CREAT;
        let created = self.fs.opens().create(self.inode(folder)?, name, 0o644, flags, CALLER);
        created.map(|(_, opened)| opened.handle).map_err(|failure| failure.errno())
    }

    /// Opens an array and writes its first chunk, as a program does.
    fn write(&self, path: &str, elements: &[u16; 6]) -> Result<u32, i32> {
        let handle = self.open(path)?;
        self.fs.write(handle, 0, &bytes_of(*elements), false).map_err(|failure| failure.errno())
    }

    fn reload(&self, defined: &[(&'static str, u32)]) {
        *self.defined.lock() = defined.to_vec();
        self.fs.members().reload(&|_| ());
    }

    fn has_member(&self, name: &str) -> bool {
        self.fs.lookup(ROOT, name, Blocking::Yes).is_ok()
    }

    fn stored(&self, member: usize, key: &str) -> Option<Vec<u8>> {
        self.objects[member].get(key, 1 << 20).unwrap()
    }
}

fn errno<T>(result: crate::mount::fs::error::FsResult<T>) -> i32 {
    result.err().expect("it must fail").errno()
}

/// Waits for what another thread does. A minute means that it hangs.
fn wait_for<T>(receiver: &mpsc::Receiver<T>) -> T {
    receiver.recv_timeout(Duration::from_secs(60)).expect("it hangs")
}

/// An array that was opened while another one of the leaving member was stored took writes, which were dropped when the member left.
#[test]
fn what_is_written_while_a_member_leaves_is_stored_or_refused() {
    for leaving in [&[("b", 1)][..], &[("a", 2), ("b", 1)]] {
        let (sender, receiver) = mpsc::channel();
        let once = Mutex::new(Some(sender));
        let scene = Scene::new(move |scene, key| {
            if !key.starts_with("t/c") {
                return Ok(());
            }
            let Some(sender) = once.lock().take() else { return Ok(()) };
            let (program, (done, is_done)) = (scene.clone(), mpsc::channel());
            std::thread::spawn(move || {
                let outcome = program.write("a/u", &[1, 2, 3, 4, 5, 6]);
                let _ = done.send(());
                sender.send(outcome).unwrap();
            });
            // It may have to wait until the member has left.
            let _ = is_done.recv_timeout(Duration::from_millis(300));
            Ok(())
        });
        scene.write("a/t", &[7; 6]).unwrap();
        scene.reload(leaving);
        let outcome = wait_for(&receiver);
        assert_eq!(scene.stored(0, "t/c/0/0"), Some(chunk(&[7; 6])));
        match outcome {
            // It was opened over the new definition, which has the same store.
            Ok(_) => {
                assert!(scene.fs.store_all(Duration::from_secs(5)).is_empty());
                assert_eq!(scene.stored(0, "u/c/0/0"), Some(chunk(&[1, 2, 3, 4, 5, 6])));
            }
            Err(errno) => assert!([libc::ESTALE, libc::ENOENT].contains(&errno), "{errno}"),
        }
    }
}

#[test]
fn a_member_that_cannot_be_stored_stays_and_takes_writes() {
    let fails = Arc::new(AtomicBool::new(true));
    let is_failing = fails.clone();
    let scene = Scene::new(move |_, key| match is_failing.load(Ordering::Relaxed) {
        true if key.contains("/c/") => {
            Err(Error::store(key, "put", std::io::Error::other("the disk is full")))
        }
        _ => Ok(()),
    });
    let handle = scene.open("a/t").unwrap();
    let write = |value: u16| scene.fs.write(handle, 0, &bytes_of([value; 6]), false);
    write(5).unwrap();
    scene.reload(&[("b", 1)]);
    assert!(scene.has_member("a"));
    write(6).unwrap();
    let other = scene.open("a/u").unwrap();
    scene.fs.opens().release(other);
    fails.store(false, Ordering::Relaxed);
    scene.reload(&[("b", 1)]);
    assert!(!scene.has_member("a"));
    assert_eq!(scene.stored(0, "t/c/0/0"), Some(chunk(&[6; 6])));
    assert_eq!(errno(write(7)), libc::ESTALE);
    scene.fs.opens().release(handle);
}

#[test]
fn a_member_with_a_file_that_is_not_an_array_yet_stays() {
    let scene = Scene::new(|_, _| Ok(()));
    for name in ["a/new.npy", "a/elements"] {
        let handle = scene.create(name).unwrap();
        scene.fs.write(handle, 0, b"bytes", false).unwrap();
        scene.reload(&[("b", 1)]);
        assert!(scene.has_member("a") && scene.fs.write(handle, 5, b"more", false).is_ok());
        scene.fs.opens().release(handle);
        scene.reload(&[("b", 1)]);
        assert!(scene.has_member("a"), "{name} has bytes");
        let (folder, name) = name.split_once('/').unwrap();
        scene.fs.names().unlink(scene.inode(folder).unwrap(), name, CALLER).unwrap();
    }
    // An empty file has nothing to lose, and takes nothing afterwards.
    let handle = scene.create("a/empty").unwrap();
    let folder = scene.inode("a").unwrap();
    scene.reload(&[("a", 2), ("b", 1)]);
    assert_eq!(errno(scene.fs.write(handle, 0, b"bytes", false)), libc::ESTALE);
    assert!(scene.inode("a/empty").is_err());
    // The folder of before is not the one of now: the kernel looks the path up again.
    let created = scene.fs.opens().create(folder, "more", 0o644, libc::O_RDWR | libc::O_CREAT, CALLER);
    assert_eq!(errno(created), libc::ESTALE);
    scene.fs.opens().release(handle);
}

#[test]
fn an_edit_of_a_sidecar_reports_that_its_member_has_left() {
    let scene = Scene::new(|_, _| Ok(()));
    let handle = scene.open("a/t.json").unwrap();
    scene.fs.write(handle, 0, br#"{"attributes": {"x": 1}}"#, false).unwrap();
    scene.reload(&[("a", 2), ("b", 1)]);
    assert_eq!(errno(scene.fs.flush(handle)), libc::ESTALE);
    assert!(!String::from_utf8(scene.stored(0, "t/zarr.json").unwrap()).unwrap().contains("\"x\""));
    scene.fs.opens().release(handle);
}

#[test]
fn names_do_not_leave_their_member() {
    let scene = Scene::new(|_, _| Ok(()));
    let handle = scene.create("a/file").unwrap();
    let [a, b] = ["a", "b"].map(|name| scene.inode(name).unwrap());
    let rename = |name: &'static str| {
        let to = FolderName { folder: b, name: "there" };
        errno(scene.fs.names().rename(FolderName { folder: a, name }, to, false, CALLER))
    };
    assert_eq!(
        (rename("file"), rename("t"), rename("t.json"), rename("none")),
        (libc::EXDEV, libc::EPERM, libc::EPERM, libc::ENOENT)
    );
    let file = scene.inode("a/file").unwrap();
    assert_eq!(errno(scene.fs.names().link(file, b, "linked")), libc::EXDEV);
    scene.fs.names().link(file, a, "linked").unwrap();
    scene.fs.opens().release(handle);
}

/// One lock of names, and one dirty limit, made programs in all members wait for one store.
#[test]
fn a_store_that_hangs_delays_no_other_member() {
    let (opener, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(Some(gate));
    let hangs = Arc::new(AtomicBool::new(false));
    let is_hanging = hangs.clone();
    let scene = Scene::with_dirty_limit(30, move |_, _| {
        if is_hanging.load(Ordering::Relaxed) {
            // All puts wait for the one that holds the lock.
            if let Some(gate) = gate.lock().take() {
                let _ = gate.recv();
            }
        }
        Ok(())
    });
    hangs.store(true, Ordering::Relaxed);
    // Programs in `a` make a group, write more than the dirty limit, and close.
    let (ended, end) = mpsc::channel();
    let mkdir = (scene.clone(), ended.clone());
    std::thread::spawn(move || {
        let made = mkdir.0.fs.names().make_folder(mkdir.0.inode("a").unwrap(), "g", 0o755, CALLER);
        mkdir.1.send(made.is_ok()).unwrap();
    });
    for name in ["a/t", "a/u"] {
        let (scene, ended) = (scene.clone(), ended.clone());
        std::thread::spawn(move || {
            let handle = scene.open(name).unwrap();
            let outcome = scene.fs.write(handle, 0, &bytes_of([3; 12]), false).is_ok();
            let outcome = outcome && scene.fs.flush(handle).is_ok();
            ended.send(outcome).unwrap();
        });
    }
    std::thread::sleep(Duration::from_millis(200));
    let (done, is_done) = mpsc::channel();
    let program = scene.clone();
    std::thread::spawn(move || {
        let started = Instant::now();
        let step = |what: &str| println!("{what} at {:?}", started.elapsed());
        let handle = program.open("b/t").unwrap();
        for round in 0..20 {
            program.fs.write(handle, 0, &bytes_of([round; 12]), false).unwrap();
            step("written");
        }
        program.fs.flush(handle).unwrap();
        program.fs.opens().release(handle);
        let folder = program.inode("b").unwrap();
        program.fs.names().make_folder(folder, "g", 0o755, CALLER).unwrap();
        let file = program.create("b/file").unwrap();
        program.fs.write(file, 0, b"bytes", false).unwrap();
        program.fs.flush(file).unwrap();
        program.fs.opens().release(file);
        let name = |name| FolderName { folder, name };
        program.fs.names().rename(name("file"), name("moved"), false, CALLER).unwrap();
        program.fs.names().unlink(folder, "moved", CALLER).unwrap();
        done.send(started.elapsed()).unwrap();
    });
    let took = wait_for(&is_done);
    println!("the programs in the other member took {took:?}");
    assert_eq!(scene.stored(1, "t/c/0/0"), Some(chunk(&[19; 6])));
    assert!(end.try_recv().is_err(), "nothing of the hanging member has ended");
    opener.send(()).unwrap();
    for _ in 0..3 {
        assert!(wait_for(&end));
    }
}

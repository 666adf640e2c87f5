//! Whose put it was: programs that do the same at one time write equal objects, and replies are lost.

use std::fs::{self, File};
use std::io::Write;
use std::process::{Command, Output};
use std::thread;

use serde_json::json;
use tempfile::TempDir;

use crate::support::misbehaving::{Asked, BUCKET, Fault, Service};
use crate::support::mounted::Mount;
use crate::support::place::can_mount;
use crate::support::uneven::v3;

const ROW: usize = 10;
/// The fill value of the arrays that `v3` describes.
const FILL: u8 = 3;

/// A service with a group and an array of two rows in it.
struct Scene {
    service: Service,
    folder: TempDir,
}

impl Scene {
    fn new() -> Scene {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store");
        let document = v3("uint8", &[2, ROW as u64], &[4, ROW as u64], &json!([{"name": "bytes"}]));
        fs::create_dir_all(store.join("a/c/0")).unwrap();
        fs::write(store.join("a/zarr.json"), document.to_string()).unwrap();
        fs::write(store.join("a/c/0/0"), [[9; 2 * ROW], [FILL; 2 * ROW]].concat()).unwrap();
        fs::write(store.join("zarr.json"), json!({"zarr_format": 3, "node_type": "group"}).to_string())
            .unwrap();
        Scene { service: Service::start(&store), folder }
    }

    fn options(&self) -> [String; 3] {
        ["--endpoint-url".to_owned(), self.service.endpoint(), "--no-sign-request".to_owned()]
    }

    fn mount(&self) -> Mount {
        let own = self.options();
        let options: Vec<&str> =
            own.iter().map(String::as_str).chain(["--create", "--revalidate=0"]).collect();
        let url = format!("s3://{BUCKET}");
        Mount::with_environment(url.as_ref(), &options, &[("AWS_PROFILE", "".into())], "puts").unwrap()
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_zarrfs"));
        command.args(words).args(self.options()).env("AWS_PROFILE", "").output().unwrap()
    }

    /// Lets this happen to the first puts of a document.
    fn first_puts(&self, key: &'static str, mut count: usize, fault: Fault) {
        self.service.misbehave(move |asked: &Asked| {
            let is_hit = asked.method == "PUT" && asked.key == key && count > 0;
            count -= usize::from(is_hit);
            is_hit.then(|| fault.clone())
        });
    }

    fn elements(&self, path: &str) -> Vec<u8> {
        let output = self.run(&["cat", &format!("s3://{BUCKET}"), path]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }
}

fn append(file: &mut File, value: u8) -> std::io::Result<()> {
    file.write_all(&[value; ROW]).and_then(|()| file.sync_all())
}

#[test]
fn one_of_two_equal_appends_is_refused() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let mounts = [scene.mount(), scene.mount()];
    let files = mounts.each_ref().map(|mount| File::options().append(true).open(mount.path("a")).unwrap());
    scene.first_puts("a/zarr.json", 2, Fault::Together);
    let appended: Vec<std::io::Result<()>> = thread::scope(|scope| {
        let appending: Vec<_> = (files.into_iter().zip([5, 6]))
            .map(|(mut file, value)| scope.spawn(move || append(&mut file, value)))
            .collect();
        appending.into_iter().map(|appending| appending.join().unwrap()).collect()
    });
    scene.service.be_well();
    mounts.into_iter().for_each(Mount::unmount);
    let value = match &appended[..] {
        [Ok(()), Err(refused)] if refused.raw_os_error() == Some(libc::ESTALE) => 5,
        [Err(refused), Ok(())] if refused.raw_os_error() == Some(libc::ESTALE) => 6,
        both => panic!("{both:?}"),
    };
    assert_eq!(scene.elements("a"), [[9; 2 * ROW].as_slice(), &[value; ROW]].concat());
}

#[test]
fn one_of_two_equal_imports_is_refused() {
    let scene = Scene::new();
    let file = |value: u8| {
        let path = scene.folder.path().join(format!("{value}.raw"));
        fs::write(&path, [value; 100]).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let files = [file(5), file(6)];
    scene.first_puts("b/zarr.json", 2, Fault::Together);
    let store = format!("s3://{BUCKET}");
    let imported: Vec<Output> = thread::scope(|scope_of_threads| {
        let importing: Vec<_> = files
            .iter()
            .map(|file| {
                let words = ["import", file, &store, "b", "--shape=100", "--dtype=uint8"];
                let scene = &scene;
                scope_of_threads.spawn(move || scene.run(&words))
            })
            .collect();
        importing.into_iter().map(|importing| importing.join().unwrap()).collect()
    });
    scene.service.be_well();
    let said: Vec<String> =
        imported.iter().map(|output| String::from_utf8_lossy(&output.stderr).into_owned()).collect();
    let done: Vec<u8> = [5, 6]
        .into_iter()
        .zip(&imported)
        .filter(|(_, output)| output.status.success())
        .map(|(value, _)| value)
        .collect();
    let [value] = done[..] else { panic!("{imported:?}") };
    assert!(said.iter().any(|said| said.contains("'b' exists: nothing is replaced")), "{said:?}");
    assert_eq!(scene.elements("b"), [value; 100]);
}

/// The service says which program put an object. Otherwise an append fails, since it could take another program's rows for its own.
#[test]
fn a_lost_reply_of_an_append() {
    if !can_mount() {
        return;
    }
    for drops in [false, true] {
        let scene = Scene::new();
        if drops {
            scene.service.drop_metadata();
        }
        let mount = scene.mount();
        let mut file = File::options().append(true).open(mount.path("a")).unwrap();
        scene.first_puts("a/zarr.json", 1, Fault::LostReply);
        let appended = append(&mut file, 5);
        scene.service.be_well();
        drop(file);
        // What was refused can be done again.
        let mut file = File::options().append(true).open(mount.path("a")).unwrap();
        append(&mut file, 6).unwrap();
        drop(file);
        mount.unmount();
        let first = if drops { [FILL; ROW] } else { [5; ROW] };
        assert_eq!(appended.err().and_then(|error| error.raw_os_error()), drops.then_some(libc::ESTALE));
        assert_eq!(scene.elements("a"), [[9; 2 * ROW].as_slice(), &first, &[6; ROW]].concat());
    }
}

/// A program makes an array of the same name while the old one is removed: nothing of the new one goes.
#[test]
fn what_is_made_anew_during_a_removal_stays() {
    for knows_conditions in [true, false] {
        let scene = Scene::new();
        let array = scene.folder.path().join("store/a");
        fs::create_dir_all(array.join("c/1")).unwrap();
        for chunk in ["c/0/0", "c/1/0"] {
            fs::write(array.join(chunk), [9; 4 * ROW]).unwrap();
        }
        let mut is_made = false;
        scene.service.misbehave(move |asked: &Asked| {
            if asked.method != "DELETE" || !asked.is_chunk() {
                return None;
            }
            if !knows_conditions && asked.if_match.is_some() {
                return Some(Fault::Status(501, "NotImplemented", None));
            }
            // After the writer has looked at this chunk.
            if knows_conditions && asked.key == "a/c/0/0" && !is_made {
                is_made = true;
                let document = v3("uint8", &[4, ROW as u64], &[4, ROW as u64], &json!([{"name": "bytes"}]));
                fs::create_dir_all(array.join("c/0")).unwrap();
                fs::write(array.join("zarr.json"), document.to_string()).unwrap();
                fs::write(array.join("c/0/0"), [7; 4 * ROW]).unwrap();
            }
            None
        });
        let output = scene.run(&["rm", &format!("s3://{BUCKET}"), "a", "--yes"]);
        scene.service.be_well();
        assert!(output.status.success(), "{output:?}");
        let left = scene.folder.path().join("store/a");
        if knows_conditions {
            assert_eq!(scene.service.count("412"), 1, "{}", scene.service.counts());
            assert_eq!(scene.elements("a"), [7; 4 * ROW]);
            assert!(!left.join("c/1/0").exists(), "a chunk of the old array would be one of the new one");
        } else {
            assert!(!left.exists(), "{output:?}");
        }
    }
}

//! A store with files that are written while something breaks, and what they may hold afterwards.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::fixtures::python;
use super::kinds::{self, Kind};
use super::manifest::Region;
use super::mounted::Mount;

/// A store, and what its files may hold.
pub struct Scene {
    /// Removed in the end.
    _folder: Option<TempDir>,
    store: PathBuf,
    /// The folder of its overlay, if it has one.
    overlay: Option<PathBuf>,
    /// The arrays.
    pub kinds: Vec<Kind>,
    /// The regions of each kind.
    pub regions: Vec<Vec<Region>>,
    /// For mounting.
    pub options: &'static [&'static str],
    is_big_endian: bool,
    /// How many unfinished files were found so far.
    pub leftovers: usize,
}

/// A dirty limit of a few chunks, so that writers have to store.
pub const AS_STORED: &[&str] = &["-o", "writable,tune=dirty-limit=48K,cache-size=1M"];
/// The same, served otherwise than stored.
pub const TURNED: &[&str] = &["-o", "writable,tune=dirty-limit=48K,cache-size=1M,order=F,byte-order=big"];

impl Scene {
    /// Makes a scene in a folder of its own.
    pub fn new(options: &'static [&'static str], regions_of_each: u64) -> Scene {
        let folder = tempfile::Builder::new().suffix(".zarr").tempdir().unwrap();
        let scene = Scene::at(folder.path(), options, regions_of_each);
        Scene { _folder: Some(folder), ..scene }
    }

    /// Makes a scene in this folder.
    pub fn at(store: &Path, options: &'static [&'static str], regions_of_each: u64) -> Scene {
        let kinds = kinds::write(store);
        let is_big_endian = options == TURNED;
        // The last kind is emptied at times, which concerns the whole file.
        let count = |kind: &Kind| if kind.name == "nofill" { 1 } else { regions_of_each };
        let regions = kinds.iter().map(|kind| kind.regions(count(kind), is_big_endian)).collect();
        let (store, overlay) = (store.to_owned(), None);
        Scene { _folder: None, store, overlay, kinds, regions, options, is_big_endian, leftovers: 0 }
    }

    /// Adds an overlay in a folder, which takes what is written from now on.
    pub fn with_overlay(mut self, folder: &Path) -> Scene {
        let options = self.options.iter().map(|option| (*option).to_owned());
        let all = options.chain([format!("--overlay={}", folder.display())]);
        // As long as the tests run.
        let all: Vec<&'static str> = all.map(|option| &*Box::leak(option.into_boxed_str())).collect();
        self.options = Vec::leak(all);
        self.overlay = Some(folder.to_owned());
        self
    }

    /// Returns the scene after its overlay was committed.
    pub fn without_overlay(mut self) -> Scene {
        (self.overlay, self.options) = (None, AS_STORED);
        self
    }

    /// Returns the folder that takes what is written.
    pub fn written(&self) -> &Path {
        self.overlay.as_deref().unwrap_or(&self.store)
    }

    /// Returns the path of the store.
    pub fn store(&self) -> &Path {
        &self.store
    }

    /// Returns one element of fill value as served.
    pub fn fill_of(&self, kind: &Kind) -> Vec<u8> {
        let mut fill = kind.fill.clone();
        if self.is_big_endian {
            fill.reverse();
        }
        fill
    }

    /// Looks at the store after a crash, through a new mount, and fails with what is wrong. `None` where nothing can be mounted.
    pub fn check(&mut self, moment: &str) -> Option<()> {
        self.examine()?.unwrap_or_else(|sentence| panic!("{moment}: {sentence}"));
        Some(())
    }

    /// Checks as [`Scene::check`] does, and returns what was lost or torn.
    pub fn examine(&mut self) -> Option<Result<(), String>> {
        if self.written().exists() {
            self.leftovers += kinds::unfinished(self.written()).len();
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_zarrfs"));
        command.arg("check").arg(self.store());
        // It is there after the first mount.
        if let Some(overlay) = self.overlay.as_ref().filter(|folder| folder.join("overlay.json").exists()) {
            command.arg("--overlay").arg(overlay);
        }
        let checked = command.output().unwrap();
        if !checked.status.success() {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            return Some(Err(text(&checked.stdout) + &text(&checked.stderr)));
        }
        let mount = Mount::new(self.store(), self.options, "a crash")?;
        let names = |folder: &Path| -> BTreeSet<String> {
            let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
            names.map(|name| name.into_string().unwrap()).collect()
        };
        let mut expected: BTreeSet<String> = self
            .kinds
            .iter()
            .flat_map(|kind| [kind.name.to_owned(), format!("{}.json", kind.name)])
            .collect();
        expected.insert("__group__.json".to_owned());
        assert_eq!(names(mount.point()), expected);
        for (kind, regions) in self.kinds.iter().zip(&mut self.regions) {
            let file = fs::read(mount.path(kind.name)).unwrap();
            assert_eq!(file.len() as u64, kind.size_bytes);
            for region in regions {
                if let Err(sentence) = region.check(&file) {
                    return Some(Err(format!("{}: {sentence}", kind.name)));
                }
            }
            drop(File::options().write(true).open(mount.path(kind.name)).unwrap());
        }
        assert_eq!(kinds::unfinished(self.written()), [""; 0].map(PathBuf::from), "left by a dead writer");
        mount.unmount();
        Some(Ok(()))
    }

    /// Checks that zarr-python reads what a mount shows.
    pub fn compare_with_python(&self, what: &str) {
        let Some(python) = python(what) else { return };
        let folder = tempfile::tempdir().unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/flat.py");
        let output = Command::new(python).arg(script).arg(self.store()).arg(folder.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let Some(mount) = Mount::new(self.store(), &[], what) else { return };
        for kind in &self.kinds {
            let read = fs::read(folder.path().join(kind.name)).unwrap();
            assert!(
                read == fs::read(mount.path(kind.name)).unwrap(),
                "{}: zarr-python reads otherwise",
                kind.name
            );
        }
        mount.unmount();
    }
}

//! Random programs that make, remove and rename arrays, groups and scratch files through the file system layer (no FUSE), next to a
//! plain map of what there must be. Other programs' view of the store is compared at each remount.
//!
//! `ZARRFS_MODEL_CASES=10000 cargo test --test model names_model::` is a long run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use tempfile::TempDir;
use zarrfs::array::ReplyBuffer;
use zarrfs::cancellation::Cancellation;
use zarrfs::mount::fs::FileSystem;
use zarrfs::mount::fs::error::{Blocking, FsResult};
use zarrfs::mount::fs::inode::ROOT;
use zarrfs::mount::fs::names::{Caller, FolderName};
use zarrfs::mount::options::Options;

use crate::support::handles::Handles;
use crate::support::{folders, level, library};

const CALLER: Caller = Caller { uid: 0, gid: 0, thread: 0, request: 0 };
const FOLDERS: [&str; 4] = ["", "g", "h", "g/h"];
const NAMES: [&str; 9] = ["a", "b", "g", "h", "a.json", "b.json", "a.npy", "g.npy", "s"];
const FILL: u8 = 7;

/// What a program writes into a new file.
#[derive(Clone, Copy, Debug)]
enum Text {
    Declaration(u8),
    Npy(u8),
    Raw(u8),
    Edit(u8),
}

impl Text {
    fn bytes(self) -> Vec<u8> {
        match self {
            Text::Declaration(length) => {
                format!(r#"{{"shape":[{length}],"descr":"|u1","chunks":[3],"fill_value":{FILL}}}"#)
                    .into_bytes()
            }
            Text::Npy(length) => {
                let header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({length},), }}");
                let mut bytes = b"\x93NUMPY\x01\0\x76\0".to_vec();
                bytes.extend(format!("{header:<117}\n").bytes());
                bytes.extend(elements(length));
                bytes
            }
            Text::Raw(length) => elements(length),
            Text::Edit(number) => format!(r#"{{"attributes":{{"n":{number}}}}}"#).into_bytes(),
        }
    }
}

fn elements(length: u8) -> Vec<u8> {
    (0..length).map(|at| at.wrapping_mul(3).wrapping_add(length)).collect()
}

type Place = (usize, usize);

#[derive(Clone, Debug)]
enum Step {
    Mkdir(Place),
    Write(Place, Text),
    Unlink(Place),
    Rmdir(Place),
    Rename(Place, Place),
    Hold(Place),
    UseHeld(usize, u8),
    Release(usize),
    Remount,
}

fn step() -> impl Strategy<Value = Step> {
    let place = || (0..FOLDERS.len(), 0..NAMES.len());
    let text = prop_oneof![
        4 => (1u8..9).prop_map(Text::Declaration),
        3 => (1u8..9).prop_map(Text::Npy),
        3 => (1u8..9).prop_map(Text::Raw),
        1 => (0u8..9).prop_map(Text::Edit),
    ];
    prop_oneof![
        4 => place().prop_map(Step::Mkdir),
        10 => (place(), text).prop_map(|(place, text)| Step::Write(place, text)),
        4 => place().prop_map(Step::Unlink),
        2 => place().prop_map(Step::Rmdir),
        8 => (place(), place()).prop_map(|(from, to)| Step::Rename(from, to)),
        3 => place().prop_map(Step::Hold),
        4 => (0usize..4, any::<u8>()).prop_map(|(held, byte)| Step::UseHeld(held, byte)),
        2 => (0usize..4).prop_map(Step::Release),
        1 => Just(Step::Remount),
    ]
}

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Group,
    Array(Vec<u8>),
}

/// What a name stands for.
#[derive(Clone, Debug, PartialEq)]
enum NameMeaning {
    Group,
    Array,
    Scratch,
    Sidecar(String),
}

struct Held {
    handle: u64,
    path: String,
    is_stale: bool,
}

struct Model {
    folder: TempDir,
    fs: FileSystem,
    nodes: BTreeMap<String, Node>,
    scratch: BTreeMap<(String, String), Vec<u8>>,
    held: Vec<Held>,
}

fn join(group: &str, name: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{group}/{name}") }
}

fn errno<T>(reply: FsResult<T>) -> Result<T, i32> {
    reply.map_err(|failure| failure.errno())
}

fn mounted(folder: &TempDir) -> FileSystem {
    let store = zarrfs::store::open(folder.path().to_str().unwrap(), false).unwrap();
    let mut options = Options::new("model", "/nowhere");
    (options.writable, options.create, options.delete) = (true, true, true);
    (options.threads, options.revalidate_seconds, options.writeback_delay) = (1, 0.0, None);
    FileSystem::new(Arc::new(options), store)
}

impl Model {
    fn new() -> Self {
        let folder = folders::in_memory();
        std::fs::write(folder.path().join("zarr.json"), r#"{"zarr_format":3,"node_type":"group"}"#).unwrap();
        let nodes = BTreeMap::from([(String::new(), Node::Group)]);
        Model { fs: mounted(&folder), folder, nodes, scratch: BTreeMap::new(), held: Vec::new() }
    }

    fn find(&self, group: &str, name: &str) -> Option<NameMeaning> {
        match self.nodes.get(&join(group, name)) {
            Some(Node::Group) => return Some(NameMeaning::Group),
            Some(Node::Array(_)) => return Some(NameMeaning::Array),
            None => {}
        }
        if self.scratch.contains_key(&(group.to_owned(), name.to_owned())) {
            return Some(NameMeaning::Scratch);
        }
        let path = join(group, name.strip_suffix(".json")?);
        matches!(self.nodes.get(&path), Some(Node::Array(_))).then_some(NameMeaning::Sidecar(path))
    }

    fn inode(&self, path: &str) -> Result<u64, i32> {
        let mut inode = ROOT;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            inode = errno(self.fs.lookup(inode, name, Blocking::Yes))?.attributes.inode;
        }
        Ok(inode)
    }

    /// Returns what a file with this name becomes: an array, or a scratch file for a reason.
    fn finish(&mut self, group: &str, name: &str) -> Result<(), i32> {
        let key = (group.to_owned(), name.to_owned());
        let bytes = self.scratch[&key].clone();
        let is_text = |text: Text| bytes == text.bytes();
        let (stem, length) = if let Some(stem) = name.strip_suffix(".json") {
            (stem, (1..9).find(|&length| is_text(Text::Declaration(length))))
        } else if let Some(stem) = name.strip_suffix(".npy") {
            (stem, (1..9).find(|&length| is_text(Text::Npy(length))))
        } else {
            return Ok(());
        };
        let path = join(group, stem);
        let length = length.filter(|_| !self.nodes.contains_key(&path)).ok_or(libc::EINVAL)?;
        let own = (group.to_owned(), stem.to_owned());
        let content = match (self.scratch.get(&own), name.ends_with(".npy")) {
            (Some(_), true) => return Err(libc::EINVAL),
            (Some(raw), false) if raw.len() != usize::from(length) => return Err(libc::EINVAL),
            (Some(raw), false) => raw.clone(),
            (None, true) => elements(length),
            (None, false) => vec![FILL; length.into()],
        };
        self.scratch.remove(&own);
        self.scratch.remove(&key);
        self.nodes.insert(path, Node::Array(content));
        Ok(())
    }

    fn make_stale(&mut self, path: &str) {
        let below = format!("{path}/");
        for held in &mut self.held {
            held.is_stale |= held.path == path || held.path.starts_with(&below);
        }
    }

    fn write(&mut self, group: &str, name: &str, text: Text) {
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL;
        let created = errno(self.fs.opens().create(self.inode(group).unwrap(), name, 0o644, flags, CALLER));
        if self.find(group, name).is_some() {
            assert_eq!(created.map(drop), Err(libc::EEXIST), "create {group}/{name}");
            return;
        }
        let handle = created.unwrap().1.handle;
        let bytes = text.bytes();
        self.fs.write(handle, 0, &bytes, false).unwrap();
        self.scratch.insert((group.to_owned(), name.to_owned()), bytes);
        let closed = errno(self.fs.flush(handle));
        self.fs.opens().release(handle);
        assert_eq!(closed, self.finish(group, name), "close {group}/{name} {text:?}");
    }

    fn unlink(&mut self, group: &str, name: &str) {
        let removed = errno(self.fs.names().unlink(self.inode(group).unwrap(), name, CALLER));
        let expected = match self.find(group, name) {
            None => Err(libc::ENOENT),
            Some(NameMeaning::Group) => Err(libc::EISDIR),
            Some(NameMeaning::Scratch) => {
                self.scratch.remove(&(group.to_owned(), name.to_owned()));
                Ok(())
            }
            Some(NameMeaning::Array) => self.remove(&join(group, name)),
            Some(NameMeaning::Sidecar(path)) => self.remove(&path),
        };
        assert_eq!(removed, expected, "unlink {group}/{name}");
    }

    fn remove(&mut self, path: &str) -> Result<(), i32> {
        self.nodes.remove(path);
        self.make_stale(path);
        Ok(())
    }

    fn rmdir(&mut self, group: &str, name: &str) {
        let removed = errno(self.fs.names().remove_folder(self.inode(group).unwrap(), name, CALLER));
        let path = join(group, name);
        let below = format!("{path}/");
        let expected = match self.find(group, name) {
            None => Err(libc::ENOENT),
            Some(NameMeaning::Group)
                if self.nodes.keys().any(|node| node.starts_with(&below))
                    || self.scratch.keys().any(|(group, _)| *group == path) =>
            {
                Err(libc::ENOTEMPTY)
            }
            Some(NameMeaning::Group) => self.remove(&path),
            Some(_) => Err(libc::ENOTDIR),
        };
        assert_eq!(removed, expected, "rmdir {path}");
    }

    fn mkdir(&mut self, group: &str, name: &str) {
        let made =
            errno(self.fs.names().make_folder(self.inode(group).unwrap(), name, 0o755, CALLER)).map(drop);
        let expected = match self.find(group, name) {
            Some(_) => Err(libc::EEXIST),
            None => {
                self.nodes.insert(join(group, name), Node::Group);
                Ok(())
            }
        };
        assert_eq!(made, expected, "mkdir {group}/{name}");
    }

    fn rename(&mut self, from: (&str, &str), to: (&str, &str)) {
        let source = self.find(from.0, from.1);
        let is_plain = !to.1.contains('.');
        match &source {
            // A sidecar with another name is a copy, and the model does not follow nodes with names like that.
            Some(NameMeaning::Sidecar(_)) if !to.1.ends_with(".json") => return,
            Some(NameMeaning::Array | NameMeaning::Group) if !is_plain => return,
            _ => {}
        }
        let (folder, new) = (self.inode(from.0).unwrap(), self.inode(to.0).unwrap());
        let (old, new) = (FolderName { folder, name: from.1 }, FolderName { folder: new, name: to.1 });
        let renamed = errno(self.fs.names().rename(old, new, false, CALLER)).map(drop);
        let expected = match source {
            None => Err(libc::ENOENT),
            Some(_) if from == to => Ok(()),
            Some(NameMeaning::Scratch) => self.rename_scratch(from, to),
            Some(NameMeaning::Array | NameMeaning::Group) => {
                self.rename_node(&join(from.0, from.1), to.0, to.1)
            }
            Some(NameMeaning::Sidecar(path)) => match self.find(to.0, to.1) {
                Some(NameMeaning::Scratch) => Err(libc::EEXIST),
                _ => self.rename_node(&path, to.0, to.1.strip_suffix(".json").unwrap()),
            },
        };
        assert_eq!(renamed, expected, "rename {from:?} {to:?}");
    }

    fn rename_scratch(&mut self, from: (&str, &str), to: (&str, &str)) -> Result<(), i32> {
        let key = |(group, name): (&str, &str)| (group.to_owned(), name.to_owned());
        let bytes = self.scratch[&key(from)].clone();
        match self.find(to.0, to.1) {
            Some(NameMeaning::Group) => Err(libc::EISDIR),
            Some(NameMeaning::Array) => {
                let Some(Node::Array(content)) = self.nodes.get_mut(&join(to.0, to.1)) else {
                    unreachable!()
                };
                if content.len() != bytes.len() {
                    return Err(libc::EINVAL);
                }
                *content = bytes;
                self.scratch.remove(&key(from));
                Ok(())
            }
            Some(NameMeaning::Sidecar(_)) => {
                (0..9).find(|&number| Text::Edit(number).bytes() == bytes).ok_or(libc::EINVAL)?;
                self.scratch.remove(&key(from));
                Ok(())
            }
            Some(NameMeaning::Scratch) | None => {
                let before = self.scratch.clone();
                self.scratch.insert(key(to), bytes);
                self.finish(to.0, to.1).inspect_err(|_| self.scratch = before)?;
                self.scratch.remove(&key(from));
                Ok(())
            }
        }
    }

    fn rename_node(&mut self, from: &str, group: &str, name: &str) -> Result<(), i32> {
        let to = join(group, name);
        let below = format!("{from}/");
        if to.starts_with(&below) {
            return Err(libc::EINVAL);
        }
        if self.find(group, name).is_some() {
            return Err(libc::EEXIST);
        }
        let moved = |path: &str| -> Option<String> {
            (path == from || path.starts_with(&below)).then(|| format!("{to}{}", &path[from.len()..]))
        };
        let nodes = std::mem::take(&mut self.nodes);
        self.nodes = nodes.into_iter().map(|(path, node)| (moved(&path).unwrap_or(path), node)).collect();
        let scratch = std::mem::take(&mut self.scratch);
        let key = |(group, name): (String, String)| (moved(&group).unwrap_or(group), name);
        self.scratch = scratch.into_iter().map(|(place, bytes)| (key(place), bytes)).collect();
        self.make_stale(from);
        Ok(())
    }

    fn hold(&mut self, group: &str, name: &str) {
        let path = join(group, name);
        if self.held.len() < 4 && matches!(self.nodes.get(&path), Some(Node::Array(_))) {
            let inode = self.inode(&path).unwrap();
            let handle = self.fs.opens().open(inode, libc::O_RDWR, &Cancellation::never()).unwrap().handle;
            self.held.push(Held { handle, path, is_stale: false });
        }
    }

    fn use_held(&mut self, held: usize, byte: u8) {
        let Some(held) = self.held.get(held) else { return };
        let written = errno(self.fs.write(held.handle, 0, &[byte], false)).map(drop);
        let expected = if held.is_stale { Err(libc::ESTALE) } else { Ok(()) };
        assert_eq!(written, expected, "write to {}", held.path);
        if let (Some(Node::Array(content)), false) = (self.nodes.get_mut(&held.path), held.is_stale) {
            content[0] = byte;
        }
    }

    fn release(&mut self, held: usize) {
        if held < self.held.len() {
            let held = self.held.remove(held);
            let _ = self.fs.flush(held.handle);
            self.fs.opens().release(held.handle);
        }
    }

    fn read(&self, path: &str) -> Vec<u8> {
        let inode = self.inode(path).unwrap_or_else(|errno| panic!("{path}: {errno}"));
        let handle = self.fs.opens().open(inode, libc::O_RDONLY, &Cancellation::never()).unwrap().handle;
        let mut buffer = ReplyBuffer::default();
        let read = self.fs.read(handle, 0, 4096, &mut buffer, &Cancellation::never()).unwrap().to_vec();
        self.fs.opens().release(handle);
        read
    }

    fn check(&self) {
        for (path, node) in &self.nodes {
            let Node::Group = node else {
                let Node::Array(content) = node else { continue };
                assert_eq!(self.read(path), *content, "{path}");
                continue;
            };
            let mut expected = vec![".".to_owned(), "..".to_owned(), "__group__.json".to_owned()];
            for (below, node) in &self.nodes {
                let (parent, name) = below.rsplit_once('/').unwrap_or(("", below));
                if parent != path || below.is_empty() {
                    continue;
                }
                expected.push(name.to_owned());
                if matches!(node, Node::Array(_)) {
                    expected.push(format!("{name}.json"));
                }
            }
            expected
                .extend(self.scratch.keys().filter(|(group, _)| group == path).map(|(_, name)| name.clone()));
            expected.sort();
            expected.dedup();
            let handle = self.fs.opens().open_folder(self.inode(path).unwrap()).unwrap();
            let mut found: Vec<_> = self
                .fs
                .opens()
                .listing(handle, Blocking::Yes)
                .unwrap()
                .entries()
                .iter()
                .map(|entry| entry.name.clone())
                .collect();
            found.sort();
            self.fs.opens().release(handle);
            assert_eq!(found, expected, "in /{path}");
        }
        for ((group, name), bytes) in &self.scratch {
            assert_eq!(self.read(&join(group, name)), *bytes, "scratch {group}/{name}");
        }
    }

    /// Ends the mount, looks at the store as other programs do, and mounts it again.
    fn remount(&mut self) {
        while !self.held.is_empty() {
            self.release(0);
        }
        assert!(self.fs.store_all(Duration::from_secs(60)).is_empty());
        self.fs.gate().end_service();
        self.scratch.clear();
        let store = zarrfs::store::open(self.folder.path().to_str().unwrap(), false).unwrap();
        let found: Vec<_> = zarrfs::hierarchy::Tree::new(store.clone())
            .walk("", usize::MAX)
            .map(|visit| visit.path)
            .collect();
        let mut expected: Vec<_> = self.nodes.keys().cloned().collect();
        let mut sorted = found;
        sorted.sort();
        expected.sort();
        assert_eq!(sorted, expected, "in the store");
        for (path, node) in &self.nodes {
            if let Node::Array(content) = node {
                assert_eq!(library::read(&store, path).unwrap(), *content, "{path} in the store");
            }
        }
        self.fs = mounted(&self.folder);
    }

    fn apply(&mut self, step: &Step) {
        let place = |(folder, name): Place| (FOLDERS[folder], NAMES[name]);
        let is_group = |model: &Model, place: Place| model.nodes.get(FOLDERS[place.0]) == Some(&Node::Group);
        match *step {
            Step::Mkdir(at) if is_group(self, at) && !NAMES[at.1].contains('.') => {
                self.mkdir(place(at).0, place(at).1);
            }
            Step::Write(at, text) if is_group(self, at) => self.write(place(at).0, place(at).1, text),
            Step::Unlink(at) if is_group(self, at) => self.unlink(place(at).0, place(at).1),
            Step::Rmdir(at) if is_group(self, at) => self.rmdir(place(at).0, place(at).1),
            Step::Rename(from, to) if is_group(self, from) && is_group(self, to) => {
                self.rename(place(from), place(to));
            }
            Step::Hold(at) => self.hold(place(at).0, place(at).1),
            Step::UseHeld(held, byte) => self.use_held(held, byte),
            Step::Release(held) => self.release(held),
            Step::Remount => self.remount(),
            _ => return,
        }
        self.check();
    }
}

/// Returns the same programs each time, unless the number of cases is given.
fn runner() -> TestRunner {
    let is_campaign = std::env::var_os("ZARRFS_MODEL_CASES").is_some();
    let config = ProptestConfig {
        cases: level::count("ZARRFS_MODEL_CASES", 40, 150),
        failure_persistence: None,
        max_shrink_iters: 1000,
        ..ProptestConfig::default()
    };
    if is_campaign {
        TestRunner::new(config)
    } else {
        TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
    }
}

#[test]
fn nodes_and_scratch_files_are_a_map() {
    let checked = runner().run(&vec(step(), 1..60), |steps| {
        let mut model = Model::new();
        for step in &steps {
            model.apply(step);
        }
        model.remount();
        model.check();
        Ok(())
    });
    checked.unwrap();
}

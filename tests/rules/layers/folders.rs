//! The order of the folders inside a layer: imports go one way.
//!
//! Only paths are read, so an item that a parent module re-exports counts as the parent's; `circles` sees through that.

use super::Faults;
use super::rust::{line_of, module_of, occurrences, used_paths};

/// The modules of a folder of `src`, from the bottom to the top: each may use itself and those before it. Every
/// folder in it must be listed. A file that is not listed, and the folder's own `mod.rs`, may use all of them.
pub const ORDERS: [(&str, &[&str]); 2] = [
    (
        "array",
        &[
            "sync",
            "geometry",
            "cache",
            "source",
            "served",
            "write",
            "read",
            "readahead",
            "variable",
            "interleavings",
        ],
    ),
    ("mount", &["options", "metrics", "log_file", "access_log", "journal", "fs", "fuse", "daemon"]),
];

/// Crates that only some folders may use.
const CRATES: [(&str, &[&str]); 1] = [("fuser", &["mount/fuse/", "mount/daemon/"])];

/// Uses against one of `orders`; `path` is relative to `src`.
pub fn disordered_uses(path: &str, code: &str, orders: &[(&str, &[&str])]) -> Faults {
    let module = module_of(path);
    let mut faults = Faults::new();
    for (folder, order) in orders {
        let Some((own, is_folder)) = module_in(folder, &module, path) else { continue };
        let Some(own_place) = order.iter().position(|name| *name == own) else {
            if is_folder {
                let fault = format!(
                    "{folder}/{own} has no place in the order; tests/rules/layers/folders.rs lists it"
                );
                faults.push((1, fault));
            }
            continue;
        };
        for (start, used) in used_paths(&module, code) {
            let Some(other) = below(folder, &used) else { continue };
            if order.iter().position(|name| *name == other).is_some_and(|place| place > own_place) {
                let fault = format!("{folder}/{own} uses {folder}/{other}, which is above it");
                faults.push((line_of(code, start), fault));
            }
        }
    }
    faults.dedup();
    faults
}

/// Uses of a crate that only some folders may use; `path` is relative to `src`.
pub fn misplaced_crates(path: &str, code: &str) -> Faults {
    let misplaced =
        CRATES.iter().filter(|(_, folders)| !folders.iter().any(|folder| path.starts_with(folder)));
    let uses = misplaced.flat_map(|(name, folders)| {
        let fault = format!("{name} is used only in {}", folders.join(" and "));
        occurrences(code, name).map(move |start| (line_of(code, start), fault.clone()))
    });
    uses.collect()
}

/// Returns the module of `folder` that a file belongs to, and whether that is a folder.
fn module_in<'a>(folder: &str, module: &[&'a str], path: &str) -> Option<(&'a str, bool)> {
    let own = below(folder, module)?;
    let is_file = path.strip_suffix(".rs") == Some(&format!("{folder}/{own}"));
    Some((own, !is_file))
}

/// Returns the segment of a path after `folder`.
fn below<'a>(folder: &str, path: &[&'a str]) -> Option<&'a str> {
    let depth = folder.split('/').count();
    path.iter().copied().zip(folder.split('/')).all(|(a, b)| a == b).then(|| path.get(depth).copied())?
}

#[test]
fn disordered_uses_are_found() {
    let orders: [(&str, &[&str]); 2] = [("a", &["low", "mid", "top"]), ("a/mid", &["x", "y"])];
    let faults = |path: &str, code: &str| disordered_uses(path, code, &orders).len();
    for (path, code) in [
        ("a/low/f.rs", "use crate::a::top::T;"),
        ("a/low.rs", "use crate::a::{low::L, mid::{self, M}};"),
        ("a/low/mod.rs", "use super::mid::M;"),
        ("a/low/f.rs", "mod tests { use super::super::super::mid::M; }"),
        ("a/mid/x/f.rs", "use super::super::y::Y;"),
        ("a/mid/x.rs", "fn f() { crate::a::mid::y::g() }"),
        ("a/other/f.rs", ""),
    ] {
        assert_eq!(faults(path, code), 1, "{path}: {code}");
    }
    for (path, code) in [
        ("a/top/f.rs", "use crate::a::{low::L, mid::M};\nuse super::super::low;"),
        ("a/low/f.rs", "use super::g;\nuse crate::b::top::T;\npub(super) fn f(&self) { self.top() }"),
        ("a/mod.rs", "use crate::a::top::T; use self::mid::M;"),
        ("a/other.rs", "use crate::a::top::T;"),
        ("a/mid/y.rs", "use crate::a::mid::x::X;"),
    ] {
        assert_eq!(faults(path, code), 0, "{path}: {code}");
    }
}

#[test]
fn misplaced_crates_are_found() {
    assert_eq!(misplaced_crates("mount/fs/mod.rs", "use fuser::INodeNo;").len(), 1);
    assert_eq!(misplaced_crates("mount/fuse/mod.rs", "use fuser::INodeNo;").len(), 0);
}

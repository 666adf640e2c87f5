//! A mounted hierarchy of arrays of all kinds, driven through the file system layer (no FUSE), next to a plain byte vector for
//! each file that says what must be read. Used by `fs_model`.

pub mod arrays;
pub mod failing;
pub mod files;
mod growth;
mod kernel;
mod others;
mod sizes;

use std::sync::Arc;

use zarrfs::store::overlay::{Access, OverlayOptions};
use zarrfs::store::{MemoryStore, Store, StoreOptions};

use crate::support::folders;

/// Returns the name of an array and its file.
fn name(file: usize) -> String {
    format!("a{file}")
}

/// Returns a store with the arrays' documents: in memory, in a folder, or in a folder below an overlay.
fn place(
    has_folder: bool,
    has_overlay: bool,
    cases: &[arrays::ArrayCase],
) -> (Option<tempfile::TempDir>, Arc<dyn Store>) {
    let memory = MemoryStore::new();
    let folder = has_folder.then(folders::in_memory);
    for (number, case) in cases.iter().enumerate() {
        for (key, document) in case.documents() {
            let (key, text) = (format!("{}/{key}", name(number)), document.to_string());
            if let Some(folder) = &folder {
                let path = folder.path().join("store").join(&key);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            } else {
                memory.put(&key, text.into_bytes()).unwrap();
            }
        }
    }
    match folder {
        Some(folder) => {
            let overlay = OverlayOptions { folder: folder.path().join("overlay"), access: Access::Write };
            let options = StoreOptions { overlay: has_overlay.then_some(overlay), ..StoreOptions::default() };
            let store =
                zarrfs::store::open_with(folder.path().join("store").to_str().unwrap(), &options).unwrap();
            (Some(folder), store)
        }
        None => (None, Arc::new(memory)),
    }
}

//! The parts of a mount that its rooms are built from.
//!
//! This file uses only parts that use no room. A room keeps the parts that it needs, never all of them.

use std::sync::Arc;

use crate::array::{Engine, EngineOptions};
use crate::hierarchy::{OpenArrays, Tree};
use crate::memory::limit_idle_bytes;
use crate::mount::fs::accesses::Accesses;
use crate::mount::fs::arrays::ServedArrays;
use crate::mount::fs::attributes::permissions::Permissions;
use crate::mount::fs::inode::InodeTable;
use crate::mount::fs::node_cache::NodeCache;
use crate::mount::fs::open_file::HandleTable;
use crate::mount::fs::page_cache::cache_mode::CachePolicy;
use crate::mount::fs::request::RequestLog;
use crate::mount::fs::request::gate::RequestGate;
use crate::mount::options::Options;
use crate::store::{Catalogue, Remote, Store};

/// The parts of a mount that every room may use.
pub struct MountParts {
    /// The options of the mount.
    pub options: Arc<Options>,
    /// Encodes and decodes chunks, and has the dirty ones.
    pub engine: Arc<Engine>,
    /// The open arrays.
    pub arrays: Arc<OpenArrays>,
    /// The same, kept in line with the store.
    pub served: Arc<ServedArrays>,
    /// The nodes and the store.
    pub nodes: Arc<NodeCache>,
    /// The inodes.
    pub inodes: Arc<InodeTable>,
    /// The rules for owners and modes.
    pub permissions: Arc<Permissions>,
    /// The open files and folders.
    pub handles: Arc<HandleTable>,
    /// The counters and failures.
    pub log: Arc<RequestLog>,
    /// The accesses to files, for the access log.
    pub accesses: Arc<Accesses>,
    /// Lets requests in.
    pub gate: Arc<RequestGate>,
    /// Decides whether a file uses the page cache.
    pub cache_policy: Arc<CachePolicy>,
    /// The name of the root's file, if the root is an array.
    pub root_name: Arc<str>,
}

impl MountParts {
    /// Creates the parts of a mount of this store. Reads nothing yet.
    pub fn new(options: Arc<Options>, store: Arc<dyn Store>) -> Self {
        // Bytes that a remote store transfers ahead of its readers are a part of the cache's memory.
        let is_catalogue = store.catalogue().is_some();
        let of_members = store.catalogue().map_or(0, Catalogue::transfer_limit_bytes);
        let transfer_bytes = store.remote().map_or(of_members, Remote::transfer_limit_bytes);
        let engine = Engine::with_options(EngineOptions {
            cache_limit_bytes: options.cache_limit_bytes.saturating_sub(transfer_bytes),
            threads: options.threads,
            dirty_limit_bytes: options.dirty_limit_bytes,
            writeback_delay: options.writeback_delay,
            page_cache_keeps: !options.direct_io,
            kept_bytes: options.kept_bytes,
        });
        limit_idle_bytes(options.cache_limit_bytes);
        let arrays = Arc::new(OpenArrays::new(&engine, &store, options.layout));
        let nodes = Arc::new(NodeCache::with_remote_members(
            Tree::new(store),
            options.revalidate(),
            options.revalidate_remote_members,
        ));
        let inodes = Arc::new(InodeTable::new(arrays.clone()));
        let permissions =
            Permissions::new(options.store_path.as_deref(), options.writable, options.ownership);
        let permissions = Arc::new(permissions);
        let served = ServedArrays::new(nodes.clone(), inodes.clone(), arrays.clone(), permissions.clone());
        let handles = Arc::<HandleTable>::default();
        MountParts {
            accesses: Arc::new(Accesses::new(inodes.clone(), handles.clone())),
            served: Arc::new(served),
            permissions,
            handles,
            log: Arc::new(RequestLog::new(inodes.clone(), options.request_deadline)),
            gate: Arc::new(RequestGate::new(is_catalogue)),
            cache_policy: Arc::new(CachePolicy::new(options.direct_io, options.prefetch)),
            root_name: root_name(&options).into(),
            options,
            engine,
            arrays,
            nodes,
            inodes,
        }
    }
}

/// Returns the name of a root that is an array: the name of the store without `.zip` and `.zarr`.
fn root_name(options: &Options) -> String {
    let source_name = crate::store::store_name(&options.source);
    // A pipeline names what it opens in a path.
    let is_of_path = !options.source.contains('|');
    let path = options.store_path.as_deref().filter(|_| is_of_path);
    let path_name = path.and_then(|path| path.file_name()).and_then(|n| n.to_str());
    crate::formats::root_name(path_name.unwrap_or(source_name))
}

//! The rooms of a file system, put together: each gets the parts that it needs, from the bottom to the top.

use std::sync::Arc;
use std::time::Instant;

use crate::array::{Engine, EngineOptions};
use crate::hierarchy::{OpenArrays, Tree};
use crate::memory::limit_idle_bytes;
use crate::mount::fs::FileSystem;
use crate::mount::fs::array_files::open::{ArrayFileParts, ArrayFiles};
use crate::mount::fs::arrays::ServedArrays;
use crate::mount::fs::commit::{CommitParts, Commits};
use crate::mount::fs::entries::Entries;
use crate::mount::fs::gate::RequestGate;
use crate::mount::fs::inode::InodeTable;
use crate::mount::fs::names::changes::NameChanges;
use crate::mount::fs::names::make::{PromotionParts, Promotions};
use crate::mount::fs::names::open::ScratchFiles;
use crate::mount::fs::names::permissions::NodePermissions;
use crate::mount::fs::names::table::NameTable;
use crate::mount::fs::node_cache::NodeCache;
use crate::mount::fs::open_file::HandleTable;
use crate::mount::fs::page_cache::cache_mode::CachePolicy;
use crate::mount::fs::permissions::Permissions;
use crate::mount::fs::request::RequestLog;
use crate::mount::fs::stat::{AttributeParts, FileAttributes};
use crate::mount::fs::virtual_files::companion_names::CompanionNames;
use crate::mount::fs::virtual_files::companions::Companions;
use crate::mount::fs::virtual_files::generated::{DaemonInfo, OwnFiles};
use crate::mount::fs::virtual_files::open::VirtualFiles;
use crate::mount::fs::virtual_files::sidecar_edit::Drafts;
use crate::mount::fs::virtual_files::subjects::Subjects;
use crate::mount::fs::xattr::ExtendedAttributes;
use crate::mount::options::Options;
use crate::store::{Remote, Store};

/// What every room may stand on.
#[derive(Clone)]
struct Ground {
    options: Arc<Options>,
    engine: Arc<Engine>,
    arrays: Arc<OpenArrays>,
    nodes: Arc<NodeCache>,
    inodes: Arc<InodeTable>,
    served: Arc<ServedArrays>,
    permissions: Arc<Permissions>,
    handles: Arc<HandleTable>,
    log: Arc<RequestLog>,
    gate: Arc<RequestGate>,
    cache_policy: Arc<CachePolicy>,
    /// The name of the root's file, if the root is an array.
    root_name: Arc<str>,
}

impl Ground {
    fn new(options: Arc<Options>, store: Arc<dyn Store>) -> Self {
        // What a remote store transfers ahead of its readers is a part of the cache's memory.
        let transfer_bytes = store.remote().map_or(0, Remote::transfer_limit_bytes);
        let engine = Engine::with_options(EngineOptions {
            cache_limit_bytes: options.cache_limit_bytes.saturating_sub(transfer_bytes),
            threads: options.threads,
            dirty_limit_bytes: options.dirty_limit_bytes,
            writeback_delay: options.writeback_delay,
            page_cache_keeps: !options.direct_io,
        });
        limit_idle_bytes(options.cache_limit_bytes);
        let arrays = Arc::new(OpenArrays::new(&engine, &store, options.layout));
        let nodes = Arc::new(NodeCache::new(Tree::new(store), options.revalidate()));
        let inodes = Arc::new(InodeTable::new(arrays.clone()));
        let permissions =
            Permissions::new(options.store_path.as_deref(), options.writable, options.ownership);
        let permissions = Arc::new(permissions);
        let served = ServedArrays::new(nodes.clone(), inodes.clone(), arrays.clone(), permissions.clone());
        Ground {
            served: Arc::new(served),
            permissions,
            handles: Arc::default(),
            log: Arc::new(RequestLog::new(inodes.clone(), options.request_deadline)),
            gate: Arc::default(),
            cache_policy: Arc::new(CachePolicy::new(options.direct_io, options.prefetch)),
            root_name: root_name(&options).into(),
            options,
            engine,
            arrays,
            nodes,
            inodes,
        }
    }

    fn array_files(&self) -> Arc<ArrayFiles> {
        let parts = ArrayFileParts {
            nodes: self.nodes.clone(),
            inodes: self.inodes.clone(),
            arrays: self.arrays.clone(),
            served: self.served.clone(),
            permissions: self.permissions.clone(),
            cache_policy: self.cache_policy.clone(),
            handles: self.handles.clone(),
            log: self.log.clone(),
            gate: self.gate.clone(),
        };
        Arc::new(ArrayFiles::new(parts, &self.options))
    }

    fn own_files(&self, table: &Arc<NameTable>, daemon: DaemonInfo) -> (Arc<Commits>, Arc<OwnFiles>) {
        let parts = CommitParts {
            nodes: self.nodes.clone(),
            inodes: self.inodes.clone(),
            engine: self.engine.clone(),
            names: table.clone(),
            log: self.log.clone(),
            gate: self.gate.clone(),
        };
        let (is_writable, deadline) = (self.options.writable, self.options.request_deadline);
        let commits = Arc::new(Commits::new(parts, is_writable, deadline));
        let own_files = OwnFiles {
            options: self.options.clone(),
            daemon,
            nodes: self.nodes.clone(),
            engine: self.engine.clone(),
            inodes: self.inodes.clone(),
            handles: self.handles.clone(),
            commits: commits.clone(),
            log: self.log.clone(),
            started_at: Instant::now(),
        };
        (commits, Arc::new(own_files))
    }

    fn node_permissions(&self, table: &Arc<NameTable>) -> Arc<NodePermissions> {
        Arc::new(NodePermissions::new(
            self.nodes.clone(),
            self.inodes.clone(),
            table.clone(),
            self.permissions.clone(),
            self.options.clone(),
        ))
    }

    fn promotions(
        &self,
        table: &Arc<NameTable>,
        generated: &Generated,
        permissions: &Arc<NodePermissions>,
    ) -> Arc<Promotions> {
        let parts = PromotionParts {
            nodes: self.nodes.clone(),
            engine: self.engine.clone(),
            names: table.clone(),
            companion_names: generated.companion_names.clone(),
            drafts: generated.drafts.clone(),
            permissions: permissions.clone(),
            log: self.log.clone(),
        };
        Arc::new(Promotions::new(parts, self.options.clone()))
    }

    fn attributes(
        &self,
        table: &Arc<NameTable>,
        generated: &Generated,
        own_files: &Arc<OwnFiles>,
    ) -> Arc<FileAttributes> {
        let parts = AttributeParts {
            nodes: self.nodes.clone(),
            inodes: self.inodes.clone(),
            arrays: self.arrays.clone(),
            served: self.served.clone(),
            permissions: self.permissions.clone(),
            names: table.clone(),
            companion_names: generated.companion_names.clone(),
            companions: generated.companions.clone(),
            drafts: generated.drafts.clone(),
            own_files: own_files.clone(),
        };
        Arc::new(FileAttributes::new(parts, self.options.clone()))
    }
}

/// The rooms of files that are made of nodes.
struct Generated {
    companion_names: Arc<CompanionNames>,
    companions: Arc<Companions>,
    drafts: Arc<Drafts>,
}

impl Generated {
    fn new(ground: &Ground) -> Self {
        let Ground { options, arrays, nodes, inodes, log, gate, root_name, .. } = ground;
        let subjects = Subjects::new(
            nodes.clone(),
            arrays.clone(),
            ground.served.clone(),
            ground.permissions.clone(),
            options.formats.clone(),
            root_name.clone(),
        );
        let subjects = Arc::new(subjects);
        let companion_names =
            CompanionNames::new(nodes.clone(), arrays.clone(), subjects.clone(), root_name.clone());
        let drafts = Drafts::new(nodes.clone(), subjects.clone(), log.clone(), gate.clone());
        let (nodes, arrays, inodes) = (nodes.clone(), arrays.clone(), inodes.clone());
        let companions = Companions::new(nodes, arrays, inodes, subjects, options.cache_limit_bytes);
        Generated {
            companion_names: Arc::new(companion_names),
            companions: Arc::new(companions),
            drafts: Arc::new(drafts),
        }
    }
}

impl FileSystem {
    /// A file system over an open store. Reads nothing yet.
    pub fn new(options: Arc<Options>, store: Arc<dyn Store>) -> Self {
        Self::of_daemon(options, store, DaemonInfo::default())
    }

    /// As [`FileSystem::new`]; `config.json` shows what the daemon says of itself.
    pub fn of_daemon(options: Arc<Options>, store: Arc<dyn Store>, daemon: DaemonInfo) -> Self {
        let ground = Ground::new(options, store);
        let Ground { options, arrays, nodes, inodes, log, gate, .. } = ground.clone();
        let table = NameTable::new(inodes.clone(), log.clone(), options.scratch_limit_bytes);
        let table = Arc::new(table);
        let generated = Generated::new(&ground);
        let (commits, own_files) = ground.own_files(&table, daemon);
        let attributes = ground.attributes(&table, &generated, &own_files);
        let Generated { companion_names, companions, drafts } = &generated;
        let entries = Arc::new(Entries::new(
            nodes.clone(),
            inodes.clone(),
            table.clone(),
            companion_names.clone(),
            own_files.clone(),
            ground.root_name.clone(),
        ));
        let node_permissions = ground.node_permissions(&table);
        let promotions = ground.promotions(&table, &generated, &node_permissions);
        let scratch_files = Arc::new(ScratchFiles::new(promotions.clone(), gate.clone()));
        let array_files = ground.array_files();
        let virtual_files =
            VirtualFiles::new(ground.served.clone(), ground.cache_policy.clone(), log.clone(), gate.clone());
        let names = NameChanges {
            nodes: nodes.clone(),
            inodes: inodes.clone(),
            arrays,
            handles: ground.handles.clone(),
            table: table.clone(),
            entries: entries.clone(),
            attributes: attributes.clone(),
            drafts: drafts.clone(),
            array_files: array_files.clone(),
            scratch_files: scratch_files.clone(),
            promotions,
            permissions: node_permissions.clone(),
            log: log.clone(),
            options: options.clone(),
        };
        FileSystem {
            extended_attributes: ExtendedAttributes::new(nodes.clone(), table, drafts.clone()),
            virtual_files: Arc::new(virtual_files),
            engine: ground.engine,
            handles: ground.handles,
            cache_policy: ground.cache_policy,
            options,
            nodes,
            inodes,
            log,
            gate,
            entries,
            attributes,
            array_files,
            companions: companions.clone(),
            drafts: drafts.clone(),
            own_files,
            commits,
            scratch_files,
            node_permissions,
            names,
        }
    }
}

/// The name of a root that is an array: the name of the store without `.zip` and `.zarr`.
fn root_name(options: &Options) -> String {
    let of_path = options.store_path.as_deref().and_then(|path| path.file_name()).and_then(|n| n.to_str());
    let of_source = options.source.trim_end_matches('/').rsplit('/').next();
    crate::formats::root_name(of_path.or(of_source).unwrap_or_default())
}

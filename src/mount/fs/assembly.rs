//! The rooms of a file system, put together: each gets the parts that it needs, from the bottom to the top.

use std::sync::{Arc, OnceLock};

use crate::mount::fs::FileSystem;
use crate::mount::fs::array_files::open::ArrayFiles;
use crate::mount::fs::commit::Commits;
use crate::mount::fs::entries::Entries;
use crate::mount::fs::members::Members;
use crate::mount::fs::names::changes::NameChanges;
use crate::mount::fs::names::make::Promotions;
use crate::mount::fs::names::open::ScratchFiles;
use crate::mount::fs::names::permissions::NodePermissions;
use crate::mount::fs::names::table::NameTable;
use crate::mount::fs::operations::attribute_changes::AttributeChanges;
use crate::mount::fs::operations::opens::Opens;
use crate::mount::fs::parts::MountParts;
use crate::mount::fs::recovery::{Recovery, RecoveryParts, Reopening};
use crate::mount::fs::stat::FileAttributes;
use crate::mount::fs::virtual_files::generated::GeneratedFiles;
use crate::mount::fs::virtual_files::internals::{DaemonInfo, InternalFiles};
use crate::mount::fs::virtual_files::open::VirtualFiles;
use crate::mount::fs::xattr::ExtendedAttributes;
use crate::mount::journal::intents::NameIntents;
use crate::mount::options::Options;
use crate::store::Store;

impl FileSystem {
    /// Creates a file system over an open store. Reads nothing yet.
    pub fn new(options: Arc<Options>, store: Arc<dyn Store>) -> Self {
        Self::for_daemon(options, store, DaemonInfo::default())
    }

    /// Creates a file system over an open store for a daemon that `config.json` describes. Reads nothing yet.
    pub fn for_daemon(options: Arc<Options>, store: Arc<dyn Store>, daemon: DaemonInfo) -> Self {
        let parts = MountParts::new(options, store);
        let table = Arc::new(NameTable::new(&parts));
        let generated = GeneratedFiles::new(&parts);
        let commits = Arc::new(Commits::new(&parts));
        let internal_files = Arc::new(InternalFiles::new(&parts, daemon, commits.clone()));
        let attributes =
            Arc::new(FileAttributes::new(&parts, &generated, table.clone(), internal_files.clone()));
        let entries = Arc::new(Entries::new(&parts, &generated, table.clone(), internal_files.clone()));
        let node_permissions = Arc::new(NodePermissions::new(&parts, table.clone()));
        let promotions =
            Arc::new(Promotions::new(&parts, &generated, table.clone(), node_permissions.clone()));
        let scratch_files = Arc::new(ScratchFiles::new(promotions.clone(), parts.gate.clone()));
        let array_files = Arc::new(ArrayFiles::new(&parts));
        let virtual_files = Arc::new(VirtualFiles::new(&parts));
        let members = Members::new(&parts, table.clone());
        let GeneratedFiles { companions, drafts, .. } = generated;
        let MountParts {
            options,
            engine,
            arrays,
            served,
            nodes,
            inodes,
            handles,
            log,
            accesses,
            gate,
            cache_policy,
            ..
        } = parts;
        let intents = Arc::new(NameIntents::default());
        let names = Arc::new(NameChanges {
            intents: intents.clone(),
            nodes: nodes.clone(),
            inodes: inodes.clone(),
            arrays,
            handles: handles.clone(),
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
        });
        let reopening = Reopening {
            array_files: array_files.clone(),
            virtual_files: virtual_files.clone(),
            companions: companions.clone(),
            entries: entries.clone(),
            cache_policy: cache_policy.clone(),
            served,
            scratch_files: scratch_files.clone(),
            drafts: drafts.clone(),
            journal: OnceLock::new(),
        };
        let recorded = RecoveryParts {
            inodes: inodes.clone(),
            handles: handles.clone(),
            names: table.clone(),
            intents,
            engine: engine.clone(),
            log: log.clone(),
            accesses: accesses.clone(),
            store: nodes.store().clone(),
            is_writable: options.writable,
        };
        let recovery = Arc::new(Recovery::new(recorded, reopening));
        let attribute_changes = AttributeChanges {
            options: options.clone(),
            inodes: inodes.clone(),
            gate: gate.clone(),
            attributes: attributes.clone(),
            permissions: node_permissions,
            array_files: array_files.clone(),
            scratch_files: scratch_files.clone(),
            drafts: drafts.clone(),
            table: table.clone(),
        };
        let opens = Opens {
            options: options.clone(),
            nodes: nodes.clone(),
            inodes: inodes.clone(),
            handles: handles.clone(),
            log: log.clone(),
            accesses: accesses.clone(),
            gate: gate.clone(),
            cache_policy: cache_policy.clone(),
            entries: entries.clone(),
            array_files,
            virtual_files,
            companions,
            drafts: drafts.clone(),
            internal_files: internal_files.clone(),
            commits: commits.clone(),
            scratch_files,
            names: names.clone(),
            recovery: recovery.clone(),
        };
        FileSystem {
            extended_attributes: ExtendedAttributes::new(nodes.clone(), table, drafts),
            options,
            nodes,
            engine,
            inodes,
            handles,
            log,
            accesses,
            gate,
            cache_policy,
            entries,
            attributes,
            internal_files,
            commits,
            opens,
            attribute_changes,
            names,
            recovery,
            members,
        }
    }
}

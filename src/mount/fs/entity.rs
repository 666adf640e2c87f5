//! What an inode stands for: a kind of file or folder, a node, and a view of it.
//!
//! This file does no I/O. It uses `hierarchy` for views and `formats` for the names of formats. The words of the journal for these are in
//! `recovery/words.rs`.

use std::borrow::Cow;
use std::sync::Arc;

use crate::formats::{CompanionPlace, Format, Role, views};
use crate::hierarchy::View;

/// The kind of file or folder of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntityKind {
    /// A group's folder; also the root folder if the root is an array.
    Group,
    /// An array's flat bytes.
    Array,
    /// A node's file in another format.
    Companion(&'static Format, CompanionPlace),
    /// `__zarrfs__/`
    Internals,
    /// `__zarrfs__/stats`
    Stats,
    /// `__zarrfs__/config.json`
    Config,
    /// `__zarrfs__/unsaved`
    DirtyReport,
    /// `__zarrfs__/last_error`
    LastError,
    /// `__zarrfs__/slow`
    SlowRequests,
    /// `__zarrfs__/commit`
    Commit,
    /// `__formats__/`
    Formats,
    /// A group's folder below `__formats__/NAME/`, or below the folder of a view.
    FormatFolder(&'static Format),
    /// `__views__/`, or the same below `__formats__/NAME/`.
    Views(&'static Format),
    /// The folder of an array's planes, in a format.
    PlanesFolder(&'static Format),
    /// A file that is not a node, by its number (`names/`).
    Scratch(u64),
}

impl EntityKind {
    /// Returns whether this file or folder belongs to the mount and not to a node. Its owner is the user of the daemon.
    pub fn belongs_to_mount(self) -> bool {
        use EntityKind::{
            Commit, Config, DirtyReport, Formats, Internals, LastError, SlowRequests, Stats, Views,
        };
        let is_file = matches!(self, Stats | Config | DirtyReport | LastError | SlowRequests | Commit);
        is_file || matches!(self, Internals | Formats | Views(_))
    }

    /// Returns whether this is a file in which the mount reports about itself, or the folder of these files.
    ///
    /// Requests for them do not count as traffic: a program that watches a mount would otherwise see mostly its own requests. The
    /// file decides this, not the process: every program that reads these files watches the mount (`zarrfs top`, cat(1), a
    /// collector of metrics), and a process in another container is unknown.
    pub fn is_report(self) -> bool {
        use EntityKind::{Config, DirtyReport, Internals, LastError, SlowRequests, Stats};
        matches!(self, Internals | Stats | Config | DirtyReport | LastError | SlowRequests)
    }

    /// Returns whether this is a folder.
    pub fn is_folder(self) -> bool {
        use EntityKind::{FormatFolder, Formats, Group, Internals, PlanesFolder, Views};
        matches!(self, Group | Internals | Formats | FormatFolder(_) | Views(_) | PlanesFolder(_))
    }
}

/// What an inode stands for: the kind of file, and the path (`""` is the root) and the view of its node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entity {
    /// The kind of file or folder.
    pub kind: EntityKind,
    /// The view of the node; `None` for the node itself. An open array has the view of [`View::of_array`].
    pub view: Option<View>,
    /// The node's path in the hierarchy.
    pub path: Arc<str>,
}

impl Entity {
    /// Returns the entity of a node.
    pub fn new(kind: EntityKind, path: impl Into<Arc<str>>) -> Self {
        Entity { kind, view: None, path: path.into() }
    }

    /// Returns the entity of a view of a node.
    pub fn with_view(kind: EntityKind, view: View, path: impl Into<Arc<str>>) -> Self {
        Entity { kind, view: Some(view), path: path.into() }
    }

    /// Returns the entity of an open array.
    pub fn array(view: Option<View>, path: impl Into<Arc<str>>) -> Self {
        Entity { kind: EntityKind::Array, view, path: path.into() }
    }

    /// Returns whether this is a sidecar in which attributes can be edited.
    pub fn is_sidecar(&self) -> bool {
        self.view.is_none()
            && matches!(self.kind, EntityKind::Companion(format, _) if format.role == Role::Sidecar)
    }

    /// Returns whether its inode lives only until the kernel forgets it.
    pub fn is_transient(&self) -> bool {
        matches!(self.view, Some(View::Plane { .. } | View::Slice(_)))
            || matches!(self.kind, EntityKind::Scratch(_))
    }

    /// Returns the path below the mount point, with the folder of the view.
    pub fn shown_path(&self) -> Cow<'_, str> {
        match &self.view {
            Some(view @ View::Slice(slice)) => {
                format!("{}/{}/{}[{}]", views::VIEWS, views::folder(view), self.path, slice.index).into()
            }
            Some(view) => format!("{}/{}/{}", views::VIEWS, views::folder(view), self.path).into(),
            None => Cow::Borrowed(&self.path),
        }
    }
}

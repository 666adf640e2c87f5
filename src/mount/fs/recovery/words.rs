//! The words of a session's journal for kinds of files and folders, and for views.

use crate::formats::views::{self, FLAT};
use crate::formats::{self, CompanionPlace, Format};
use crate::hierarchy::View;
use crate::hierarchy::slices::Slice;
use crate::mount::fs::entity::{Entity, EntityKind};

/// The words of the kinds that do not have a format.
const PLAIN_KINDS: [(&str, EntityKind); 10] = [
    ("group", EntityKind::Group),
    ("array", EntityKind::Array),
    ("internals", EntityKind::Internals),
    ("stats", EntityKind::Stats),
    ("config", EntityKind::Config),
    ("unsaved", EntityKind::DirtyReport),
    ("last-error", EntityKind::LastError),
    ("slow", EntityKind::SlowRequests),
    ("commit", EntityKind::Commit),
    ("formats", EntityKind::Formats),
];

/// Returns a kind of file or folder in the journal's words.
pub(super) fn kind_words(kind: EntityKind) -> String {
    match kind {
        EntityKind::Companion(format, CompanionPlace::NextToNode) => format!("sibling {}", format.name),
        EntityKind::Companion(format, CompanionPlace::FormatFolder) => format!("mirror {}", format.name),
        EntityKind::FormatFolder(format) => format!("format {}", format.name),
        EntityKind::Views(format) => format!("views {}", format.name),
        EntityKind::PlanesFolder(format) => format!("planes {}", format.name),
        EntityKind::Scratch(number) => format!("scratch {number}"),
        kind => PLAIN_KINDS.iter().find(|(_, plain)| *plain == kind).map_or("", |(word, _)| word).to_owned(),
    }
}

/// Returns a view in the journal's words.
pub(super) fn view_words(view: &View) -> String {
    match view {
        View::Plane { axis, index } => format!("plane {axis} {index}"),
        View::Slice(slice) => format!("slice {}", slice.to_text()),
        view => views::folder(view).into_owned(),
    }
}

/// Returns what the words of [`kind_words`] and [`view_words`] stand for.
pub(super) fn parse_entity(kind: &str, view: &str, path: &str) -> Option<Entity> {
    let format = |name: &str| -> Option<&'static Format> {
        if name == FLAT.name { Some(FLAT) } else { formats::find(name) }
    };
    let kind = match kind.split_once(' ') {
        None => PLAIN_KINDS.iter().find(|(word, _)| *word == kind).map(|(_, plain)| *plain)?,
        Some(("sibling", name)) => EntityKind::Companion(format(name)?, CompanionPlace::NextToNode),
        Some(("mirror", name)) => EntityKind::Companion(format(name)?, CompanionPlace::FormatFolder),
        Some(("format", name)) => EntityKind::FormatFolder(format(name)?),
        Some(("views", name)) => EntityKind::Views(format(name)?),
        Some(("planes", name)) => EntityKind::PlanesFolder(format(name)?),
        Some(("scratch", number)) => EntityKind::Scratch(number.parse().ok()?),
        Some(_) => return None,
    };
    let view = match view.split(' ').collect::<Vec<_>>().as_slice() {
        [""] => None,
        ["slice", _, ..] => Some(View::Slice(Slice::parse(view.strip_prefix("slice ")?)?.into())),
        ["plane", axis, index] => Some(View::Plane { axis: axis.parse().ok()?, index: index.parse().ok()? }),
        _ => Some(views::find(view)?),
    };
    Some(Entity { kind, view, path: path.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entities_are_read_as_they_were_written() {
        let json = formats::JSON;
        let kinds = PLAIN_KINDS.iter().map(|(_, kind)| *kind).chain([
            EntityKind::Companion(json, CompanionPlace::NextToNode),
            EntityKind::Companion(FLAT, CompanionPlace::FormatFolder),
            EntityKind::FormatFolder(json),
            EntityKind::Views(FLAT),
            EntityKind::PlanesFolder(FLAT),
            EntityKind::Scratch(7),
        ]);
        let plane = View::Plane { axis: 2, index: 1 << 40 };
        let slice = Slice { index: "0, x=a b".to_owned(), axes: Some(Vec::new()), dimensions: Vec::new() };
        let of_group = Slice { axes: None, ..slice.clone() };
        let slices = [slice, of_group].map(|slice| View::Slice(slice.into()));
        let views = [View::FOrder, View::Planes(0), View::Planes(3), plane, View::Slices];
        let views: Vec<_> = views.into_iter().chain(slices).map(Some).chain([None]).collect();
        for kind in kinds {
            for view in views.clone() {
                let words = (kind_words(kind), view.as_ref().map(view_words).unwrap_or_default());
                let entity = Entity { kind, view, path: "a b/ü".into() };
                assert_eq!(parse_entity(&words.0, &words.1, "a b/ü"), Some(entity));
            }
        }
        assert_eq!(parse_entity("unheard-of", "", ""), None);
    }
}

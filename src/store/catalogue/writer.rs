//! The writing half of a member's store, with the keys of the catalogue. Uses `view.rs`.

use super::view::{MemberStore, Place};
use crate::error::{Error, Result};
use crate::store::{
    Info, ObjectPart, ObjectVersion, Posix, Precondition, PutOptions, StagedFolder, Store, VersionDigest,
    Writer, join,
};

impl MemberStore {
    /// Calls `act` with the writing half of the member's store and the key in it. Fails for a key that is not in the store.
    fn write<T>(&self, key: &str, act: impl FnOnce(&dyn Writer, &str) -> Result<T>) -> Result<T> {
        let (store, opened) = self.opened()?;
        let writer = store.writer().filter(|_| self.writer().is_some());
        let writer = writer.ok_or_else(|| Error::ReadOnly(format!("{} is not writable", self.describe())))?;
        match Place::of(key, &opened.root) {
            Place::Inside(inside) => act(writer, inside).map_err(|error| error.below(&opened.root)),
            Place::Above | Place::Elsewhere => Err(elsewhere(key)),
        }
    }

    /// Returns the key in the member's store. Fails for a key that is not in the store.
    fn inside<'k>(&self, key: &'k str) -> Result<&'k str> {
        match Place::of(key, &self.opened()?.1.root) {
            Place::Inside(inside) => Ok(inside),
            Place::Above | Place::Elsewhere => Err(elsewhere(key)),
        }
    }
}

fn elsewhere(key: &str) -> Error {
    Error::ReadOnly(format!("{key} is in no store: only a member's own folder takes changes"))
}

impl Writer for MemberStore {
    fn put(&self, key: &str, parts: &[ObjectPart<'_>], options: &PutOptions<'_>) -> Result<ObjectVersion> {
        let within = self.inside(options.within)?;
        self.write(key, |writer, key| writer.put(key, parts, &PutOptions { within, ..*options }))
    }

    fn has_mark(&self, key: &str, version: ObjectVersion, mark: VersionDigest) -> Result<bool> {
        self.write(key, |writer, key| writer.has_mark(key, version, mark))
    }

    fn delete(&self, key: &str, precondition: Precondition) -> Result<bool> {
        self.write(key, |writer, key| writer.delete(key, precondition))
    }

    fn sync(&self, keys: &[String], within: &str) -> Result<()> {
        let keys: Vec<String> =
            keys.iter().map(|key| Ok(self.inside(key)?.to_owned())).collect::<Result<_>>()?;
        self.write(within, |writer, within| writer.sync(&keys, within))
    }

    fn sync_all(&self) -> Result<()> {
        let root = self.opened()?.1.root.clone();
        self.write(&root, |writer, _| writer.sync_all())
    }

    fn lock(&self, key: &str) -> Result<Option<Box<dyn Send + Sync>>> {
        self.write(key, |writer, key| writer.lock(key))
    }

    fn check_place(&self) -> Result<()> {
        let root = self.opened()?.1.root.clone();
        self.write(&root, |writer, _| writer.check_place())
    }

    fn touch(&self, key: &str, version: ObjectVersion) -> Result<Option<ObjectVersion>> {
        self.write(key, |writer, key| writer.touch(key, version))
    }

    fn set_permissions(&self, key: &str, owner: u32, like: &Posix) -> Result<bool> {
        self.write(key, |writer, key| writer.set_permissions(key, owner, like))
    }

    fn can_rename(&self, folder: &str) -> Result<bool> {
        self.write(folder, |writer, folder| writer.can_rename(folder))
    }

    fn stage(&self, parent: &str, like: &Info) -> Result<Option<StagedFolder>> {
        let staged = self.write(parent, |writer, parent| writer.stage(parent, like))?;
        let root = &self.opened()?.1.root;
        Ok(staged.map(|staged| StagedFolder { key: join(root, &staged.key), ..staged }))
    }

    fn rename_folder(&self, from: &str, to: &str) -> Result<()> {
        let to = self.inside(to)?;
        self.write(from, |writer, from| writer.rename_folder(from, to))
    }

    fn remove_folder(&self, key: &str) -> Result<bool> {
        self.write(key, |writer, key| writer.remove_folder(key))
    }

    fn remove_unfinished(&self, folder: &str) -> Result<u64> {
        self.write(folder, |writer, folder| writer.remove_unfinished(folder))
    }
}

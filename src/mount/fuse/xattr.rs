//! Extended attributes through FUSE.
//!
//! If getxattr is supported at all, the kernel asks for `security.capability` at every write(2), unless HANDLE_KILLPRIV_V2 says that
//! no bits have to be cleared. A writable mount on a kernel without that feature replies ENOSYS.

use std::ffi::OsStr;

use fuser::{Errno, INodeNo, InitFlags, KernelConfig, ReplyXattr};

use crate::mount::fs::FileSystem;
use crate::mount::fs::error::Blocking;
use crate::mount::fs::request::Request;
use crate::mount::fuse::adapter::Fuse;

impl Fuse {
    /// Returns whether extended attributes are supported with this kernel.
    pub(super) fn negotiate_xattrs(&self, config: &mut KernelConfig) -> bool {
        if !self.fs.options().writable {
            return true;
        }
        let is_known = config.add_capabilities(InitFlags::FUSE_HANDLE_KILLPRIV_V2).is_ok();
        if !is_known {
            log::info!("extended attributes are disabled: this kernel would ask for them at every write");
        }
        is_known
    }

    pub(super) fn reply_xattr(&self, inode: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        self.fs.log().metrics().record_xattr();
        if !self.supports_xattrs {
            return reply.error(Errno::ENOSYS);
        }
        let Some(name) = name.to_str().map(str::to_owned) else { return reply.error(Errno::ENODATA) };
        let get = move |fs: &FileSystem, blocking: Blocking| fs.xattr(inode.0, &name, blocking);
        self.reply_with(Request::new(inode.0, "getxattr"), reply, get, move |reply, value| {
            send(reply, &value, size)
        });
    }

    pub(super) fn reply_xattr_names(&self, inode: INodeNo, size: u32, reply: ReplyXattr) {
        if !self.supports_xattrs {
            return reply.error(Errno::ENOSYS);
        }
        let list = move |fs: &FileSystem, blocking: Blocking| fs.xattr_names(inode.0, blocking);
        self.reply_with(Request::new(inode.0, "listxattr"), reply, list, move |reply, names| {
            send(reply, &names, size)
        });
    }
}

/// Size 0 asks for the size.
fn send(reply: ReplyXattr, value: &[u8], size: u32) {
    match u32::try_from(value.len()) {
        Ok(length) if size == 0 => reply.size(length),
        Ok(length) if length <= size => reply.data(value),
        _ => reply.error(Errno::ERANGE),
    }
}

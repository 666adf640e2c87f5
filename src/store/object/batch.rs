//! Requests that a store answers several at a time, and their replies. Uses the types of `object/`.

use crate::store::{Info, ObjectVersion};

/// The bytes of a whole object, and what the store knows about that version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectContent {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Size, time and version, with owner and mode if the store has them.
    pub info: Info,
}

/// A request for a whole object.
#[derive(Clone, Debug)]
pub struct GetRequest {
    /// Its key.
    pub key: String,
    /// More bytes than this are an error.
    pub limit_bytes: u64,
    /// The version that the caller already has: its bytes are not sent again.
    pub known: Option<ObjectVersion>,
}

impl GetRequest {
    /// Returns the reply, if the store has this at the key.
    pub(in crate::store) fn reply(&self, content: Option<ObjectContent>) -> GetReply {
        match content {
            None => GetReply::Missing,
            Some(content) if Some(content.info.version) == self.known => GetReply::Unchanged,
            Some(content) => GetReply::Content(content),
        }
    }
}

/// What a store has at the key of a [`GetRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GetReply {
    /// There is no object.
    Missing,
    /// The object is the version that the caller has.
    Unchanged,
    /// The object.
    Content(ObjectContent),
}

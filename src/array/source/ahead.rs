//! Asking a remote store for the stored bytes of chunks before they are loaded.
//!
//! Uses its neighbours, `store` and `error`. Failures here are not reported: the load that follows meets and reports
//! them.

use std::collections::HashMap;
use std::sync::Arc;

use crate::array::source::ArraySource;
use crate::array::source::load::wanted_of_object;
use crate::array::source::loading::load_context::LoadContext;
use crate::array::source::locate::InnerWanted;
use crate::error::Result;
use crate::store::{Claim, MaybeClaim, Remote, Wanted};

/// Whether to wait for indexes of shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::array) enum Indexes {
    /// A chunk is left for later if the index of its shard is not here.
    AsTheyCome,
    /// A reader waits for the chunks anyway.
    Waited,
}

/// The claims on chunks.
#[derive(Default)]
pub(in crate::array) struct ChunkClaims {
    /// The claims on the bytes of each chunk, from the first on. `None` if nothing is stored; several chunks may share
    /// one claim. There are fewer than were asked for if the store has no room for more, or if the index of the next
    /// chunk's shard is not here yet.
    pub chunks: Vec<MaybeClaim>,
    /// The claims on indexes of their shards.
    pub indexes: Vec<Arc<dyn Claim>>,
}

impl ChunkClaims {
    /// Returns all claims, for a reader that waits for all of the chunks.
    pub fn all(self) -> Vec<Arc<dyn Claim>> {
        self.chunks.into_iter().flatten().chain(self.indexes).collect()
    }
}

impl ArraySource {
    /// Has a remote store transfer these chunks, all at once.
    pub(in crate::array) fn claim(
        &self,
        remote: &dyn Remote,
        ctx: &LoadContext<'_>,
        chunks: &[Vec<u64>],
        indexes: Indexes,
    ) -> ChunkClaims {
        let indexes = if self.levels.is_sharded() {
            self.claim_indexes(remote, ctx, chunks, indexes)
        } else {
            Vec::new()
        };
        let mut wanted: Vec<(String, Wanted)> = Vec::new();
        // The place of each chunk in `wanted`.
        let mut places = Vec::with_capacity(chunks.len());
        for chunk in chunks {
            let place = match self.wanted(ctx, chunk) {
                Ok((key, InnerWanted::Chunk(bytes))) => {
                    wanted.push((key, bytes));
                    Some(wanted.len() - 1)
                }
                Ok((_, InnerWanted::Nothing(_))) | Err(_) => None,
                Ok((_, InnerWanted::Index(_))) => break,
            };
            places.push(place);
        }
        let replies = will_need_in_order(remote, wanted);
        let is_granted =
            |place: &Option<usize>| place.is_none_or(|place| matches!(replies.get(place), Some(Some(_))));
        let claim = |place: Option<usize>| replies.get(place?).cloned().flatten();
        let chunks = places.into_iter().take_while(is_granted).map(claim).collect();
        ChunkClaims { chunks, indexes }
    }

    /// Returns the key of a chunk's object, and what to ask it for.
    fn wanted(&self, ctx: &LoadContext<'_>, chunk: &[u64]) -> Result<(String, InnerWanted)> {
        let key = self.key(ctx, chunk)?;
        if self.levels.is_sharded() {
            let wanted = self.wanted_of_shard(ctx, &key, &self.levels.first_elements(chunk))?;
            return Ok((key, wanted));
        }
        let wanted = wanted_of_object(&*self.pipeline(chunk)?);
        Ok((key, InnerWanted::Chunk(wanted)))
    }

    /// Has the store transfer the indexes that are not in the cache, and reads those that are here, or all.
    fn claim_indexes(
        &self,
        remote: &dyn Remote,
        ctx: &LoadContext<'_>,
        chunks: &[Vec<u64>],
        indexes: Indexes,
    ) -> Vec<Arc<dyn Claim>> {
        let mut wanted: Vec<(String, Wanted)> = Vec::new();
        let mut firsts = Vec::new();
        for chunk in chunks {
            let Ok((key, InnerWanted::Index(index))) = self.wanted(ctx, chunk) else { continue };
            if wanted.last().is_none_or(|(last, _)| *last != key)
                && !wanted.iter().any(|(known, _)| *known == key)
            {
                wanted.push((key, index));
                firsts.push(self.levels.first_elements(chunk));
            }
        }
        let replies = remote.will_need(&wanted);
        for (((key, wanted), elements), claim) in wanted.iter().zip(&firsts).zip(&replies) {
            let is_here = claim.as_ref().is_some_and(|claim| claim.is_here());
            if is_here || indexes == Indexes::Waited {
                // The reader of a chunk gets the error.
                let _ = self.load_index(ctx, key, elements, wanted);
            }
        }
        replies.into_iter().flatten().collect()
    }
}

/// Calls [`Remote::will_need`] with the ranges of each object together and in stored
/// order, so that neighbours come with one request: in the file, inner chunks seldom have that order. The replies are
/// in the order of `wanted`.
fn will_need_in_order(remote: &dyn Remote, wanted: Vec<(String, Wanted)>) -> Vec<MaybeClaim> {
    let mut first_of: HashMap<String, usize> = HashMap::new();
    for (place, (key, _)) in wanted.iter().enumerate() {
        first_of.entry(key.clone()).or_insert(place);
    }
    let start = |wanted: &Wanted| if let Wanted::Range(range) = wanted { range.start } else { 0 };
    let mut sorted: Vec<(usize, (String, Wanted))> = wanted.into_iter().enumerate().collect();
    sorted.sort_by_key(|(_, (key, wanted))| (first_of.get(key).copied(), start(wanted)));
    let (places, sorted): (Vec<usize>, Vec<(String, Wanted)>) = sorted.into_iter().unzip();
    let mut replies = vec![None; places.len()];
    for (place, claim) in places.into_iter().zip(remote.will_need(&sorted)) {
        if let Some(reply) = replies.get_mut(place) {
            *reply = claim;
        }
    }
    replies
}

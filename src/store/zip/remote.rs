//! The remote half of an archive behind a network: members are ranges of the archive, which its own store transfers. Uses its
//! neighbours in `zip`, and the traits of `store`.

use super::member::{ZipObject, first_range};
use super::{WHOLE, ZipStore};
use crate::error::Result;
use crate::store::{
    GetReply, GetRequest, Info, MaybeClaim, Object, Remote, Traffic, Wanted, check_key, read_content,
};

impl Remote for ZipStore {
    /// The bytes come from the version of the archive that was opened, or reading them fails, so no request has to check the version.
    fn open_for(&self, key: &str, wanted: &Wanted) -> Result<Option<Box<dyn Object>>> {
        let Some(data) = self.data(key)? else { return Ok(None) };
        let object = ZipObject::open(&self.archive, &self.archive.opened(), (key, data), wanted)?;
        Ok(Some(Box::new(object)))
    }

    /// Asks for the archive's version once, and for all members together.
    fn get_many(&self, requests: &[GetRequest]) -> Vec<Result<GetReply>> {
        let is_asked = requests.iter().any(|request| self.has_object(&request.key));
        let state = if is_asked { self.archive.look("") } else { Ok(self.archive.opened()) };
        let state = match state {
            Ok(state) => state,
            Err(error) => return requests.iter().map(|_| Err(error.clone())).collect(),
        };
        let is_known = |request: &GetRequest| {
            let version = self.info(&request.key, &state).map(|info| info.version);
            request.known.is_some() && version == request.known && self.has_object(&request.key)
        };
        let needed = requests.iter().filter(|request| !is_known(request));
        let _claims = self.will_need(&needed.map(|request| (request.key.clone(), WHOLE)).collect::<Vec<_>>());
        let get = |request: &GetRequest| {
            check_key(&request.key, "read")?;
            if is_known(request) {
                return Ok(GetReply::Unchanged);
            }
            let Some(data) = self.data(&request.key)? else { return Ok(GetReply::Missing) };
            let object = ZipObject::open(&self.archive, &state, (&request.key, data), &WHOLE)?;
            let content = read_content(&object, &request.key, request.limit_bytes)?;
            Ok(request.reply(Some(content)))
        };
        requests.iter().map(get).collect()
    }

    /// Asks for the archive's version once.
    fn head_many(&self, keys: &[&str]) -> Vec<Result<Option<Info>>> {
        if keys.is_empty() {
            return Vec::new();
        }
        let state = self.archive.look_at_any_version("");
        let look = |key: &&str| {
            check_key(key, "look at")?;
            match &state {
                Ok(state) => Ok(self.info(key, state)),
                Err(error) => Err(error.clone()),
            }
        };
        keys.iter().map(look).collect()
    }

    fn will_need(&self, wanted: &[(String, Wanted)]) -> Vec<MaybeClaim> {
        let mut claims = vec![None; wanted.len()];
        let Some((remote, archive_key)) = self.archive.remote() else { return claims };
        let mut places = Vec::new();
        let mut ranges = Vec::new();
        for (place, (key, wanted)) in wanted.iter().enumerate() {
            let Ok(Some(data)) = self.data(key) else { continue };
            let range = first_range(data, &self.archive, wanted);
            if self.archive.in_memory(&range).is_none() {
                places.push(place);
                ranges.push((archive_key.to_owned(), Wanted::Range(range)));
            }
        }
        for (place, claim) in places.into_iter().zip(remote.will_need(&ranges)) {
            if let Some(slot) = claims.get_mut(place) {
                *slot = claim;
            }
        }
        claims
    }

    fn transfer_limit_bytes(&self) -> u64 {
        self.archive.remote().map_or(0, |(remote, _)| remote.transfer_limit_bytes())
    }

    /// Does nothing: transferred bytes belong to the version that was opened.
    fn forget_transfers(&self, _key: &str) {}

    fn traffic(&self) -> Option<Traffic> {
        self.archive.remote()?.0.traffic()
    }
}

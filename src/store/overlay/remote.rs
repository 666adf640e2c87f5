//! The remote half of an overlay over a remote base. Requests for keys that the overlay does not change go to the base, in one batch. Uses
//! its neighbours in `overlay`, and the traits of `store`.

use super::OverlayStore;
use crate::error::Result;
use crate::store::{GetReply, GetRequest, Info, MaybeClaim, Object, Remote, Store, Traffic, Wanted};

impl Remote for OverlayStore {
    fn open_for(&self, key: &str, wanted: &Wanted) -> Result<Option<Box<dyn Object>>> {
        self.find(key, "open", |objects| objects.open(key), |base| base.open_for(key, wanted))
    }

    fn get_many(&self, requests: &[GetRequest]) -> Vec<Result<GetReply>> {
        let is_below = |request: &GetRequest| matches!(self.folder().entry(&request.key, "read"), Ok(None));
        let places: Vec<bool> = requests.iter().map(is_below).collect();
        let below = requests.iter().zip(&places).filter(|(_, is_below)| **is_below);
        let below: Vec<GetRequest> = below.map(|(request, _)| request.clone()).collect();
        let mut replies = self.base.get_many(&below).into_iter();
        let reply = |(request, is_below): (&GetRequest, bool)| {
            let reply = match replies.by_ref().take(usize::from(is_below)).next() {
                Some(reply) => reply?,
                None => self.get_changed(request)?,
            };
            Ok(match reply {
                GetReply::Content(content) => GetReply::Content(self.shown_content(&request.key, content)?),
                other => other,
            })
        };
        requests.iter().zip(places).map(reply).collect()
    }

    fn head_many(&self, keys: &[&str]) -> Vec<Result<Option<Info>>> {
        let is_below = |key: &&str| matches!(self.folder().entry(key, "look at"), Ok(None));
        let places: Vec<bool> = keys.iter().map(is_below).collect();
        let below: Vec<&str> = keys.iter().zip(&places).filter(|(_, is)| **is).map(|(key, _)| *key).collect();
        let mut replies = self.base.head_many(&below).into_iter();
        let reply = |(key, is_below): (&&str, bool)| match replies.by_ref().take(usize::from(is_below)).next()
        {
            Some(found) => found?.map(|info| self.shown(key, info)).transpose(),
            None => self.head_object(key),
        };
        keys.iter().zip(places).map(reply).collect()
    }

    fn will_need(&self, wanted: &[(String, Wanted)]) -> Vec<MaybeClaim> {
        let Some(base) = self.base.remote() else { return vec![None; wanted.len()] };
        let is_below = |(key, _): &(String, Wanted)| matches!(self.folder().entry(key, "open"), Ok(None));
        let places: Vec<bool> = wanted.iter().map(is_below).collect();
        if places.iter().all(|is_below| *is_below) {
            return base.will_need(wanted);
        }
        let below = wanted.iter().zip(&places).filter(|(_, is_below)| **is_below);
        let below: Vec<_> = below.map(|(wanted, _)| wanted.clone()).collect();
        let mut claims = base.will_need(&below).into_iter();
        places.into_iter().map(|is_below| if is_below { claims.next().flatten() } else { None }).collect()
    }

    fn transfer_limit_bytes(&self) -> u64 {
        self.base.remote().map_or(0, Remote::transfer_limit_bytes)
    }

    fn forget_transfers(&self, key: &str) {
        self.base.forget_transfers(key);
    }

    fn traffic(&self) -> Option<Traffic> {
        self.base.remote()?.traffic()
    }
}

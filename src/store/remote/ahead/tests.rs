//! Tests of spans, whose transfers are carried out by the tests.
#![allow(clippy::unwrap_used)]

use std::sync::Mutex;

use object_store::ObjectMeta;
use object_store::path::Path;

use super::*;
use crate::store::remote::transfer::Fetched;

const MIB: u64 = 1 << 20;

/// Spans of at most 8 MiB, at most 4 of them in transfer, and the transfers that were begun.
struct Scene {
    ahead: Arc<Ahead>,
    begun: Mutex<Vec<Begun>>,
}

struct Begun {
    span: Arc<Span>,
    /// The transfer, until it ends.
    transfer: Option<SpanTransfer>,
}

impl Scene {
    fn new() -> Self {
        Scene { ahead: Arc::new(Ahead::new(8 * MIB, 4, Arc::default())), begun: Mutex::default() }
    }

    fn claim(&self, wanted: &[(&str, Wanted)]) -> Vec<Option<Arc<SpanClaim>>> {
        let wanted: Vec<_> = wanted.iter().map(|(key, wanted)| (key.to_string(), wanted.clone())).collect();
        self.ahead.claim(&wanted, |transfer| {
            let span = Arc::clone(&transfer.span);
            self.begun.lock().unwrap().push(Begun { span, transfer: Some(transfer) });
            None
        })
    }

    /// Returns the memory of all spans, and how many are being transferred.
    fn taken(&self) -> (u64, usize) {
        (self.ahead.taken_bytes(), self.ahead.under_way.load(Ordering::Relaxed))
    }

    fn begun(&self) -> usize {
        self.begun.lock().unwrap().len()
    }

    fn transfer(&self, number: usize) -> SpanTransfer {
        self.begun.lock().unwrap()[number].transfer.take().unwrap()
    }

    /// Ends the transfer with this number after `bytes` bytes, if they are admitted.
    fn arrive(&self, number: usize, bytes: u64) -> bool {
        let transfer = self.transfer(number);
        if !transfer.admits(bytes) {
            transfer.failed();
            return false;
        }
        let location = Path::from(transfer.key.as_str());
        let last_modified = std::time::SystemTime::UNIX_EPOCH.into();
        let e_tag = Some(format!("\"{number}\""));
        let meta = ObjectMeta { location, last_modified, size: bytes, e_tag, version: None };
        let fetched = Fetched { meta, start: 0, bytes: Arc::new(vec![1; bytes as usize].into()) };
        transfer.arrived(fetched.into());
        true
    }
}

fn whole(at_most: u64) -> Wanted {
    Wanted::Whole { at_most }
}

#[test]
fn readers_share_a_transfer_until_the_last_is_gone() {
    let scene = Scene::new();
    let first = scene.claim(&[("a", whole(MIB))]);
    let second = scene.claim(&[("a", Wanted::Range(5..9))]);
    assert_eq!(scene.begun(), 1, "the whole has the range");
    drop(first);
    assert_eq!(scene.taken(), (MIB, 1), "still claimed");
    drop(second);
    scene.begun.lock().unwrap().clear();
    assert_eq!(scene.taken(), (0, 0), "cancelled");
    assert!(scene.ahead.find("a", &whole(MIB)).is_none());
}

#[test]
fn near_ranges_are_one_transfer() {
    let scene = Scene::new();
    let range = |from, to| Wanted::Range(from..to);
    let claims = scene.claim(&[
        ("a", range(0, 100)),
        ("a", range(300, 400)),
        ("a", range(2 * MIB, 3 * MIB)),
        ("b", range(3 * MIB, 4 * MIB)),
    ]);
    assert_eq!(scene.begun(), 3);
    let ids: Vec<u64> = claims.iter().flatten().map(|claim| claim.id()).collect();
    assert!(ids[0] == ids[1] && ids[1] != ids[2] && ids[2] != ids[3], "{ids:?}");
    scene.claim(&[("a", range(50, 60)), ("a", range(420, 430)), ("a", range(500, 600))]);
    assert_eq!(scene.begun(), 4, "what is on its way is not asked for again");
    assert!(
        scene.ahead.find("a", &range(350, 390)).is_some()
            && scene.ahead.find("a", &range(350, 401)).is_none()
    );
}

#[test]
fn memory_and_requests_have_limits() {
    let scene = Scene::new();
    let keys = ["a", "b", "c", "d", "e"];
    let wanted: Vec<_> = keys.iter().map(|key| (*key, whole(MIB))).collect();
    let claims = scene.claim(&wanted);
    assert_eq!(claims.iter().flatten().count(), 4, "under way at one time");
    assert!(scene.arrive(0, 2 * MIB) && scene.arrive(1, MIB), "larger than expected");
    assert!(!scene.arrive(2, 7 * MIB), "its body is not received");
    assert!(matches!(claims[2].as_ref().unwrap().span.wait(), Outcome::Unknown));
    assert!(scene.arrive(3, MIB));
    assert_eq!(scene.taken(), (4 * MIB, 0));
    drop(claims);
    scene.begun.lock().unwrap().clear();
    assert_eq!(scene.taken().0, 2 * MIB, "kept for later readers, the newest of them");
    assert!(scene.ahead.find("d", &whole(MIB)).is_some());
    let claims = scene.claim(&[("x", Wanted::Range(0..7 * MIB))]);
    assert!(claims[0].is_some(), "what no reader claims makes room");
    assert!(scene.claim(&[("y", Wanted::Range(0..2 * MIB))])[0].is_none(), "claimed bytes do not");
}

#[test]
fn a_transfer_that_is_given_up_leaves_no_reader_waiting() {
    let scene = Scene::new();
    let wanted = [("a".to_owned(), whole(MIB))];
    let at_once = scene.ahead.claim(&wanted, |_| None);
    assert!(matches!(at_once[0].as_ref().unwrap().span.wait(), Outcome::Unknown), "it was never begun");
    drop(at_once);
    let claims = scene.claim(&[("b", whole(MIB))]);
    let waiting = Arc::clone(claims[0].as_ref().unwrap());
    let reader = std::thread::spawn(move || matches!(waiting.span.wait(), Outcome::Unknown));
    drop(scene.transfer(0));
    assert!(reader.join().unwrap(), "its task was dropped, or panicked");
    drop(claims);
    scene.begun.lock().unwrap().clear();
    assert_eq!(scene.taken(), (0, 0));
}

#[test]
fn forgotten_spans_serve_no_reader() {
    let scene = Scene::new();
    let claims = scene.claim(&[("a/1", whole(MIB)), ("b/1", whole(MIB))]);
    assert!(scene.arrive(0, MIB));
    scene.ahead.forget(|key| key.starts_with("a/"));
    assert!(scene.ahead.find("a/1", &whole(MIB)).is_none() && scene.ahead.find("b/1", &whole(MIB)).is_some());
    scene.ahead.forget(|key| key == "b/1");
    assert!(
        matches!(claims[1].as_ref().unwrap().span.wait(), Outcome::Unknown),
        "a waiting reader asks again"
    );
    assert!(scene.arrive(1, MIB), "too late");
    assert!(scene.ahead.find("b/1", &whole(MIB)).is_none());
}

#[test]
fn after_the_first_span_the_others_are_of_its_version() {
    let scene = Scene::new();
    let tag = |number: usize| scene.begun.lock().unwrap()[number].span.tag.clone();
    let claims = scene.claim(&[("a", Wanted::Last(100)), ("b", Wanted::Last(100))]);
    assert!(scene.arrive(0, 100) && scene.arrive(1, 100));
    let ranges = scene.claim(&[("a", Wanted::Range(0..10)), ("b", Wanted::Range(0..10))]);
    assert_eq!(
        [tag(0), tag(1), tag(2), tag(3)],
        [None, None, Some("\"0\"".to_owned()), Some("\"1\"".to_owned())]
    );
    let lost = || {
        [&claims, &ranges].map(|all| all.iter().flatten().map(|claim| claim.is_lost()).collect::<Vec<_>>())
    };
    assert_eq!(lost(), [[false, false], [false, false]]);
    // The object was replaced: the reader requests the current one.
    scene.transfer(2).failed();
    scene.ahead.forget(|key| key == "b");
    assert_eq!(lost(), [[false, true], [true, true]]);
    let _again = scene.claim(&[("a", Wanted::Range(0..10)), ("b", Wanted::Range(0..10))]);
    assert_eq!([tag(4), tag(5)], [None, None]);
}

#[test]
fn a_missing_object_is_an_outcome() {
    let scene = Scene::new();
    let claims = scene.claim(&[("a", whole(MIB))]);
    scene.transfer(0).missing();
    assert!(matches!(claims[0].as_ref().unwrap().span.wait(), Outcome::Missing));
    drop(claims);
    assert!(scene.ahead.find("a", &whole(MIB)).is_none());
}

#[test]
fn a_service_that_asks_for_fewer_requests_gets_half() {
    let scene = Scene::new();
    let begun = |first: usize| {
        let keys: Vec<String> = (first..first + 5).map(|number| number.to_string()).collect();
        let wanted: Vec<_> = keys.iter().map(|key| (key.as_str(), whole(1))).collect();
        scene.claim(&wanted).into_iter().flatten().collect::<Vec<_>>()
    };
    assert_eq!(begun(0).len(), 4);
    scene.ahead.counters.replied(std::time::Duration::ZERO, 503, None);
    let claims = begun(10);
    assert_eq!(claims.len(), 2);
    assert!(scene.arrive(4, 1) && scene.arrive(5, 1));
    assert_eq!(begun(20).len(), 3, "one more after two have arrived");
}

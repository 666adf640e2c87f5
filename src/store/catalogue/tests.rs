//! Members that open, fail, come back and leave.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::*;
use crate::store::{MemoryStore, PutOptions, store_at};

type Definitions = Arc<Mutex<Vec<(&'static str, u32)>>>;

/// Returns a catalogue of members by name; another number is another definition. What a member has at `x` is its number. A member with
/// the number 0 cannot be opened as long as `is_down`.
fn catalogue(definitions: &Definitions, is_down: &Arc<AtomicBool>) -> Arc<dyn Store> {
    let (definitions, is_down) = (definitions.clone(), is_down.clone());
    let read = move || {
        let definition = |&(name, number): &(&str, u32)| {
            let is_down = is_down.clone();
            MemberDefinition {
                name: name.to_owned(),
                location: format!("memory:{name}"),
                path: None,
                is_remote: false,
                rights: MemberRights { write: number == 1, ..MemberRights::default() },
                signature: format!("{name} {number}"),
                text: format!("[{name}]\n"),
                overlay: None,
                open: Arc::new(move || {
                    if number == 0 && is_down.load(Ordering::Relaxed) {
                        return Err(Error::Usage("the machine is down".to_owned()));
                    }
                    let store = MemoryStore::new();
                    store.put("x", number.to_string().into_bytes()).unwrap();
                    store.put("g/y", Vec::new()).unwrap();
                    Ok(OpenedMember { store: Arc::new(store), is_array: number == 7 })
                }),
            }
        };
        Ok(definitions.lock().iter().map(definition).collect())
    };
    Arc::new(CatalogueStore::open("/etc/host.toml", 0, Box::new(read)).unwrap())
}

fn get(store: &dyn Store, key: &str) -> Result<Option<String>> {
    Ok(store.get(key, 100)?.map(|bytes| String::from_utf8(bytes).unwrap()))
}

fn wait_until(condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(20), "it takes too long");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn keys_begin_with_the_name_of_the_member() {
    let definitions: Definitions = Arc::new(Mutex::new(vec![("a", 1), ("b", 2), ("s", 7)]));
    let store = catalogue(&definitions, &Arc::default());
    assert_eq!(get(store.as_ref(), "a/x").unwrap().as_deref(), Some("1"));
    assert_eq!(get(store.as_ref(), "b/x").unwrap().as_deref(), Some("2"));
    for key in ["x", "c/x", "a", "", "ab/x", "s/x"] {
        assert!(store.get(key, 100).unwrap().is_none(), "{key}");
    }
    let names = |folder: &str| -> Vec<String> {
        store.list(folder).unwrap().into_iter().map(|entry| entry.name).collect()
    };
    assert_eq!(
        (names(""), names("a"), names("a/g")),
        (vec!["a".into(), "b".into(), "s".into()], vec!["g".into(), "x".into()], vec!["y".into()])
    );
    // A root that is an array is a file in the member's folder.
    assert_eq!((names("s"), get(store.as_ref(), "s/s/x").unwrap().as_deref()), (vec!["s".into()], Some("7")));
    assert!(store.head("s").unwrap().is_some() && store.head("s/q").unwrap().is_none());
}

#[test]
fn each_member_is_written_as_its_rights_say_and_errors_name_its_keys() {
    let definitions: Definitions = Arc::new(Mutex::new(vec![("a", 1), ("b", 2)]));
    let store = catalogue(&definitions, &Arc::default());
    assert!(store.writer().is_none());
    let (a, b) = (store_at(&store, "a"), store_at(&store, "b/g"));
    assert!(b.writer().is_none() && Arc::ptr_eq(&store_at(&store, "z"), &store));
    let like = a.head("a/x").unwrap().unwrap();
    let put = |key: &str| {
        let parts = [crate::store::ObjectPart::Bytes(b"new")];
        a.writer().unwrap().put(key, &parts, &PutOptions::new("a", &like))
    };
    put("a/n").unwrap();
    assert_eq!(get(store.as_ref(), "a/n").unwrap().as_deref(), Some("new"));
    assert!(matches!(put("b/n"), Err(Error::ReadOnly(_))));
    let too_long = a.get("a/x", 0).unwrap_err();
    assert_eq!(too_long.key(), Some("a/x"));
}

#[test]
fn a_member_that_cannot_be_opened_says_why_and_is_tried_again() {
    let definitions: Definitions = Arc::new(Mutex::new(vec![("a", 0), ("b", 2)]));
    let is_down = Arc::new(AtomicBool::new(true));
    let store = catalogue(&definitions, &is_down);
    let members = store.catalogue().unwrap();
    assert!(matches!(members.state("a"), Some(MemberState::Failed(_))));
    let error = store.get("a/x", 100).unwrap_err();
    assert_eq!(error.to_string(), "a: cannot open: the machine is down");
    assert_eq!(get(store.as_ref(), "b/x").unwrap().as_deref(), Some("2"));
    is_down.store(false, Ordering::Relaxed);
    wait_until(|| matches!(members.state("a"), Some(MemberState::Open)));
    assert_eq!(get(store.as_ref(), "a/x").unwrap().as_deref(), Some("0"));
}

#[test]
fn a_reload_touches_only_members_that_change() {
    let definitions: Definitions = Arc::new(Mutex::new(vec![("a", 1), ("b", 2), ("c", 3)]));
    let store = catalogue(&definitions, &Arc::default());
    let members = store.catalogue().unwrap();
    let before: Vec<_> = ["a", "b", "c"].map(|name| store_at(&store, name)).into();
    *definitions.lock() = vec![("a", 1), ("b", 9), ("d", 4)];
    let change = members.read_again().unwrap();
    assert_eq!(
        (&change.added[..], &change.changed[..], &change.removed[..]),
        (&["d".to_owned()][..], &["b".to_owned()][..], &["c".to_owned()][..])
    );
    ["b", "d"].iter().for_each(|name| members.apply(name));
    assert_eq!(members.names(), ["a", "b", "c", "d"]);
    assert!(
        Arc::ptr_eq(&store_at(&store, "a"), &before[0]) && Arc::ptr_eq(&store_at(&store, "c"), &before[2])
    );
    assert_eq!(get(store.as_ref(), "b/x").unwrap().as_deref(), Some("9"));
    assert!(matches!(before[1].get("b/x", 100), Err(Error::Stale { .. })));
    assert_eq!(get(before[0].as_ref(), "a/x").unwrap().as_deref(), Some("1"));
    let change = members.read_again().unwrap();
    assert!(change.added.is_empty() && change.changed.is_empty() && change.removed == ["c"]);
    assert!(members.is_outdated("c") && !members.is_outdated("b"));
    members.apply("c");
    assert!(store.get("c/x", 100).unwrap().is_none() && before[2].get("c/x", 100).is_err());
}

#[test]
fn readers_see_a_member_whole_while_others_come_and_go() {
    let definitions: Definitions = Arc::new(Mutex::new(vec![("a", 5)]));
    let store = catalogue(&definitions, &Arc::default());
    let (reads, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                assert_eq!(get(store.as_ref(), "a/x").unwrap().as_deref(), Some("5"));
                reads.fetch_add(1, Ordering::Relaxed);
            }
        });
        for number in 1..100 {
            *definitions.lock() = vec![("a", 5), (["b", "c", "d"][number as usize % 3], number)];
            let members = store.catalogue().unwrap();
            let change = members.read_again().unwrap();
            change.added.iter().chain(change.leaving()).for_each(|name| members.apply(name));
            let before = reads.load(Ordering::Relaxed);
            wait_until(|| reads.load(Ordering::Relaxed) > before);
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

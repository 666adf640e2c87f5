//! Replies that are prepared ahead of a reader, and a writer that starts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::array::interleavings::write_back::{FILL, LENGTH, Scene, each_form, open, write_and_notify};
use crate::array::sync::thread;
use crate::array::test_arrays::read_for;
use crate::array::{Array, Readahead, Reader};
use crate::store::Store;

fn read(array: &Array, reader: &Reader, offset: u64) -> [u8; 4] {
    read_for(array, reader, offset..offset + 4).unwrap().try_into().unwrap()
}

/// A read that begins after a write returned sees that write, although its reply was prepared before.
#[test]
fn prepared_replies_never_go_back() {
    each_form(|form| {
        let scene = Scene::new(form, 100);
        let store: Arc<dyn Store> = scene.store.clone();
        let (array, done) = (open(&scene.engine, &store, "b"), AtomicU8::new(0));
        let readers = [Readahead::Replies; 2].map(Reader::new);
        for reader in &readers {
            for offset in [0, 4] {
                assert_eq!(read(&array, reader, offset), [FILL; 4]);
            }
        }
        thread::scope(|scope| {
            scope.spawn(|| {
                array.writer().open_for_writing().unwrap();
                for value in 1..=3 {
                    write_and_notify(&array, 13, &[value], || done.store(value, Ordering::SeqCst));
                    if value == 2 {
                        array.writer().flush().unwrap();
                    }
                }
                array.writer().sync().unwrap();
                array.writer().close_for_writing();
            });
            for reader in &readers {
                let (array, done) = (&array, &done);
                scope.spawn(move || {
                    assert_eq!(read(array, reader, 8), [FILL; 4]);
                    let floor = done.load(Ordering::SeqCst);
                    let [first, second, rest @ ..] = read(array, reader, 12);
                    assert_eq!((first, rest), (FILL, [FILL; 2]));
                    let is_written = (1..=3).contains(&second) && second >= floor;
                    assert!(is_written || (second == FILL && floor == 0), "{second} after {floor}");
                });
            }
        });
        drop(array);
        scene.end(&[FILL; LENGTH]);
    });
}

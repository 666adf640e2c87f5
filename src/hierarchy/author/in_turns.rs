//! Two programs append to an array of a service, write elements, edit attributes and import arrays to one name. Their requests come in many
//! orders, and requests and replies are lost. At the end, the store has what was acknowledged to either program.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::array::{Array, Engine, Layout};
use crate::hierarchy::attributes::{self, Edit};
use crate::metadata::author::{ArraySpec, ElementType, group_documents};
use crate::metadata::parse_array;
use crate::store::ServiceInTurns;
use crate::test_level::pick;

/// How many elements the array has at first, and how many each program appends at a time. Both append equally many, so that they write
/// the same document.
const LENGTH: u64 = 4;
const APPENDED: u64 = 2;
/// How many steps each program takes.
const STEPS: usize = 2;

/// What was acknowledged to a program.
#[derive(Default)]
struct Known {
    /// How many steps were done and refused.
    done: u64,
    refused: u64,
    /// The ranges of elements that it appended, and their values.
    appended: Vec<(Range<u64>, u8)>,
    /// The value of its import.
    imported: Option<u8>,
    /// The values that its own element may have: the last one that was acknowledged, and later ones that may have been stored.
    element: Vec<u8>,
    /// The values that its own attribute may have.
    attribute: Vec<Option<u8>>,
}

struct Program {
    number: usize,
    store: Arc<dyn Store>,
    engine: Arc<Engine>,
}

fn documents(length: u64) -> Vec<NodeDocument> {
    let spec = ArraySpec {
        zarr_format: ZarrFormat::V3,
        shape: vec![length],
        element: ElementType::parse("uint8").unwrap(),
        chunks: Some(vec![4]),
        shards: None,
        codecs: None,
        fill_value: Some("0"),
        dimension_names: None,
        attributes: Vec::new(),
    };
    spec.documents().unwrap()
}

/// Adds a value that may be stored. If it was acknowledged, the earlier values are removed.
fn record<T>(known: &mut Vec<T>, new: T, is_stored: bool) -> bool {
    if is_stored {
        known.clear();
    }
    known.push(new);
    is_stored
}

impl Program {
    fn open(&self, path: &str) -> Result<Arc<Array>> {
        let key = join(path, "zarr.json");
        let text = self.store.get(&key, 1 << 20)?.ok_or(Error::Stale { key: key.clone() })?;
        let metadata = parse_array(&key, &text)?.ok_or(Error::Stale { key })?;
        Array::open(&self.engine, &self.store, path, Arc::new(metadata), Layout::default())
    }

    /// Opens an array for writing, once. What could not be stored then is not stored later.
    fn with_array<T>(&self, path: &str, work: impl FnOnce(&Arc<Array>) -> Result<T>) -> Result<T> {
        let array = self.open(path)?;
        array.writer().open_for_writing()?;
        let done = work(&array);
        array.writer().end(|| Ok(()))?;
        array.writer().close_for_writing();
        done
    }

    fn append(&self, path: &str, value: u8) -> Result<Range<u64>> {
        self.with_array(path, |array| {
            let start = array.size_bytes();
            let longer = array.longer(start + APPENDED)?;
            let shape = longer.shape.clone();
            let replace = || replace_shape(self.store.as_ref(), path, array.metadata(), &shape);
            let longer = array.lengthen(Arc::new(longer), replace)?;
            longer.writer().write_at(start, &[value; APPENDED as usize])?;
            longer.writer().sync().map(|()| start..start + APPENDED)
        })
    }

    fn write(&self, path: &str, value: u8) -> Result<()> {
        self.with_array(path, |array| {
            array.writer().write_at(self.number as u64, &[value])?;
            array.writer().sync()
        })
    }

    fn import(&self, path: &str, value: u8) -> Result<()> {
        let place = Place::find(&self.store, path)?;
        let new =
            NewArray::begin(&self.engine, &self.store, &place, documents(2 * LENGTH), Layout::default())?;
        new.array().writer().write_at(0, &[value; 2 * LENGTH as usize])?;
        new.publish()
    }

    fn edit(&self, path: &str, value: u8) -> Result<bool> {
        let edit = Edit::Members(vec![(format!("p{}", self.number), Some(value.to_string()))]);
        attributes::edit(self.store.as_ref(), path, &edit)
    }

    fn step(&self, group: &str, kind: u64, value: u8, known: &mut Known) {
        let array = join(group, "a");
        let is_done = match kind {
            0 | 1 => {
                let appended = self.append(&array, value);
                let is_done = appended.is_ok();
                known.appended.extend(appended.map(|range| (range, value)));
                is_done
            }
            2 => {
                let is_done = self.import(&join(group, "b"), value).is_ok();
                known.imported = if is_done { Some(value) } else { known.imported };
                is_done
            }
            3 => record(&mut known.element, value, self.write(&array, value).is_ok()),
            _ => record(&mut known.attribute, Some(value), self.edit(&array, value).is_ok()),
        };
        *(if is_done { &mut known.done } else { &mut known.refused }) += 1;
    }
}

/// Runs one sequence. Returns how many steps were done and refused; an error says what is lost.
fn run(
    sequence: u64,
    service: &ServiceInTurns,
    programs: &[Program],
) -> std::result::Result<[u64; 2], String> {
    let group = format!("s{sequence}");
    let store = &programs[0].store;
    let make = |path: &str, documents| create(store, &Place::find(store, path).unwrap(), documents).unwrap();
    make(&group, group_documents(ZarrFormat::V3, &[]).unwrap());
    make(&join(&group, "a"), documents(LENGTH));
    // Both mostly take the same kind of step.
    let kind = |program: usize, step: usize| {
        let number = sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (8 * step);
        let own = if number.is_multiple_of(3) { program as u64 * 2 } else { 0 };
        (number / 3 + own) % 5
    };
    service.begin(sequence, !sequence.is_multiple_of(4));
    let known: Vec<Known> = std::thread::scope(|scope| {
        let running: Vec<_> = programs
            .iter()
            .map(|program| {
                let group = group.as_str();
                scope.spawn(move || {
                    let mut known = Known { element: vec![0], attribute: vec![None], ..Known::default() };
                    for step in 0..STEPS {
                        let value = (1 + program.number + 2 * step) as u8;
                        program.step(group, kind(program.number, step), value, &mut known);
                    }
                    service.end(program.number);
                    known
                })
            })
            .collect();
        running.into_iter().map(|program| program.join().unwrap()).collect()
    });
    // A reader with empty caches.
    store.forget_transfers("");
    let reader = Program { number: 0, store: Arc::clone(store), engine: Engine::new(1 << 20, 1) };
    check(&group, &reader, &known)?;
    Ok([known.iter().map(|known| known.done).sum(), known.iter().map(|known| known.refused).sum()])
}

fn check(group: &str, reader: &Program, known: &[Known]) -> std::result::Result<(), String> {
    let read = |path: &str| -> Result<Vec<u8>> {
        let array = reader.open(path)?;
        let mut bytes = vec![0; array.size_bytes() as usize];
        array.read_at(0, &mut bytes).map(|_| bytes)
    };
    let path = join(group, "a");
    let stored = read(&path).map_err(|error| error.to_string())?;
    let attributes = attributes::stored(reader.store.as_ref(), &path).unwrap();
    let attributes: serde_json::Value = serde_json::from_str(&attributes).unwrap();
    for (number, known) in known.iter().enumerate() {
        for (range, value) in &known.appended {
            let found = stored.get(range.start as usize..range.end as usize);
            if found != Some(&[*value; APPENDED as usize]) {
                return Err(format!("{group}: appended {value} at {range:?} is lost: {stored:?}"));
            }
        }
        if !known.element.contains(&stored[number]) {
            return Err(format!(
                "{group}: element {number} is {}, not of {:?}",
                stored[number], known.element
            ));
        }
        let attribute = attributes.get(format!("p{number}")).and_then(serde_json::Value::as_u64);
        if !known.attribute.contains(&attribute.map(|value| value as u8)) {
            return Err(format!(
                "{group}: attribute {number} is {attribute:?}, not of {:?}",
                known.attribute
            ));
        }
    }
    let imported: Vec<u8> = known.iter().filter_map(|known| known.imported).collect();
    match imported[..] {
        [] => Ok(()),
        [value] if read(&join(group, "b")).is_ok_and(|read| read == [value; 2 * LENGTH as usize]) => Ok(()),
        _ => Err(format!("{group}: imported {imported:?}: of several one is refused, and one is there")),
    }
}

#[test]
fn what_two_programs_stored_is_there() {
    let sequences = pick(500, 10_000);
    let next = AtomicU64::new(1);
    let all = [AtomicU64::new(0), AtomicU64::new(0)];
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let service = Arc::new(ServiceInTurns::default());
                let programs: Vec<Program> = (service.stores(2).into_iter().enumerate())
                    .map(|(number, store)| Program {
                        number,
                        store: Arc::new(store),
                        engine: Engine::new(1 << 20, 1),
                    })
                    .collect();
                let root = &programs[0].store;
                create(root, &Place::find(root, "").unwrap(), group_documents(ZarrFormat::V3, &[]).unwrap())
                    .unwrap();
                loop {
                    let sequence = next.fetch_add(1, Ordering::Relaxed);
                    if sequence > sequences {
                        return;
                    }
                    let counts = run(sequence, &service, &programs).unwrap_or_else(|fault| {
                        next.store(u64::MAX / 2, Ordering::Relaxed);
                        panic!("sequence {sequence}: {fault}")
                    });
                    for (count, all) in counts.iter().zip(&all) {
                        all.fetch_add(*count, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let [done, refused] = all.map(AtomicU64::into_inner);
    println!("{sequences} sequences: {done} changes stored, {refused} refused, 0 lost");
    assert!(done > sequences && refused > sequences / 4, "{done} and {refused} in {sequences}");
}

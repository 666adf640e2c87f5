//! Writing through a mount, for every codec, data type, order, byte order, shard form and version: the stores of
//! scripts/make_fixtures.py get other contents from programs that never heard of Zarr (whole, then random pieces of it), and
//! are then read by zarr-python and tensorstore. Each pair of an array and a way of writing is a copy of its own.
//!
//! Every pair of a chain and a data type is written in one way, and each in turn. With ZARRFS_WRITE_MATRIX=all every
//! array is written in every way (some 40,000 pairs; TMPDIR should then name a tmpfs).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::support::fixtures::{Expected, Fixtures, matrix, python};
use crate::support::library::{LAYOUTS, assert_none, in_parallel, open, read_all, tree};
use crate::support::mounted::Mount;
use crate::support::servers::{Kind, Server};
use crate::support::{Numbers, level, say, skip};
use serde_json::{Value, json};
use zarrfs::array::Engine;

const DOCUMENTS: [&str; 6] = ["zarr.json", ".zarray", ".zattrs", ".zgroup", "meta", "attrs"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// dd of the whole, which truncates first; pieces with conv=notrunc.
    Dd,
    /// dd conv=notrunc of the whole, and of pieces.
    DdNotrunc,
    /// cp over the file; then of the content with other pieces, with the sparse blocks left out.
    Cp,
    /// numpy.memmap, mode r+.
    Memmap,
    /// C with a shared mapping.
    Mapped,
    /// Fortran, direct access, backwards.
    Fortran,
    /// The fill value everywhere.
    Fill,
}

const WAYS: [Way; 7] = [Way::Dd, Way::DdNotrunc, Way::Cp, Way::Memmap, Way::Mapped, Way::Fortran, Way::Fill];

/// An array that is written in some way.
struct Job<'a> {
    array: &'a Expected,
    way: Way,
    /// The path in the store that is mounted.
    path: String,
    /// What is written, and what pieces are then taken of.
    new: PathBuf,
    second: PathBuf,
    pieces: Vec<(usize, usize)>,
    item_bytes: usize,
    /// What the flat file holds in the end.
    wanted: PathBuf,
    /// Every chunk of the array may be all fill, and then goes.
    can_vanish: bool,
}

struct Scene {
    fixtures: &'static Fixtures,
    python: PathBuf,
    folder: tempfile::TempDir,
    /// (order and byte order as in `LAYOUTS`)
    layout: usize,
    /// The server that has the store, unless `folder` has it.
    server: Option<Server>,
}

fn is_whole_matrix() -> bool {
    std::env::var("ZARRFS_WRITE_MATRIX").is_ok_and(|value| value == "all")
}

/// Returns how many pairs that are written to a folder come on each pair that is written to a server.
fn served_share() -> usize {
    level::pick(96, 4)
}

/// Returns the arrays that have a document of their own; only these can be written.
fn writable(fixtures: &Fixtures) -> Vec<&Expected> {
    let has_document = |array: &&Expected| {
        let folder = fixtures.folder.join(&array.path);
        ["zarr.json", ".zarray", "meta"].iter().any(|name| folder.join(name).exists())
    };
    fixtures.arrays.iter().filter(|array| array.refusal.is_none()).filter(has_document).collect()
}

/// Pairs of an array and a way: all of them, or each way in turn for arrays that differ by `feature`.
fn chosen<'a>(
    fixtures: &'a Fixtures,
    ways: &[Way],
    feature: impl Fn(&Expected) -> String,
) -> Vec<(&'a Expected, Way)> {
    let arrays = writable(fixtures);
    let ways: Vec<Way> =
        ways.iter().copied().filter(|way| level::is_full() || *way != Way::Fortran).collect();
    if is_whole_matrix() {
        return arrays.iter().flat_map(|array| ways.iter().map(|&way| (*array, way))).collect();
    }
    let mut by_feature = BTreeMap::<String, Vec<&Expected>>::new();
    for array in arrays {
        by_feature.entry(feature(array)).or_default().push(array);
    }
    // Orders and byte orders take turns, too.
    let picked = by_feature.values().enumerate().map(|(turn, alike)| alike[turn % alike.len()]);
    picked.enumerate().map(|(turn, array)| (array, ways[turn % ways.len()])).collect()
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

impl Scene {
    fn new(what: &str, layout: usize) -> Option<Scene> {
        let fixtures = matrix("all", what)?;
        let python = python(what)?;
        Some(Scene { fixtures, python, folder: tempfile::tempdir().unwrap(), layout, server: None })
    }

    fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    fn mount(&self, options: &[&str], what: &str) -> Option<Mount> {
        let Some(server) = &self.server else { return Mount::new(&self.store(), options, what) };
        let own = server.options();
        let options: Vec<&str> = options.iter().copied().chain(own.iter().map(String::as_str)).collect();
        let environment: Vec<(&str, OsString)> =
            server.environment().into_iter().map(|(name, value)| (name, value.into())).collect();
        Mount::with_environment(Path::new(&server.url("")), &options, &environment, what)
    }

    /// Copies the array and makes what it is to hold: its own elements in another order, so that each can be stored.
    fn job<'a>(&self, number: usize, array: &'a Expected, way: Way, engine: &Arc<Engine>) -> Job<'a> {
        let path = format!("{way:?}/{}", array.path);
        copy_folder(&self.fixtures.folder.join(&array.path), &self.store().join(&path));
        let opened = open(&tree(&self.fixtures.folder), engine, &array.path, LAYOUTS[self.layout].1).unwrap();
        let fill = &opened.metadata().fill_value;
        let item_bytes = opened.metadata().data_type.item_size().unwrap();
        let old = read_all(&opened).unwrap();
        let items: Vec<&[u8]> = old.chunks(item_bytes).collect();
        let mut new = items.clone();
        new.rotate_left(items.len() / 2 + usize::from(items.len() > 2));
        let mut numbers = Numbers(number as u64);
        let mut pieces = Vec::new();
        if !array.is_lossy && way != Way::Fill && !items.is_empty() {
            for _ in 0..3 {
                let (start, count) = numbers.range(items.len() as u64);
                pieces.push((start as usize * item_bytes, count as usize * item_bytes));
            }
        }
        let new = if way == Way::Fill { fill.bytes.repeat(items.len()) } else { new.concat() };
        let second = items.iter().rev().copied().collect::<Vec<_>>().concat();
        let mut wanted = new.clone();
        for &(start, length) in &pieces {
            wanted[start..start + length].copy_from_slice(&second[start..start + length]);
        }
        let place = self.folder.path().join(format!("flat/{number}"));
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        let put = |ending: &str, bytes: &[u8]| {
            fs::write(place.with_extension(ending), bytes).unwrap();
            place.with_extension(ending)
        };
        Job {
            array,
            way,
            path,
            new: put("new", &new),
            second: put("second", &second),
            pieces,
            item_bytes,
            wanted: put("wanted", &wanted),
            can_vanish: !fill.is_undefined,
        }
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{command:?}: {}", text.trim())) }
}

fn dd(from: &Path, to: &Path, more: &[String]) -> Result<(), String> {
    let name = |key: &str, path: &Path| {
        let mut argument = std::ffi::OsString::from(key);
        argument.push(path);
        argument
    };
    run(Command::new("dd").arg(name("if=", from)).arg(name("of=", to)).arg("status=none").args(more))
}

fn dd_whole(job: &Job<'_>, file: &Path, conversion: Option<&str>) -> Result<(), String> {
    let block = 1 + Numbers(job.path.len() as u64).below(3000);
    let mut more = vec![format!("bs={block}")];
    more.extend(conversion.map(|conversion| format!("conv={conversion}")));
    dd(&job.new, file, &more)?;
    for &(start, length) in &job.pieces {
        let flags = ["iflag=skip_bytes,count_bytes", "oflag=seek_bytes", "conv=notrunc"].map(str::to_owned);
        let place =
            [format!("skip={start}"), format!("seek={start}"), format!("count={length}"), "bs=37".to_owned()];
        dd(&job.second, file, &[&flags[..], &place].concat())?;
    }
    Ok(())
}

fn cp(job: &Job<'_>, file: &Path) -> Result<(), String> {
    run(Command::new("cp").arg(&job.new).arg(file))?;
    run(Command::new("cp").arg("--sparse=always").arg(&job.wanted).arg(file))
}

/// Records as long as can be, of whole elements.
fn fortran(program: &Path, job: &Job<'_>, file: &Path) -> Result<(), String> {
    let size = fs::metadata(&job.new).unwrap().len() as usize;
    if size == 0 {
        return Ok(());
    }
    let items = size / job.item_bytes;
    let per_record = (1..=items.min(16)).rev().find(|count| items.is_multiple_of(*count)).unwrap();
    let length = per_record * job.item_bytes;
    // Pieces are whole records here.
    let records: Vec<usize> =
        job.pieces.iter().map(|(start, _)| start / length).filter(|r| *r < size / length).collect();
    let (mut wanted, second) = (fs::read(&job.new).unwrap(), fs::read(&job.second).unwrap());
    for record in &records {
        let range = record * length..(record + 1) * length;
        wanted[range.clone()].copy_from_slice(&second[range]);
    }
    fs::write(&job.wanted, wanted).unwrap();
    let numbers = records.iter().map(|record| (record + 1).to_string());
    let mut command = Command::new(program);
    command.arg(file).arg(&job.new).arg(&job.second).args([length, size / length].map(|n| n.to_string()));
    run(command.args(numbers))
}

/// Runs a program that takes all jobs from standard input. Returns what failed.
fn fed(command: &mut Command, input: &[u8]) -> Option<String> {
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let _ = child.stdin.take().unwrap().write_all(input);
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    (!output.status.success()).then(|| format!("{command:?}: {}", text.trim()))
}

/// Compiles one of tests/programs.
fn compiled(compiler: &str, source: &str, folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source);
    let program = folder.join(source.file_stem().unwrap());
    let mut command = Command::new(compiler);
    match run(command.arg("-O1").arg("-o").arg(&program).arg(&source)) {
        Ok(()) => program,
        Err(what) => panic!("{what}"),
    }
}

/// Writes all arrays; what failed.
fn write(scene: &Scene, mount: &Mount, jobs: &[Job<'_>]) -> Vec<String> {
    let of = |way: Way| jobs.iter().filter(move |job| job.way == way).collect::<Vec<_>>();
    let fortran_program =
        level::is_full().then(|| compiled("gfortran", "write_records.f90", scene.folder.path()));
    let one_by_one: Vec<&Job<'_>> =
        jobs.iter().filter(|job| !matches!(job.way, Way::Memmap | Way::Mapped)).collect();
    let mut failures: Vec<String> = in_parallel(&one_by_one, |job| {
        let file = mount.path(&job.path);
        let written = match job.way {
            Way::Dd => dd_whole(job, &file, None),
            Way::DdNotrunc => dd_whole(job, &file, Some("notrunc")),
            Way::Cp => cp(job, &file),
            Way::Fortran => fortran(fortran_program.as_ref().unwrap(), job, &file),
            _ => fs::write(&file, fs::read(&job.new).unwrap()).map_err(|error| error.to_string()),
        };
        written.err().map(|what| format!("{} ({}): {what}", job.path, job.array.what))
    })
    .into_iter()
    .flatten()
    .collect();
    let mut fields = Vec::new();
    for job in of(Way::Mapped) {
        let pieces: Vec<String> =
            job.pieces.iter().map(|(start, length)| format!("{start}+{length}")).collect();
        let file = mount.path(&job.path);
        for field in
            [file.as_os_str(), job.new.as_os_str(), job.second.as_os_str(), pieces.join(",").as_ref()]
        {
            fields.extend_from_slice(field.as_bytes());
            fields.push(0);
        }
    }
    let program = compiled("cc", "write_mapped.c", scene.folder.path());
    failures.extend(fed(&mut Command::new(program), &fields));
    let mut lines = String::new();
    for job in of(Way::Memmap) {
        let line = json!({"mount": mount.point(), "path": job.path, "new": job.new, "second": job.second,
                          "whole": job.array.is_lossy, "wanted": job.wanted});
        lines += &format!("{line}\n");
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/write_memmap.py");
    failures.extend(fed(Command::new(&scene.python).arg(script), lines.as_bytes()));
    failures
}

/// Returns all files below a folder, as paths relative to it.
fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.push(path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found
}

fn documents(folder: &Path) -> BTreeMap<&'static str, Vec<u8>> {
    DOCUMENTS.iter().filter_map(|&name| Some((name, fs::read(folder.join(name)).ok()?))).collect()
}

/// Returns what is wrong with an array's folder: metadata documents as they were, whole chunks, nothing else.
fn check_objects(scene: &Scene, job: &Job<'_>) -> Option<String> {
    let folder = scene.store().join(&job.path);
    if documents(&folder) != documents(&scene.fixtures.folder.join(&job.array.path)) {
        return Some("its documents are not what they were".to_owned());
    }
    let is_chunk = |name: &str| {
        let name = name.strip_prefix("c/").or(name.strip_prefix("c.")).unwrap_or(name);
        name == "c"
            || name.split(['.', '/']).all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    };
    let objects: Vec<String> =
        files(&folder).into_iter().filter(|name| !DOCUMENTS.contains(&name.as_str())).collect();
    if let Some(other) = objects.iter().find(|name| !is_chunk(name)) {
        return Some(format!("{other} was left behind"));
    }
    if job.way == Way::Fill && job.array.size_bytes > 0 && objects.is_empty() != job.can_vanish {
        return Some(format!("written with fill value, it has the objects {objects:?}"));
    }
    None
}

/// Reads everything with the library, zarr-python and tensorstore; what is wrong.
fn check(scene: &Scene, jobs: &[Job<'_>]) -> Vec<String> {
    let engine = Engine::new(64 << 20, 2);
    let (name, layout) = LAYOUTS[scene.layout];
    let store = tree(&scene.store());
    let checked = in_parallel(jobs, |job| {
        let complaint = check_objects(scene, job).or_else(|| {
            let read = open(&store, &engine, &job.path, layout).and_then(|array| read_all(&array));
            match read {
                Err(error) => Some(error.to_string()),
                Ok(bytes) if !job.array.is_lossy && bytes != fs::read(&job.wanted).unwrap() => {
                    Some("zarrfs reads other bytes".to_owned())
                }
                Ok(_) => None,
            }
        });
        complaint.map(|what| format!("{} ({}): {what}", job.path, job.array.what))
    });
    let mut failures: Vec<String> = checked.into_iter().flatten().collect();
    let arrays: Vec<Value> = jobs
        .iter()
        .filter(|job| job.way != Way::Fill || !job.array.is_lossy)
        .map(|job| {
            json!({"path": job.path, "like": job.array.path, "flat": job.wanted, "order": name[..1],
                   "byte_order": name[1..]})
        })
        .collect();
    let mut question = json!({"root": scene.store(), "fixtures": scene.fixtures.folder, "arrays": arrays});
    if let Some(server) = &scene.server {
        (question["service"], question["options"]) = (server.url("").into(), server.obstore_options());
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/written.py");
    let asked = scene.folder.path().join("question.json");
    fs::write(&asked, question.to_string()).unwrap();
    let output = Command::new(&scene.python)
        .arg(script)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(fs::File::open(asked).unwrap())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "written.py: {}, after {} bytes of a reply: {}",
        output.status,
        output.stdout.len(),
        &text[text.len().saturating_sub(5000)..]
    );
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let wrong = answer["failures"].as_array().unwrap();
    failures.extend(wrong.iter().map(|failure| failure.as_str().unwrap().to_owned()));
    say(format!(
        "  read back by zarr-python: {}, by tensorstore: {}; lossy: {}",
        answer["reads"]["zarr"], answer["reads"]["tensorstore"], answer["lossy"]
    ));
    failures
}

/// Returns the compilers that are used. Fortran is left to the full level: its compiler is as large as all else that the tests install.
fn compilers() -> &'static [&'static str] {
    level::pick(&["cc"], &["cc", "gfortran"])
}

fn has_compilers() -> bool {
    compilers().iter().all(|name| {
        let found = Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        let found = found.is_ok_and(|status| status.success());
        if !found {
            skip(name, "the program is not installed", true);
        }
        found
    })
}

/// Writes through a mount of a folder, or of what a server has.
fn write_and_read_back(
    what: &str,
    (layout, server): (usize, Option<Kind>),
    ways: &[Way],
    feature: impl Fn(&Expected) -> String,
) {
    let Some(mut scene) = Scene::new(what, layout) else { return };
    if !has_compilers() {
        return;
    }
    let engine = Engine::new(64 << 20, 2);
    let step = if server.is_some() && !is_whole_matrix() { served_share() } else { 1 };
    let pairs = chosen(scene.fixtures, ways, feature);
    // object_store takes no control characters.
    let has_key = |array: &Expected| server.is_none() || !array.path.contains(char::is_control);
    let pairs = pairs.into_iter().filter(|(array, _)| has_key(array));
    let pairs: Vec<_> = pairs.step_by(step).enumerate().collect();
    let jobs = in_parallel(&pairs, |(number, (array, way))| scene.job(*number, array, *way, &engine));
    let name = LAYOUTS[layout].0;
    let order = if name.starts_with('F') { "F" } else { "C" };
    let byte_order = if name.ends_with('>') { "big" } else { "little" };
    let options = ["--writable", "--order", order, "--byte-order", byte_order, "--cache-size", "16M"];
    scene.server = server.map(|kind| Server::start(kind, &scene.store()));
    let Some(mount) = scene.mount(&options, what) else { return };
    let mut failures = write(&scene, &mount, &jobs);
    // dd truncates, duplicates the descriptor and closes the first: zeros are stored, which not every chain takes.
    let is_of_dd = |line: &str| line.contains("Dd/") && line.contains("cannot be encoded");
    let log = mount.log();
    let errors = log.lines().filter(|line| line.contains("ERROR") && !is_of_dd(line));
    failures.extend(errors.map(|line| format!("the log: {line}")));
    mount.unmount();
    if let Some(server) = &scene.server {
        fs::remove_dir_all(scene.store()).unwrap();
        server.download(&scene.store());
    }
    failures.extend(check(&scene, &jobs));
    let arrays: std::collections::BTreeSet<&str> = jobs.iter().map(|job| job.array.path.as_str()).collect();
    say(format!(
        "{what}, order {order}, {byte_order}-endian: {} arrays, {} pairs of an array and a way, {} failures",
        arrays.len(),
        jobs.len(),
        failures.len()
    ));
    assert_none(&failures, what);
}

#[test]
fn every_chain_and_type_in_every_way() {
    let feature = |array: &Expected| format!("{} {}", array.what, array.dtype);
    write_and_read_back("writing", (0, None), &WAYS, feature);
}

#[test]
fn at_object_stores() {
    let kinds = [("S3", Kind::Moto), ("Azure", Kind::Azurite), ("Google", Kind::Google)];
    for (service, kind) in kinds.into_iter().take(level::pick(1, 3)) {
        let what = &*format!("writing to {service}");
        write_and_read_back(what, (0, Some(kind)), &WAYS, |array| array.what.clone());
    }
}

#[test]
#[ignore = "full: writes the whole sample in three more layouts"]
fn other_served_layouts() {
    for layout in 1..LAYOUTS.len() {
        let ways = [Way::Dd, Way::Memmap, Way::Mapped];
        write_and_read_back("writing", (layout, None), &ways, |array| array.what.clone());
    }
}

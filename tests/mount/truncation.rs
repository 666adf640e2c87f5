//! Programs that cut a file short and write all of it, some of it or nothing: which errors they get, and what the array holds
//! afterwards, in the mount and in the store, with both values of `--tune truncate`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::faulty::compiled;
use crate::support::fixtures::python;
use crate::support::mounted::Mount;
use crate::support::{level, own_process, say};
use serde_json::json;

const SIZE: usize = 20_000;
const CHUNK: usize = 3000;

/// What the array holds afterwards: runs of a byte, as (length, byte); `o` is what was there, `n` the new, `c` what truncate.c writes.
type Runs<'a> = &'a [(usize, u8)];

/// A program, and what becomes of it.
struct Case {
    name: &'static str,
    /// Run by `sh -c`; `$t` is the file, `$full`, `$short` and `$sparse` are others.
    script: &'static str,
    /// With `keep`: whether it gets an error, and the array.
    keep: (bool, Runs<'static>),
    /// The same with `zero`.
    zero: (bool, Runs<'static>),
}

const ALL_NEW: Runs = &[(SIZE, b'n')];
const UNCHANGED: Runs = &[(SIZE, b'o')];
const ALL_ZERO: Runs = &[(SIZE, 0)];
const SHORT: Runs = &[(1000, b'n'), (SIZE - 1000, b'o')];
const SHORT_IN_ZEROS: Runs = &[(1000, b'n'), (SIZE - 1000, 0)];
const SPARSE: Runs = &[(100, b'n'), (14_900, 0), (100, b'n'), (4900, 0)];

const CASES: &[Case] = &[
    Case { name: "cp", script: "cp $full $t", keep: (false, ALL_NEW), zero: (false, ALL_NEW) },
    Case { name: "cp of less", script: "cp $short $t", keep: (true, SHORT), zero: (false, SHORT_IN_ZEROS) },
    Case {
        name: "cp of nothing",
        script: "cp /dev/null $t",
        keep: (true, UNCHANGED),
        zero: (false, ALL_ZERO),
    },
    Case {
        name: "cp of holes",
        script: "cp --sparse=always $sparse $t",
        keep: (false, SPARSE),
        zero: (false, SPARSE),
    },
    Case {
        name: "cp without holes",
        script: "cp --sparse=never $sparse $t",
        keep: (false, SPARSE),
        zero: (false, SPARSE),
    },
    Case {
        name: "dd",
        script: "dd if=$full of=$t bs=777 status=none",
        keep: (false, ALL_NEW),
        zero: (false, ALL_NEW),
    },
    Case {
        name: "dd of less",
        script: "dd if=$short of=$t status=none",
        keep: (true, SHORT),
        zero: (false, SHORT_IN_ZEROS),
    },
    Case {
        name: "dd of less, fsync",
        script: "dd if=$short of=$t status=none conv=fsync",
        keep: (true, SHORT),
        zero: (false, SHORT_IN_ZEROS),
    },
    Case {
        name: "dd of less, dsync",
        script: "dd if=$short of=$t bs=100 status=none oflag=dsync conv=notrunc",
        keep: (false, SHORT),
        zero: (false, SHORT),
    },
    Case {
        name: "dd, dsync",
        script: "dd if=$full of=$t bs=4000 status=none oflag=dsync",
        keep: (false, ALL_NEW),
        zero: (false, ALL_NEW),
    },
    Case {
        name: "dd notrunc",
        script: "dd if=$short of=$t status=none conv=notrunc",
        keep: (false, SHORT),
        zero: (false, SHORT),
    },
    Case {
        name: "dd seek notrunc",
        script: "dd if=$short of=$t bs=1000 seek=2 status=none conv=notrunc",
        keep: (false, &[(2000, b'o'), (1000, b'n'), (SIZE - 3000, b'o')]),
        zero: (false, &[(2000, b'o'), (1000, b'n'), (SIZE - 3000, b'o')]),
    },
    // dd sets the size to where it begins.
    Case {
        name: "dd seek",
        script: "dd if=$short of=$t bs=1000 seek=2 status=none",
        keep: (true, &[(2000, b'o'), (1000, b'n'), (SIZE - 3000, b'o')]),
        zero: (false, &[(2000, b'o'), (1000, b'n'), (SIZE - 3000, b'o')]),
    },
    Case { name: "shell", script: "cat $full >$t", keep: (false, ALL_NEW), zero: (false, ALL_NEW) },
    // dash itself cuts it short, and does not look at what its own close says: cat gets no error.
    Case {
        name: "shell, less",
        script: "cat $short >$t",
        keep: (false, SHORT),
        zero: (false, SHORT_IN_ZEROS),
    },
    Case { name: "shell, nothing", script: ": >$t", keep: (false, UNCHANGED), zero: (false, ALL_ZERO) },
    Case {
        name: "shell, two",
        script: "{ head -c 9000 $full; tail -c 11000 $full; } >$t",
        keep: (false, ALL_NEW),
        zero: (false, ALL_NEW),
    },
    Case { name: "bash", script: "bash -c 'cat $full >$t'", keep: (false, ALL_NEW), zero: (false, ALL_NEW) },
    Case {
        name: "bash, less",
        script: "bash -c 'cat $short >$t'",
        keep: (true, SHORT),
        zero: (false, SHORT_IN_ZEROS),
    },
    Case {
        name: "bash, two",
        script: "bash -c 'set -e; { head -c 9000 $full; tail -c 11000 $full; } >$t'",
        keep: (false, ALL_NEW),
        zero: (false, ALL_NEW),
    },
    Case {
        name: "shell, appends",
        script: "cat $short >>$t",
        keep: (true, UNCHANGED),
        zero: (true, UNCHANGED),
    },
    Case {
        name: "truncate to 0",
        script: "truncate -s 0 $t",
        keep: (true, UNCHANGED),
        zero: (false, ALL_ZERO),
    },
    Case {
        name: "truncate to less",
        script: "truncate -s 7000 $t",
        keep: (true, UNCHANGED),
        zero: (true, UNCHANGED),
    },
    Case {
        name: "truncate to the size",
        script: "truncate -s 20000 $t",
        keep: (false, UNCHANGED),
        zero: (false, UNCHANGED),
    },
    Case {
        name: "truncate to more",
        script: "truncate -s 20001 $t",
        keep: (true, UNCHANGED),
        zero: (true, UNCHANGED),
    },
    Case {
        name: "rsync --inplace",
        script: "rsync --inplace --ignore-times $full $t",
        keep: (false, ALL_NEW),
        zero: (false, ALL_NEW),
    },
    Case {
        name: "tofile",
        script: "$py \"import numpy; numpy.full(20000, ord('n'), 'u1').tofile('$t')\"",
        keep: (false, ALL_NEW),
        zero: (false, ALL_NEW),
    },
    Case {
        name: "tofile of less",
        script: "$py \"import numpy; numpy.full(1000, ord('n'), 'u1').tofile('$t')\"",
        keep: (true, SHORT),
        zero: (false, SHORT_IN_ZEROS),
    },
    Case {
        name: "memmap w+",
        script: "$py \"import numpy; m = numpy.memmap('$t', 'u1', 'w+', shape=20000); m[:] = ord('n'); m.flush()\"",
        keep: (false, ALL_NEW),
        zero: (false, ALL_NEW),
    },
    Case {
        name: "open, write",
        script: "$py \"f = open('$t', 'wb'); f.write(b'n' * 20000); f.close()\"",
        keep: (false, ALL_NEW),
        zero: (false, ALL_NEW),
    },
    Case {
        name: "open, write less",
        script: "$py \"f = open('$t', 'wb'); f.write(b'n' * 1000); f.close()\"",
        keep: (true, SHORT),
        zero: (false, SHORT_IN_ZEROS),
    },
    Case {
        name: "numpy.save",
        script: "$py \"import numpy; numpy.save(open('$t', 'wb'), numpy.full(20000, ord('n'), 'u1'))\"",
        keep: (true, UNCHANGED),
        zero: (true, ALL_ZERO),
    },
    Case {
        name: "os.truncate",
        script: "$py \"import os; os.truncate('$t', 0)\"",
        keep: (true, UNCHANGED),
        zero: (false, ALL_ZERO),
    },
    Case {
        name: "Popen",
        script: "$py \"import subprocess as s; f = open('$t', 'wb'); s.check_call(['cat', '$full'], stdout=f); f.close()\"",
        keep: (false, ALL_NEW),
        zero: (false, ALL_NEW),
    },
    Case {
        name: "R",
        script: "Rscript -e 'f <- file(\"'$t'\", \"wb\"); writeBin(rep(as.raw(110), 20000), f); close(f)'",
        keep: (false, ALL_NEW),
        zero: (false, ALL_NEW),
    },
    Case {
        name: "C, mapped",
        script: "$c $t mapped",
        keep: (false, &[(10, 0), (100, b'c'), (SIZE - 110, 0)]),
        zero: (false, &[(10, 0), (100, b'c'), (SIZE - 110, 0)]),
    },
    Case {
        name: "C, sparse",
        script: "$c $t sparse",
        keep: (false, &[(5000, 0), (100, b'c'), (SIZE - 5100, 0)]),
        zero: (false, &[(5000, 0), (100, b'c'), (SIZE - 5100, 0)]),
    },
    Case {
        name: "C, allocated",
        script: "$c $t allocated",
        keep: (false, &[(100, b'c'), (SIZE - 100, 0)]),
        zero: (false, &[(100, b'c'), (SIZE - 100, 0)]),
    },
    Case {
        name: "C, cut again",
        script: "$c $t cut",
        keep: (true, &[(50, b'c'), (10, 0), (40, b'c'), (SIZE - 100, b'o')]),
        zero: (true, &[(100, b'c'), (SIZE - 100, 0)]),
    },
];

fn bytes(runs: Runs<'_>) -> Vec<u8> {
    runs.iter().flat_map(|&(length, byte)| vec![byte; length]).collect()
}

fn shown(bytes: &[u8]) -> String {
    let runs = bytes.chunk_by(|a, b| a == b).map(|run| format!("{}x{}", run.len(), run[0].escape_ascii()));
    runs.take(12).collect::<Vec<_>>().join(" ")
}

/// What every script knows.
struct Place {
    folder: tempfile::TempDir,
    python: PathBuf,
    program: PathBuf,
}

impl Place {
    fn new(what: &str) -> Option<Place> {
        let (python, program) = (python(what)?, compiled("truncate.c", &[], what)?);
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("full"), bytes(ALL_NEW)).unwrap();
        fs::write(folder.path().join("short"), &bytes(ALL_NEW)[..1000]).unwrap();
        fs::write(folder.path().join("sparse"), bytes(SPARSE)).unwrap();
        Some(Place { folder, python, program })
    }

    fn run(&self, script: &str, file: &Path) -> (bool, String) {
        let path = |name: &str| self.folder.path().join(name);
        let output = Command::new("sh")
            .args(["-c", script])
            .env("t", file)
            .env("full", path("full"))
            .env("short", path("short"))
            .env("sparse", path("sparse"))
            .env("c", &self.program)
            .env("py", format!("{} -c", self.python.display()))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
        (!output.status.success(), text.into_owned())
    }
}

fn write_store(store: &Path) {
    let document = json!({"zarr_format": 3, "node_type": "array", "shape": [SIZE], "data_type": "uint8", "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [CHUNK]}},
        "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "bytes"}, {"name": "crc32c"}]});
    for (number, _) in CASES.iter().enumerate() {
        fs::create_dir_all(store.join(format!("a{number}"))).unwrap();
        fs::write(store.join(format!("a{number}/zarr.json")), document.to_string()).unwrap();
    }
}

fn stored(store: &Path, array: &str) -> Vec<u8> {
    let mut cat = Command::new(env!("CARGO_BIN_EXE_zarrfs"));
    cat.arg("cat").arg(store).arg(array).output().unwrap().stdout
}

fn try_all(options: &[&str], of: impl Fn(&Case) -> (bool, Runs<'static>)) {
    let what = "programs that cut files short";
    let Some(place) = Place::new(what) else { return };
    let store = tempfile::Builder::new().suffix(".zarr").tempdir().unwrap();
    write_store(store.path());
    let Some(mount) = Mount::new(store.path(), options, what) else { return };
    let mut wrong = Vec::new();
    // The quick level has no R.
    let cases = CASES.iter().enumerate().filter(|(_, case)| level::is_full() || case.name != "R");
    for (number, case) in cases {
        let array = format!("a{number}");
        let file = mount.path(&array);
        fs::OpenOptions::new()
            .write(true)
            .open(&file)
            .and_then(|mut file| std::io::Write::write_all(&mut file, &bytes(UNCHANGED)))
            .unwrap();
        let (is_reported, text) = place.run(case.script, &file);
        let (should_be_reported, runs) = of(case);
        let expected = bytes(runs);
        let found = fs::read(&file).unwrap();
        // The last release comes after the program has ended.
        let waits = (0..200).take_while(|_| {
            let differs = stored(store.path(), &array) != expected;
            std::thread::sleep(std::time::Duration::from_millis(if differs { 20 } else { 0 }));
            differs
        });
        let is_stored = waits.count() < 200;
        if is_reported != should_be_reported || found != expected || !is_stored {
            wrong.push(format!(
                "{} {options:?}: reported {is_reported}: {text}\n  {}, stored {is_stored}",
                case.name,
                shown(&found)
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let errors = fs::read_to_string(mount.path("__zarrfs__/last_error")).unwrap();
    say(format!("{} programs; last_error has {} lines", CASES.len(), errors.lines().count()));
    if options.len() == 1 {
        assert!(
            errors
                .contains("\tEINVAL\tlast close: 1,000 of 20,000 bytes were written; the rest is unchanged"),
            "{errors}"
        );
        assert!(errors.contains("this is a .npy file"), "{errors}");
        assert!(mount.log().contains("1,000 of 20,000 bytes were written"), "{}", mount.log());
    }
    mount.unmount();
}

#[test]
fn a_file_that_is_cut_short_keeps_what_is_not_written() {
    if own_process::has_run() {
        return;
    }
    try_all(&["--writable"], |case| case.keep);
}

#[test]
fn a_file_that_is_cut_short_past_the_page_cache_does_so_too() {
    if own_process::has_run() {
        return;
    }
    try_all(&["--writable", "--direct-io"], |case| case.keep);
}

#[test]
fn truncating_makes_all_zero_if_asked_for() {
    if own_process::has_run() {
        return;
    }
    try_all(&["--writable", "--tune=truncate=zero"], |case| case.zero);
}

//! The scripts of `zarrfs completions` in the shells that they are for, with TAB as a user presses it.
//!
//! bash is required; zsh and fish are tried where they are installed. What the program offers is tested next to its code.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::{outcome, run, sample};

/// What a user types, and the words that the program gets.
const LINES: [(&str, &str); 12] = [
    ("zarrfs info sample.zarr cli\t", "<info><sample.zarr><climate/>"),
    ("zarrfs info sample.zarr cli\ttempe\t--js\t", "<info><sample.zarr><climate/temperature><--json>"),
    ("zarrfs cat sample.zarr /climate/tempe\t", "<cat><sample.zarr></climate/temperature>"),
    ("zarrfs mv sample.zarr small/ans\tsm\tnew", "<mv><sample.zarr><small/answer><small/new>"),
    ("zarrfs info my\\ store.zarr a\t", "<info><my store.zarr><a b:c>"),
    ("zarrfs info \"$S\" a\\ b:\t", "<info><my store.zarr><a b:c>"),
    ("zarrfs info 'my store.zarr' 'a\t", "<info><my store.zarr><a b:c>"),
    ("zarrfs info \"my store.zarr\" \"a\t", "<info><my store.zarr><a b:c>"),
    ("zarrfs info my\\ store.zarr it\tans\t", "<info><my store.zarr><it's/answer>"),
    ("zarrfs info s3://bucket/x.zarr note\t", "<info><s3://bucket/x.zarr><note>"),
    ("zarrfs info sample.zarr --log-file note\t", "<info><sample.zarr><--log-file><notes.txt>"),
    ("zarrfs comp\t", "<completions>"),
];

/// Returns a folder with a plain store, one with awkward names, and a file.
fn folder() -> TempDir {
    let (folder, store) = sample();
    let awkward = folder.path().join("my store.zarr");
    fs::create_dir(&awkward).unwrap();
    fs::copy(store.join("zarr.json"), awkward.join("zarr.json")).unwrap();
    for (from, to) in [("small/answer", "a b:c"), ("small", "it's")] {
        let copied = Command::new("cp").arg("-r").arg(store.join(from)).arg(awkward.join(to)).status();
        assert!(copied.unwrap().success());
    }
    fs::write(folder.path().join("notes.txt"), "").unwrap();
    folder
}

/// Returns a shell in the folder that finds the program, without the user's settings.
fn shell(name: &str, folder: &Path) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_zarrfs")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(name);
    command.current_dir(folder).env("PATH", path).env("HOME", folder).env("INPUTRC", "/dev/null");
    command.env_remove("HISTFILE").stderr(Stdio::null()).stdout(Stdio::piped());
    command
}

fn script(shell: &str) -> String {
    let (code, script, _) = outcome(&run(&["completions", shell]));
    assert_eq!(code, 0);
    script
}

fn is_installed(shell: &str) -> bool {
    let is_installed = Command::new(shell).arg("-c").arg("true").status().is_ok();
    if !is_installed {
        eprintln!("SKIPPED: {shell} is not installed: its completions were NOT tried");
    }
    is_installed
}

#[track_caller]
fn check(printed: &[u8]) {
    let printed = String::from_utf8_lossy(printed);
    let printed: Vec<&str> =
        printed.lines().map(|line| line.trim_end()).filter(|line| line.starts_with('<')).collect();
    // zsh takes the / after a group away again when the line ends.
    let printed: Vec<String> = printed.iter().map(|line| line.replace("climate>", "climate/>")).collect();
    assert_eq!(printed, LINES.map(|(_, words)| words));
}

#[test]
fn bash_completes_names() {
    let folder = folder();
    fs::write(folder.path().join("script"), script("bash")).unwrap();
    let mut child =
        shell("bash", folder.path()).args(["--norc", "-i"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut typed = child.stdin.take().unwrap();
    let begin = "source ./script; S='my store.zarr'; zarrfs() { printf '<%s>' \"$@\"; echo; }; PS1=\n";
    let lines = LINES.map(|(line, _)| format!("{line}\n")).concat();
    typed.write_all(format!("{begin}{lines}exit\n").as_bytes()).unwrap();
    drop(typed);
    check(&child.wait_with_output().unwrap().stdout);
}

#[test]
fn zsh_completes_names() {
    if !is_installed("zsh") {
        return;
    }
    let folder = folder();
    fs::create_dir(folder.path().join("functions")).unwrap();
    fs::write(folder.path().join("functions/_zarrfs"), script("zsh")).unwrap();
    let typist = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/complete.zsh");
    let mut zsh = shell("zsh", folder.path());
    zsh.args(["-f", typist]).arg(folder.path().join("functions")).args(LINES.map(|(line, _)| line));
    check(&zsh.stdin(Stdio::null()).output().unwrap().stdout);
}

#[test]
fn fish_completes_names() {
    if !is_installed("fish") {
        return;
    }
    let folder = folder();
    fs::write(folder.path().join("script"), script("fish")).unwrap();
    for (line, words) in [
        ("zarrfs info sample.zarr c", &["climate/"][..]),
        ("zarrfs info sample.zarr climate/tempe", &["climate/temperature"]),
        ("zarrfs info 'my store.zarr' a", &["a b:c"]),
        ("zarrfs info my\\ store.zarr \"it's/ans", &["it's/answer"]),
        ("zarrfs info s3://bucket/x.zarr note", &[]),
        ("zarrfs info sample.zarr --log-file note", &["notes.txt"]),
        ("zarrfs comp", &["completions"]),
    ] {
        let mut fish = shell("fish", folder.path());
        fish.args(["--no-config", "-c", "source script; complete -C \"$LINE\""]).env("LINE", line);
        let printed = fish.stdin(Stdio::null()).output().unwrap().stdout;
        let printed = String::from_utf8_lossy(&printed);
        let found: Vec<&str> = printed.lines().map(|line| line.split('\t').next().unwrap()).collect();
        assert_eq!(found, words, "{line}");
    }
}

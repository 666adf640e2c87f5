//! The faults that `scripts/inject-faults` puts into the source: each patch fits the source as it is, so that the script can run at
//! any commit.

use std::path::Path;
use std::process::Command;

#[test]
fn patches_of_faults_apply() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut patches = 0;
    for entry in std::fs::read_dir(root.join("tests/injected")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ending| ending != "patch") {
            continue;
        }
        let output =
            Command::new("git").args(["apply", "--check"]).arg(&path).current_dir(root).output().unwrap();
        assert!(output.status.success(), "{}: {}", path.display(), String::from_utf8_lossy(&output.stderr));
        patches += 1;
    }
    assert!(patches >= 10, "only {patches} patches");
}

//! The crates that the program is built from: their licences, and where they come from.
//!
//! What cargo-deny would check of them, without the minutes that it takes to build. Its advisories need a database from the network, so
//! they are not a test: `cargo audit` reads the same Cargo.lock.

use std::process::Command;

use serde_json::Value;
use spdx::{Expression, LicenseReq, ParseMode};

/// Licences that a program under "MIT OR Apache-2.0" can be given away with.
const LICENCES: [&str; 9] = [
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Zlib",
    "bzip2-1.0.6",
];
const SOURCE: &str = "registry+https://github.com/rust-lang/crates.io-index";
/// Crates that bind a library of the machine, which the program would then need, next to what does the same here.
const BANNED: [(&str, &str); 3] = [("openssl-sys", "rustls"), ("native-tls", "rustls"), ("fuse3", "fuser")];

#[test]
fn crates_have_known_licences_and_come_from_the_registry() {
    let mut metadata = Command::new(env!("CARGO"));
    metadata.args(["metadata", "--format-version=1", "--locked", "--offline"]);
    metadata.arg(format!("--filter-platform={}-unknown-linux-gnu", std::env::consts::ARCH));
    if cfg!(feature = "icechunk") {
        metadata.arg("--features=icechunk");
    }
    let output = metadata.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 50, "only {} crates", packages.len());
    let faults: Vec<String> = packages.iter().flat_map(faults_of).collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

fn faults_of(package: &Value) -> Vec<String> {
    let name = package["name"].as_str().unwrap();
    let mut faults = Vec::new();
    let licence = package["license"].as_str().unwrap_or("");
    if !is_allowed(licence) {
        faults.push(format!("{name}: the licence {licence:?} is not one of {LICENCES:?}"));
    }
    // The package itself has no source.
    if package["source"].as_str().is_some_and(|source| source != SOURCE) {
        faults.push(format!("{name} does not come from crates.io"));
    }
    if let Some((_, instead)) = BANNED.iter().find(|(banned, _)| *banned == name) {
        faults.push(format!("{name} is not used here; {instead} is"));
    }
    faults
}

fn is_allowed(licence: &str) -> bool {
    let allows = |requirement: &LicenseReq| {
        requirement.license.id().is_some_and(|id| LICENCES.contains(&id.name))
            && requirement.addition.is_none()
    };
    // Older crates write "MIT/Apache-2.0".
    Expression::parse_mode(licence, ParseMode::LAX).is_ok_and(|expression| expression.evaluate(allows))
}

#[test]
fn licences_are_judged_as_a_whole() {
    for licence in ["MIT", "MIT/Apache-2.0", "GPL-3.0-only OR MIT", "(MIT OR Apache-2.0) AND Unicode-3.0"] {
        assert!(is_allowed(licence), "{licence}");
    }
    for licence in ["", "GPL-3.0-only", "MIT AND GPL-2.0-only", "my own"] {
        assert!(!is_allowed(licence), "{licence}");
    }
    let package =
        serde_json::json!({"name": "openssl-sys", "license": "MIT", "source": "git+https://example.org/x"});
    assert_eq!(faults_of(&package).len(), 2);
}

//! `zarrfs import` of netCDF files into a bucket, and `--append` to it: xarray reads the store as it reads the files (tests/programs/import_remote.py).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::fixtures::{has_modules, python};
use crate::support::misbehaving::{BUCKET, Fault, Service};
use crate::support::servers::{Kind, Server};
use crate::support::{say, skip};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/import_remote.py");

/// Returns the interpreter, if it has the libraries, and a folder with two files of netCDF.
fn files(what: &str) -> Option<(PathBuf, tempfile::TempDir)> {
    let python = python(what)?;
    if !has_modules(&python, "netCDF4 obstore xarray zarr") {
        skip(what, "the interpreter lacks netCDF4, obstore or xarray", true);
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    run(&python, &["write", folder.path().to_str().unwrap()]);
    Some((python, folder))
}

fn run(python: &Path, arguments: &[&str]) -> String {
    let output = Command::new(python).arg(PROGRAM).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn zarrfs(environment: &[(&'static str, &'static str)], words: &[&str], options: &[String]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zarrfs"));
    command.envs(environment.iter().copied()).args(words).args(options);
    command.env_remove("RUST_LOG").env("AWS_PROFILE", "").output().unwrap()
}

fn at_server(kind: Kind) {
    let what = format!("imports into {kind:?}");
    let Some((python, folder)) = files(&what) else { return };
    fs::create_dir(folder.path().join("bucket")).unwrap();
    let server = Server::start(kind, &folder.path().join("bucket"));
    let file = |number: u32| folder.path().join(format!("{number}.nc")).to_str().unwrap().to_owned();
    let done = |words: &[&str]| {
        let output = zarrfs(&server.environment(), words, &server.options());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words:?}: {said}\nThe service said:\n{}", server.log());
        said
    };
    let compare = |below: &str, count: &str| {
        let (folder, store) = (folder.path().to_str().unwrap(), server.url(below));
        run(&python, &["check", folder, &store, &server.obstore_options().to_string(), count])
    };
    let new = server.url("made/new.zarr");
    done(&["import", &file(0), &new]);
    say(format!("{what}: {}", compare("made/new.zarr", "1").trim()));
    let said = done(&["import", "--append", "time", &file(1), &new]);
    assert!(said.contains("was 3 long and is 7 long now"), "{said}");
    say(format!("{what}, appended: {}", compare("made/new.zarr", "2").trim()));
    // A store that is there, a group in it, and shards.
    let group = server.url("made/groups.zarr");
    done(&["mkgroup", &group, "/", "--new"]);
    done(&["import", &file(0), &group, "of/2001", "--parents", "--zarr-format", "3"]);
    done(&["import", "--append", "time", &file(1), &group, "of/2001"]);
    compare("made/groups.zarr/of/2001", "2");
    let taken = zarrfs(&server.environment(), &["import", &file(0), &new], &server.options());
    assert_eq!(taken.status.code(), Some(1), "{taken:?}");
    compare("made/new.zarr", "2");
}

#[test]
#[ignore = "full: needs netCDF4 and xarray"]
fn netcdf_into_s3_by_moto() {
    at_server(Kind::Moto);
}

#[test]
#[ignore = "full: needs netCDF4, xarray and s3s-fs"]
fn netcdf_into_s3_by_s3s() {
    at_server(Kind::S3s);
}

/// A service that fails while an import or an append runs. The next command that changes the group ends what was begun, and the repeated command succeeds.
#[test]
#[ignore = "full: needs netCDF4 and xarray"]
fn an_import_that_fails_midway_can_be_repeated() {
    let what = "imports that fail";
    let Some((python, folder)) = files(what) else { return };
    fs::create_dir(folder.path().join("bucket")).unwrap();
    let service = Service::start(&folder.path().join("bucket"));
    let options: Vec<String> =
        ["--endpoint-url", &service.endpoint(), "--no-sign-request"].map(str::to_owned).into();
    let url = format!("s3://{BUCKET}/new.zarr");
    let file = |number: u32| folder.path().join(format!("{number}.nc")).to_str().unwrap().to_owned();
    let obstore = serde_json::json!({"endpoint": service.endpoint(), "region": "us-east-1", "skip_signature": true,
        "client_options": {"allow_http": true}});
    let compare = |count: &str| {
        run(&python, &["check", folder.path().to_str().unwrap(), &url, &obstore.to_string(), count]);
    };
    let (first, second) = (file(0), file(1));
    let import = ["import", first.as_str(), &url];
    let append = ["import", "--append", "time", second.as_str(), &url];
    let mut refused = 0;
    for (words, before) in [(&import[..], None), (&append[..], Some("1"))] {
        // Not at each put. If one between the documents is refused, and those that would undo the change too, lengths differ until the next
        // append, which waits ten minutes for the writer of the record.
        for allowed in (0u32..).step_by(5) {
            assert!(allowed < 200);
            let mut puts = 0;
            service.misbehave(move |asked| {
                puts += u32::from(asked.method == "PUT");
                let is_refused = asked.method == "PUT" && puts > allowed;
                is_refused.then_some(Fault::Status(403, "AccessDenied", None))
            });
            let output = zarrfs(&[], words, &options);
            service.be_well();
            if output.status.success() {
                break;
            }
            refused += 1;
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(said.contains("access denied"), "{said}");
            if let Some(before) = before {
                let ended = zarrfs(&[], &["mkgroup", &url, &format!("probe{allowed}")], &options);
                assert!(ended.status.success(), "{ended:?}");
                compare(before);
            }
        }
        compare(if before.is_none() { "1" } else { "2" });
    }
    say(format!("{what}: {refused} were repeated"));
}

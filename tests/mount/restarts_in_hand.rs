//! Requests that are in hand while daemons die. Somebody who kills daemons, however often, costs a request nothing but time. A request that was in
//! hand at two crashes fails.

use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::kept_synced::Descriptors;
use crate::restarts::{end, has_keepers, next_daemon};
use crate::support::level;
use crate::support::misbehaving::{BUCKET, Fault, Service};
use crate::support::place::*;
use crate::systemd;

/// A store in a bucket, with a chunk that is not delivered while it is held.
struct Scene {
    place: Place,
    service: Service,
    options: Vec<String>,
    /// How often somebody has asked for the chunk while it was held.
    asked: Arc<AtomicU64>,
}

const LOCATION: &str = "s3://bucket/store.zarr";

impl Scene {
    fn new() -> Self {
        let place = Place::new();
        place.put("zarr.json", r#"{"zarr_format":3,"node_type":"group","attributes":{}}"#);
        for name in ["slow", "other"] {
            place.put(&format!("{name}/zarr.json"), array_document(30, 0, "uint8"));
            place.put(
                &format!("{name}/c/0/0"),
                (0..10_000u64).map(|byte| (byte % 241) as u8).collect::<Vec<_>>(),
            );
        }
        assert_eq!(LOCATION, format!("s3://{BUCKET}/store.zarr"));
        let service = Service::start(place.folder.path());
        let words = ["--direct-io", "--tune", "request-deadline=300", "--no-sign-request", "--endpoint-url"];
        let mut options: Vec<String> = words.map(str::to_owned).into();
        options.push(service.endpoint());
        Scene { place, service, options, asked: Arc::default() }
    }

    fn hold(&self) {
        let asked = self.asked.clone();
        self.service.misbehave(move |request| {
            let is_held = request.key.ends_with("slow/c/0/0") && request.method == "GET";
            asked.fetch_add(u64::from(is_held), Ordering::SeqCst);
            is_held.then_some(Fault::NoReply)
        });
    }

    fn let_go(&self) {
        self.service.be_well();
        self.service.hang_up();
    }

    fn start_reader(&self, name: &str) -> Child {
        let mut command = Command::new("timeout");
        command.args(["900", "cat"]).arg(self.place.path(name)).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Ends a daemon that has the request in hand.
    fn end_one(&self, asked: u64, end: &mut dyn FnMut()) -> u64 {
        wait_for(|| self.asked.load(Ordering::SeqCst) > asked);
        let asked = self.asked.load(Ordering::SeqCst);
        end();
        asked
    }

    /// Ends daemons. `end` ends one by a signal, and returns when the next one runs.
    fn end_daemons(&self, kills: u64, end: &mut dyn FnMut(&str)) {
        let expected = self.place.cat("slow");
        let is_read = |output: Output| {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success() && output.stdout == expected, "{said}");
        };
        self.hold();
        let reader = self.start_reader("slow");
        let mut asked = 0;
        for _ in 0..kills {
            asked = self.end_one(asked, &mut || end("KILL"));
        }
        self.let_go();
        is_read(reader.wait_with_output().unwrap());
        self.hold();
        asked = self.asked.load(Ordering::SeqCst);
        let reader = self.start_reader("slow");
        asked = self.end_one(asked, &mut || end("KILL"));
        for _ in 0..2 {
            asked = self.end_one(asked, &mut || end("ABRT"));
        }
        let failed = reader.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&failed.stderr).into_owned();
        assert!(said.contains("Input/output error"), "{said}");
        is_read(self.start_reader("other").wait_with_output().unwrap());
        self.let_go();
        is_read(self.start_reader("slow").wait_with_output().unwrap());
    }
}

/// The bug: a daemon waited in the kernel to drop pages that a read had locked. It could not end before the reply to that read, which only the next
/// daemon can give, and its keeper, or the service manager, waited for its end.
#[test]
fn a_daemon_that_waits_for_its_own_reply_is_followed_by_another() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let mut expected = scene.place.cat("slow");
    // What is written below.
    expected[25_000..26_000].fill(7);
    let catalogue = scene.place.folder.path().join("host.toml");
    let define = |seconds: u32| {
        let text = format!(
            "[m]\nstore = \"{LOCATION}\"\nendpoint-url = \"{}\"\nno-sign-request = true\nwritable = true\ntune = \"request-deadline={seconds}\"\n",
            scene.service.endpoint()
        );
        std::fs::write(&catalogue, text).unwrap();
    };
    define(300);
    let mut command = Command::new(PROGRAM);
    command.args(["mount", "--keeper", "-o", "revalidate=0", "--tune", "request-deadline=300"]);
    command.arg(&catalogue).arg(scene.place.mountpoint()).env("AWS_PROFILE", "").stdin(Stdio::null());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    if !has_keepers(&scene.place) {
        return;
    }
    let mut files = Descriptors::new(&scene.place);
    assert_eq!(["open one mnt/m/slow", "write one 25000 1000"].map(|line| files.run(line)), [0, 0]);
    scene.hold();
    let reader = scene.start_reader("m/slow");
    wait_for(|| scene.asked.load(Ordering::SeqCst) > 0);
    // The member leaves, and the kernel is to drop the pages of its file.
    let daemon = scene.place.daemon();
    define(301);
    signal(daemon, "HUP");
    // Another process of the daemon makes that call: `PID (zarrfs-pages) STATE PARENT`.
    let is_waiting = |stat: &str| {
        let (name, rest) = stat.rsplit_once(')').unwrap();
        name.ends_with("(zarrfs-pages")
            && rest.split_whitespace().take(2).eq(["D", daemon.to_string().as_str()])
    };
    let stats = || {
        let entries = std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path().join("stat"));
        entries.filter_map(|path| std::fs::read_to_string(path).ok())
    };
    wait_for(|| stats().any(|stat| is_waiting(&stat)));
    signal(daemon, "KILL");
    let next = next_daemon(&scene.place, daemon);
    let asked = scene.asked.load(Ordering::SeqCst);
    wait_for(|| scene.asked.load(Ordering::SeqCst) > asked);
    scene.let_go();
    // The next daemon replies to what was in hand. What is read then is of a member that has left.
    let output = reader.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(expected.starts_with(&output.stdout), "{said}");
    assert!(output.status.success() || said.contains("Stale file handle"), "{said}");
    wait_for(|| {
        std::fs::read(scene.place.path("m/slow")).is_ok_and(|read| read[25_000..26_000] == [7; 1000])
    });
    files.run("close one");
    files.end();
    end(&scene.place, &[daemon, next]);
    assert!(scene.place.cat("slow")[25_000..26_000] == [7; 1000]);
}

/// The bug: a kill counted an eighth of a crash, so a request that took long failed after eight kills.
#[test]
fn a_request_in_hand_outlives_kills_and_not_two_crashes() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let mut command = Command::new("sh");
    // A crash leaves no file.
    command.args(["-c", "ulimit -c 0; exec \"$@\"", "sh", PROGRAM, "mount", "--keeper"]).args(&scene.options);
    command.arg(LOCATION).arg(scene.place.mountpoint()).env("AWS_PROFILE", "").stdin(Stdio::null());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    if !has_keepers(&scene.place) {
        return;
    }
    let mut daemon = scene.place.daemon();
    scene.end_daemons(level::pick(2, 10), &mut |name| {
        // One that dies soon after its start is followed after a pause.
        std::thread::sleep(Duration::from_secs(1));
        signal(daemon, name);
        daemon = next_daemon(&scene.place, daemon);
    });
    end(&scene.place, &[daemon]);
}

/// The bug: a service manager does not say how a daemon has died, so a request failed after two kills.
#[test]
fn a_request_in_hand_of_a_service_outlives_kills_and_not_two_crashes() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let options: Vec<&str> = scene.options.iter().map(String::as_str).collect();
    let mut service = systemd::Service::at(LOCATION, &scene.place, &options, &[("AWS_PROFILE", "")]);
    service.start();
    if !systemd::is_stored(&mut service) {
        return;
    }
    scene.end_daemons(level::pick(2, 10), &mut |name| {
        service.ask(&format!("signal {name}"));
        assert_eq!(service.ask("wait"), if name == "KILL" { "-9" } else { "-6" });
        service.start();
    });
    service.ask("signal TERM");
    assert_eq!(service.ask("wait"), "0");
}

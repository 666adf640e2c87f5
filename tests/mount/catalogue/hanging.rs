//! Members with servers that do not respond.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{COLUMNS, Host, ROWS_OF_CHUNK, names, serve, state_of};
use crate::support::mounted::Mount;
use crate::support::place::wait_for;

#[test]
fn a_server_that_stops_answering_holds_up_nobody_else() {
    let host = Host::new();
    host.store("local.zarr", 1, 100);
    host.store("away.zarr", 2, 400);
    let web = serve(host.path("away.zarr"));
    // Forwards to the server until the test makes it hang.
    let (front, hangs) =
        (TcpListener::bind("127.0.0.1:0").unwrap(), std::sync::Arc::new(AtomicBool::new(false)));
    let (port, is_hanging) = (front.local_addr().unwrap().port(), hangs.clone());
    std::thread::spawn(move || {
        let mut held = Vec::new();
        for connection in front.incoming().map_while(Result::ok) {
            if is_hanging.load(Ordering::Relaxed) {
                held.push(connection);
                continue;
            }
            let mut back = TcpStream::connect(("127.0.0.1", web)).unwrap();
            let (mut from, mut to) = (connection.try_clone().unwrap(), back.try_clone().unwrap());
            let is_hanging = is_hanging.clone();
            std::thread::spawn(move || {
                let mut some = [0; 4096];
                while let Ok(length) = from.read(&mut some)
                    && length > 0
                {
                    while is_hanging.load(Ordering::Relaxed) {
                        std::thread::park();
                    }
                    if to.write_all(&some[..length]).is_err() {
                        return;
                    }
                }
            });
            let mut connection = connection;
            std::thread::spawn(move || std::io::copy(&mut back, &mut connection));
        }
    });
    let away = |path: &str| format!("store = \"http://127.0.0.1:{port}/{path}\"");
    host.define(&[("local", host.at("local.zarr")), ("away", away("g/a"))]);
    let options = ["--direct-io", "--tune", "threads=2", "-o", "revalidate=0"];
    let Some(mount) = Mount::new(&host.catalogue(), &options, "a server that hangs") else { return };
    wait_for(|| state_of(mount.point(), "away") == "open");
    let open = File::open(mount.path("away/away")).unwrap();
    let mut first = [0; 10];
    open.read_exact_at(&mut first, 0).unwrap();
    assert_eq!(first, [2; 10]);
    hangs.store(true, Ordering::Relaxed);
    // More requests than there are threads of any kind: reads of every chunk, and lookups.
    for chunk in 1..40 {
        let file = open.try_clone().unwrap();
        std::thread::spawn(move || file.read_at(&mut [0; 10], chunk * ROWS_OF_CHUNK * COLUMNS));
        let path = mount.path(&format!("away/name{chunk}"));
        std::thread::spawn(move || fs::metadata(path));
    }
    std::thread::sleep(std::time::Duration::from_millis(300));
    for _ in 0..3 {
        assert!(names(mount.point()).contains(&"away".to_owned()));
        assert!(fs::metadata(mount.path("away")).unwrap().is_dir());
        let read = fs::read(mount.path("local/g/a")).unwrap();
        assert!(read.len() == 100_000 && read.iter().all(|byte| *byte == 1));
        assert_eq!(
            fs::read(mount.path("__views__/slices/local/g/a[3:5,:]")).map(|read| read.len()).unwrap_or(2000),
            2000
        );
    }
    mount.kill();
}

//! A small S3 service (and web server) over a folder that does what a test asks for: it fails, breaks off, dawdles, loses its replies,
//! dies and comes back. Signatures are not looked at.
//!
//! A **rule** sees each request before the service does anything, and says what goes wrong with it. What a real service does
//! atomically, this one does, too: an object is replaced at one moment, and conditions are decided at that moment.

mod objects;
mod request;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub use self::request::Asked;
use self::request::read_request;

/// The one bucket.
pub const BUCKET: &str = "bucket";
/// The header of metadata that this program gives to objects.
const METADATA: &str = "x-amz-meta-zarrfsput";

/// What goes wrong with one request.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// This status with this code, and a `Retry-After` of this many seconds.
    Status(u16, &'static str, Option<u32>),
    /// The connection ends before the head.
    NoHead,
    /// The connection ends after this fraction of the body.
    Cut(f64),
    /// The head announces only half of the bytes that it says it has, and only they come.
    ShortLength,
    /// More bytes come than the head announces.
    LongBody,
    /// The body in pieces of its own lengths (chunked), with bytes after its end.
    LongChunked,
    /// The body in pieces (chunked), and nothing says how long it is.
    Chunked,
    /// All of the object, compressed and chunked, whatever was asked for.
    Compressed,
    /// A range of the compressed object.
    CompressedRange,
    /// A range comes without the length of the object.
    NoTotal,
    /// All of the object where a range was asked for.
    NoRanges,
    /// The same, and only this fraction comes.
    CutWithoutRanges(f64),
    /// Another host answers, which has the same objects with ETags of its own.
    OtherHost,
    /// Each reply has another ETag, and no condition on one is true.
    NewTag,
    /// The same, but conditions are not looked at.
    NewTagUnconditionally,
    /// The replies to HEAD and to ranges lack the length of the object.
    NoLength,
    /// The reply to HEAD has the object's bytes, which come after the next request on that connection.
    HeadWithBody,
    /// One byte a second, until the service hangs up.
    Drip,
    /// Half of the body, and then nothing while the connection stays open.
    Silence,
    /// Nothing is done, and no reply comes while the connection stays open.
    NoReply,
    /// It is done, and the reply comes after this time.
    Slow(Duration),
    /// It is done, and the reply is lost.
    LostReply,
    /// The connection ends at once, and it is done after this time.
    Late(Duration),
    /// It is done once two requests of that kind are there.
    Together,
}

/// Decides what goes wrong with a request.
pub type Rule = Box<dyn FnMut(&Asked) -> Option<Fault> + Send>;

/// The service.
pub struct Service {
    shared: Arc<Shared>,
    address: SocketAddr,
    accepting: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    folder: PathBuf,
    rule: Mutex<Option<Rule>>,
    is_dead: AtomicBool,
    /// Counts how often [`Service::hang_up`] was called: what drips or is silent ends then.
    health: AtomicU64,
    /// Part of each ETag.
    generation: AtomicU64,
    streams: Mutex<Vec<TcpStream>>,
    late: Mutex<Vec<JoinHandle<()>>>,
    /// Held while an object is replaced.
    replacing: Mutex<()>,
    counts: Mutex<HashMap<String, u64>>,
    /// Listings that are sent again and again, while there is a table.
    stale_listings: Mutex<Option<HashMap<String, String>>>,
    has_tags: AtomicBool,
    /// How many ETags were made for one reply alone.
    new_tags: AtomicU64,
    /// Keys that listings have as well, which no folder could hold.
    odd_keys: Mutex<Vec<String>>,
    /// The metadata of objects that were put, by their keys.
    metadata: Mutex<HashMap<String, String>>,
    drops_metadata: AtomicBool,
    /// Where two requests meet.
    meeting: Barrier,
}

impl Service {
    /// Returns a service for what is in `folder`.
    pub fn start(folder: &Path) -> Service {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            folder: folder.to_owned(),
            rule: Mutex::default(),
            is_dead: AtomicBool::new(false),
            health: AtomicU64::new(0),
            generation: AtomicU64::new(0),
            streams: Mutex::default(),
            late: Mutex::default(),
            replacing: Mutex::default(),
            counts: Mutex::default(),
            stale_listings: Mutex::default(),
            has_tags: AtomicBool::new(true),
            new_tags: AtomicU64::new(0),
            odd_keys: Mutex::default(),
            metadata: Mutex::default(),
            drops_metadata: AtomicBool::new(false),
            meeting: Barrier::new(2),
        });
        let accepting = Mutex::new(Some(accept(listener, &shared)));
        Service { shared, address, accepting }
    }

    /// Returns the endpoint's URL.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Lets a rule decide from now on.
    pub fn misbehave(&self, rule: impl FnMut(&Asked) -> Option<Fault> + Send + 'static) {
        *self.shared.rule.lock().unwrap() = Some(Box::new(rule));
    }

    /// Lets nothing go wrong from now on. What drips or is silent stays so.
    pub fn be_well(&self) {
        *self.shared.rule.lock().unwrap() = None;
    }

    /// Ends connections that drip or are silent.
    pub fn hang_up(&self) {
        self.shared.health.fetch_add(1, Ordering::SeqCst);
    }

    /// Gives every object another ETag from now on.
    pub fn renew(&self) {
        self.shared.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// Gives objects ETags, or only times.
    pub fn tags(&self, has_tags: bool) {
        self.shared.has_tags.store(has_tags, Ordering::SeqCst);
    }

    /// Lets listings have these keys, too.
    pub fn list_also(&self, keys: &[&str]) {
        *self.shared.odd_keys.lock().unwrap() = keys.iter().map(|key| (*key).to_owned()).collect();
    }

    /// Drops the metadata of objects from now on.
    pub fn drop_metadata(&self) {
        self.shared.drops_metadata.store(true, Ordering::SeqCst);
    }

    /// Lets listings stay as they are when they are first asked for, or show what is there.
    pub fn stale_listings(&self, are_stale: bool) {
        *self.shared.stale_listings.lock().unwrap() = are_stale.then(HashMap::new);
    }

    /// Closes the port and all connections.
    pub fn die(&self) {
        self.shared.is_dead.store(true, Ordering::SeqCst);
        self.hang_up();
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.lock().unwrap().take() {
            accepting.join().unwrap();
        }
        for stream in self.shared.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Opens the port again.
    pub fn come_back(&self) {
        self.shared.is_dead.store(false, Ordering::SeqCst);
        let listener = TcpListener::bind(self.address).unwrap();
        *self.accepting.lock().unwrap() = Some(accept(listener, &self.shared));
    }

    /// Waits until all that is done late is done.
    pub fn settle(&self) {
        let late: Vec<_> = self.shared.late.lock().unwrap().drain(..).collect();
        late.into_iter().for_each(|late| late.join().unwrap());
    }

    /// Returns how many requests of this name there were: `GET`, `PUT`, `LIST`, the name of a fault, `chunk` and the status of one, ….
    pub fn count(&self, name: &str) -> u64 {
        self.shared.counts.lock().unwrap().get(name).copied().unwrap_or(0)
    }

    /// Returns all counts, for the log.
    pub fn counts(&self) -> String {
        let counts = self.shared.counts.lock().unwrap();
        let mut counts: Vec<String> = counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
        counts.sort();
        counts.join(", ")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.be_well();
        self.die();
        self.settle();
    }
}

fn accept(listener: TcpListener, shared: &Arc<Shared>) -> JoinHandle<()> {
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        for (connection, stream) in (0..).zip(listener.incoming().flatten()) {
            if shared.is_dead.load(Ordering::SeqCst) {
                return;
            }
            let _ = stream.set_nodelay(true);
            let shared = Arc::clone(&shared);
            shared.streams.lock().unwrap().push(stream.try_clone().unwrap());
            thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                while shared.answer(connection, &mut reader, &stream).is_some() {}
                let _ = stream.shutdown(Shutdown::Both);
            });
        }
    })
}

/// A reply: status, headers, body.
struct Answer(u16, Vec<(&'static str, String)>, Vec<u8>);

impl Answer {
    fn code(status: u16, code: &str) -> Answer {
        let body =
            format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>Why.</Message></Error>");
        Answer(status, vec![("Content-Type", "application/xml".to_owned())], body.into_bytes())
    }

    /// Returns the object in another encoding, if it is one.
    fn compressed(mut self) -> Answer {
        if self.0 == 200 {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(&self.2).unwrap();
            self.2 = encoder.finish().unwrap();
            self.1.push(("Content-Encoding", "gzip".to_owned()));
        }
        self
    }

    fn head(&self, length: Option<usize>) -> String {
        let Answer(status, headers, _) = self;
        let mut head = format!("HTTP/1.1 {status} X\r\n");
        match length {
            Some(length) => head += &format!("Content-Length: {length}\r\n"),
            None => head += "Transfer-Encoding: chunked\r\n",
        }
        headers.iter().for_each(|(name, value)| head += &format!("{name}: {value}\r\n"));
        head + "\r\n"
    }
}

impl Shared {
    fn count(&self, name: &str) {
        *self.counts.lock().unwrap().entry(name.to_owned()).or_default() += 1;
    }

    /// Answers one request. `None`: the connection ends.
    fn answer(
        self: &Arc<Self>,
        connection: u64,
        reader: &mut BufReader<TcpStream>,
        stream: &TcpStream,
    ) -> Option<()> {
        let asked = Asked { connection, ..read_request(reader, stream)? };
        self.count(if asked.is_listing { "LIST" } else { &asked.method });
        if asked.is_chunk() && asked.method == "GET" && asked.range.is_none() {
            self.count("GET of all");
        }
        let fault = self.rule.lock().unwrap().as_mut().and_then(|rule| rule(&asked));
        if let Some(fault) = &fault {
            let name = format!("{fault:?}");
            self.count(&format!("fault {}", name.split(['(', ' ']).next().unwrap()));
        }
        match fault {
            Some(Fault::Status(status, code, retry_after)) => {
                let mut answer = Answer::code(status, code);
                answer.1.extend(retry_after.map(|seconds| ("Retry-After", seconds.to_string())));
                send(stream, &answer, &asked)
            }
            Some(Fault::NoHead) => None,
            Some(Fault::NoReply) => {
                self.wait_until_well(self.health.load(Ordering::SeqCst), Duration::MAX);
                None
            }
            Some(Fault::Late(after)) => {
                let shared = Arc::clone(self);
                let late = thread::spawn(move || {
                    thread::sleep(after);
                    let Answer(status, ..) = shared.carry_out(&asked);
                    shared.count(&format!("late {status}"));
                });
                self.late.lock().unwrap().push(late);
                None
            }
            Some(Fault::Together) => {
                self.meeting.wait();
                send(stream, &self.carry_out(&asked), &asked)
            }
            Some(Fault::Slow(after)) => {
                let answer = self.carry_out(&asked);
                thread::sleep(after);
                send(stream, &answer, &asked)
            }
            Some(Fault::HeadWithBody) => {
                let answer = self.carry_out(&asked);
                (&*stream).write_all(answer.head(Some(answer.2.len())).as_bytes()).ok()?;
                reader.fill_buf().ok()?;
                (&*stream).write_all(&answer.2).ok()
            }
            Some(Fault::LostReply) => {
                self.carry_out(&asked);
                None
            }
            Some(fault) => self.answer_badly(stream, &asked, &fault),
            None => {
                let answer = self.carry_out(&asked);
                if asked.is_chunk() {
                    self.count(&format!("chunk {}", answer.0));
                }
                send(stream, &answer, &asked)
            }
        }
    }

    /// Returns what is wrong with the reply, and nothing with the connection.
    fn answer_badly(&self, stream: &TcpStream, asked: &Asked, fault: &Fault) -> Option<()> {
        match fault {
            Fault::OtherHost => send(stream, &self.reply_of_other_host(asked.clone()), asked),
            Fault::NoRanges => send(stream, &self.carry_out(&asked.clone().without_range()), asked),
            Fault::CutWithoutRanges(fraction) => {
                let answer = self.carry_out(&asked.clone().without_range());
                self.send_badly(stream, &answer, &Fault::Cut(*fraction))
            }
            Fault::Compressed => {
                let answer = self.carry_out(&asked.clone().without_range()).compressed();
                self.send_badly(stream, &answer, &Fault::Chunked)
            }
            Fault::CompressedRange => {
                let answer = self.carry_out(&asked.clone().without_range()).compressed();
                send(stream, &answer.part(asked), asked)
            }
            Fault::NewTag if asked.if_match.is_some() => {
                send(stream, &Answer::code(412, "PreconditionFailed"), asked)
            }
            Fault::NewTag | Fault::NewTagUnconditionally => {
                let asked = Asked { if_match: None, if_none_match: None, ..asked.clone() };
                let mut answer = self.carry_out(&asked);
                answer.1.retain(|(name, _)| *name != "ETag");
                let number = self.new_tags.fetch_add(1, Ordering::SeqCst);
                answer.1.push(("ETag", format!("\"reply-{number}\"")));
                send(stream, &answer, &asked)
            }
            Fault::NoLength if asked.method == "HEAD" => {
                (&*stream).write_all(self.carry_out(asked).head(None).as_bytes()).ok()
            }
            Fault::NoTotal | Fault::NoLength => {
                let mut answer = self.carry_out(asked);
                for (_, value) in answer.1.iter_mut().filter(|(name, _)| *name == "Content-Range") {
                    *value = format!("{}/*", value.split('/').next().unwrap());
                }
                send(stream, &answer, asked)
            }
            fault => self.send_badly(stream, &self.carry_out(asked), fault),
        }
    }

    /// Waits until the service hangs up on those that wait since it had this health. `false`: not in this time.
    fn wait_until_well(&self, health: u64, at_most: Duration) -> bool {
        let started = Instant::now();
        while self.health.load(Ordering::SeqCst) == health {
            if started.elapsed() > at_most {
                return false;
            }
            thread::sleep(Duration::from_millis(20));
        }
        true
    }

    fn send_badly(&self, mut stream: &TcpStream, answer: &Answer, fault: &Fault) -> Option<()> {
        let body = &answer.2;
        let half = body.len() / 2;
        let health = self.health.load(Ordering::SeqCst);
        let length = match fault {
            Fault::ShortLength => Some(half),
            Fault::LongChunked | Fault::Chunked => None,
            _ => Some(body.len()),
        };
        stream.write_all(answer.head(length).as_bytes()).ok()?;
        match fault {
            Fault::Cut(fraction) => {
                stream.write_all(&body[..(body.len() as f64 * fraction) as usize]).ok()?;
            }
            Fault::ShortLength => {
                stream.write_all(&body[..half]).ok()?;
                return Some(());
            }
            Fault::LongBody => {
                stream.write_all(body).ok()?;
                stream.write_all(&[0xEE; 1000]).ok()?;
            }
            Fault::LongChunked | Fault::Chunked => {
                let rest = if *fault == Fault::Chunked { &[][..] } else { &[0xEE_u8; 1000][..] };
                for piece in body.chunks(30_000).chain([rest]).filter(|piece| !piece.is_empty()) {
                    stream.write_all(format!("{:x}\r\n", piece.len()).as_bytes()).ok()?;
                    stream.write_all(piece).ok()?;
                    stream.write_all(b"\r\n").ok()?;
                }
                stream.write_all(b"0\r\n\r\n").ok()?;
                return Some(());
            }
            Fault::Drip => {
                for byte in body {
                    stream.write_all(&[*byte]).ok()?;
                    if self.wait_until_well(health, Duration::from_secs(1)) {
                        return None;
                    }
                }
            }
            Fault::Silence => {
                stream.write_all(&body[..half]).ok()?;
                self.wait_until_well(health, Duration::MAX);
            }
            _ => {}
        }
        None
    }
}

fn send(mut stream: &TcpStream, answer: &Answer, asked: &Asked) -> Option<()> {
    stream.write_all(answer.head(Some(answer.2.len())).as_bytes()).ok()?;
    if asked.method == "HEAD" { Some(()) } else { stream.write_all(&answer.2).ok() }
}

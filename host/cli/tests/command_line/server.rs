//! A server of HTTP on this machine, whose answers a test decides.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// What a client asked for.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    /// The lines of the headers, in lower case up to the colon.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// What a server answers.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
    /// How many bytes of the body are sent before the connection ends.
    pub(crate) sent: usize,
}

impl Answer {
    pub(crate) fn new(status: u16, body: &[u8]) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: body.to_vec(),
            sent: usize::MAX,
        }
    }

    /// A file, or the part of it that the client asks for.
    pub(crate) fn file(request: &Request, body: &[u8], etag: &str) -> Self {
        let range = request
            .header("range")
            .and_then(|range| range.strip_prefix("bytes="));
        let begin = range.and_then(|range| range.strip_suffix('-')?.parse::<usize>().ok());
        let is_same = request.header("if-range").is_none_or(|known| known == etag);
        let answer = match begin.filter(|_| is_same) {
            None => Self::new(200, body),
            Some(begin) if begin >= body.len() => Self::new(416, b""),
            Some(begin) => {
                let range = format!("bytes {begin}-{}/{}", body.len() - 1, body.len());
                Self::new(206, &body[begin..]).with("Content-Range", &range)
            }
        };
        answer.with("ETag", etag)
    }

    pub(crate) fn redirect(location: &str) -> Self {
        Self::new(302, b"").with("Location", location)
    }

    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }
}

type Answers = dyn Fn(&Request) -> Answer + Send + Sync;

/// A server, until the test's process ends.
pub(crate) struct Server {
    port: u16,
    scheme: &'static str,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    pub(crate) fn new(answers: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        Self::start(None, answers)
    }

    /// A server of https, with a certificate of the authority in `tls/ca.pem`.
    pub(crate) fn with_tls(answers: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        let certificate = CertificateDer::from_pem_slice(include_bytes!("tls/cert.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_slice(include_bytes!("tls/key.pem")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        Self::start(Some(Arc::new(config)), answers)
    }

    fn start(
        tls: Option<Arc<ServerConfig>>,
        answers: impl Fn(&Request) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self {
            port: listener.local_addr().unwrap().port(),
            scheme: if tls.is_some() { "https" } else { "http" },
            requests: Arc::default(),
        };
        let requests = Arc::clone(&server.requests);
        let answers: Arc<Answers> = Arc::new(answers);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (requests, answers) = (Arc::clone(&requests), Arc::clone(&answers));
                let (stream, tls) = (stream.unwrap(), tls.clone());
                std::thread::spawn(move || match tls {
                    None => serve(stream, &requests, &*answers),
                    Some(tls) => {
                        let connection = ServerConnection::new(tls).unwrap();
                        let stream = StreamOwned::new(connection, stream);
                        serve::<StreamOwned<ServerConnection, TcpStream>>(
                            stream, &requests, &*answers,
                        );
                    }
                });
            }
        });
        server
    }

    /// The address of a path.
    pub(crate) fn address(&self, path: &str) -> String {
        format!("{}://127.0.0.1:{}{path}", self.scheme, self.port)
    }

    /// What clients asked for so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

/// Answers one request. A client that goes away is no error.
fn serve<S: Read + Write>(stream: S, requests: &Mutex<Vec<Request>>, answers: &Answers) {
    let mut reader = BufReader::new(stream);
    let mut line = || {
        let mut text = String::new();
        reader.read_line(&mut text).ok()?;
        Some(text.trim_end().to_owned())
    };
    let Some(first) = line() else { return };
    let mut words = first.split(' ').map(str::to_owned);
    let (Some(method), Some(path)) = (words.next(), words.next()) else {
        return;
    };
    let mut headers = Vec::new();
    while let Some((name, value)) = line().as_deref().and_then(|line| line.split_once(": ")) {
        headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let mut request = Request {
        method,
        path,
        headers,
        body: Vec::new(),
    };
    let length = request
        .header("content-length")
        .map_or(0, |n| n.parse().unwrap());
    request.body.resize(length, 0);
    if reader.read_exact(&mut request.body).is_err() {
        return;
    }
    requests.lock().unwrap().push(request.clone());
    let answer = answers(&request);
    let mut head = format!("HTTP/1.1 {} Answer\r\nConnection: close\r\n", answer.status);
    for (name, value) in &answer.headers {
        head += &format!("{name}: {value}\r\n");
    }
    if answer
        .headers
        .iter()
        .all(|(name, _)| *name != "Content-Length")
    {
        head += &format!("Content-Length: {}\r\n", answer.body.len());
    }
    let stream = reader.get_mut();
    let _ = stream.write_all(format!("{head}\r\n").as_bytes());
    if request.method != "HEAD" {
        let sent = answer.sent.min(answer.body.len());
        let _ = stream.write_all(&answer.body[..sent]);
    }
    let _ = stream.flush();
}

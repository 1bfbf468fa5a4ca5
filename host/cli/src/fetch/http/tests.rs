#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::sync::atomic::{AtomicU64, Ordering};

use super::address::MOST_SHOWN;
use super::*;

/// A server that goes on with a header for ever is given up after the time for a file, not after
/// that time for each try.
#[test]
fn all_tries_together_have_one_time() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/k.wasm", listener.local_addr().unwrap());
    let begun = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&begun);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            counted.fetch_add(1, Ordering::Relaxed);
            std::thread::spawn(move || {
                let _ = BufReader::new(&stream).read_line(&mut String::new());
                while stream.write_all(b"H").is_ok() {
                    std::thread::sleep(Duration::from_millis(10));
                }
            });
        }
    });
    let address = Address::parse(&address).unwrap();
    let mut client = Client::new(&address).unwrap();
    client.most_time = Duration::from_millis(300);
    let rules = Rules {
        token: None,
        may_leave: false,
        within: None,
        most: 1 << 20,
        commit: None,
        digest: None,
        cache: None,
    };
    let status = client.get(&address, rules).unwrap_err();
    assert_eq!(
        (status.code(), status.blame()),
        (StatusCode::Unavailable, Blame::Host),
        "{status}"
    );
    let expected = "the download failed 1 times: ";
    assert!(status.message().contains(expected), "{status}");
    assert_eq!(begun.load(Ordering::Relaxed), 1);
}

/// Requests that share a time end together.
#[test]
fn all_requests_within_a_time_end() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/v2/", listener.local_addr().unwrap());
    // The connections stay open, without an answer.
    let open = std::thread::spawn(move || listener.incoming().take(2).collect::<Vec<_>>());
    let address = Address::parse(&address).unwrap();
    let client = Client::new(&address).unwrap();
    let client = client.within(Duration::from_millis(300));
    let client = client.within(Duration::from_secs(3600));
    let call = Call {
        method: "GET",
        address: &address,
        token: None,
        headers: &[],
        body: None,
        most: 1,
    };
    let begun = Instant::now();
    for _ in 0..2 {
        let status = client.send(call).unwrap_err();
        assert_eq!(status.code(), StatusCode::Unavailable, "{status}");
        assert!(status.message().contains("timeout"), "{status}");
    }
    assert!(begun.elapsed() < Duration::from_secs(10));
    drop(open);
}

/// A body can end long before an answer does.
#[test]
fn an_answer_has_no_end_of_trailers_or_interim_answers() {
    let trailers = (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n",
        "a: b\r\n",
    );
    let interim = ("", "HTTP/1.1 100 Continue\r\n\r\n");
    let chunks = (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "1\r\nx\r\n",
    );
    for (index, (begin, endless)) in [trailers, interim, chunks].into_iter().enumerate() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/k.wasm", listener.local_addr().unwrap());
        let sent = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&sent);
        std::thread::spawn(move || {
            let endless = endless.repeat(1000);
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let _ = BufReader::new(&stream).read_line(&mut String::new());
                let _ = stream.write_all(begin.as_bytes());
                while stream.write_all(endless.as_bytes()).is_ok() {
                    counted.fetch_add(endless.len() as u64, Ordering::Relaxed);
                }
            }
        });
        let address = Address::parse(&address).unwrap();
        let client = Client::new(&address).unwrap();
        let rules = Rules {
            token: None,
            may_leave: false,
            within: None,
            most: 4 << 20,
            commit: None,
            digest: None,
            cache: None,
        };
        let status = client.get(&address, rules).unwrap_err();
        let code = if index == 1 {
            StatusCode::Unavailable
        } else {
            StatusCode::ResourceExhausted
        };
        assert_eq!(status.code(), code, "{status}");
        // Each of three tries reads what an answer may have; sockets hold some more.
        assert!(sent.load(Ordering::Relaxed) < 64 << 20, "{status}");
    }
}

#[test]
fn messages_show_the_beginning_of_an_address() {
    let long = format!("https://example.com/{}", "a".repeat(1000));
    let address = Address::parse(&long).unwrap();
    assert_eq!(address.text(), long);
    assert_eq!(address.to_string(), format!("{}...", &long[..MOST_SHOWN]));
}

#[test]
fn a_download_says_how_much_is_there() {
    let progress = super::download::Progress::default();
    progress.received.store(3 << 19, Ordering::Relaxed);
    assert_eq!(progress.to_string(), "1.5 MiB");
    progress.all.store(6 << 20, Ordering::Relaxed);
    assert_eq!(progress.to_string(), "1.5 of 6.0 MiB (25 %)");
}

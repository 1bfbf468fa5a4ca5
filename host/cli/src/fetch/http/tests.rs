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

#[test]
fn messages_show_the_beginning_of_an_address() {
    let long = format!("https://example.com/{}", "a".repeat(1000));
    let address = Address::parse(&long).unwrap();
    assert_eq!(address.text(), long);
    assert_eq!(address.to_string(), format!("{}...", &long[..MOST_SHOWN]));
}

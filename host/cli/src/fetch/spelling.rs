//! The one spelling of an address that a reference may have. Locks and rules about signatures
//! compare texts, and hosts treat other spellings of an address as the same.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Checks a host, with a port or without.
///
/// # Errors
/// What is expected, for another spelling than the usual one.
pub(super) fn authority(text: &str, default_port: u16) -> Result<(), &'static str> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    if let Some(port) = port {
        let number = port.parse::<u16>().ok();
        let number = number.filter(|number| *number != 0 && number.to_string() == port);
        let number = number.ok_or("expected a port from 1 to 65535, without zeros in front")?;
        if number == default_port {
            return Err("expected the default port to be left out");
        }
    }
    if let Some(address) = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
    {
        let known = address.parse::<Ipv6Addr>().ok();
        let is_usual = known.is_some_and(|known| known.to_string() == address);
        return is_usual
            .then_some(())
            .ok_or("expected an IPv6 address as RFC 5952 writes it");
    }
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
    let is_label = |label: &str| !label.is_empty() && label.chars().all(is_plain);
    if !host.split('.').all(is_label) {
        return Err("expected a host in lower case, without a dot at its end");
    }
    // Resolvers read other numbers as addresses, too: 127.1, 0x7f.1, 2130706433.
    let last = host.rsplit('.').next().unwrap_or_default();
    let is_number = last.starts_with("0x") || last.bytes().all(|b| b.is_ascii_digit());
    if is_number && host.parse::<Ipv4Addr>().is_err() {
        return Err("expected an IPv4 address of four decimal numbers");
    }
    Ok(())
}

/// Checks the path of an address. By RFC 3986, escapes of letters, digits and `-._~` change
/// nothing. Those of other characters, such as `%2B`, may: rules about signatures look at both.
///
/// # Errors
/// What is expected, for another spelling than the usual one.
pub(super) fn path(text: &str) -> Result<(), &'static str> {
    let inner = text.strip_prefix('/').unwrap_or(text);
    let mut parts = inner.strip_suffix('/').unwrap_or(inner).split('/');
    if !inner.is_empty() && parts.any(|part| matches!(part, "" | "." | "..")) {
        return Err("expected a path without `//`, `.` and `..`");
    }
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/".contains(&b);
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let digits = [bytes.next(), bytes.next()].map(|digit| digit.and_then(hex));
            let [Some(high), Some(low)] = digits else {
                return Err("expected two capital hexadecimal digits behind `%`");
            };
            let byte = high << 4 | low;
            if byte == b'/' || byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                return Err("expected letters, digits, `-._~` and `/` as they are, without `%`");
            }
        } else if !is_plain(byte) {
            return Err("expected `%` and digits for characters that a path cannot have");
        }
    }
    Ok(())
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{authority, path};

    #[test]
    fn hosts_have_one_spelling() {
        for usual in [
            "ghcr.io",
            "localhost",
            "localhost:5000",
            "127.0.0.1:5000",
            "[::1]:5000",
            "[::1]",
            "my_host:8443",
            "a.b-c.example",
            "3com:5000",
            "2.example",
            "0x.example",
        ] {
            assert_eq!(authority(usual, 443), Ok(()), "{usual}");
        }
        for other in [
            "",
            ":5000",
            "ghcr.io:443",
            "ghcr.io:",
            "ghcr.io:0",
            "ghcr.io:05000",
            "ghcr.io:65536",
            "ghcr.io:+5000",
            "ghcr.io:5000:5000",
            "ghcr.io.",
            ".ghcr.io",
            "ghcr..io",
            "GHCR.io",
            "gh%63r.io",
            "127.1:5000",
            "127.0.0.01",
            "2130706433",
            "0x7f.1",
            "0x7f000001",
            "1.2.3.4.5",
            "[::1]:443",
            "[0:0:0:0:0:0:0:1]",
            "[::0001]",
            "[::ffff:7f00:1]",
            "[::A]",
            "[::1",
            "::1",
            "exámple.com",
        ] {
            assert!(authority(other, 443).is_err(), "{other}");
        }
        assert_eq!(authority("example.com:80", 443), Ok(()));
    }

    #[test]
    fn paths_have_one_spelling() {
        for usual in [
            "/",
            "",
            "/a",
            "/a/",
            "/a/b.wasm",
            "/@org/k~1/a:b",
            "/a%20b",
            "/%C3%A9",
            "/a%25",
            "/%40org/%2B",
            "/...",
            "/.a",
            "/a..",
        ] {
            assert_eq!(path(usual), Ok(()), "{usual}");
        }
        for other in [
            "//",
            "//a",
            "/a//b",
            "/a//",
            "/./a",
            "/a/.",
            "/a/..",
            "/../a",
            "/x/../a",
            "/%61",
            "/a%2Fb",
            "/a%2fb",
            "/%c3%a9",
            "/%2E%2E/a",
            "/a%",
            "/a%4",
            "/a%zz",
            "/a b",
            "/a\\b",
            "/\u{e9}",
            "/a[b]",
            "/a\"b",
        ] {
            assert!(path(other).is_err(), "{other}");
        }
    }
}

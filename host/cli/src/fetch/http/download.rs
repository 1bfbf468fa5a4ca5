//! Downloads, which go on where an earlier one was interrupted.

use std::fmt;
use std::io::Read as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use callbox::{Blame, Result, Status, StatusCode};
use ureq::http::{Response, header};

use super::allowance::Allowance;
use super::partial::Partial;
use super::{
    Address, Attempt, COMMIT, Client, Token, check_status, denied, header_of, lie, one_line,
    quoted, unavailable,
};
use crate::fetch::cache::{Cache, digest};
use crate::progress;

/// How often a download may be tried, and the pause before the next try.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);

/// How many redirects one request may follow.
const MOST_REDIRECTS: usize = 5;

/// What a download may be answered with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules<'a> {
    pub(crate) token: Option<&'a Token>,
    /// Whether another host may have the file: its digest is known.
    pub(crate) may_leave: bool,
    /// The text that the path of each address of the first host must have.
    pub(crate) within: Option<&'a str>,
    /// The most bytes.
    pub(crate) most: usize,
    /// The commit of the repository that the first answer must be of.
    pub(crate) commit: Option<&'a str>,
    /// The digest that the caller checks.
    pub(crate) digest: Option<&'a str>,
    /// The cache that keeps the part of an interrupted download for the next command.
    pub(crate) cache: Option<&'a Cache>,
}

/// How much of a file is there.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) received: AtomicU64,
    /// 0: unknown.
    pub(super) all: AtomicU64,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [received, all] = [&self.received, &self.all].map(|n| n.load(Ordering::Relaxed));
        let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        match (received * 100).checked_div(all) {
            None => write!(f, "{:.1} MiB", mebibytes(received)),
            Some(percent) => {
                let (received, all) = (mebibytes(received), mebibytes(all));
                write!(f, "{received:.1} of {all:.1} MiB ({percent} %)")
            }
        }
    }
}

impl Client {
    /// Downloads a file. An interrupted download goes on where it was, if the server can.
    pub(crate) fn get(&self, address: &Address, rules: Rules<'_>) -> Result<Vec<u8>> {
        let progress = Progress::default();
        let until = self.end();
        let text = || format!("downloading {address}: {progress}");
        let key = rules.digest.map(str::to_owned);
        let key = key.unwrap_or_else(|| digest(address.0.to_string().as_bytes()));
        let mut partial = Partial::open(rules.cache, &key, rules.most);
        progress::show(text, || {
            let mut tries = 1;
            loop {
                match self.try_get(address, rules, until, &mut partial, &progress) {
                    Err(Attempt::BrokenOff(problem))
                        if tries == TRIES || Instant::now() + PAUSE * tries > until =>
                    {
                        return Err(unavailable(format!(
                            "{address}: the download failed {tries} times: {problem}"
                        )));
                    }
                    Err(Attempt::BrokenOff(_)) => std::thread::sleep(PAUSE * tries),
                    Err(Attempt::Refused(status)) => return Err(status),
                    Ok(()) => return Ok(partial.finish()),
                }
                tries += 1;
            }
        })
    }

    fn try_get(
        &self,
        address: &Address,
        rules: Rules<'_>,
        until: Instant,
        partial: &mut Partial,
        progress: &Progress,
    ) -> std::result::Result<(), Attempt> {
        let (mut at, mut rules) = (address.clone(), rules);
        let asked = range(partial, rules.digest);
        for _ in 0..=MOST_REDIRECTS {
            let answer = self.ask("GET", &at, rules.token, &asked, rules.most, until)?;
            if let Some(commit) = rules.commit.take() {
                check_commit(&answer, &at, commit)?;
            }
            if answer.status().is_redirection() {
                let location = header_of(&answer, header::LOCATION.as_str()).unwrap_or_default();
                let next = at
                    .redirected(&location)
                    .map_err(|message| lie(format!("{at} redirects to no address: {message}")))?;
                check_redirect(&at, &next, &mut rules)?;
                at = next;
                continue;
            }
            let is_resumed = match answer.status().as_u16() {
                206 if !asked.is_empty() && goes_on(&answer, &at, partial, rules.digest) => true,
                206 | 416 => {
                    partial.clear();
                    let problem = "the server sent another part than the next one";
                    return Err(Attempt::BrokenOff(problem.to_owned()));
                }
                status => {
                    check_status(&at, status)?;
                    partial.begin(&etag(&answer), &place(&at));
                    false
                }
            };
            receive(&at, answer, rules.most, partial, progress, &self.allowance)?;
            if is_resumed
                && rules
                    .digest
                    .is_some_and(|wanted| digest(partial.bytes()) != wanted)
            {
                partial.clear();
                let problem = "the parts of the file do not fit together";
                return Err(Attempt::BrokenOff(problem.to_owned()));
            }
            return Ok(());
        }
        let message = format!("{address}: expected at most {MOST_REDIRECTS} redirects, found more");
        Err(unavailable(message).into())
    }
}

/// Checks that an answer is of a commit of the repository.
fn check_commit(answer: &Response<ureq::Body>, at: &Address, commit: &str) -> Result<()> {
    let found = header_of(answer, COMMIT).unwrap_or_default();
    if answer.status().as_u16() >= 400 || found == commit {
        return Ok(());
    }
    let found = quoted(&found);
    Err(lie(format!(
        "{at}: expected the commit {commit}, found {found}"
    )))
}

/// The headers that ask for the rest of a file, if its parts will be of one version of the file:
/// the server says so by an entity tag, or the digest will.
fn range(partial: &Partial, digest: Option<&str>) -> Vec<(&'static str, String)> {
    let (count, etag) = (partial.bytes().len(), partial.etag());
    if count == 0 || etag.is_empty() && digest.is_none() {
        return Vec::new();
    }
    let mut headers = vec![("Range", format!("bytes={count}-"))];
    if !etag.is_empty() {
        headers.push(("If-Range", etag.to_owned()));
    }
    headers
}

/// Whether an answer has the bytes after those that are there.
fn goes_on(
    answer: &Response<ureq::Body>,
    at: &Address,
    partial: &Partial,
    digest: Option<&str>,
) -> bool {
    let said = header_of(answer, header::CONTENT_RANGE.as_str()).unwrap_or_default();
    let begins = format!("bytes {}-", partial.bytes().len());
    let is_same = match digest {
        // Addresses of storage have a signature, which is another one each time.
        Some(_) => true,
        None => etag(answer) == partial.etag() && place(at) == partial.place(),
    };
    said.starts_with(&begins) && is_same
}

/// The strong entity tag of an answer, or nothing.
fn etag(answer: &Response<ureq::Body>) -> String {
    let found = header_of(answer, header::ETAG.as_str()).unwrap_or_default();
    let is_plain = found.len() <= 256 && found.bytes().all(|b| b.is_ascii_graphic());
    let is_strong = found.len() > 2 && found.starts_with('"') && found.ends_with('"');
    if is_plain && is_strong {
        found
    } else {
        String::new()
    }
}

/// The key of an address, which can have a secret in its query.
fn place(address: &Address) -> String {
    digest(address.0.to_string().as_bytes())
}

/// Checks a redirect. Another host gets no token.
fn check_redirect(from: &Address, to: &Address, rules: &mut Rules<'_>) -> Result<()> {
    if from.is_secure() && !to.is_secure() {
        return Err(denied(format!("{from} redirects from https to {to}")));
    }
    if from.origin() != to.origin() {
        if !rules.may_leave {
            return Err(denied(format!(
                "{from} redirects to another host, {to}: name that address, or add #sha256:DIGEST"
            )));
        }
        rules.token = None;
        rules.within = None;
    }
    match rules.within {
        Some(within) if !to.path().contains(within) => Err(denied(format!(
            "{from} redirects to {to}, which is of another repository: name that one to use it"
        ))),
        _ => Ok(()),
    }
}

/// Reads the body of an answer behind the bytes that are there.
fn receive(
    address: &Address,
    answer: Response<ureq::Body>,
    most: usize,
    partial: &mut Partial,
    progress: &Progress,
    allowance: &Allowance,
) -> std::result::Result<(), Attempt> {
    let too_large = |partial: &mut Partial, found: String| -> Attempt {
        partial.clear();
        let message = format!("{address}: expected at most {most} bytes, found {found}");
        Status::new(StatusCode::ResourceExhausted, Blame::Guest, message).into()
    };
    let mut body = answer.into_body();
    let begun = partial.bytes().len() as u64;
    let said = body.content_length().map(|said| said.saturating_add(begun));
    if let Some(said) = said.filter(|&said| said > most as u64) {
        return Err(too_large(partial, said.to_string()));
    }
    progress.all.store(said.unwrap_or(0), Ordering::Relaxed);
    let mut reader = body.as_reader();
    let mut piece = vec![0; 64 << 10];
    loop {
        let count = reader.read(&mut piece);
        let count = match count {
            Err(_) if allowance.is_spent() => {
                return Err(too_large(partial, "a longer answer".to_owned()));
            }
            count => count.map_err(|error| Attempt::BrokenOff(one_line(&error.to_string())))?,
        };
        if count == 0 {
            break;
        }
        if count > most - partial.bytes().len() {
            return Err(too_large(partial, "more".to_owned()));
        }
        partial.push(&piece[..count]);
        let received = partial.bytes().len() as u64;
        progress.received.store(received, Ordering::Relaxed);
    }
    let found = partial.bytes().len();
    match said {
        Some(said) if (found as u64) < said => Err(Attempt::BrokenOff(format!(
            "expected {said} bytes, found {found}"
        ))),
        _ => Ok(()),
    }
}

use super::*;
use crate::report::tests::{case, report};

/// A message by which a guest would try to take over the page.
const HOSTILE: &str = "</td></script><script>alert(1)</script><img src=x onerror=alert(2)>\" onfocus=\"alert(3)\" '\u{202e}\u{0}&lt;";

/// Returns the tags of a page, with the names of their attributes.
fn tags(page: &str) -> Vec<String> {
    let mut tags = Vec::new();
    for part in page.split('<').skip(1) {
        let tag = part.split('>').next().unwrap();
        // Drop the attributes' values.
        let outside: String = tag.split('"').step_by(2).collect();
        tags.push(outside);
    }
    tags.sort();
    tags
}

#[test]
fn what_guests_say_adds_no_markup() {
    let page_of = |text: &str| {
        let endings = Ending::ALL.map(|ending| case("folder/name", ending, text));
        let mut report = report(endings.into());
        report.filter = text.to_owned();
        report.callbox = text.to_owned();
        report.provenance = Provenance {
            date: text.to_owned(),
            commit: text.to_owned(),
            machine: text.to_owned(),
        };
        report.platforms[0].unavailable = text.to_owned();
        report.platforms[0].name = "Host".to_owned();
        page(&report)
    };
    let hostile = page_of(HOSTILE);
    assert_eq!(tags(&hostile), tags(&page_of("harmless")));
    assert!(!hostile.contains("alert(1)</script>") && hostile.contains("&lt;script&gt;alert(1)"));
    assert!(!hostile.contains('\u{202e}') && !hostile.contains('\0'));
}

#[test]
fn names_of_cases_add_no_markup() {
    let name = format!("{HOSTILE}/{HOSTILE}");
    let mut hostile = report(vec![case(&name, Ending::Failed, "x")]);
    let mut harmless = report(vec![case("a/b", Ending::Failed, "x")]);
    for (report, name) in [(&mut hostile, HOSTILE), (&mut harmless, "Host")] {
        report.platforms[0].name = name.to_owned();
        report.cases[0].results[0].platform = name.to_owned();
    }
    // The page marks up the slashes of a folder's name.
    let without_slashes = |report: &Report| page(report).replace("<i>/</i>", "/");
    assert_eq!(
        tags(&without_slashes(&hostile)),
        tags(&without_slashes(&harmless))
    );
}

#[test]
fn only_the_pages_own_script_may_run() {
    let page = page(&report(vec![case("a/b", Ending::Passed, HOSTILE)]));
    assert_eq!(page.matches("<script").count(), 1);
    assert_eq!(page.matches("<style").count(), 1);
    let policy = page
        .split("Content-Security-Policy\" content=\"")
        .nth(1)
        .unwrap();
    let policy = policy.split('"').next().unwrap();
    assert!(
        policy.starts_with("default-src 'none'; style-src 'sha256-"),
        "{policy}"
    );
    assert!(!policy.contains("unsafe"), "{policy}");
    assert!(policy.contains(&format!("script-src 'sha256-{}'", digest(SCRIPT))));
    // A policy of digests does not allow scripts or styles in attributes.
    for tag in tags(&page) {
        assert!(!tag.contains(" on") && !tag.contains(" style="), "{tag}");
    }
}

#[test]
fn nothing_comes_from_elsewhere() {
    let page = page(&report(vec![case("a/b", Ending::Passed, "x")]));
    for word in ["http:", "https:", "url(", "@import", " src="] {
        assert!(!page.contains(word), "{word}");
    }
}

#[test]
fn digests_are_those_of_the_policys_language() {
    // The expected value is from `printf '' | openssl dgst -sha256 -binary | base64`.
    assert_eq!(digest(""), "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
    assert_eq!(base64(b"any carnal pleas"), "YW55IGNhcm5hbCBwbGVhcw==");
    assert_eq!(base64(b"any carnal pleasu"), "YW55IGNhcm5hbCBwbGVhc3U=");
}

#[test]
fn a_page_shows_counts_origins_reasons_and_differences() {
    let mut failed = case("b/failed", Ending::Failed, "the difference");
    failed.origin = "IEEE 754".to_owned();
    failed.program = "HloModule m".to_owned();
    let page = page(&report(vec![
        case("a/skipped", Ending::NotRun, "no device"),
        failed,
    ]));
    for part in [
        "<b>0</b> of 1 passed",
        "2 cases in 1.5 s · 200 concurrent runs",
        "2026-11-21T20:15:00Z · commit 0123456789ab · a machine",
        "1 failed · 1 not run",
        "<h2 id=\"failures\">1 case failed</h2>",
        "<span>1 case</span>",
        "<pre>HloModule m</pre>",
        "<a href=\"#b/failed\">b/failed</a>",
        "<span class=\"origin\">IEEE 754</span>",
        "<p>no device</p>",
        "<td class=\"expected\">the difference</td><td class=\"found\">the difference</td>",
        "0.250 s · 100 concurrent runs (the difference)",
    ] {
        assert!(page.contains(part), "expected {part:?} in {page}");
    }
}

#[test]
fn long_programs_are_cut() {
    let mut case = case("a/b", Ending::Passed, "x");
    case.program = "line\n".repeat(201);
    let page = page(&report(vec![case]));
    assert!(page.contains("line\n… and 1 line more</pre>"), "{page}");
}

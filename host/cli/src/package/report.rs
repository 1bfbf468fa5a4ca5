//! The report of a package's cases.

use callbox::{Blame, Platform, Status, StatusCode};
use callbox_package::Package;
use serde::Serialize;

use crate::case::Ending;
use crate::inspect::{bytes, field};
use crate::text::{name, printable};

/// A package and how its cases ended.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    file: Option<String>,
    /// The name of the package's tensor in the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    tensor: Option<String>,
    /// SHA-256 of the metadata in a repository of the Hub.
    #[serde(skip_serializing_if = "Option::is_none")]
    hub_digest: Option<String>,
    name: String,
    version: String,
    sha256: String,
    size: usize,
    files: Vec<PackedFile>,
    /// The names in the folder that were not packed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_out: Vec<String>,
    /// How the native twin can be loaded.
    twin: Option<String>,
    cases: Vec<CaseReport>,
}

#[derive(Debug, Serialize)]
struct PackedFile {
    path: String,
    size: usize,
}

#[derive(Debug, Serialize)]
struct CaseReport {
    case: String,
    platform: &'static str,
    ending: &'static str,
    reason: String,
}

impl Report {
    /// A report without cases.
    pub(crate) fn new(package: &Package<'_>) -> Self {
        let header = package.header();
        let files = package.files().map(|(path, bytes)| PackedFile {
            path: path.to_owned(),
            size: bytes.len(),
        });
        Self {
            file: None,
            tensor: None,
            hub_digest: None,
            name: header.name.clone(),
            version: header.version.clone(),
            sha256: package.sha256(),
            size: package.bytes().len(),
            files: files.collect(),
            left_out: Vec::new(),
            twin: None,
            cases: Vec::new(),
        }
    }

    pub(crate) fn set_file(&mut self, path: &std::path::Path) {
        self.file = Some(path.to_string_lossy().into_owned());
    }

    pub(crate) fn set_tensor(&mut self, name: String) {
        self.tensor = Some(name);
    }

    pub(crate) fn set_hub_digest(&mut self, digest: String) {
        self.hub_digest = Some(digest);
    }

    pub(crate) fn set_left_out(&mut self, names: Vec<String>) {
        self.left_out = names;
    }

    pub(crate) fn set_twin(&mut self, grade: Option<String>) {
        self.twin = grade;
    }

    /// Adds a case.
    pub(crate) fn add(&mut self, case: &str, platform: Platform, ending: Ending) {
        let (ending, reason) = match ending {
            Ending::Passed => ("passed", String::new()),
            Ending::Failed(reason) => ("failed", reason),
            Ending::NotRun(reason) => ("not run", reason),
        };
        self.cases.push(CaseReport {
            case: case.to_owned(),
            platform: platform.name(),
            ending,
            reason,
        });
    }

    fn count(&self, ending: &str) -> usize {
        self.cases
            .iter()
            .filter(|case| case.ending == ending)
            .count()
    }

    /// Checks that at least one case ran, and that none failed.
    pub(crate) fn check(&self) -> callbox::Result<()> {
        let failed = self.count("failed");
        let message = if failed > 0 {
            format!("{failed} of {} cases failed", self.cases.len())
        } else if self.count("passed") == 0 {
            "no case was run".to_owned()
        } else {
            return Ok(());
        };
        Err(Status::new(
            StatusCode::FailedPrecondition,
            Blame::Guest,
            message,
        ))
    }

    /// The report for a person.
    pub(crate) fn describe(&self) -> String {
        let mut lines = vec![format!("{} {}", self.name, self.version)];
        if let Some(file) = &self.file {
            lines.push(field("file", &name(file)));
        }
        if let Some(tensor) = &self.tensor {
            lines.push(field("tensor", tensor));
        }
        lines.push(field("sha256", &self.sha256));
        if let Some(digest) = &self.hub_digest {
            lines.push(field("hub", digest));
        }
        lines.push(field("size", &bytes(self.size as u64)));
        let mut key = "carries";
        for file in &self.files {
            let key = std::mem::take(&mut key);
            lines.push(field(
                key,
                &format!("{}, {}", file.path, bytes(file.size as u64)),
            ));
        }
        if !self.left_out.is_empty() {
            let names: Vec<_> = self.left_out.iter().map(|text| name(text)).collect();
            lines.push(field("left out", &names.join(", ")));
        }
        if let Some(twin) = &self.twin {
            lines.push(field("twin", twin));
        }
        lines.push(String::new());
        for case in &self.cases {
            lines.push(format!(
                "  {:<9} {:<5} {}",
                case.ending, case.platform, case.case
            ));
            if !case.reason.is_empty() {
                lines.push(format!("            {}", name(&case.reason)));
            }
        }
        let [passed, failed, not_run] = ["passed", "failed", "not run"].map(|e| self.count(e));
        lines.push(format!(
            "{passed} passed, {failed} failed, {not_run} not run"
        ));
        printable(&(lines.join("\n") + "\n"))
    }
}

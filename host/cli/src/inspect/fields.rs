//! Lines for a person, shared by the descriptions of several kinds of files.

use callbox::call::{AttributeSignature, BufferSignature, Signature};

use crate::text::{name, printable};

/// A target and its declaration.
pub(crate) fn target(target: &Signature) -> Vec<String> {
    let traits: Vec<_> = target.traits.iter().map(|t| name(t)).collect();
    let traits = if traits.is_empty() {
        String::new()
    } else {
        format!(" ({})", traits.join(", "))
    };
    let mut lines = vec![format!("  {}{traits}", name(&target.name))];
    let documentation = printable(target.documentation.trim());
    lines.extend(documentation.lines().map(|line| format!("    | {line}")));
    let api_versions: Vec<_> = target.api_versions.iter().map(|v| v.name()).collect();
    let stages: Vec<_> = target.stages.iter().map(|s| s.name()).collect();
    let mut add = |key: &str, value: String| lines.push(format!("    {key:<11} {value}"));
    add("convention", api_versions.join(", "));
    add("stages", stages.join(", "));
    let more = |more: bool| if more { ", and any after those" } else { "" };
    let operands = declared(target.operands.as_deref(), buffer);
    add("operands", operands + more(target.remaining_operands));
    let results = declared(target.results.as_deref(), buffer);
    add("results", results + more(target.remaining_results));
    add(
        "attributes",
        declared(target.attributes.as_deref(), attribute),
    );
    if let Some(of) = &target.derivative_of {
        add("derivative", name(&of.to_string()));
    }
    lines
}

fn declared<T>(items: Option<&[T]>, text: impl Fn(&T) -> String) -> String {
    match items {
        None => "not declared".to_owned(),
        Some([]) => "none".to_owned(),
        Some(items) => items.iter().map(text).collect::<Vec<_>>().join(", "),
    }
}

fn buffer(buffer: &BufferSignature) -> String {
    name(&buffer.to_string())
}

fn attribute(attribute: &AttributeSignature) -> String {
    let element_type = attribute
        .element_type
        .map_or_else(String::new, |t| format!(" {t}"));
    let optional = if attribute.optional { ", optional" } else { "" };
    let fields = attribute.fields.as_deref().map_or_else(String::new, |all| {
        let fields: Vec<_> = all.iter().map(self::attribute).collect();
        format!(" {{{}}}", fields.join(", "))
    });
    let variants = attribute
        .variants
        .as_deref()
        .map_or_else(String::new, |all| {
            let variants = all
                .iter()
                .map(|(variant, number)| format!("{number} ({})", name(variant)));
            format!(" of {}", variants.collect::<Vec<_>>().join(", "))
        });
    let (name, kind) = (name(&attribute.name), name(&attribute.kind));
    format!("{name}:{element_type} {kind}{variants}{fields}{optional}")
}

/// A key and its value.
pub(crate) fn field(key: &str, value: &str) -> String {
    format!("  {key:<9} {value}")
}

/// A key with several values, one to a line.
pub(super) fn list(key: &str, values: impl Iterator<Item = String>) -> Vec<String> {
    let mut key = key;
    let mut lines: Vec<_> = values
        .map(|value| field(std::mem::take(&mut key), &value))
        .collect();
    if lines.is_empty() {
        lines.push(field(key, "none"));
    }
    lines
}

/// A number of bytes, also in a larger unit if there is one.
pub(crate) fn bytes(count: u64) -> String {
    let units = [("GiB", 1_u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.into_iter().find(|(_, unit)| count >= *unit) {
        Some((name, unit)) if count.is_multiple_of(unit) => {
            format!("{count} bytes ({} {name})", count / unit)
        }
        Some((name, unit)) => format!("{count} bytes ({:.1} {name})", count as f64 / unit as f64),
        None => format!("{count} bytes"),
    }
}

//! Escapes text for the page. Markup characters become references, and invisible characters become
//! visible codes, because a guest's message could otherwise reverse the direction of its line.

use std::fmt::Write;

/// Escapes text for an element's content or a quoted attribute.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(c),
            _ if is_unseen(c) => {
                let _ = write!(escaped, "\\u{{{:x}}}", u32::from(c));
            }
            _ => escaped.push(c),
        }
    }
    escaped
}

/// Returns whether a character is a control character, or reorders or hides other characters.
fn is_unseen(c: char) -> bool {
    let is_format = matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    c.is_control() || is_format
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_becomes_text() {
        assert_eq!(
            escape("</script><img src=x onerror='a(\"&\")'>"),
            "&lt;/script&gt;&lt;img src=x onerror=&#39;a(&quot;&amp;&quot;)&#39;&gt;"
        );
        assert_eq!(escape("grün, 2 ≤ 3\n\tx"), "grün, 2 ≤ 3\n\tx");
    }

    #[test]
    fn what_cannot_be_seen_is_written_out() {
        assert_eq!(
            escape("\u{202e}a\u{0}\r\u{1b}\u{2066}"),
            r"\u{202e}a\u{0}\u{d}\u{1b}\u{2066}"
        );
    }
}

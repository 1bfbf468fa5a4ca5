//! The depth of JSON, measured without reading it: the reader recurses for each list and object,
//! and a module may be loaded on a thread with a small stack.

/// The nesting depth of lists and objects in consecutive JSON values. Of text that is no JSON, it
/// is at least as deep as the reader gets.
pub(super) fn depth(text: &[u8]) -> usize {
    let (mut depth, mut most) = (0_usize, 0);
    let mut bytes = text.iter();
    let mut is_in_string = false;
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => is_in_string = !is_in_string,
            b'\\' if is_in_string => _ = bytes.next(),
            b'[' | b'{' if !is_in_string => {
                depth += 1;
                most = most.max(depth);
            }
            b']' | b'}' if !is_in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_objects_nest() {
        for (text, expected) in [
            ("", 0),
            ("null", 0),
            (r#"["a", true, -1, 2.5e3]"#, 1),
            (r#"{"a": {"b": [[], {}]}, "c": []} [] [[]]"#, 4),
            (r#"{"[[[\"[[[": "\\", "a": ["]]]"]}"#, 2),
            ("]]][[", 2),
            (r#"["[[[["#, 1),
        ] {
            assert_eq!(depth(text.as_bytes()), expected, "{text}");
        }
        // In a loop: this would not fit on any stack.
        assert_eq!(depth(&[b'['; 1 << 20]), 1 << 20);
    }
}

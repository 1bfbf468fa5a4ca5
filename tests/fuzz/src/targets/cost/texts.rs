//! Texts and array files from frames with holes, which are filled with many items.

use arbitrary::{Result, Unstructured};

/// What a file is read as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Hlo,
    Manifest,
    Policy,
    Metadata,
    Attributes,
    Shape,
    Npy,
    Safetensors,
}

/// The parts of files of one kind.
///
/// `@` is a hole, `#` the index of a repetition, and `~` the index before it.
pub(super) struct Grammar {
    pub(super) kind: Kind,
    frames: &'static [&'static str],
    items: &'static [&'static str],
    brackets: &'static [(&'static str, &'static str)],
    separators: &'static [&'static str],
}

/// The longest text that fills the holes of a file.
const MOST_BYTES: usize = 200_000;

pub(super) const GRAMMARS: &[Grammar] = &[
    Grammar {
        kind: Kind::Hlo,
        frames: &[
            "HloModule m\nENTRY main {\n  x0 = f32[] parameter(0)\n@\n  ROOT r = f32[] negate(x0)\n}\n",
            "HloModule m\n@\nENTRY main {\n  p = f32[] parameter(0)\n@\n  ROOT r = f32[] call(p), to_apply=c1\n}\n",
            "HloModule m\nENTRY main {\n  p = @ parameter(0)\n  ROOT r = (@) tuple(@)\n}\n",
            "HloModule m\nENTRY main {\n  p = f32[] parameter(0)\n  t = (@) tuple(@)\n  ROOT r = (@) tuple(@)\n}\n",
            "HloModule m\nENTRY main {\n  p = f32[] parameter(0)\n  ROOT r = f32[] custom-call(@), custom_call_target=\"f\", @, api_version=API_VERSION_TYPED_FFI, backend_config={@}\n}\n",
            "HloModule m, @\nENTRY main {\n  ROOT r = f32[@]{@} constant({@})\n}\n",
        ],
        items: &[
            "f32[]",
            "p",
            "t",
            "1",
            "f32[@]",
            "(@)",
            "x#",
            "  x# = f32[] negate(x~)\n",
            "  x# = (f32[], f32[]) tuple(x0, x0)\n",
            "  x# = (@) tuple(@)\n",
            "  x# = f32[] call(x~), to_apply=c1\n",
            "  x# = f32[@] broadcast(x0), dimensions={}\n",
            "  x# = f32[] constant(1), sharding={@}\n",
            "c# {\n  ROOT p = f32[] parameter(0)\n}\n",
            "c# {\n  p = f32[] parameter(0)\n  a = f32[] call(p), to_apply=c~\n  ROOT b = f32[] call(a), to_apply=c~\n}\n",
            "a# = 1 : i32",
            "a# = {@}",
            "a# = \"@\"",
            "a# = dense<1> : tensor<100x@xi32>",
            "{}: (0, {})",
            "output_to_operand_aliasing={@}",
            "operand_layout_constraints={@}",
            "frontend_attributes={@}",
            "called_computations={@}",
            "control-predecessors={@}",
            "metadata={op_name=\"@\"}",
            "n",
            "/*",
            "\\",
            "\"",
        ],
        brackets: &[
            ("(", ")"),
            ("{", "}"),
            ("{a = ", "}"),
            ("[", "]"),
            ("(f32[], ", ")"),
            ("\"", "\""),
        ],
        separators: &[", ", "", "\n", ","],
    },
    Grammar {
        kind: Kind::Manifest,
        frames: &[
            "{\"format\": 1, \"images\": [@], \"targets\": [@]}",
            "{\"format\": 1, \"images\": [{\"name\": \"i\", \"file\": \"k.ptx\"}], \"targets\": [{\"name\": \"f\", \"operands\": [@], \"results\": [@], \"attributes\": [@], \"launches\": [@]}]}",
            "{\"format\": 1, \"images\": [{\"name\": \"i\", \"file\": \"k.ptx\"}], \"targets\": [{\"name\": \"f\", \"launches\": [{\"image\": \"i\", \"entry\": \"k\", \"grid\": [\"@\"], \"block\": [\"32\"], \"parameters\": [@]}]}]}",
            "{\"format\": 1, \"images\": [{\"name\": \"i\", \"file\": \"k.ptx\"}], \"targets\": [{\"name\": \"f\", \"doc\": \"@\", \"api_versions\": [\"API_VERSION_TYPED_FFI\"], \"traits\": [\"pure\", \"elementwise\"], \"operands\": [{\"name\": \"x\", \"element_types\": [\"f32\"], \"dimensions\": [\"n\"]}], \"results\": [{\"name\": \"y\", \"element_types\": [\"f32\"], \"dimensions\": [\"n\"]}], \"checks\": [{\"require\": \"@\", \"code\": \"INVALID_ARGUMENT\", \"message\": \"@\"}], \"scratch\": [\"@\"], \"launches\": [{\"image\": \"i\", \"entry\": \"k\", \"when\": \"@\", \"parameters\": [{\"operand\": 0}, {\"result\": 0}, {\"value\": \"@\", \"type\": \"u64\"}], \"grid\": [\"@\"], \"block\": [\"256\"], \"shared_memory\": \"@\"}]}]}",
            "{\"format\": 1, \"images\": [{\"name\": \"i\", \"file\": \"k.ptx\"}], \"targets\": [{\"name\": \"f\", \"remaining_operands\": {\"dimensions\": [\"..\"]}, \"results\": [{\"dimensions\": [\"n\"]}], \"checks\": [@], \"scratch\": [@], \"launches\": [{\"image\": \"i\", \"entry\": \"k\", \"grid\": [\"1\"], \"block\": [\"1\"], \"parameters\": [@]}]}]}",
            "@",
        ],
        items: &[
            "{\"name\": \"i#\", \"file\": \"k.ptx\"}",
            "{\"name\": \"f#\", \"launches\": [@]}",
            "{}",
            "[]",
            "{\"@\": 1}",
            "\"a#\": 1",
            "{\"name\": \"x#\", \"dimensions\": [@]}",
            "{\"dimensions\": [\"@\"]}",
            "{\"name\": \"a#\", \"kind\": \"string\"}",
            "{\"image\": \"i\", \"entry\": \"k\", \"grid\": [\"@\"], \"block\": [\"@\"], \"parameters\": [@]}",
            "\"n#\"",
            "n#",
            "1",
            "operands[0].elements",
            "{\"value\": \"@\", \"type\": \"s32\"}",
            "1+",
            "!",
            "min(1,",
            "\\\\",
            "results[0].elements > 0",
            "operands[0].dims[-1] * 4",
            "operands[0].elements / results[0].dims[0]",
            "attributes.a#",
            "'@'",
            "{\"operand\": 0}",
            "{\"scratch\": #}",
            "{\"require\": \"@\", \"code\": \"ABORTED\", \"message\": \"@\"}",
            "\"@\"",
        ],
        brackets: &[
            ("[", "]"),
            ("{\"a\": ", "}"),
            ("(", ")"),
            ("!(", ")"),
            ("1 + (", ")"),
            ("min(1, ", ")"),
            ("-", ""),
            ("operands[", "].dims[0]"),
        ],
        separators: &[", ", "", " + ", ",", " && ", " * ", " == "],
    },
    Grammar {
        kind: Kind::Policy,
        frames: &[
            "{\"targets\": {@}}",
            "{\"grants\": {\"directories\": [@]}}",
            "{\"limits\": {@}}",
            "{@}",
            "@",
        ],
        items: &[
            "\"f#\": {\"clock\": true}",
            "\"f#\": {\"directories\": [@]}",
            "{\"path\": \"/a@\", \"name\": \"/b#\", \"access\": \"read\"}",
            "\"memory_bytes\": 1",
            "\"@\": 1",
            "1",
            "\"deterministic\": true",
            "\\u0001",
        ],
        brackets: &[("[", "]"), ("{\"a\": ", "}"), ("{\"grants\": ", "}")],
        separators: &[", ", "", ","],
    },
    Grammar {
        kind: Kind::Metadata,
        frames: &[
            "{\"name\": \"f\", \"operands\": [@], \"results\": [@], \"attributes\": [@]}",
            "{\"name\": \"f\", \"stages\": [@], \"traits\": [@], \"doc\": \"@\"}",
            "{\"name\": \"f\", \"x\": @}",
            "@",
        ],
        items: &[
            "{\"name\": \"f\"}",
            "{\"name\": \"g#\"}",
            "{}",
            "[]",
            "{\"dimensions\": [@]}",
            "{\"name\": \"@\", \"rank\": 1}",
            "{\"element_types\": [@]}",
            "\"f32\"",
            "\"s#\"",
            "\"n * (m + @)\"",
            "\"@\"",
            "1",
            "\"execute\"",
            "\"pure\"",
            "{\"name\": \"a#\", \"kind\": \"string\"}",
            "{\"name\": \"@\", \"kind\": \"scalar\", \"element_type\": \"f32\"}",
            "\\u0001",
            "n",
            "*n",
            "+1",
            "{\"name\": \"f\", \"stages\": [\"prepare\"]}",
        ],
        brackets: &[("[", "]"), ("{\"a\": ", "}"), ("(", ")"), ("n * (", ")")],
        separators: &[", ", "", "\n", ",", " + "],
    },
    Grammar {
        kind: Kind::Attributes,
        frames: &[
            "{@}",
            "{a = @}",
            "{a = [@]}",
            "{a = \"@\"}",
            "{a = array<i64: @>}",
            "{a = dense<@> : tensor<@xf32>}",
        ],
        items: &[
            "a# = 1 : i32",
            "a = 1 : i32",
            "a# = {@}",
            "1",
            "1.5",
            "a# = \"@\"",
            "a# = array<i8: @>",
            "a# = dense<1> : tensor<1000x@xi8>",
            "\\00",
            "\\",
            "n",
            "a# = dense<\"0x@\"> : tensor<2xf32>",
            "4",
        ],
        brackets: &[("{a = ", "}"), ("[", "]"), ("{", "}"), ("(", ")")],
        separators: &[", ", "", ",", "x"],
    },
    Grammar {
        kind: Kind::Shape,
        frames: &["@", "(@)", "f32[@]", "f32[2,2]{@}", "f32[2]{0:@}"],
        items: &[
            "f32[]",
            "()",
            "1",
            "4294967296",
            "f32[@]",
            "(@)",
            "T(8,128)",
            "T(@)",
            "<=4",
            "?",
            "9",
            "f8e4m3fn[2]",
        ],
        brackets: &[("(", ")"), ("[", "]"), ("{", "}"), ("(f32[], ", ")")],
        separators: &[",", ", ", ""],
    },
    Grammar {
        kind: Kind::Npy,
        frames: &[
            "{'descr': '<f4', 'fortran_order': False, 'shape': (@), }",
            "{'descr': '|u1', 'fortran_order': True, 'shape': (@), }",
            "{'descr': '@', 'fortran_order': True, 'shape': (), }",
            "{'descr': '>c16', 'fortran_order': True, 'shape': (2, @), }",
            "{'descr': [@], 'fortran_order': False, 'shape': (1,), }",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), @}",
            "{@}",
        ],
        items: &[
            "1",
            "4294967296",
            "2L",
            "'shape': (@)",
            "'descr': '<f4'",
            "'fortran_order': True",
            "'@': 1",
            " ",
            "V2",
            "9",
            "0",
            "('a#', '<f4')",
            "'fortran_order': False",
            "\\n",
        ],
        brackets: &[("(", ")"), ("[", "]"), ("{", "}")],
        separators: &[",", ", ", ""],
    },
    Grammar {
        kind: Kind::Safetensors,
        frames: &[
            "{@}",
            "{\"x\":{\"dtype\":\"U8\",\"shape\":[@],\"data_offsets\":[0,0]}}",
            "{\"x\":{\"dtype\":\"F32\",\"shape\":[1,@],\"data_offsets\":[0,4]},@}",
            "{\"x\":{\"dtype\":\"@\",\"shape\":[1],\"data_offsets\":[0,@]}}",
            "{\"__metadata__\":{@},\"x\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
            "{\"__metadata__\":{\"callbox.shapes\":\"{@}\"},\"x\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
            "@",
        ],
        items: &[
            "\"x#\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}",
            "\"@\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}",
            "\"k#\":\"v\"",
            "\"k#\":\"@\"",
            "\\\"x#\\\":\\\"f32[@]\\\"",
            "1",
            "0",
            "9",
            "n",
            "\\u0001",
            "\\ud83d\\ude00",
            "F8_E4M3",
            "\"y#\":{\"dtype\":\"F32\",\"shape\":[@],\"data_offsets\":[4,4]}",
        ],
        brackets: &[("[", "]"), ("{\"a\":", "}"), ("(", ")")],
        separators: &[",", ""],
    },
];

/// A number up to `most`, of any magnitude.
pub(super) fn size(u: &mut Unstructured<'_>, most: u32) -> Result<u32> {
    let bits = u.int_in_range(0..=u32::BITS - most.leading_zeros())?;
    Ok(u.int_in_range(0..=1_u64 << bits)?.min(most.into()) as u32)
}

impl Grammar {
    /// Generates a file.
    pub(super) fn file(&self, u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
        let frame = *u.choose(self.frames)?;
        let text = self.filled(u, frame, 2, MOST_BYTES)?;
        let mut file = match self.kind {
            Kind::Npy => [
                b"\x93NUMPY\x02\0".as_slice(),
                (text.len() as u32).to_le_bytes().as_slice(),
            ]
            .concat(),
            Kind::Safetensors => (text.len() as u64).to_le_bytes().to_vec(),
            _ => Vec::new(),
        };
        file.extend_from_slice(text.as_bytes());
        if matches!(self.kind, Kind::Npy | Kind::Safetensors) {
            let elements = size(u, 1 << 16)? as usize;
            file.resize(file.len() + elements, 1);
        }
        Ok(file)
    }

    /// The text with its holes filled, with about `most` bytes.
    fn filled(
        &self,
        u: &mut Unstructured<'_>,
        text: &str,
        depth: usize,
        most: usize,
    ) -> Result<String> {
        let mut parts = text.split('@');
        let mut filled = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            filled += &self.many(u, depth, most)?;
            filled += part;
        }
        Ok(filled)
    }

    /// An item, repeated or in brackets.
    fn many(&self, u: &mut Unstructured<'_>, depth: usize, most: usize) -> Result<String> {
        let item = match u.choose(self.items)? {
            item if depth == 0 => item.replace('@', ""),
            item => self.filled(u, item, depth - 1, most >> 8)?,
        };
        let count = size(u, 1 << 16)? as usize;
        let mut text = String::new();
        if u.ratio(1, 3)? {
            let (open, close) = *u.choose(self.brackets)?;
            let count = count.min(most / (open.len() + close.len()));
            return Ok([open.repeat(count), item, close.repeat(count)].concat());
        }
        let separator = *u.choose(self.separators)?;
        for i in 1..=count.max(1) {
            if i > 1 {
                text += separator;
            }
            if item.contains(['#', '~']) {
                text += &item
                    .replace('#', &i.to_string())
                    .replace('~', &(i - 1).to_string());
            } else {
                text += &item;
            }
            if text.len() > most {
                break;
            }
        }
        Ok(text)
    }
}

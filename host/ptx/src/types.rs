//! Types and state spaces.

macro_rules! named {
    ($(#[$meta:meta])* $name:ident { $($(#[$inner:meta])* $variant:ident $text:literal)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$inner])* #[doc = concat!("`", $text, "`")] $variant,)* }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Returns the name in PTX.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// Finds the one of this name.
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($text => Some(Self::$variant),)* _ => None }
            }
        }
    };
}
pub(crate) use named;

named! {
    /// A type of registers, variables and instructions.
    Type {
        Pred "pred"
        B8 "b8" B16 "b16" B32 "b32" B64 "b64" B128 "b128"
        U8 "u8" U16 "u16" U32 "u32" U64 "u64"
        S8 "s8" S16 "s16" S32 "s32" S64 "s64"
        F16 "f16" F16x2 "f16x2" Bf16 "bf16" Bf16x2 "bf16x2" Tf32 "tf32"
        F32 "f32" F32x2 "f32x2" F64 "f64"
        U16x2 "u16x2" S16x2 "s16x2"
        E4m3 "e4m3" E5m2 "e5m2" E4m3x2 "e4m3x2" E5m2x2 "e5m2x2"
        B1 "b1" U4 "u4" S4 "s4" B4 "b4"
    }
}

impl Type {
    /// Returns the width in a register. A predicate has one bit.
    pub fn bits(self) -> u32 {
        match self {
            Self::Pred | Self::B1 => 1,
            Self::U4 | Self::S4 | Self::B4 => 4,
            Self::B8 | Self::U8 | Self::S8 | Self::E4m3 | Self::E5m2 => 8,
            Self::B16 | Self::U16 | Self::S16 | Self::F16 | Self::Bf16 => 16,
            Self::E4m3x2 | Self::E5m2x2 => 16,
            Self::B32 | Self::U32 | Self::S32 | Self::F32 | Self::F16x2 | Self::Bf16x2 => 32,
            Self::Tf32 | Self::U16x2 | Self::S16x2 => 32,
            Self::B64 | Self::U64 | Self::S64 | Self::F64 | Self::F32x2 => 64,
            Self::B128 => 128,
        }
    }

    /// Returns the size in memory.
    pub fn bytes(self) -> u32 {
        self.bits().div_ceil(8)
    }

    /// Returns whether it is a signed integer.
    pub fn is_signed(self) -> bool {
        matches!(
            self,
            Self::S4 | Self::S8 | Self::S16 | Self::S32 | Self::S64
        )
    }
}

/// A state space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Space {
    /// None is named: the address says by its window which memory it belongs to.
    Generic,
    /// `.global`
    Global,
    /// `.const`
    Const,
    /// `.shared` and `.shared::cta`: of the thread's own block.
    Shared,
    /// `.shared::cluster`
    Cluster,
    /// `.local`
    Local,
    /// `.param`, `.param::entry` and `.param::func`
    Param,
}

impl Space {
    /// Finds the space of a modifier, without its point.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "global" => Self::Global,
            "const" => Self::Const,
            "shared" | "shared::cta" => Self::Shared,
            "shared::cluster" => Self::Cluster,
            "local" => Self::Local,
            "param" | "param::entry" | "param::func" => Self::Param,
            _ => return None,
        })
    }

    /// Returns the directive of a variable in this space, with its point.
    pub fn directive(self) -> &'static str {
        match self {
            Self::Generic => "",
            Self::Global => ".global",
            Self::Const => ".const",
            Self::Shared | Self::Cluster => ".shared",
            Self::Local => ".local",
            Self::Param => ".param",
        }
    }
}

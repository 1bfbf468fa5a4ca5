//! Types and state spaces.

/// A PTX type of registers, variables and instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Pred,
    B8,
    B16,
    B32,
    B64,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    F16x2,
    Bf16,
    Bf16x2,
    F32,
    F64,
}

impl Type {
    /// Returns the type of this name, without the leading point.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "pred" => Self::Pred,
            "b8" => Self::B8,
            "b16" => Self::B16,
            "b32" => Self::B32,
            "b64" => Self::B64,
            "u8" => Self::U8,
            "u16" => Self::U16,
            "u32" => Self::U32,
            "u64" => Self::U64,
            "s8" => Self::S8,
            "s16" => Self::S16,
            "s32" => Self::S32,
            "s64" => Self::S64,
            "f16" => Self::F16,
            "f16x2" => Self::F16x2,
            "bf16" => Self::Bf16,
            "bf16x2" => Self::Bf16x2,
            "f32" => Self::F32,
            "f64" => Self::F64,
            _ => return None,
        })
    }

    /// Returns the width in a register. A predicate has one bit.
    pub(super) fn bits(self) -> u32 {
        match self {
            Self::Pred => 1,
            Self::B8 | Self::U8 | Self::S8 => 8,
            Self::B16 | Self::U16 | Self::S16 | Self::F16 | Self::Bf16 => 16,
            Self::B32 | Self::U32 | Self::S32 | Self::F32 | Self::F16x2 | Self::Bf16x2 => 32,
            Self::B64 | Self::U64 | Self::S64 | Self::F64 => 64,
        }
    }

    /// Returns the size in memory.
    pub(super) fn bytes(self) -> usize {
        (self.bits() as usize).div_ceil(8)
    }

    pub(super) fn is_signed(self) -> bool {
        matches!(self, Self::S8 | Self::S16 | Self::S32 | Self::S64)
    }

    /// Returns whether it is a scalar floating-point type.
    pub(super) fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::Bf16 | Self::F32 | Self::F64)
    }

    /// Returns the element type of a pair of 16-bit floats.
    pub(super) fn half_of_pair(self) -> Option<Self> {
        match self {
            Self::F16x2 => Some(Self::F16),
            Self::Bf16x2 => Some(Self::Bf16),
            _ => None,
        }
    }
}

/// Zeroes all but the low bits of a register.
pub(super) fn low_bits(value: u64, bits: u32) -> u64 {
    if bits >= 64 {
        value
    } else {
        value & ((1 << bits) - 1)
    }
}

/// Sign-extends the low bits of a register.
pub(super) fn sign_extended(value: u64, bits: u32) -> i64 {
    let unused = 64 - bits.clamp(1, 64);
    ((value << unused) as i64) >> unused
}

/// A state space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    /// Determined by the address: a window of shared, local or parameter memory, or global memory.
    Generic,
    /// Global and constant memory, which the driver provides.
    Global,
    Shared,
    Local,
    Param,
}

impl Space {
    /// Returns the space of this name, without the leading point.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "global" | "const" => Self::Global,
            "shared" | "shared::cta" => Self::Shared,
            "local" => Self::Local,
            "param" | "param::entry" | "param::func" => Self::Param,
            _ => return None,
        })
    }

    /// Returns the offset that makes an address of this space generic.
    ///
    /// It is above all device addresses of the driver.
    pub(super) fn window(self) -> u64 {
        match self {
            Self::Generic | Self::Global => 0,
            Self::Shared => 0xf1 << 48,
            Self::Local => 0xf2 << 48,
            Self::Param => 0xf3 << 48,
        }
    }
}

/// Splits a generic address into its space and the address in it.
pub(super) fn from_generic(address: u64) -> (Space, u64) {
    let rest = address & 0xffff_ffff_ffff;
    match address >> 48 {
        0xf1 => (Space::Shared, rest),
        0xf2 => (Space::Local, rest),
        0xf3 => (Space::Param, rest),
        _ => (Space::Global, address),
    }
}

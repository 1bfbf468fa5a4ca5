//! The modifiers of each opcode.

use crate::types::Type;

use super::{Modifier, Opcode};

// Names are separated by spaces.

const INTEGERS: &str = "u16 u32 u64 s16 s32 s64";
const PACKED_INTEGERS: &str = "u16x2 s16x2";
const BITS: &str = "pred b16 b32 b64";
const FLOATS: &str = "f16 f16x2 bf16 bf16x2 f32 f32x2 f64";
/// Rounding of floating-point results, flushing of subnormal numbers, clamping.
const ROUNDING: &str = "rn rz rm rp ftz sat";
const MULTIPLICATION: &str = "hi lo wide";
const COMPARISONS: &str = "\
    eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan and or xor ftz";
const SPACES: &str = "\
    global const shared shared::cta shared::cluster local param param::entry param::func";
/// The order of an access, and the threads that see it in this order.
const ORDER: &str = "volatile relaxed acquire release acq_rel sc weak mmio cta cluster gpu sys";
const CACHES: &str = "\
    nc ca cg cs lu cv wb wt L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last \
    L1::no_allocate L2::64B L2::128B L2::256B L2::evict_first L2::evict_last L2::evict_normal \
    L2::cache_hint";
const MEMORY_TYPES: &str = "\
    v2 v4 v8 b8 b16 b32 b64 b128 u8 u16 u32 u64 s8 s16 s32 s64 f16 f16x2 bf16 bf16x2 f32 f64";
const ATOMIC: &str = "add min max exch cas inc dec and or xor noftz";
const CONVERSIONS: &str = "rni rzi rmi rpi rn rz rm rp rna rs ftz sat satfinite relu";
const ALL_SCALARS: &str = "\
    u8 u16 u32 u64 s8 s16 s32 s64 f16 f16x2 bf16 bf16x2 tf32 f32 f64 e4m3x2 e5m2x2";
const ASYNC: &str = "\
    async bulk tensor mbarrier arrive noinc commit_group wait_group wait_all read ca cg 1d 2d 3d \
    4d 5d tile im2col mbarrier::complete_tx::bytes bulk_group multicast::cluster prefetch reduce \
    add min max inc dec and or xor";
const MATRIX: &str = "\
    sync aligned a b c d load store mma row col satfinite xor and popc b1 u4 s4 u8 s8 f16 bf16 \
    tf32 f32 f64 s32 e4m3 e5m2 b16 b8 x1 x2 x4 num trans sp ordered_metadata mma_async fence \
    commit_group wait_group";
const FENCES: &str = "\
    proxy alias async async::generic tensormap::generic mbarrier_init gl \
    sync_restrict::shared::cta sync_restrict::shared::cluster";
const BARRIERS: &str = "\
    warp sync arrive wait red aligned popc and or cta cluster relaxed acquire release pred u32";
const SHARED_BARRIERS: &str = "\
    init inval arrive arrive_drop expect_tx complete_tx test_wait try_wait parity pending_count \
    noComplete b64";
const LANES: &str = "\
    sync up down bfly idx all any uni ballot pred b32 b64 add min max and or xor abs NaN u32 s32 \
    f32";

/// The modifiers of an opcode.
fn modifiers(opcode: Opcode) -> &'static [&'static str] {
    use Opcode as O;
    match opcode {
        O::Add | O::Sub => &[INTEGERS, PACKED_INTEGERS, FLOATS, ROUNDING, "cc"],
        O::Addc | O::Subc => &[INTEGERS, "cc"],
        O::Mul | O::Mad | O::Madc => &[INTEGERS, FLOATS, ROUNDING, MULTIPLICATION, "cc"],
        O::Mul24 | O::Mad24 => &[INTEGERS, MULTIPLICATION, "sat"],
        O::Fma => &[FLOATS, ROUNDING, "relu oob"],
        O::Div => &[INTEGERS, FLOATS, ROUNDING, "approx full"],
        O::Rem | O::Sad => &[INTEGERS],
        O::Dp2a | O::Dp4a => &["u32 s32 lo hi"],
        O::Abs | O::Neg => &[INTEGERS, FLOATS, "ftz"],
        O::Min | O::Max => &[
            INTEGERS,
            PACKED_INTEGERS,
            FLOATS,
            "ftz NaN xorsign abs relu",
        ],
        O::Rcp | O::Sqrt | O::Rsqrt | O::Sin | O::Cos | O::Lg2 | O::Ex2 | O::Tanh => {
            &[FLOATS, ROUNDING, "approx"]
        }
        O::Copysign => &["f32 f64"],
        O::Testp => &["finite infinite number notanumber normal subnormal f32 f64"],
        O::And | O::Or | O::Xor | O::Not | O::Cnot => &[BITS],
        O::Shl | O::Shr => &[BITS, INTEGERS],
        O::Bfe | O::Bfi | O::Bfind | O::Brev | O::Clz | O::Popc => &[BITS, INTEGERS, "shiftamt"],
        O::Bmsk | O::Szext => &["clamp wrap b32 u32 s32"],
        O::Fns => &["b32"],
        O::Lop3 => &["b32 and or xor"],
        O::Shf => &["l r wrap clamp b32"],
        O::Prmt => &["b32 f4e b4e rc8 ecl ecr rc16"],
        O::Setp | O::Set => &[COMPARISONS, BITS, INTEGERS, FLOATS],
        O::Selp => &[BITS, INTEGERS, "f32 f64"],
        O::Slct => &[BITS, INTEGERS, "f32 f64 ftz"],
        O::Mov => &[BITS, INTEGERS, "f32 f64 b128 f16 bf16 f16x2 bf16x2"],
        O::Cvt => &[CONVERSIONS, ALL_SCALARS],
        O::Cvta => &[SPACES, "to u64"],
        O::Isspacep => &[SPACES],
        O::Istypep => &["texref samplerref surfref"],
        O::Ld | O::Ldu | O::St => &[SPACES, ORDER, CACHES, MEMORY_TYPES],
        O::Atom | O::Red => &[SPACES, ORDER, CACHES, MEMORY_TYPES, ATOMIC, "async"],
        O::Prefetch | O::Prefetchu => &[
            SPACES,
            CACHES,
            "L1 L2 tensormap L2::evict_last L2::evict_normal",
        ],
        O::Applypriority | O::Discard => &[SPACES, CACHES, "L2"],
        O::Createpolicy => &[
            CACHES,
            "fractional range cvt L2 global b64 L2::evict_first L2::evict_unchanged",
        ],
        O::Cp => &[ASYNC, SPACES, CACHES, MEMORY_TYPES],
        O::Mma | O::Wmma | O::Wgmma | O::Ldmatrix | O::Stmatrix | O::Movmatrix => &[MATRIX, SPACES],
        O::Mbarrier => &[SHARED_BARRIERS, SPACES, ORDER],
        O::Bar | O::Barrier => &[BARRIERS],
        O::Membar | O::Fence => &[FENCES, ORDER, SPACES],
        O::Shfl | O::Vote | O::Match | O::Redux | O::Activemask | O::Elect => &[LANES],
        O::Bra | O::Call | O::Ret => &["uni"],
        O::Brx => &["idx uni"],
        O::Nanosleep => &["u32"],
        O::Griddepcontrol => &["wait launch_dependents"],
        O::Setmaxnreg => &["inc dec sync aligned u32"],
        O::Pmevent => &["mask"],
        O::Mapa | O::Getctarank => &[SPACES, "u32 u64"],
        O::Alloca | O::Stacksave | O::Stackrestore => &["u32 u64"],
        O::Exit | O::Trap | O::Brkpt => &[],
        // Refused, whatever their modifiers are.
        O::Tex | O::Tld4 | O::Txq | O::Suld | O::Sust | O::Sured | O::Suq => {
            &[MEMORY_TYPES, "1d 2d 3d a1d a2d cube acube 2dms a2dms"]
        }
        O::Tcgen05 | O::Tensormap | O::Multimem | O::Clusterlaunchcontrol => &[],
    }
}

/// Finds a modifier of an opcode by its name without the point.
pub(crate) fn modifier(opcode: Opcode, name: &str) -> Option<Modifier> {
    let mut known = modifiers(opcode)
        .iter()
        .copied()
        .flat_map(str::split_ascii_whitespace);
    if let Some(name) = known.find(|known| *known == name) {
        return Some(Modifier::Name(name));
    }
    let is_matrix = matches!(
        opcode,
        Opcode::Mma
            | Opcode::Wmma
            | Opcode::Wgmma
            | Opcode::Ldmatrix
            | Opcode::Stmatrix
            | Opcode::Movmatrix
    );
    is_matrix
        .then(|| shape(name))
        .flatten()
        .map(Modifier::Shape)
}

/// Whether a modifier says only in which order, for whom and through which caches an access goes.
pub fn is_hint(name: &str) -> bool {
    let mut known = [ORDER, CACHES]
        .into_iter()
        .flat_map(str::split_ascii_whitespace);
    // This one has an operand.
    name == "noftz" || name != "L2::cache_hint" && known.any(|known| known == name)
}

/// Parses a shape such as `m16n8k16` or `m8n8`, whose k is 0.
fn shape(name: &str) -> Option<[u16; 3]> {
    let rest = name.strip_prefix('m')?;
    let (m, rest) = rest.split_once('n')?;
    let (n, k) = rest.split_once('k').unwrap_or((rest, "0"));
    let number = |text: &str| {
        let value: u16 = text.parse().ok()?;
        // One spelling for each shape.
        (value <= 512 && value.to_string() == text).then_some(value)
    };
    let shape = [number(m)?, number(n)?, number(k)?];
    (shape[0] > 0 && shape[1] > 0 && !name.ends_with("k0")).then_some(shape)
}

impl Modifier {
    /// Returns the type of this name.
    pub fn kind(self) -> Option<Type> {
        match self {
            Self::Name(name) => Type::from_name(name),
            Self::Shape(_) => None,
        }
    }
}

//! Instructions on matrices, whose elements are spread over the lanes of a warp.
//!
//! The places of elements are those of the chapter "Warp Level Matrix Instructions" of the PTX ISA:
//! lane L has group L / 4 and member L % 4.

use super::code::{Address, Operation, Slot};
use super::launch::Launch;
use super::rounding::{BRAIN, HALF, Rounding, double_bits, single_bits};
use super::spaces::{Reach, Trouble};
use super::thread::{State, Thread};
use super::types::{low_bits, sign_extended};
use super::{Fault, decode::decode_half};

/// What a lane that has ended, or does not exist, contributes.
const MISSING: u64 = 0xcdcd_cdcd_cdcd_cdcd;

/// An instruction that all lanes of a warp execute together.
pub(super) struct MatrixOperation {
    pub(super) kind: MatrixKind,
    /// The written registers.
    pub(super) to: Box<[Slot]>,
    /// The read registers: of `mma`, those of A, B and C in order.
    pub(super) from: Box<[Slot]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MatrixKind {
    /// `ldmatrix`: 8 by 8 elements of 16 bits for each register.
    Load {
        address: Address,
        is_transposed: bool,
    },
    /// `stmatrix`
    Store {
        address: Address,
        is_transposed: bool,
    },
    /// `mma`
    Multiply(Product),
}

/// The shape and the elements of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Product {
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    pub(super) a: Element,
    pub(super) b: Element,
    /// Of C and D.
    pub(super) sum: Element,
    /// `.satfinite`: integer sums are clamped.
    pub(super) clamps: bool,
}

/// The type of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    F16,
    Bf16,
    Tf32,
    F32,
    F64,
    S8,
    U8,
    S32,
}

impl Element {
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "f16" => Self::F16,
            "bf16" => Self::Bf16,
            "tf32" => Self::Tf32,
            "f32" => Self::F32,
            "f64" => Self::F64,
            "s8" => Self::S8,
            "u8" => Self::U8,
            "s32" => Self::S32,
            _ => return None,
        })
    }

    pub(super) fn bits(self) -> usize {
        match self {
            Self::S8 | Self::U8 => 8,
            Self::F16 | Self::Bf16 => 16,
            Self::Tf32 | Self::F32 | Self::S32 => 32,
            Self::F64 => 64,
        }
    }

    /// The number of elements in a register.
    pub(super) fn per_register(self) -> usize {
        (32 / self.bits()).max(1)
    }

    fn decode(self, bits: u64) -> f64 {
        match self {
            Self::F16 => decode_half(bits, HALF),
            Self::Bf16 => decode_half(bits, BRAIN),
            // The lower 13 bits of a mantissa are not read.
            Self::Tf32 => f64::from(f32::from_bits(bits as u32 & !0x1fff)),
            Self::F32 => f64::from(f32::from_bits(bits as u32)),
            Self::F64 => f64::from_bits(bits),
            Self::S8 => sign_extended(bits, 8) as f64,
            Self::U8 => low_bits(bits, 8) as f64,
            Self::S32 => sign_extended(bits, 32) as f64,
        }
    }

    fn encode(self, value: f64, clamps: bool) -> u64 {
        match self {
            Self::F16 => HALF.encode(value, Rounding::Nearest),
            Self::F32 => single_bits(value as f32),
            Self::F64 => double_bits(value, &[]),
            // Sums of bytes are exact in an f64.
            _ if clamps => u64::from((value as i32).cast_unsigned()),
            _ => low_bits(value as i64 as u64, 32),
        }
    }
}

/// The row and column of an element of a lane's register, in a matrix of which a register has
/// `per` adjacent elements of a row. Registers alternate between the upper and the lower 8 rows if
/// the matrix has 16.
fn place(lane: usize, register: usize, element: usize, per: usize, rows: usize) -> (usize, usize) {
    let halves = rows / 8;
    let row = lane / 4 + 8 * (register % halves);
    let column = (register / halves) * 4 * per + lane % 4 * per + element;
    (row, column)
}

impl Product {
    /// The numbers of registers of A, B and C.
    pub(super) fn registers(self) -> [usize; 3] {
        let count = |elements: usize, element: Element| elements / 32 / element.per_register();
        [
            count(self.m * self.k, self.a),
            count(self.k * self.n, self.b),
            count(self.m * self.n, self.sum),
        ]
    }

    /// The place of an element of C or D.
    fn sum_place(self, lane: usize, register: usize, element: usize) -> (usize, usize) {
        if self.sum.per_register() == 2 {
            return place(lane, register, element, 2, self.m);
        }
        // Two registers have the adjacent elements of a row.
        place(lane, register / 2, register % 2, 2, self.m)
    }

    /// Multiplies, given each lane's registers. Returns those of D.
    fn multiply(self, lanes: &[Vec<u64>]) -> Vec<Vec<u64>> {
        let [in_a, in_b, in_c] = self.registers();
        let mut a = vec![0.0; self.m * self.k];
        let mut b = vec![0.0; self.k * self.n];
        let mut c = vec![0.0; self.m * self.n];
        let each = |element: Element, register: u64, at: usize| {
            let bits = element.bits();
            element.decode(low_bits(register >> (bits * at % 64), bits as u32))
        };
        for (lane, registers) in lanes.iter().enumerate() {
            for (index, &register) in registers.iter().enumerate() {
                let element = match index {
                    index if index < in_a => self.a,
                    index if index < in_a + in_b => self.b,
                    _ => self.sum,
                };
                let per = element.per_register();
                for at in 0..per {
                    let value = each(element, register, at);
                    if index < in_a {
                        let (row, column) = place(lane, index, at, per, self.m);
                        a[row * self.k + column] = value;
                    } else if index < in_a + in_b {
                        // A column of B lies as a row of A does.
                        let (column, row) = place(lane, index - in_a, at, per, 8);
                        b[row * self.n + column] = value;
                    } else {
                        let (row, column) = self.sum_place(lane, index - in_a - in_b, at);
                        c[row * self.n + column] = value;
                    }
                }
            }
        }
        for row in 0..self.m {
            for column in 0..self.n {
                for inner in 0..self.k {
                    let (left, right) = (a[row * self.k + inner], b[inner * self.n + column]);
                    c[row * self.n + column] = left.mul_add(right, c[row * self.n + column]);
                }
            }
        }
        let result = |lane: usize, register: usize| {
            let per = self.sum.per_register();
            (0..per).rev().fold(0, |word, at| {
                let (row, column) = self.sum_place(lane, register, at);
                let bits = self.sum.encode(c[row * self.n + column], self.clamps);
                (word << (self.sum.bits() % 64)) | bits
            })
        };
        let registers = |lane| (0..in_c).map(|register| result(lane, register)).collect();
        (0..lanes.len()).map(registers).collect()
    }
}

/// Executes the instruction on matrices at which all lanes of a warp have arrived. Returns whether
/// there was one.
pub(super) fn meet(
    launch: &Launch<'_>,
    block: [u32; 3],
    lanes: &mut [Thread],
    shared: &mut [u8],
) -> Result<bool, Fault> {
    let Some(position) = lanes
        .iter()
        .find(|lane| operation(launch, lane).is_some())
        .map(Thread::position)
    else {
        return Ok(false);
    };
    let is_there = |lane: &Thread| lane.state == State::Warp && lane.position() == position;
    if !lanes
        .iter()
        .all(|lane| lane.state == State::Done || is_there(lane))
    {
        return Ok(false);
    }
    let Some(matrix) = lanes.iter().find_map(|lane| operation(launch, lane)) else {
        return Ok(false);
    };
    let read = |lane: usize, slots: &[Slot]| -> Vec<u64> {
        let thread = lanes.get(lane).filter(|lane| is_there(lane));
        let value = |slot: &Slot| thread.map_or(MISSING, |thread| thread.slot(*slot));
        slots.iter().map(value).collect()
    };
    let sources: Vec<Vec<u64>> = (0..32).map(|lane| read(lane, &matrix.from)).collect();
    let results = match matrix.kind {
        MatrixKind::Multiply(product) => product.multiply(&sources),
        MatrixKind::Load {
            address,
            is_transposed,
        } => {
            let count = matrix.to.len();
            let rows = rows(launch, block, lanes, shared, address, count, None)?;
            (0..32)
                .map(|lane| fragments(&rows, lane, is_transposed))
                .collect()
        }
        MatrixKind::Store {
            address,
            is_transposed,
        } => {
            let count = matrix.from.len();
            let rows = rows_of(&sources, count, is_transposed);
            self::rows(launch, block, lanes, shared, address, count, Some(&rows))?;
            Vec::new()
        }
    };
    for (lane, thread) in lanes.iter_mut().enumerate() {
        if thread.state == State::Done {
            continue;
        }
        if let Some(results) = results.get(lane) {
            for (slot, value) in matrix.to.iter().zip(results) {
                thread.set(*slot, *value);
            }
        }
        thread.go_on();
    }
    Ok(true)
}

fn operation<'l>(launch: &'l Launch<'l>, thread: &Thread) -> Option<&'l MatrixOperation> {
    let position = thread.position();
    match &launch.module.functions[position.function].code[position.at].operation {
        Operation::Matrix(operation) if thread.state == State::Warp => Some(operation),
        _ => None,
    }
}

/// A row of 8 elements of 16 bits.
type Row = [u16; 8];

/// Loads, or stores, the rows of `count` matrices of 8 rows. Lane L has the address of row L.
fn rows(
    launch: &Launch<'_>,
    block: [u32; 3],
    lanes: &[Thread],
    shared: &mut [u8],
    address: Address,
    count: usize,
    stored: Option<&[Row]>,
) -> Result<Vec<Row>, Fault> {
    let mut found = vec![[MISSING as u16; 8]; 8 * count];
    let mut reach = Reach {
        launch,
        shared,
        local: &mut [],
        params: &mut [],
        param_base: 0,
        block_bytes: 0,
    };
    for (at, (lane, row)) in lanes.iter().zip(&mut found).enumerate() {
        if lane.state == State::Done {
            continue;
        }
        let place = lane.slot(address.base).wrapping_add(address.offset);
        let mut bytes = [0; 16];
        let outcome = match stored.and_then(|rows| rows.get(at)) {
            Some(row) => {
                for (bytes, element) in bytes.chunks_mut(2).zip(row) {
                    bytes.copy_from_slice(&element.to_le_bytes());
                }
                reach.store(address.space, place, &bytes)
            }
            None => reach.load(address.space, place, &mut bytes),
        };
        outcome.map_err(|Trouble { kind, text }| {
            let text = format!("a row of 16 bytes at {place:#x}\n{text}");
            lane.fault(launch, block, Trouble { kind, text })
        })?;
        for (element, bytes) in row.iter_mut().zip(bytes.chunks(2)) {
            *element = u16::from_le_bytes([bytes[0], bytes[1]]);
        }
    }
    Ok(found)
}

/// The registers of a lane for these rows, one for each matrix.
fn fragments(rows: &[Row], lane: usize, is_transposed: bool) -> Vec<u64> {
    let element = |matrix: &[Row], at: usize| {
        let (row, column) = place(lane, 0, at, 2, 8);
        u64::from(if is_transposed {
            matrix[column][row]
        } else {
            matrix[row][column]
        })
    };
    rows.chunks(8)
        .map(|matrix| element(matrix, 0) | (element(matrix, 1) << 16))
        .collect()
}

/// The rows of `count` matrices, from each lane's registers.
fn rows_of(lanes: &[Vec<u64>], count: usize, is_transposed: bool) -> Vec<Row> {
    let mut rows = vec![[0; 8]; 8 * count];
    for (lane, registers) in lanes.iter().enumerate() {
        for (matrix, register) in registers.iter().enumerate() {
            for at in 0..2 {
                let (row, column) = place(lane, 0, at, 2, 8);
                let (row, column) = if is_transposed {
                    (column, row)
                } else {
                    (row, column)
                };
                rows[8 * matrix + row][column] = (register >> (16 * at)) as u16;
            }
        }
    }
    rows
}

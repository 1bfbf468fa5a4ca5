//! Sorts, Fourier transforms, linear algebra and random bits, from their definitions.

use std::cmp::Ordering;

use callbox::program::{
    ComputationId, FftKind, Program, RandomAlgorithm, Transposition, TriangularSolve,
};
use callbox::{ArrayShape, ElementType, Shape};
use num_complex::Complex;

use super::array::{Array, Tolerance, indices, number};
use super::elements::{Element, total_key};
use super::{Value, run};

type C = Complex<f64>;

/// Sorts each row by insertion: an element moves before those that it comes before.
pub(super) fn sort(
    program: &Program,
    operands: &[Value],
    dimension: usize,
    computation: ComputationId,
) -> Vec<Value> {
    let arrays: Vec<&Array> = operands.iter().map(Value::array).collect();
    let sizes = arrays[0].shape.dimensions();
    let scalar = |x: &Array, i: usize| {
        let shape = ArrayShape::scalar(x.shape.element_type());
        Value::Array(Array::new(shape, x.raw(i).to_vec()))
    };
    let is_before = |i: usize, j: usize| {
        let pairs = arrays.iter().flat_map(|x| [scalar(x, i), scalar(x, j)]);
        let arguments: Vec<Value> = pairs.collect();
        run(program, computation, &arguments).array().bytes[0] != 0
    };
    let mut results: Vec<Array> = arrays.iter().map(|&x| x.clone()).collect();
    let mut first_of_rows = sizes.to_vec();
    first_of_rows[dimension] = first_of_rows[dimension].min(1);
    for mut index in indices(&first_of_rows) {
        let mut sorted: Vec<usize> = Vec::new();
        for i in 0..sizes[dimension] {
            index[dimension] = i;
            let element = number(sizes, &index);
            let place = sorted.iter().position(|&other| is_before(element, other));
            sorted.insert(place.unwrap_or(sorted.len()), element);
        }
        for (i, &from) in sorted.iter().enumerate() {
            index[dimension] = i;
            let to = number(sizes, &index);
            for (result, x) in results.iter_mut().zip(&arrays) {
                let width = x.raw(from).len();
                result.bytes[to * width..(to + 1) * width].copy_from_slice(x.raw(from));
            }
        }
    }
    results.into_iter().map(Value::Array).collect()
}

/// Takes the best element of each row that is left, `k` times.
pub(super) fn top_k(shape: &Shape, x: &Array, k: usize, largest: bool) -> Vec<Value> {
    let t = x.shape.element_type();
    let key = |i: usize| match x.element(i) {
        Element::Integer(x) => x,
        _ => total_key(t, x.raw(i)),
    };
    let &length = x.shape.dimensions().last().unwrap();
    let (mut values, mut numbers) = (Vec::new(), Vec::new());
    for row in 0..x.shape.element_count().checked_div(length).unwrap_or(0) {
        let mut left: Vec<usize> = (0..length).collect();
        for _ in 0..k {
            let mut best = 0;
            for (place, &i) in left.iter().enumerate() {
                let order = key(row * length + i).cmp(&key(row * length + left[best]));
                if order
                    == if largest {
                        Ordering::Greater
                    } else {
                        Ordering::Less
                    }
                {
                    best = place;
                }
            }
            let i = left.remove(best);
            values.extend_from_slice(x.raw(row * length + i));
            numbers.extend_from_slice(&(i as i32).to_le_bytes());
        }
    }
    let leaves = shape.leaves().into_iter().zip([values, numbers]);
    leaves
        .map(|(shape, bytes)| Value::Array(Array::new(shape.clone(), bytes)))
        .collect()
}

fn complex(x: Element) -> C {
    match x {
        Element::Integer(x) => C::new(x as f64, 0.0),
        Element::Real(x) => C::new(x, 0.0),
        Element::Complex(x) => x,
    }
}

/// Encodes numbers. Those with a distance that is not small are not compared.
fn encoded(shape: &ArrayShape, values: &[C], distances: &[f64]) -> (Array, Tolerance) {
    let t = shape.element_type();
    let array = Array::compute(shape, |i| {
        if t.is_complex() {
            Element::Complex(values[i])
        } else {
            Element::Real(values[i].re)
        }
    });
    // Near the largest numbers of a type one of two results may be infinite.
    let most = match t {
        ElementType::F16 => 1e3,
        ElementType::F64 | ElementType::C128 => 1e290,
        _ => 1e30,
    };
    let distances = values.iter().zip(distances).map(|(value, &distance)| {
        let is_plain = value.norm() < most && distance < most;
        // Squares of small parts of complex numbers underflow.
        is_plain.then_some(distance.max(1e-100))
    });
    (array, Tolerance::Distance(distances.collect()))
}

/// Sums over all elements in time, or in frequency, of the last dimensions.
pub(super) fn fft(
    shape: &ArrayShape,
    x: &Array,
    kind: FftKind,
    length: &[usize],
) -> (Array, Tolerance) {
    let rank = shape.rank();
    let first = rank - length.len();
    let is_inverse = matches!(kind, FftKind::Inverse | FftKind::RealInverse);
    let from = x.shape.dimensions();
    let count: usize = length.iter().product();
    let (mut values, mut distances) = (Vec::new(), Vec::new());
    for to in indices(shape.dimensions()) {
        let (mut sum, mut total) = (C::new(0.0, 0.0), 0.0);
        for term in indices(length) {
            let mut index = [&to[..first], &term].concat();
            // The second half of the spectrum of real numbers is the conjugate of the first half.
            let is_mirrored = index.last().zip(from.last()).is_some_and(|(i, n)| i >= n);
            if is_mirrored {
                for (i, &n) in index[first..].iter_mut().zip(length) {
                    *i = (n - *i) % n;
                }
            }
            let value = complex(x.element(x.number(&index)));
            let value = if is_mirrored { value.conj() } else { value };
            let turns = term.iter().zip(&to[first..]).zip(length);
            let turns: f64 = turns
                .map(|((&i, &k), &n)| ((i * k) % n) as f64 / n as f64)
                .sum();
            let angle = std::f64::consts::TAU * if is_inverse { turns } else { -turns };
            sum += value * C::from_polar(1.0, angle);
            total += value.norm();
        }
        if is_inverse {
            sum /= count as f64;
        }
        values.push(sum);
        distances.push(total * count as f64 * 1e-13);
    }
    encoded(shape, &values, &distances)
}

/// Factors each matrix row by row. Matrices that are almost not positive definite are not compared.
pub(super) fn cholesky(shape: &ArrayShape, a: &Array, lower: bool) -> (Array, Tolerance) {
    let n = *shape.dimensions().last().unwrap();
    let mut values = vec![C::new(0.0, 0.0); shape.element_count()];
    let mut distances = vec![0.0; shape.element_count()];
    for matrix in 0..shape.element_count().checked_div(n * n).unwrap_or(0) {
        let first = matrix * n * n;
        // The factor of the upper triangle is the adjoint of that of the lower one.
        let given = |i: usize, j: usize| {
            if lower {
                complex(a.element(first + i * n + j))
            } else {
                complex(a.element(first + j * n + i)).conj()
            }
        };
        let mut factor = vec![vec![C::new(0.0, 0.0); n]; n];
        // The least share that is left of an element of the diagonal.
        let mut certainty = 1.0_f64;
        for i in 0..n {
            for j in 0..=i {
                let known: C = (0..j).map(|k| factor[i][k] * factor[j][k].conj()).sum();
                factor[i][j] = if i == j {
                    let square = given(i, i).re - known.re;
                    let share = square / given(i, i).re.abs();
                    certainty = if share.is_nan() {
                        f64::NEG_INFINITY
                    } else {
                        certainty.min(share)
                    };
                    C::new(square.sqrt(), 0.0)
                } else {
                    (given(i, j) - known) / factor[j][j].re
                };
            }
        }
        let largest = factor.iter().flatten().map(|x| x.norm());
        let largest = largest.fold(0.0, f64::max);
        let is_certain = certainty > 1e-4 && largest.is_finite();
        let distance = if is_certain {
            largest * 1e-7
        } else {
            f64::INFINITY
        };
        for (i, row) in factor.iter().enumerate() {
            for (j, &value) in row.iter().enumerate().take(i + 1) {
                let (at, value) = if lower {
                    (first + i * n + j, value)
                } else {
                    (first + j * n + i, value.conj())
                };
                (values[at], distances[at]) = (value, distance);
            }
        }
    }
    encoded(shape, &values, &distances)
}

/// A quotient whose intermediate results do not overflow.
fn quotient(x: C, y: C) -> C {
    let size = y.re.abs().max(y.im.abs());
    let y = y / size;
    let inverse = y.conj() / y.norm_sqr();
    x * inverse / size
}

/// Solves each system unknown by unknown, and takes each out of the other equations.
pub(super) fn triangular_solve(
    shape: &ArrayShape,
    (a, b): (&Array, &Array),
    options: &TriangularSolve,
) -> (Array, Tolerance) {
    let n = *a.shape.dimensions().last().unwrap();
    let &[.., rows, columns] = shape.dimensions() else {
        panic!("{shape} holds no matrices")
    };
    let mut values: Vec<C> = (0..shape.element_count())
        .map(|i| complex(b.element(i)))
        .collect();
    let mut distances: Vec<f64> = values.iter().map(|x| x.norm()).collect();
    for matrix in 0..shape
        .element_count()
        .checked_div(rows * columns)
        .unwrap_or(0)
    {
        let entry = |i: usize, j: usize| {
            let is_read = if options.lower { i >= j } else { i <= j };
            match is_read {
                _ if i == j && options.unit_diagonal => C::new(1.0, 0.0),
                false => C::new(0.0, 0.0),
                true => complex(a.element(matrix * n * n + i * n + j)),
            }
        };
        let operator = |i: usize, j: usize| match options.transpose {
            Transposition::None => entry(i, j),
            Transposition::Transpose => entry(j, i),
            Transposition::Adjoint => entry(j, i).conj(),
        };
        // The coefficient of unknown `k` in equation `i`.
        let coefficient = |i: usize, k: usize| {
            if options.left_side {
                operator(i, k)
            } else {
                operator(k, i)
            }
        };
        let from_first =
            options.lower == ((options.transpose == Transposition::None) == options.left_side);
        for system in 0..if options.left_side { columns } else { rows } {
            let at = |i: usize| {
                let (row, column) = if options.left_side {
                    (i, system)
                } else {
                    (system, i)
                };
                matrix * rows * columns + row * columns + column
            };
            for step in 0..n {
                let k = if from_first { step } else { n - 1 - step };
                values[at(k)] = quotient(values[at(k)], coefficient(k, k));
                let divisor = coefficient(k, k).norm();
                // Quotients of infinity are not compared.
                distances[at(k)] /= if divisor.is_finite() { divisor } else { 0.0 };
                for i in (0..n).filter(|&i| if from_first { i > k } else { i < k }) {
                    let (x, y) = (values[at(k)], distances[at(k)]);
                    values[at(i)] -= coefficient(i, k) * x;
                    distances[at(i)] += coefficient(i, k).norm() * y;
                }
            }
        }
    }
    let distances: Vec<f64> = distances.iter().map(|size| size * 1e-12).collect();
    encoded(shape, &values, &distances)
}

/// Random bits by the papers on Random123 (Salmon and others, 2011), in XLA's order.
pub(super) fn random_bits(shape: &Shape, state: &Array, algorithm: RandomAlgorithm) -> Vec<Value> {
    let leaves = shape.leaves();
    let (dimensions, t) = (leaves[1].dimensions(), leaves[1].element_type());
    let words = (0..state.shape.element_count()).map(|i| state.integer(i) as u64);
    let mut words: Vec<u64> = words.collect();
    let is_wide = t.byte_width() == 8;
    let numbers = match algorithm {
        RandomAlgorithm::ThreeFry => three_fry_array(&mut words, dimensions, is_wide),
        RandomAlgorithm::Default | RandomAlgorithm::Philox => {
            philox_array(&mut words, leaves[1].element_count(), is_wide)
        }
    };
    let width = t.byte_width();
    let state = words.iter().flat_map(|word| word.to_le_bytes());
    let bits = numbers
        .iter()
        .flat_map(|x| x.to_le_bytes()[..width].to_vec());
    let leaves = leaves.into_iter().zip([state.collect(), bits.collect()]);
    leaves
        .map(|(shape, bytes): (&ArrayShape, Vec<u8>)| {
            Value::Array(Array::new(shape.clone(), bytes))
        })
        .collect()
}

/// XLA gives each pair of numbers of 32 bits a counter, and each number of 64 bits. Pairs lie along
/// the first dimension of even size, or else along the largest one, whose last number may be left
/// out.
fn three_fry_array(words: &mut [u64], dimensions: &[usize], is_wide: bool) -> Vec<u64> {
    let (key, first) = (words[0], words[1]);
    let block = |number: usize| three_fry(key, first.wrapping_add(number as u64));
    let join = |[low, high]: [u32; 2]| u64::from(high) << 32 | u64::from(low);
    let sizes = if dimensions.is_empty() {
        vec![1]
    } else {
        dimensions.to_vec()
    };
    let count: usize = sizes.iter().product();
    if is_wide {
        words[1] = first.wrapping_add(count as u64);
        return (0..count).map(|i| join(block(i))).collect();
    }
    let most = *sizes.iter().max().unwrap();
    let even = sizes.iter().position(|size| size % 2 == 0);
    let split = even.unwrap_or_else(|| sizes.iter().position(|&size| size == most).unwrap());
    let mut halved = sizes.clone();
    halved[split] = sizes[split].div_ceil(2);
    words[1] = first.wrapping_add(halved.iter().product::<usize>() as u64);
    let element = |mut index: Vec<usize>| {
        let which = index[split] % 2;
        index[split] /= 2;
        block(number(&halved, &index))[which].into()
    };
    indices(&sizes).into_iter().map(element).collect()
}

/// Threefry-2x32 with 20 rounds.
fn three_fry(key: u64, counter: u64) -> [u32; 2] {
    let (k0, k1) = (key as u32, (key >> 32) as u32);
    let keys = [k0, k1, 0x1bd1_1bda ^ k0 ^ k1];
    let (mut x, mut y) = (counter as u32, (counter >> 32) as u32);
    for round in 0..=20 {
        if round % 4 == 0 {
            let s = round / 4;
            x = x.wrapping_add(keys[s % 3]);
            y = y.wrapping_add(keys[(s + 1) % 3]).wrapping_add(s as u32);
        }
        if round < 20 {
            x = x.wrapping_add(y);
            y = y.rotate_left([13, 15, 26, 6, 17, 29, 16, 24][round % 8]) ^ x;
        }
    }
    [x, y]
}

/// Each counter of 128 bits gives four numbers of 32 bits, or two of 64. A state without the high
/// half of the counter takes the key for it.
fn philox_array(words: &mut [u64], count: usize, is_wide: bool) -> Vec<u64> {
    let key = words[0];
    let high = words.get(2).copied().unwrap_or(key);
    let mut counter = u128::from(high) << 64 | u128::from(words[1]);
    let mut numbers = Vec::new();
    while numbers.len() < count {
        let block = philox(key, counter);
        counter = counter.wrapping_add(1);
        if is_wide {
            let pairs = block.chunks(2).map(|pair| pair[1] << 32 | pair[0]);
            numbers.extend(pairs);
        } else {
            numbers.extend(block);
        }
    }
    numbers.truncate(count);
    words[1] = counter as u64;
    if let Some(word) = words.get_mut(2) {
        *word = (counter >> 64) as u64;
    }
    numbers
}

/// Philox-4x32 with 10 rounds.
fn philox(key: u64, counter: u128) -> [u64; 4] {
    const LOW: u64 = 0xffff_ffff;
    let (mut k0, mut k1) = (key & LOW, key >> 32);
    let mut x: [u64; 4] = std::array::from_fn(|i| (counter >> (32 * i)) as u64 & LOW);
    for _ in 0..10 {
        let (a, b) = (0xd251_1f53 * x[0], 0xcd9e_8d57 * x[2]);
        x = [b >> 32 ^ x[1] ^ k0, b & LOW, a >> 32 ^ x[3] ^ k1, a & LOW];
        k0 = (k0 + 0x9e37_79b9) & LOW;
        k1 = (k1 + 0xbb67_ae85) & LOW;
    }
    x
}

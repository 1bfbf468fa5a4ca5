//! The sum, independent of the FFI. Benchmarks run the same source natively as their baseline.

/// The number of elements that an iteration of the inner loop adds. An iteration costs more in
/// WebAssembly than natively, because the host's deadline is checked in each.
const LANES: usize = 32;

/// The minimum length of `b` that is used in place. A shorter one is first repeated in a buffer.
const SHORT: usize = 4 * LANES;

/// Writes `b[i % b.len()] + c[i]` to each `a[i]`, up to the shorter of `a` and `c`. Writes nothing
/// if `b` is empty.
pub fn broadcast_add(b: &[f32], c: &[f32], a: &mut [f32]) {
    if b.is_empty() {
        return;
    }
    if b.len() >= SHORT || b.len() >= c.len() {
        return add_periods(b, c, a);
    }
    let mut repeated = [0.0; 2 * SHORT];
    let whole = repeated.len() / b.len() * b.len();
    repeated[..b.len()].copy_from_slice(b);
    let mut filled = b.len();
    while filled < whole {
        let more = filled.min(whole - filled);
        repeated.copy_within(..more, filled);
        filled += more;
    }
    add_periods(&repeated[..whole], c, a);
}

/// Processes `a` and `c` one period of `b` at a time, because `i % b.len()` would cost more than
/// the sum.
fn add_periods(b: &[f32], c: &[f32], a: &mut [f32]) {
    for (a, c) in a.chunks_mut(b.len()).zip(c.chunks(b.len())) {
        add(b, c, a);
    }
}

#[inline]
fn add(b: &[f32], c: &[f32], a: &mut [f32]) {
    let length = a.len().min(c.len());
    let (b, b_rest) = b[..length].as_chunks::<LANES>();
    let (c, c_rest) = c[..length].as_chunks::<LANES>();
    let (a, a_rest) = a[..length].as_chunks_mut::<LANES>();
    for (a, (b, c)) in a.iter_mut().zip(b.iter().zip(c)) {
        for lane in 0..LANES {
            a[lane] = b[lane] + c[lane];
        }
    }
    for (a, (b, c)) in a_rest.iter_mut().zip(b_rest.iter().zip(c_rest)) {
        *a = b + c;
    }
}

#[cfg(test)]
mod tests {
    /// Lengths around those at which the kernel takes another path.
    #[test]
    fn all_lengths_are_the_definition() {
        for b_length in (1..40).chain([63, 64, 65, 127, 128, 129, 200]) {
            for length in [0, 1, 31, 32, 33, 127, 128, 129, 256, 500] {
                let b: Vec<f32> = (0..b_length).map(|i| i as f32).collect();
                let c: Vec<f32> = (0..length).map(|i| 1000.0 * i as f32).collect();
                let mut a = vec![-1.0; length];
                super::broadcast_add(&b, &c, &mut a);
                let expected: Vec<f32> = (0..length).map(|i| b[i % b_length] + c[i]).collect();
                assert_eq!(a, expected, "{b_length} {length}");
            }
        }
    }
}

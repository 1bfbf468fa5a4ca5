//! `y = n * x` in Zig, from wit/callbox-ffi.wit alone. README.md has the commands.

// The records of the call frame as far as they are used here, with the offsets of the contract.

/// A `list<T>`: an offset into memory, and a count.
fn List(comptime T: type) type {
    return extern struct {
        data: [*]T,
        count: u32,

        fn items(list: @This()) []T {
            return list.data[0..list.count];
        }
    };
}

const Buffer = extern struct {
    /// The elements, aligned to 64 bytes.
    data: List(u8),
    dimensions: List(i64),
    minor_to_major: List(i64),
    element_type: u8,
    read_only: u8,
    alias: [2]u32,

    fn floats(buffer: Buffer) []align(64) f32 {
        const elements: [*]align(64) f32 = @ptrCast(@alignCast(buffer.data.data));
        return elements[0 .. buffer.data.count / @sizeOf(f32)];
    }
};

const Attribute = extern struct {
    name: List(u8),
    value: List(u8),
    dimensions: List(i64),
    kind: u8,
    element_type: u8,
};

const Frame = extern struct {
    size: u32,
    stage: u32,
    operands: List(Buffer),
    results: List(Buffer),
    attributes: List(Attribute),
};

comptime {
    if (@sizeOf(Buffer) != 36 or @sizeOf(Attribute) != 28) @compileError("not the contract's records");
}

const invalid_argument = 3;

extern "callbox:ffi/api@1.0.0" fn @"set-failure"(code: u32, message: [*]const u8, size: usize, recoverable: u32) void;

fn fail(code: u32, message: []const u8) u32 {
    @"set-failure"(code, message.ptr, message.len, 0);
    return code;
}

/// The host checks types and dimensions by the declaration in targets.json. A module cannot rely on
/// it: another host may not.
export fn scale(frame: *const Frame) u32 {
    if (frame.operands.count != 1 or frame.results.count != 1 or frame.attributes.count != 1)
        return fail(invalid_argument, "expected an operand, a result and an attribute");
    const x = frame.operands.data[0].floats();
    const y = frame.results.data[0].floats();
    const value = frame.attributes.data[0].value;
    if (x.len != y.len or value.count != @sizeOf(f32))
        return fail(invalid_argument, "expected a result like the operand, and n of f32");
    const n: f32 = @bitCast(value.data[0..4].*);
    if (n < 0) return fail(invalid_argument, "expected n of at least 0");
    // The compiler makes no vectors of its own.
    const Lanes = @Vector(4, f32);
    const factor: Lanes = @splat(n);
    var i: usize = 0;
    while (i + 4 <= x.len) : (i += 4) y[i..][0..4].* = factor * @as(Lanes, x[i..][0..4].*);
    while (i < x.len) : (i += 1) y[i] = n * x[i];
    return 0;
}

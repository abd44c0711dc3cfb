//! What is wrong on purpose must be reported, and as what it is.

mod support;

use lithos_emulator::{AccessKind, Binding, EmulatorError, Launch, Library, Memory, Report};
use support::{HEAD, emulator, floats, values};

/// Compiles a text without running it.
fn library(text: &str) -> Option<Library> {
    Some(emulator()?.prepare(&format!("{HEAD}{text}")).unwrap())
}

/// Runs kernel `f(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], ...)` with this body over 64
/// floats in one threadgroup of 64.
fn run(body: &str) -> Option<Result<Report, EmulatorError>> {
    let library = library(&format!(
        "kernel void f(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],\n\
         uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],\n\
         uint i [[thread_index_in_threadgroup]]) {{\n{body}\n}}\n"
    ))?;
    let mut memory = Memory::new();
    let x = floats(&mut memory, "x", &values(64, 1));
    let y = memory.add_unwritten("y", 256).unwrap();
    Some(library.run(&Launch::new("f", 1, 64).bind(0, x).bind(1, y), &mut memory))
}

fn error(body: &str) -> Option<EmulatorError> {
    Some(run(body)?.unwrap_err())
}

#[test]
fn a_removed_threadgroup_barrier_is_a_race() {
    let body = |barrier: &str| {
        format!("threadgroup float t[64];\nt[i] = x[i];\n{barrier}\ny[i] = t[63 - i];")
    };
    let Some(right) = run(&body("threadgroup_barrier(mem_flags::mem_threadgroup);")) else {
        return;
    };
    right.unwrap();
    // Depending on who comes first, the missing order shows as a race or as a read of nothing.
    let wrong = error(&body("")).unwrap();
    match &wrong {
        EmulatorError::Race { access, .. } | EmulatorError::Unwritten { access, .. } => {
            assert_eq!(access.memory, "threadgroup t", "{wrong}");
        }
        _ => panic!("{wrong}"),
    }
    let reused = error("threadgroup float t[64];\nt[i] = x[i];\nthreadgroup_barrier(mem_flags::mem_threadgroup);\n\
        float v = t[63 - i];\nt[i] = v;\nthreadgroup_barrier(mem_flags::mem_threadgroup);\ny[i] = t[i];")
    .unwrap();
    assert!(matches!(reused, EmulatorError::Race { .. }), "{reused}");
}

#[test]
fn lanes_of_a_simdgroup_race_too() {
    let body = |between: &str| {
        format!("threadgroup float t[64];\nt[i] = x[i];\n{between}\ny[i] = t[i ^ 1];")
    };
    let Some(right) = run(&body("simdgroup_barrier(mem_flags::mem_threadgroup);")) else { return };
    right.unwrap();
    for between in
        ["", "simdgroup_barrier(mem_flags::mem_none);", "simdgroup_barrier(mem_flags::mem_device);"]
    {
        let wrong = error(&body(between)).unwrap();
        assert!(
            matches!(wrong, EmulatorError::Race { .. } | EmulatorError::Unwritten { .. }),
            "{wrong}"
        );
    }
}

#[test]
fn two_writers_race() {
    let Some(error) = error("y[i / 2] = x[i];") else { return };
    let EmulatorError::Race { access, earlier_kind, .. } = &error else { panic!("{error}") };
    assert_eq!((access.kind, *earlier_kind), (AccessKind::Write, AccessKind::Write));
}

#[test]
fn bytes_of_a_word_do_not_race() {
    let Some(result) =
        run("((device uchar*)y)[i] = 1;\n((device half*)y)[64 + i / 2 * 2 + i % 2] = half(1.0f);")
    else {
        return;
    };
    result.unwrap();
}

#[test]
fn out_of_bounds_by_one_is_reported() {
    let Some(above) = error("y[i + 1] = x[i];") else { return };
    let EmulatorError::OutOfBounds { access, length, .. } = &above else { panic!("{above}") };
    assert_eq!((access.memory.as_str(), access.offset, *length), ("y", 256, 256));
    assert_eq!((access.place.simdgroup, access.place.lane), (1, Some(31)));
    let below = error("y[i] = *(x + i - 1);").unwrap();
    assert!(below.to_string().contains("read of 4 bytes at byte -4 of `x`"), "{below}");
    let wide = error("y[i] = ((device const float4*)(x + 64))[-1 + int(i / 63)].x;").unwrap();
    assert!(wide.to_string().contains("16 bytes at byte 256 of `x`"), "{wide}");
    let shared = error("threadgroup float t[64];\nt[i + 1] = 0.0f;\ny[i] = x[i];").unwrap();
    assert!(shared.to_string().contains("byte 256 of `threadgroup t`"), "{shared}");
    let far = error("y[i + 1000000000] = x[i];").unwrap();
    assert!(matches!(far, EmulatorError::OutOfBounds { .. }), "{far}");
}

#[test]
fn the_line_is_named_where_a_tool_can_tell_it() {
    let Some(error) = error("float v = x[i];\n\ny[i + 1] = v;") else { return };
    let EmulatorError::OutOfBounds { access, .. } = &error else { panic!("{error}") };
    if let Some(line) = access.place.line {
        assert_eq!(line, 3 + 6, "{error}");
    }
}

#[test]
fn unwritten_memory_is_not_read() {
    let Some(device) = error("y[i] = x[i] + y[i];") else { return };
    assert!(matches!(device, EmulatorError::Unwritten { .. }), "{device}");
    let shared = error(
        "threadgroup float t[64];\nif (i < 63) t[i] = x[i];\n\
        threadgroup_barrier(mem_flags::mem_threadgroup);\ny[i] = t[i];",
    )
    .unwrap();
    let EmulatorError::Unwritten { access, first } = &shared else { panic!("{shared}") };
    assert_eq!((access.memory.as_str(), *first), ("threadgroup t", 252));
    // Half of a vector was written.
    let half = error("threadgroup float t[64];\nif (i % 4 < 2) t[i] = x[i];\n\
        threadgroup_barrier(mem_flags::mem_threadgroup);\ny[i] = ((threadgroup float4*)t)[i / 4].x;")
    .unwrap();
    let EmulatorError::Unwritten { access, first } = &half else { panic!("{half}") };
    assert_eq!((access.size, first - access.offset), (16, 8));
}

#[test]
fn misaligned_vectors_are_reported() {
    let Some(error) = error("y[i] = ((device const float4*)(x + 1))[i / 8].x;") else { return };
    let EmulatorError::Misaligned { alignment, .. } = &error else { panic!("{error}") };
    assert_eq!(*alignment, 16);
    // Packed vectors ask for no more than their elements do.
    run("y[i] = ((device const packed_float4*)(x + 1))[i / 8].x;").unwrap().unwrap();
}

#[test]
fn constant_memory_is_not_written() {
    let Some(error) = error("((device float*)x)[i] = 1.0f;") else { return };
    assert!(matches!(error, EmulatorError::ReadOnly { .. }), "{error}");
}

#[test]
fn divergent_operations_are_reported() {
    let Some(skipped) = error("if (lane < 20) y[i] = simd_sum(x[i]);") else { return };
    let message = skipped.to_string();
    assert!(matches!(skipped, EmulatorError::Divergent { .. }), "{message}");
    assert!(message.contains("simd_sum"), "{message}");
    let different =
        error("if (lane < 20)\ny[i] = simd_sum(x[i]);\nelse\ny[i] = simd_sum(2 * x[i]);").unwrap();
    assert!(matches!(different, EmulatorError::Divergent { .. }), "{different}");
    let mixed =
        error("if (lane == 3) threadgroup_barrier(mem_flags::mem_none);\ny[i] = simd_max(x[i]);")
            .unwrap();
    assert!(matches!(mixed, EmulatorError::Divergent { .. }), "{mixed}");
    // Uniform within each simdgroup.
    run("if (simdgroup == 1) y[i] = simd_sum(x[i]);").unwrap().unwrap();
}

#[test]
fn a_barrier_must_be_reached_by_all() {
    for body in [
        "if (lane < 20) threadgroup_barrier(mem_flags::mem_none);\ny[i] = x[i];",
        "if (simdgroup == 0) threadgroup_barrier(mem_flags::mem_none);\ny[i] = x[i];",
        "if (simdgroup == 0)\nthreadgroup_barrier(mem_flags::mem_none);\nelse\nthreadgroup_barrier(mem_flags::mem_none);",
    ] {
        let Some(error) = error(body) else { return };
        assert!(matches!(error, EmulatorError::BarrierNotReached { .. }), "{error}");
    }
}

#[test]
fn threadgroup_memory_is_limited() {
    let Some(result) = run("threadgroup float t[8192];\nt[i] = x[i];\ny[i] = t[i];") else {
        return;
    };
    assert_eq!(result.unwrap().threadgroup_memory, 32768);
    let error = error("threadgroup float t[8192];\nthreadgroup uchar more;\nt[i] = x[i];\nif (i == 0) more = 1;\ny[i] = t[i];").unwrap();
    let EmulatorError::TooMuchThreadgroupMemory { bytes, .. } = error else { panic!("{error}") };
    assert_eq!(bytes, 32769);
}

const COPY: &str = "
kernel void copy(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                 uint i [[thread_position_in_grid]]) { y[i] = x[i + 32]; }
";

#[test]
fn bindings_that_are_not_what_was_meant_are_reported() {
    let Some(library) = library(COPY) else { return };
    let mut memory = Memory::new();
    let x = floats(&mut memory, "x", &values(96, 1));
    let y = memory.add_unwritten("y", 256).unwrap();
    library.run(&Launch::new("copy", 1, 64).bind(0, x).bind(1, y), &mut memory).unwrap();
    let part = |offset, length| Binding { index: 0, buffer: x, offset, length };
    let mut run = |launch: Launch<'_>| library.run(&launch, &mut memory);
    let swapped = run(Launch::new("copy", 1, 64).bind(0, y).bind(1, x)).unwrap_err();
    assert!(matches!(swapped, EmulatorError::OutOfBounds { .. }), "{swapped}");
    for binding in [part(4, None), part(0, Some(380))] {
        let mut launch = Launch::new("copy", 1, 64).bind(1, y);
        launch.bindings.push(binding);
        let shifted = run(launch).unwrap_err();
        assert!(matches!(shifted, EmulatorError::OutOfBounds { .. }), "{shifted}");
    }
    let missing = run(Launch::new("copy", 1, 64).bind(1, x)).unwrap_err();
    assert!(missing.to_string().contains("parameter `x` at index 0"), "{missing}");
    for binding in [part(2, None), part(388, None), part(0, Some(385))] {
        let mut launch = Launch::new("copy", 1, 64).bind(1, y);
        launch.bindings.push(binding);
        assert!(matches!(run(launch), Err(EmulatorError::Launch { .. })));
    }
    let unknown = run(Launch::new("paste", 1, 64)).unwrap_err();
    assert!(unknown.to_string().contains("it has copy"), "{unknown}");
    for threads in [0, 1025] {
        let launch = Launch::new("copy", 1, threads).bind(0, x).bind(1, y);
        assert!(matches!(run(launch), Err(EmulatorError::Launch { .. })));
    }
}

#[test]
fn bindings_are_limited() {
    let parameters: Vec<String> =
        (0..31).map(|i| format!("device float* b{i} [[buffer({i})]]")).collect();
    let Some(library) = library(&format!("kernel void many({}) {{}}", parameters.join(", ")))
    else {
        return;
    };
    let mut memory = Memory::new();
    let x = memory.add_zeroed("x", 4).unwrap();
    let launch = (0..31).fold(Launch::new("many", 1, 32), |launch, i| launch.bind(i, x));
    let error = library.run(&launch, &mut memory).unwrap_err();
    assert!(matches!(error, EmulatorError::TooManyBindings { count: 31, .. }), "{error}");
}

#[test]
fn compile_errors_carry_the_log() {
    let Some(emulator) = emulator() else { return };
    let error = emulator.compile(&format!("{HEAD}kernel void f() {{ undefined_name(); }}")).err();
    let message = error.unwrap().to_string();
    assert!(message.contains("text.metal:4"), "{message}");
    assert!(message.contains("undefined_name"), "{message}");
}

#[test]
fn address_spaces_are_kept_apart() {
    let Some(emulator) = emulator() else { return };
    let text = |call: &str| {
        format!(
            "{HEAD}struct Pair {{ float4 a; uint b; }};\n\
             static float first(device const float* p) {{ return p[0]; }}\n\
             static float own(thread const float* p) {{ return p[0]; }}\n\
             kernel void f(device float* x [[buffer(0)]], constant Pair& pair [[buffer(1)]],\n\
             device atomic_uint* counter [[buffer(2)]]) {{\n\
             threadgroup float t[64];\nfloat local[2] = {{1.0f, 2.0f}};\n\
             Pair copy = pair;\nt[0] = copy.a.x;\nsimdgroup_float8x8 m;\n\
             simdgroup_load(m, t, 8);\nsimdgroup_store(m, x, 8);\n\
             atomic_fetch_add_explicit(counter, 1u, memory_order_relaxed);\nx[0] = {call};\n}}\n"
        )
    };
    for right in ["first(x)", "own(local)", "first((device const float*)(x + 4))", "simd_sum(t[0])"]
    {
        emulator.check_address_spaces(&text(right)).unwrap();
        emulator.check_address_spaces(&text(right)).unwrap();
    }
    for wrong in ["first(t)", "first(local)", "own(x)", "first(&pair.a[0])"] {
        let error = emulator.check_address_spaces(&text(wrong)).unwrap_err();
        assert!(matches!(error, EmulatorError::AddressSpaces { .. }), "{error}");
        assert!(error.to_string().contains("text.metal:17"), "{error}");
    }
}

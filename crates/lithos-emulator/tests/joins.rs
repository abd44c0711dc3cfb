//! Threadgroups that wait for each other inside one launch.

mod support;

use lithos_emulator::{EmulatorError, Launch, Library, Memory};
use support::{HEAD, emulator, floats, integers, values};

/// Two phases with a device-wide join between them: each threadgroup squares its part of `x`, then each adds up all
/// parts in turn. `counter` counts the threadgroups that have arrived and is never reset.
const TWO_PHASES: &str = "
static void join(device atomic_uint* counter, uint target, uint thread_index) {
    threadgroup_barrier(mem_flags::mem_device);
    if (thread_index == 0) {
        atomic_thread_fence(mem_flags::mem_device, memory_order_release, thread_scope_device);
        atomic_fetch_add_explicit(counter, 1u, memory_order_relaxed);
        while (atomic_load_explicit(counter, memory_order_relaxed) < target) {}
        atomic_thread_fence(mem_flags::mem_device, memory_order_acquire, thread_scope_device);
    }
    threadgroup_barrier(mem_flags::mem_device);
}

kernel void two_phases(device const float* x [[buffer(0)]], coherent(device) device float* squares [[buffer(1)]],
                       device float* sums [[buffer(2)]], device atomic_uint* counter [[buffer(3)]],
                       uint thread_index [[thread_index_in_threadgroup]],
                       uint group [[threadgroup_position_in_grid]], uint groups [[threadgroups_per_grid]]) {
    uint i = group * 64 + thread_index;
    squares[i] = x[i] * x[i];
    join(counter, groups, thread_index);
    float sum = 0.0f;
    for (uint k = 0; k < groups; k++) sum += squares[(group + k) % groups * 64 + thread_index];
    sums[i] = sum;
}
";

struct Case {
    memory: Memory,
    launch: Launch<'static>,
    x: Vec<f32>,
    sums: lithos_emulator::BufferId,
}

fn case(seed: u64) -> Case {
    let mut memory = Memory::new();
    let x = values(512, seed);
    let input = floats(&mut memory, "x", &x);
    let squares = memory.add_unwritten("squares", 2048).unwrap();
    let sums = memory.add_unwritten("sums", 2048).unwrap();
    let counter = integers(&mut memory, "counter", &[0]);
    let launch = Launch::new("two_phases", 8, 64)
        .bind(0, input)
        .bind(1, squares)
        .bind(2, sums)
        .bind(3, counter)
        .seed(seed);
    Case { memory, launch, x, sums }
}

fn wanted(x: &[f32]) -> Vec<f32> {
    (0..512)
        .map(|i| {
            let (group, thread) = (i / 64, i % 64);
            (0..8).fold(0.0, |sum, k| {
                let x = x[(group + k) % 8 * 64 + thread];
                sum + x * x
            })
        })
        .collect()
}

fn library(text: &str) -> Option<Library> {
    Some(emulator()?.prepare(&format!("{HEAD}{text}")).unwrap())
}

#[test]
fn a_join_holds_in_any_order() {
    let Some(library) = library(TWO_PHASES) else { return };
    let mut schedules = std::collections::HashSet::new();
    for seed in 0..50 {
        for checked in [false, true] {
            let Case { mut memory, mut launch, x, sums } = case(seed);
            launch.checked = checked;
            let report = library.run(&launch, &mut memory).unwrap();
            assert_eq!(memory.floats(sums).unwrap(), wanted(&x), "seed {seed}");
            if checked {
                schedules.insert(report.schedule);
            }
        }
    }
    assert!(schedules.len() >= 49, "{} different orders", schedules.len());
}

#[test]
fn the_same_seed_gives_the_same_order() {
    let Some(library) = library(TWO_PHASES) else { return };
    let run = |seed| {
        let Case { mut memory, launch, .. } = case(seed);
        library.run(&launch, &mut memory).unwrap()
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7).schedule, run(8).schedule);
}

/// Seeds out of 20 for which the text fails in a checked run, and the first message.
fn failures(text: &str) -> Option<(usize, String)> {
    assert_ne!(text, TWO_PHASES, "nothing was changed");
    let library = library(text)?;
    let mut messages = Vec::new();
    for seed in 0..20 {
        let Case { mut memory, launch, .. } = case(seed);
        match library.run(&launch, &mut memory) {
            Ok(_) => {}
            Err(error @ (EmulatorError::Race { .. } | EmulatorError::Unwritten { .. })) => {
                messages.push(error.to_string());
            }
            Err(error) => panic!("{error}"),
        }
    }
    Some((messages.len(), messages.first().cloned().unwrap_or_default()))
}

#[test]
fn a_removed_join_is_caught() {
    let text = TWO_PHASES.replace("    join(counter, groups, thread_index);\n", "");
    let Some((count, message)) = failures(&text) else { return };
    assert_eq!(count, 20);
    assert!(message.contains("`squares`"), "{message}");
}

#[test]
fn a_removed_barrier_of_a_join_is_caught() {
    let barrier = "    threadgroup_barrier(mem_flags::mem_device);\n";
    let before = TWO_PHASES.replacen(barrier, "", 1);
    let after = {
        let at = TWO_PHASES.rfind(barrier).unwrap();
        format!("{}{}", &TWO_PHASES[..at], &TWO_PHASES[at + barrier.len()..])
    };
    for text in [before, after] {
        let Some((count, _)) = failures(&text) else { return };
        assert_eq!(count, 20);
    }
}

#[test]
fn a_removed_fence_is_caught() {
    for order in ["release", "acquire"] {
        let fence = format!(
            "        atomic_thread_fence(mem_flags::mem_device, memory_order_{order}, thread_scope_device);\n"
        );
        let Some((count, message)) = failures(&TWO_PHASES.replace(&fence, "")) else { return };
        assert_eq!(count, 20, "{order}");
        assert!(message.starts_with("race"), "{message}");
    }
}

#[test]
fn a_barrier_over_other_memory_is_caught() {
    let text = TWO_PHASES.replace(
        "threadgroup_barrier(mem_flags::mem_device)",
        "threadgroup_barrier(mem_flags::mem_threadgroup)",
    );
    let Some((count, _)) = failures(&text) else { return };
    assert_eq!(count, 20);
}

#[test]
fn a_wait_without_end_is_given_up() {
    let Some(library) =
        library(&TWO_PHASES.replace("join(counter, groups", "join(counter, groups + 1"))
    else {
        return;
    };
    for checked in [false, true] {
        let Case { mut memory, mut launch, .. } = case(1);
        launch.checked = checked;
        let error = library.run(&launch, &mut memory).unwrap_err();
        let message = error.to_string();
        assert!(matches!(error, EmulatorError::WaitTimedOut { .. }), "{message}");
        assert!(message.contains("two_phases line 10 (threadgroup"), "{message}");
        assert!(message.contains("which is 8"), "{message}");
    }
}

#[test]
fn threadgroups_that_are_not_resident_are_not_waited_for() {
    let Some(library) = library(TWO_PHASES) else { return };
    let Case { mut memory, mut launch, .. } = case(1);
    launch.resident_threadgroups = Some(7);
    let message = library.run(&launch, &mut memory).unwrap_err().to_string();
    assert!(message.contains("1 threadgroups have not begun"), "{message}");
}

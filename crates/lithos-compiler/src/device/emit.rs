//! The text of kernels: calls of task bodies, joins between phases, loops over equal layers.

use std::fmt::Write as _;

use super::records::Call;

/// The calls of one phase.
pub(crate) type PhaseCalls = Vec<Call>;

/// Longest run of phases that a loop repeats.
const LONGEST_PERIOD: usize = 48;

/// The body of a kernel that runs `phases`, and its records, one after the other.
///
/// Records are addressed relative to the kernel's own, so that kernels of equal structure have equal text. `scopes` says for each
/// phase what part of the model it belongs to.
pub(crate) fn body(phases: &[PhaseCalls], scopes: &[String]) -> (String, Vec<u32>) {
    let mut text = String::new();
    let mut words = Vec::new();
    // A projection waits itself, when it has requested its first weights; experts are chosen by what came before.
    let waits = phases.first().is_some_and(|calls| calls.iter().any(|call| call.tiles == 0));
    // Passes after the end of a loop have no rows. A projection finds that out, too, and its records come sooner without another question.
    if waits || phases.len() > 1 {
        text += "    if (step->rows == 0) return;\n";
    }
    if waits {
        text += "    await_previous();\n";
    }
    let shapes: Vec<Vec<_>> = phases.iter().map(|calls| shape(calls)).collect();
    let mut at = 0;
    while at < phases.len() {
        let (period, repeats) = best_run(&shapes, at);
        if repeats > 1 {
            let stride: usize = words_of(&phases[at..at + period]);
            let _ = writeln!(text, "    for (uint repeat = 0; repeat < {repeats}; ++repeat) {{");
            let mut offset = words.len();
            for phase in at..at + period {
                comment(&mut text, "        ", scopes, phase);
                let last = phase + 1 == phases.len();
                offset = calls(&mut text, "        ", &phases[phase], offset, Some(stride), last);
            }
            // The last repetition may end the kernel: a join there is only idle.
            let _ = writeln!(text, "    }}");
            for phase in &phases[at..at + period * repeats] {
                words.extend(phase.iter().flat_map(|call| call.words.iter().copied()));
            }
            at += period * repeats;
        } else {
            comment(&mut text, "    ", scopes, at);
            let last = at + 1 == phases.len();
            calls(&mut text, "    ", &phases[at], words.len(), None, last);
            words.extend(phases[at].iter().flat_map(|call| call.words.iter().copied()));
            at += 1;
        }
    }
    (text, words)
}

fn comment(text: &mut String, indent: &str, scopes: &[String], phase: usize) {
    if phase == 0 || scopes[phase] != scopes[phase - 1] {
        let _ = writeln!(text, "{indent}// {}", scopes[phase]);
    }
}

/// Writes a phase's calls and, unless it is the last, its join; returns the offset after its records. Equal calls become a loop: bodies
/// are large and part of the kernel, which needs more registers the more of them it has.
fn calls(
    text: &mut String,
    indent: &str,
    phase: &[Call],
    mut offset: usize,
    stride: Option<usize>,
    last: bool,
) -> usize {
    let place_of = |offset: usize| match stride {
        Some(stride) => format!("repeat * {stride} + {offset}"),
        None => offset.to_string(),
    };
    let mut ahead = offset;
    for call in phase {
        if call.beside {
            let (record, place) = (call.record_type, place_of(ahead));
            let _ =
                writeln!(text, "{indent}expect_beside(memory, worker, RECORD({record}, {place}));");
        }
        ahead += call.words.len();
    }
    let equal = |a: &Call, b: &Call| {
        let same = a.function == b.function && a.record_type == b.record_type;
        // Those that go on where the one before ends are one run, and have a call of their own.
        same && (b.goes_on || !a.goes_on)
    };
    for equal in phase.chunk_by(equal) {
        let (call, words) = (&equal[0], equal[0].words.len());
        let mut place = place_of(offset);
        if equal.len() > 1 && equal[1..].iter().all(|call| call.goes_on) {
            let _ = writeln!(
                text,
                "{indent}{}(memory, worker, RECORD({}, {place}), {});",
                call.function.replacen("linear<", "linear_run<", 1),
                call.record_type,
                equal.len()
            );
            offset += words * equal.len();
            continue;
        }
        let mut inner = indent.to_owned();
        if equal.len() > 1 {
            let _ = writeln!(
                text,
                "{indent}#pragma unroll 1\n{indent}for (uint call = 0; call < {}; ++call) {{",
                equal.len()
            );
            place = format!("{place} + call * {words}");
            inner += "    ";
        }
        let _ = writeln!(
            text,
            "{inner}{}(memory, worker, RECORD({}, {place}));",
            call.function, call.record_type
        );
        if equal.len() > 1 {
            let _ = writeln!(text, "{indent}}}");
        }
        offset += words * equal.len();
    }
    let _ = writeln!(text, "{indent}expect_records(worker, records + {});", place_of(offset));
    if !last {
        let _ = writeln!(text, "{indent}join(memory, worker);");
    }
    offset
}

/// Whether a phase multiplies matrices, those of experts too.
pub(crate) fn projects(calls: &[Call]) -> bool {
    calls.iter().any(|call| call.stages)
}

fn words_of(phases: &[PhaseCalls]) -> usize {
    phases.iter().flatten().map(|call| call.words.len()).sum()
}

/// What makes two phases run by the same text.
fn shape(calls: &[Call]) -> Vec<(&str, &str, usize, bool)> {
    calls
        .iter()
        .map(|call| (call.function.as_str(), call.record_type, call.words.len(), call.goes_on))
        .collect()
}

/// The run of equal stretches from `at` on that covers most phases: (phases of a stretch, stretches).
fn best_run<T: PartialEq>(shapes: &[T], at: usize) -> (usize, usize) {
    let mut best = (1, 1);
    for period in 1..=LONGEST_PERIOD.min((shapes.len() - at) / 2) {
        let first = &shapes[at..at + period];
        let repeats = 1 + shapes[at + period..]
            .chunks_exact(period)
            .take_while(|stretch| *stretch == first)
            .count();
        if repeats > 1 && period * repeats > best.0 * best.1 {
            best = (period, repeats);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(function: &str, word: u32) -> PhaseCalls {
        vec![Call {
            function: function.into(),
            record_type: "R",
            words: vec![word, word],
            tiles: 0,
            stages: false,
            goes_on: false,
            beside: false,
        }]
    }

    #[test]
    fn equal_layers_become_a_loop_and_keep_their_records_in_order() {
        let phases: Vec<PhaseCalls> = ["first", "a", "b", "a", "b", "a", "b", "last"]
            .iter()
            .zip(0..)
            .map(|(name, word)| call(name, word))
            .collect();
        let (text, words) = body(&phases, &vec!["part".into(); 8]);
        assert_eq!(words, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7]);
        assert!(text.contains("repeat < 3"), "{text}");
        assert!(text.contains("b(memory, worker, RECORD(R, repeat * 4 + 4));"), "{text}");
        assert!(text.contains("last(memory, worker, RECORD(R, 14));\n"), "{text}");
        assert_eq!(text.matches("join").count(), 3, "one after `first`, two in the loop: {text}");
    }

    #[test]
    fn equal_calls_of_a_phase_share_a_body() {
        let phase = [call("a", 1), call("a", 2), call("b", 3)].concat();
        let (text, words) = body(&[phase], &["part".into()]);
        assert_eq!(words, [1, 1, 2, 2, 3, 3]);
        assert_eq!(text.matches("a(memory").count(), 1, "{text}");
        assert!(text.contains("call < 2"), "{text}");
        assert!(text.contains("a(memory, worker, RECORD(R, 0 + call * 2));"), "{text}");
        assert!(text.contains("b(memory, worker, RECORD(R, 4));"), "{text}");
    }

    #[test]
    fn projections_that_go_on_are_one_call() {
        let mut phase = [call("linear<X>", 1), call("linear<X>", 2), call("linear<Y>", 3)].concat();
        phase[1].goes_on = true;
        let (text, words) = body(&[phase], &["part".into()]);
        assert_eq!(words, [1, 1, 2, 2, 3, 3]);
        assert!(text.contains("linear_run<X>(memory, worker, RECORD(R, 0), 2);"), "{text}");
        assert!(text.contains("linear<Y>(memory, worker, RECORD(R, 4));"), "{text}");
    }

    #[test]
    fn a_matrix_beside_another_is_asked_for_before_it() {
        let mut phase = [call("linear<X>", 1), call("linear_beside<Y>", 2)].concat();
        phase[1].beside = true;
        let (text, _) = body(&[phase], &["part".into()]);
        let place = |what: &str| text.find(what).expect(what);
        let asked = place("expect_beside(memory, worker, RECORD(R, 2));");
        assert!(asked < place("linear<X>") && place("linear<X>") < place("linear_beside<Y>"));
    }

    #[test]
    fn only_projections_begin_before_the_launch_before_ends() {
        let mut matrix = call("m", 9);
        matrix[0].tiles = 40;
        let waits = |phase: PhaseCalls| {
            body(&[phase], &["part".into()]).0.contains("    await_previous();")
        };
        assert!(waits(call("p", 1)));
        assert!(!waits(matrix.clone()));
        assert!(waits([matrix, call("p", 1)].concat()), "what projects nothing reads at once");
    }
}

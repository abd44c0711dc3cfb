//! The table of cases.

use std::process::ExitCode;
use std::time::Instant;

use lithos_engine::largest;

/// Counts and prints cases.
pub struct Report {
    started: Instant,
    passed: usize,
    failed: Vec<String>,
}

impl Report {
    pub fn new() -> Self {
        println!(
            "{:<44} {:>4} {:<6} {:>10} {:>7}  result",
            "case", "rows", "level", "error", "repeats"
        );
        Report { started: Instant::now(), passed: 0, failed: Vec::new() }
    }

    /// One case: prints it, and remembers if it failed.
    pub fn case(
        &mut self,
        name: &str,
        rows: usize,
        level: &str,
        error: f64,
        repeats: usize,
        problem: Option<String>,
    ) {
        let result = problem.as_deref().unwrap_or("ok");
        println!("{name:<44} {rows:>4} {level:<6} {error:>10.2e} {repeats:>7}  {result}");
        match problem {
            None => self.passed += 1,
            Some(problem) => {
                self.failed.push(format!("{name}, {rows} rows, {level}: {problem}"));
            }
        }
    }

    /// Something that could not be begun.
    pub fn broken(&mut self, name: &str, problem: &str) {
        self.case(name, 0, "-", f64::NAN, 0, Some(problem.to_owned()));
    }

    /// Prints the sum.
    pub fn finish(self) -> ExitCode {
        println!(
            "\n{} cases passed, {} failed, {:.0} s",
            self.passed,
            self.failed.len(),
            self.started.elapsed().as_secs_f64()
        );
        for failed in &self.failed {
            println!("FAILED {failed}");
        }
        match self.failed.is_empty() && self.passed > 0 {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        }
    }
}

/// Relative L2 distance; NaN where either is.
pub fn relative_error(found: &[f32], wanted: &[f32]) -> f64 {
    if found.len() != wanted.len() {
        return f64::NAN;
    }
    let square = |x: f64| x * x;
    let error: f64 =
        found.iter().zip(wanted).map(|(a, b)| square(f64::from(*a) - f64::from(*b))).sum();
    let size: f64 = wanted.iter().map(|b| square(f64::from(*b))).sum();
    (error / size).sqrt()
}

/// How many rows choose another token, and the largest lead that a token lost by it, in deviations of a row's logits: near ties
/// may turn, a clear lead may not.
pub fn turned(found: &[f32], wanted: &[f32], vocabulary: usize) -> (usize, f64) {
    let mut turned = (0, 0.0f64);
    for (found, wanted) in found.chunks(vocabulary).zip(wanted.chunks(vocabulary)) {
        let (a, b) = (largest(found), largest(wanted));
        if a != b {
            let mean = wanted.iter().sum::<f32>() / vocabulary as f32;
            let variance = wanted.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>();
            let deviation = (variance / vocabulary as f32).sqrt();
            let lead = (wanted[b.index()] - wanted[a.index()]) / deviation;
            turned = (turned.0 + 1, turned.1.max(f64::from(lead)));
        }
    }
    turned
}

/// Whether two results are the same bits.
pub fn same_bits(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}

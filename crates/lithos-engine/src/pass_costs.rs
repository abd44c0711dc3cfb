//! What passes take, by their rows: measured when a model is opened, as far as a second reaches.

use std::time::{Duration, Instant};

use lithos_compiler::MAX_DECODE_ROWS;
use lithos_model::text::TokenId;

use crate::cost_cache::{self, CostKey};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::options::BackendKind;

/// What measuring may take.
const BUDGET: Duration = Duration::from_millis(900);

/// How often each pass is run at most. The least time counts: what else the machine does only adds to it.
const REPEATS: usize = 5;

/// Rows in the order in which they are measured: where time ends, what was left out lies between what was not.
const ORDER: [usize; MAX_DECODE_ROWS] = [1, 16, 8, 4, 2, 12, 6, 3, 10, 14, 5, 7, 9, 11, 13, 15];

/// Of one row's time, what each further row is assumed to take, where no pass of several rows was seen.
const ASSUMED_SLOPE: f64 = 0.08;

/// Seconds of a decode pass, by its rows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct PassCosts([Option<f64>; MAX_DECODE_ROWS]);

impl PassCosts {
    /// From seconds of passes of one row, two, and so on; `None` if these are no times.
    pub(crate) fn from_seconds(seconds: &[Option<f64>]) -> Option<Self> {
        let costs: [Option<f64>; MAX_DECODE_ROWS] = seconds.try_into().ok()?;
        let sound = costs.iter().flatten().all(|seconds| seconds.is_finite() && *seconds > 0.0);
        (sound && costs[0].is_some()).then_some(PassCosts(costs))
    }

    /// Seconds of passes of one row, two, and so on, where they were measured.
    pub(crate) fn all(&self) -> &[Option<f64>] {
        &self.0
    }

    /// Runs passes of all numbers of rows up to `most`, again and again, for as long as the time reaches. `pass` runs one and says what it
    /// took.
    pub(crate) fn measure<E>(
        most: usize,
        mut pass: impl FnMut(usize) -> Result<Duration, E>,
    ) -> Result<Self, E> {
        let mut costs = PassCosts::default();
        // The first pass finds everything cold. It counts only where there is no time for another one.
        let cold = pass(1)?;
        costs.set(1, cold.as_secs_f64());
        let mut spent = cold;
        for repeat in 0..REPEATS {
            for rows in ORDER.into_iter().filter(|rows| *rows <= most) {
                // At worst each row takes a pass.
                let expected =
                    costs.measured(rows).or(costs.measured(1).map(|one| one * rows as f64));
                let expected = Duration::from_secs_f64(expected.unwrap_or_default());
                if spent + expected > BUDGET {
                    continue;
                }
                let took = pass(rows)?;
                spent += took;
                let seconds = took.as_secs_f64();
                let before = costs.measured(rows).filter(|_| repeat > 0);
                costs.set(rows, before.map_or(seconds, |before| before.min(seconds)));
            }
        }
        // A pass of fewer rows takes no longer than one of more; where it seems to, it was disturbed each time.
        let mut least = f64::INFINITY;
        for seconds in costs.0.iter_mut().rev().flatten() {
            least = least.min(*seconds);
            *seconds = least;
        }
        Ok(costs)
    }

    /// Seconds of a pass of so many rows, if it was seen.
    pub(crate) fn measured(&self, rows: usize) -> Option<f64> {
        self.0.get(rows.checked_sub(1)?).copied().flatten()
    }

    /// A pass of so many rows took so long.
    pub(crate) fn set(&mut self, rows: usize, seconds: f64) {
        if let Some(cost) = rows.checked_sub(1).and_then(|index| self.0.get_mut(index)) {
            *cost = Some(seconds);
        }
    }

    /// Seconds of a pass of so many rows: as it was seen, or on the line between those with fewer and more rows, or on from those with
    /// fewer. `None` before a pass of one row was seen.
    pub(crate) fn seconds(&self, rows: usize) -> Option<f64> {
        let one = self.measured(1)?;
        let at = |rows: usize| self.measured(rows).map(|seconds| (rows as f64, seconds));
        let rows = rows.clamp(1, MAX_DECODE_ROWS);
        let (fewer, seconds) = (1..=rows).rev().find_map(at).unwrap_or((1.0, one));
        let further = rows as f64 - fewer;
        let slope = match (rows + 1..=MAX_DECODE_ROWS).find_map(at) {
            Some((more, of_more)) => (of_more - seconds) / (more - fewer),
            None if fewer > 1.0 => (seconds - one) / (fewer - 1.0),
            None => one * ASSUMED_SLOPE,
        };
        Some(seconds + slope.max(0.0) * further)
    }
}

impl Engine {
    /// Finds out what passes take, where drafts are verified by what pays and it is not known: what was measured before, for the same model on
    /// the same processor or card, or a measurement. Empties the first slot for that.
    pub(crate) fn know_pass_costs(&mut self) -> Result<(), EngineError> {
        // The others compute slowly, to compare with: what their passes take is seen as they run.
        let runs = matches!(self.backend(), BackendKind::Cpu | BackendKind::Cuda);
        let asked =
            self.verify_length.weighs_costs() && self.speculators.iter().any(Option::is_some);
        // While slots are held, passes go on to be seen as they run.
        let held = self.free_slots() < self.slots();
        if !runs || !asked || held || self.pass_costs.is_some() {
            return Ok(());
        }
        let folder = cost_cache::folder();
        let key = CostKey::new(self.digest, &self.describe_backend(), self.options().fusion.name());
        let kept = folder.as_deref().and_then(|folder| key.load(folder));
        let costs = match kept {
            Some(costs) => costs,
            None => {
                let costs = self.measure_pass_costs()?;
                if let Some(folder) = &folder {
                    // Where it cannot be kept it is measured again, nothing else.
                    let _ = key.store(folder, &costs);
                }
                costs
            }
        };
        self.pass_costs = Some(costs);
        self.verify_length.set_costs(costs);
        Ok(())
    }

    fn measure_pass_costs(&mut self) -> Result<PassCosts, EngineError> {
        let (vocabulary, most) = (self.vocabulary(), self.context().min(MAX_DECODE_ROWS));
        // Tokens that have little in common: rows of a mixture choose experts of their own.
        let token = |row: usize| TokenId((row * 7919 % vocabulary) as u32);
        let tokens: Vec<TokenId> = (1..=most).map(token).collect();
        let mut sequence = self.sequence();
        sequence.reset();
        let costs = PassCosts::measure(most, |rows| {
            let began = Instant::now();
            sequence.decode(&tokens[..rows])?;
            let took = began.elapsed();
            sequence.accept(0);
            Ok(took)
        });
        self.sequence().reset();
        costs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(measured: &[(usize, f64)]) -> PassCosts {
        let mut costs = PassCosts::default();
        measured.iter().for_each(|(rows, seconds)| costs.set(*rows, *seconds));
        costs
    }

    #[test]
    fn what_was_not_measured_lies_on_lines() {
        let known = costs(&[(1, 1.0), (4, 1.6), (8, 3.2)]);
        for (rows, seconds) in [(1, 1.0), (2, 1.2), (3, 1.4), (4, 1.6), (6, 2.4), (8, 3.2)] {
            let found = known.seconds(rows).expect("known");
            assert!((found - seconds).abs() < 1e-12, "{rows} rows: {found}");
        }
        // On from one and eight rows.
        let sixteen = known.seconds(16).expect("known");
        assert!((sixteen - (3.2 + 8.0 * 2.2 / 7.0)).abs() < 1e-12, "{sixteen}");
        assert_eq!(costs(&[(1, 2.0)]).seconds(2), Some(2.0 + 2.0 * ASSUMED_SLOPE));
        assert_eq!(costs(&[(4, 2.0)]).seconds(4), None);
        // A pass of more rows never takes less.
        assert_eq!(costs(&[(1, 2.0), (3, 1.5)]).seconds(2), Some(2.0));
    }

    #[test]
    fn measuring_ends_in_time_and_keeps_the_least() {
        for one in [1, 5, 40, 300, 2000].map(Duration::from_millis) {
            let (mut spent, mut passes) = (Duration::ZERO, 0);
            let measured = PassCosts::measure(MAX_DECODE_ROWS, |rows| {
                passes += 1;
                // The first repeats are disturbed.
                let disturbed = if passes <= 18 { 2 } else { 1 };
                let took = one * disturbed + one / 20 * (rows as u32 - 1);
                spent += took;
                Ok::<_, ()>(took)
            })
            .expect("never fails");
            assert!(spent <= BUDGET.max(2 * one), "{one:?}: {spent:?}");
            assert!(measured.seconds(1).expect("always") > 0.0);
            if one == Duration::from_millis(1) {
                for rows in 1..=MAX_DECODE_ROWS {
                    let expected = (one + one / 20 * (rows as u32 - 1)).as_secs_f64();
                    let found = measured.measured(rows).expect("there was time for all");
                    assert!((found - expected).abs() < 1e-9, "{rows} rows: {found}");
                }
            }
        }
    }

    #[test]
    fn what_was_disturbed_each_time_takes_no_longer_than_more_rows() {
        let measured = PassCosts::measure(4, |rows| {
            let disturbed = if rows == 2 { 900 } else { 0 };
            Ok::<_, ()>(Duration::from_micros(100 + 10 * rows as u64 + disturbed))
        });
        let measured = measured.expect("never fails");
        assert_eq!(measured.measured(2), measured.measured(3));
        assert!(measured.measured(1) < measured.measured(2));
    }

    #[test]
    fn no_more_rows_are_measured_than_there_is_room_for() {
        let pass = |rows: usize| match rows {
            0..4 => Ok(Duration::from_micros(10)),
            _ => Err(rows),
        };
        assert!(PassCosts::measure(3, pass).is_ok());
        assert!(PassCosts::measure(4, pass).is_err());
    }
}

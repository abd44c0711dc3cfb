//! Medians and spreads of repeated measurements.

use std::fmt;

/// The middle and the ends of some measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle one; of an even number the mean of the middle two.
    pub median: f64,
    /// The smallest.
    pub least: f64,
    /// The largest.
    pub most: f64,
}

impl Spread {
    /// Of at least one measurement; `None` of none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len().is_multiple_of(2) {
            (sorted[middle - 1] + sorted[middle]) / 2.0
        } else {
            sorted[middle]
        };
        Some(Spread { median, least, most })
    }

    /// The same measurements in a unit of this size.
    pub fn in_units_of(self, unit: f64) -> Self {
        Spread { median: self.median / unit, least: self.least / unit, most: self.most / unit }
    }
}

impl fmt::Display for Spread {
    /// `median (least..most)`, with the formatter's precision.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = formatter.precision().unwrap_or(1);
        let Spread { median, least, most } = self;
        let text = format!("{median:.digits$} ({least:.digits$}..{most:.digits$})");
        formatter.pad_integral(true, "", &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        let odd = Spread::of([5.0, 1.0, 3.0]);
        assert_eq!(odd, Some(Spread { median: 3.0, least: 1.0, most: 5.0 }));
        let even = Spread::of([4.0, 1.0, 3.0, 2.0]);
        assert_eq!(even, Some(Spread { median: 2.5, least: 1.0, most: 4.0 }));
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn it_is_written_with_a_precision() {
        let spread = Spread { median: 2.0, least: 1.0, most: 3.25 };
        assert_eq!(format!("{spread:.2}"), "2.00 (1.00..3.25)");
        assert_eq!(format!("{spread:>20.0}"), "            2 (1..3)");
    }
}

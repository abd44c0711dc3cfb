//! `strftime_now` of chat templates.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

/// Month and week day names of the C locale, which Python uses unless told otherwise.
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEK_DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// A moment in UTC, taken apart.
struct Moment {
    year: i64,
    month: u32,
    day: u32,
    /// From 1.
    day_of_year: u32,
    /// From Sunday, 0.
    week_day: usize,
    seconds_of_day: u64,
}

impl Moment {
    fn new(time: SystemTime) -> Self {
        let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let days = seconds / 86_400;
        let (year, month, day) = civil_date(days);
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let lengths = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let before: u32 = lengths[..month as usize - 1].iter().sum();
        Self {
            year,
            month,
            day,
            day_of_year: before + day,
            // 1 January 1970 was a Thursday.
            week_day: ((days + 4) % 7) as usize,
            seconds_of_day: seconds % 86_400,
        }
    }
}

/// The proleptic Gregorian date of a day counted from 1 January 1970 (H. Hinnant, "chrono-Compatible Low-Level Date
/// Algorithms", `civil_from_days`; only days from then on).
fn civil_date(days: u64) -> (i64, u32, u32) {
    const DAYS_IN_400_YEARS: u64 = 146_097;
    // Years begin in March here, so that a leap day ends its year.
    let shifted = days + 719_468;
    let era = shifted / DAYS_IN_400_YEARS;
    let day_of_era = shifted % DAYS_IN_400_YEARS;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year as i64, month as u32, day as u32)
}

/// The time by a `strftime` format, in UTC. `Err` names a directive that is not known.
pub(super) fn format_time(time: SystemTime, format: &str) -> Result<String, String> {
    let moment = Moment::new(time);
    let mut out = String::new();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            out.push(character);
            continue;
        }
        let mut directive = characters.next();
        let padded = directive != Some('-');
        if !padded {
            directive = characters.next();
        }
        write_directive(&mut out, &moment, directive, padded)?;
    }
    Ok(out)
}

fn write_directive(
    out: &mut String,
    moment: &Moment,
    directive: Option<char>,
    padded: bool,
) -> Result<(), String> {
    let hour = moment.seconds_of_day / 3_600;
    let hour_of_twelve = (hour + 11) % 12 + 1;
    let number = |out: &mut String, value: u64, width: usize| {
        let width = if padded { width } else { 0 };
        // Writing to a String cannot fail.
        let _ = write!(out, "{value:0width$}");
    };
    let month_name = MONTHS[moment.month as usize - 1];
    let week_day_name = WEEK_DAYS[moment.week_day];
    match directive {
        Some('Y') => number(out, moment.year as u64, 4),
        Some('y') => number(out, moment.year as u64 % 100, 2),
        Some('m') => number(out, u64::from(moment.month), 2),
        Some('d') => number(out, u64::from(moment.day), 2),
        Some('e') => {
            let width = if padded { 2 } else { 0 };
            let _ = write!(out, "{:width$}", moment.day);
        }
        Some('j') => number(out, u64::from(moment.day_of_year), 3),
        Some('H') => number(out, hour, 2),
        Some('I') => number(out, hour_of_twelve, 2),
        Some('M') => number(out, moment.seconds_of_day / 60 % 60, 2),
        Some('S') => number(out, moment.seconds_of_day % 60, 2),
        Some('p') => out.push_str(if hour < 12 { "AM" } else { "PM" }),
        Some('B') => out.push_str(month_name),
        Some('b' | 'h') => out.push_str(&month_name[..3]),
        Some('A') => out.push_str(week_day_name),
        Some('a') => out.push_str(&week_day_name[..3]),
        Some('w') => number(out, moment.week_day as u64, 1),
        Some('F') => {
            for (directive, separator) in [('Y', "-"), ('m', "-"), ('d', "")] {
                write_directive(out, moment, Some(directive), true)?;
                out.push_str(separator);
            }
        }
        Some('T') => {
            for (directive, separator) in [('H', ":"), ('M', ":"), ('S', "")] {
                write_directive(out, moment, Some(directive), true)?;
                out.push_str(separator);
            }
        }
        Some('Z') => out.push_str("UTC"),
        Some('z') => out.push_str("+0000"),
        Some('%') => out.push('%'),
        Some(other) => return Err(format!("strftime_now does not know the directive %{other}")),
        None => return Err("strftime_now: the format ends in %".to_owned()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn formatted(seconds: u64, format: &str) -> String {
        format_time(UNIX_EPOCH + Duration::from_secs(seconds), format).unwrap()
    }

    #[test]
    fn known_moments() {
        // What `datetime.fromtimestamp(s, timezone.utc).strftime(f)` of CPython prints.
        assert_eq!(formatted(0, "%A %d %B %Y %H:%M:%S"), "Thursday 01 January 1970 00:00:00");
        assert_eq!(formatted(951_782_400, "%Y-%m-%d %j %a"), "2000-02-29 060 Tue");
        assert_eq!(formatted(1_735_689_599, "%F %T %j %I %p"), "2024-12-31 23:59:59 366 11 PM");
        assert_eq!(formatted(1_709_510_400, "%-d %b %y %e %%"), "4 Mar 24  4 %");
        assert_eq!(formatted(4_107_542_400, "%Y-%m-%d"), "2100-03-01");
    }

    #[test]
    fn an_unknown_directive_is_an_error() {
        assert!(format_time(UNIX_EPOCH, "%Q").unwrap_err().contains("%Q"));
        assert!(format_time(UNIX_EPOCH, "%").is_err());
    }
}

//! Dates in names and in the manifest, in UTC.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A date and time of day.
struct Utc {
    year: u64,
    month: u64,
    day: u64,
    hour: u64,
    minute: u64,
    second: u64,
}

impl Utc {
    fn of(time: SystemTime) -> Self {
        let seconds = time
            .duration_since(UNIX_EPOCH)
            .unwrap_or(Duration::ZERO)
            .as_secs();
        let (days, second_of_day) = (seconds / 86_400, seconds % 86_400);
        // Years from March on have the day of leap years at their end; 400 of them have 146,097 days.
        let days = days + 719_468;
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month = (5 * day_of_year + 2) / 153;
        let is_next_year = month >= 10;
        Self {
            year: era * 400 + year_of_era + u64::from(is_next_year),
            month: if is_next_year { month - 9 } else { month + 3 },
            day: day_of_year - (153 * month + 2) / 5 + 1,
            hour: second_of_day / 3600,
            minute: second_of_day / 60 % 60,
            second: second_of_day % 60,
        }
    }
}

/// Returns a time as in RFC 3339.
pub fn rfc3339(time: SystemTime) -> String {
    let utc = Utc::of(time);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        utc.year, utc.month, utc.day, utc.hour, utc.minute, utc.second
    )
}

/// Returns the folder of a recording that starts now and has no name.
pub fn default_folder() -> PathBuf {
    let utc = Utc::of(SystemTime::now());
    PathBuf::from(format!(
        "jitinject-record-{:04}{:02}{:02}-{:02}{:02}{:02}",
        utc.year, utc.month, utc.day, utc.hour, utc.minute, utc.second
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_become_dates() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_798_761_599, "2026-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_secs(seconds)), expected);
        }
    }
}

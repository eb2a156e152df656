//! Dates and times: the output of Postgres with `DateStyle = ISO`, and the same forms in where clauses. The default
//! time zone is UTC.

/// Days from the Julian epoch (4714-11-24 BC, Gregorian) to 2000-01-01.
const EPOCH_JULIAN: i64 = 2_451_545;
pub(crate) const DAY_MICROS: i64 = 86_400_000_000;
/// Infinite dates.
pub(crate) const DATE_MAX: i32 = i32::MAX;
pub(crate) const DATE_MIN: i32 = i32::MIN;
/// Infinite timestamps.
pub(crate) const TIMESTAMP_MAX: i64 = i64::MAX;
pub(crate) const TIMESTAMP_MIN: i64 = i64::MIN;
/// The first instant beyond the range of a timestamp: 294277-01-01.
const TIMESTAMP_END: i64 = 9_223_371_331_200_000_000;
/// 4714-11-24 BC
const TIMESTAMP_START: i64 = -211_813_488_000_000_000;

/// Why a text is not a date or time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Syntax,
    Range,
    /// `now`, `today`: it would be another value tomorrow.
    Moving,
}

/// Days since 2000-01-01; the algorithm is Richards', as in Postgres's `date2j`. The year 0 is 1 BC.
pub(crate) fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year + 4800, month + 1) } else { (year + 4799, month + 13) };
    let century = year.div_euclid(100);
    let julian = year * 365 - 32_167 + year.div_euclid(4) - century + century.div_euclid(4) + 7834 * month / 256 + day;
    julian - EPOCH_JULIAN
}

/// Year, month and day.
pub(crate) fn civil(days: i64) -> (i64, i64, i64) {
    // Hinnant's: days from 0000-03-01.
    let z = days + 730_425;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

pub(crate) fn month_length(year: i64, month: i64) -> i64 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn digits(&mut self) -> &'a str {
        let length = self.rest.bytes().take_while(u8::is_ascii_digit).count();
        let (digits, rest) = self.rest.split_at(length);
        self.rest = rest;
        digits
    }

    fn number(&mut self, least: usize, most: usize) -> Result<i64, Fault> {
        let digits = self.digits();
        if digits.len() < least || digits.len() > most {
            Err(Fault::Syntax)
        } else {
            digits.parse().map_err(|_| Fault::Syntax)
        }
    }

    fn takes(&mut self, what: &str) -> bool {
        let found = self.rest.get(..what.len()).is_some_and(|head| head.eq_ignore_ascii_case(what));
        if found {
            self.rest = &self.rest[what.len()..];
        }
        found
    }

    fn blanks(&mut self) -> bool {
        let trimmed = self.rest.trim_start_matches(' ');
        let any = trimmed.len() < self.rest.len();
        self.rest = trimmed;
        any
    }

    /// Year, month and day, unchecked.
    fn date(&mut self) -> Result<(i64, i64, i64), Fault> {
        let digits = self.digits();
        if self.takes("-") {
            // Fewer digits could be a day or a year of a century.
            if digits.len() < 3 || digits.len() > 7 {
                return Err(Fault::Syntax);
            }
            let month = self.number(1, 2)?;
            if !self.takes("-") {
                return Err(Fault::Syntax);
            }
            let day = self.number(1, 2)?;
            return Ok((digits.parse().map_err(|_| Fault::Syntax)?, month, day));
        }
        if digits.len() != 8 {
            return Err(Fault::Syntax);
        }
        let part = |from: usize, to: usize| digits[from..to].parse().map_err(|_| Fault::Syntax);
        Ok((part(0, 4)?, part(4, 6)?, part(6, 8)?))
    }

    /// Microseconds.
    fn time(&mut self) -> Result<i64, Fault> {
        let hours = self.number(1, 2)?;
        if !self.takes(":") {
            return Err(Fault::Syntax);
        }
        let minutes = self.number(1, 2)?;
        let (mut seconds, mut micros) = (0, 0);
        if self.takes(":") {
            seconds = self.number(1, 2)?;
            if self.takes(".") {
                micros = fraction(self.digits());
            }
        }
        let all = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + micros;
        if hours > 24 || minutes > 59 || seconds > 60 || all > DAY_MICROS { Err(Fault::Range) } else { Ok(all) }
    }

    /// Seconds east of UTC, if a zone follows.
    fn zone(&mut self) -> Result<Option<i64>, Fault> {
        if ["utc", "gmt", "zulu", "z"].iter().any(|name| self.takes(name)) {
            return Ok(Some(0));
        }
        let east = match self.rest.as_bytes().first() {
            Some(b'+') => 1,
            Some(b'-') => -1,
            _ => return Ok(None),
        };
        self.rest = &self.rest[1..];
        let digits = self.digits();
        let (mut hours, mut minutes, mut seconds) = (digits.parse::<i64>().map_err(|_| Fault::Syntax)?, 0, 0);
        match digits.len() {
            1 | 2 => {
                if self.takes(":") {
                    minutes = self.number(2, 2)?;
                    if self.takes(":") {
                        seconds = self.number(2, 2)?;
                    }
                }
            }
            3 | 4 => (hours, minutes) = (hours / 100, hours % 100),
            _ => return Err(Fault::Syntax),
        }
        if hours > 15 || minutes > 59 || seconds > 59 {
            return Err(Fault::Range);
        }
        Ok(Some(east * ((hours * 60 + minutes) * 60 + seconds)))
    }
}

/// Microseconds of the digits after a point, rounded.
pub(crate) fn fraction(digits: &str) -> i64 {
    let kept: String = digits.chars().chain("0000000".chars()).take(7).collect();
    (kept.parse::<i64>().unwrap_or(0) + 5) / 10
}

/// Parsed fields: days (of 2000-01-01), microseconds of the day, seconds east.
struct Parts {
    days: i64,
    micros: i64,
    zone: Option<i64>,
}

enum Read {
    Parts(Parts),
    Infinite { negative: bool },
}

fn read(text: &str) -> Result<Read, Fault> {
    let text = text.trim_matches([' ', '\t', '\n', '\r']);
    match text.to_ascii_lowercase().as_str() {
        "infinity" | "+infinity" => return Ok(Read::Infinite { negative: false }),
        "-infinity" => return Ok(Read::Infinite { negative: true }),
        "epoch" => return Ok(Read::Parts(Parts { days: days(1970, 1, 1), micros: 0, zone: Some(0) })),
        "now" | "today" | "tomorrow" | "yesterday" => return Err(Fault::Moving),
        _ => {}
    }
    let mut reader = Reader { rest: text };
    let (mut year, month, day) = reader.date()?;
    let (mut micros, mut zone) = (0, None);
    let blank = reader.blanks();
    if !blank && reader.takes("t") || reader.rest.starts_with(|c: char| c.is_ascii_digit()) && blank {
        micros = reader.time()?;
        reader.blanks();
        zone = reader.zone()?;
        reader.blanks();
    }
    if reader.takes("bc") {
        year = 1 - year;
    } else if year == 0 {
        return Err(Fault::Range);
    } else {
        reader.takes("ad");
    }
    if !reader.rest.is_empty() {
        return Err(Fault::Syntax);
    }
    if !(1..=12).contains(&month) || day < 1 || day > month_length(year, month) || !(-4713..=5_874_897).contains(&year)
    {
        return Err(Fault::Range);
    }
    Ok(Read::Parts(Parts { days: days(year, month, day), micros, zone }))
}

/// Days since 2000-01-01; a time of day is ignored.
pub(crate) fn parse_date(text: &str) -> Result<i32, Fault> {
    match read(text)? {
        Read::Infinite { negative } => Ok(if negative { DATE_MIN } else { DATE_MAX }),
        Read::Parts(parts) => i32::try_from(parts.days).map_err(|_| Fault::Range),
    }
}

/// Microseconds since 2000-01-01. A zone counts only if the type has one.
pub(crate) fn parse_timestamp(text: &str, zoned: bool) -> Result<i64, Fault> {
    match read(text)? {
        Read::Infinite { negative } => Ok(if negative { TIMESTAMP_MIN } else { TIMESTAMP_MAX }),
        Read::Parts(parts) => {
            let east = if zoned { parts.zone.unwrap_or(0) } else { 0 };
            let micros = i128::from(parts.days) * i128::from(DAY_MICROS) + i128::from(parts.micros - east * 1_000_000);
            i64::try_from(micros).ok().filter(|m| is_timestamp(*m)).ok_or(Fault::Range)
        }
    }
}

/// Whether these microseconds are in the range of a finite timestamp.
pub(crate) fn is_timestamp(micros: i64) -> bool {
    (TIMESTAMP_START..TIMESTAMP_END).contains(&micros)
}

/// Microseconds since midnight.
pub(crate) fn parse_time(text: &str) -> Result<i64, Fault> {
    let text = text.trim_matches([' ', '\t', '\n', '\r']);
    if matches!(text.to_ascii_lowercase().as_str(), "now") {
        return Err(Fault::Moving);
    }
    let mut reader = Reader { rest: text };
    let micros = reader.time()?;
    if reader.rest.is_empty() { Ok(micros) } else { Err(Fault::Syntax) }
}

/// `None` out of range.
pub(crate) fn date_to_timestamp(days: i32) -> Option<i64> {
    match days {
        DATE_MAX => Some(TIMESTAMP_MAX),
        DATE_MIN => Some(TIMESTAMP_MIN),
        _ => i64::from(days).checked_mul(DAY_MICROS).filter(|m| is_timestamp(*m)),
    }
}

pub(crate) fn timestamp_to_date(micros: i64) -> i32 {
    match micros {
        TIMESTAMP_MAX => DATE_MAX,
        TIMESTAMP_MIN => DATE_MIN,
        _ => i32::try_from(micros.div_euclid(DAY_MICROS)).unwrap_or(DATE_MAX),
    }
}

/// The day, and ` BC` if it is needed after everything else.
fn print_day(days: i64) -> (String, &'static str) {
    let (year, month, day) = civil(days);
    let (year, suffix) = if year > 0 { (year, "") } else { (1 - year, " BC") };
    (format!("{year:04}-{month:02}-{day:02}"), suffix)
}

pub(crate) fn print_date(days: i32) -> String {
    match days {
        DATE_MAX => "infinity".into(),
        DATE_MIN => "-infinity".into(),
        _ => {
            let (day, suffix) = print_day(days.into());
            day + suffix
        }
    }
}

pub(crate) fn print_time(micros: i64) -> String {
    let (seconds, rest) = (micros / 1_000_000, micros % 1_000_000);
    let text = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    if rest == 0 { text } else { format!("{text}.{rest:06}").trim_end_matches('0').to_owned() }
}

pub(crate) fn print_timestamp(micros: i64, zoned: bool) -> String {
    match micros {
        TIMESTAMP_MAX => "infinity".into(),
        TIMESTAMP_MIN => "-infinity".into(),
        _ => {
            let (day, suffix) = print_day(micros.div_euclid(DAY_MICROS));
            let zone = if zoned { "+00" } else { "" };
            format!("{day} {}{zone}{suffix}", print_time(micros.rem_euclid(DAY_MICROS)))
        }
    }
}

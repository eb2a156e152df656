//! `interval`: months, days and microseconds, which do not become each other by themselves.

use super::datetime::{self, DAY_MICROS, Fault, is_timestamp};
use std::fmt::Write;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Interval {
    pub(crate) months: i32,
    pub(crate) days: i32,
    pub(crate) micros: i64,
}

const MONTH_DAYS: i64 = 30;

impl Interval {
    /// Since Postgres 17 intervals can be infinite, as results of infinite timestamps; older versions fail there.
    pub(crate) const INFINITE: Self = Self { months: i32::MAX, days: i32::MAX, micros: i64::MAX };
    pub(crate) const INFINITE_BACK: Self = Self { months: i32::MIN, days: i32::MIN, micros: i64::MIN };

    pub(crate) fn is_infinite(self) -> bool {
        self == Self::INFINITE || self == Self::INFINITE_BACK
    }

    /// The value by which intervals compare: a month is 30 days, a day is 24 hours.
    pub(crate) fn span(self) -> i128 {
        (i128::from(self.months) * i128::from(MONTH_DAYS) + i128::from(self.days)) * i128::from(DAY_MICROS)
            + i128::from(self.micros)
    }

    pub(crate) fn add(self, other: Self) -> Option<Self> {
        match (self.is_infinite(), other.is_infinite()) {
            (true, true) if self != other => return None,
            (true, _) => return Some(self),
            (_, true) => return Some(other),
            _ => {}
        }
        Some(Self {
            months: self.months.checked_add(other.months)?,
            days: self.days.checked_add(other.days)?,
            micros: self.micros.checked_add(other.micros)?,
        })
    }

    pub(crate) fn negate(self) -> Option<Self> {
        match self {
            Self::INFINITE => return Some(Self::INFINITE_BACK),
            Self::INFINITE_BACK => return Some(Self::INFINITE),
            _ => {}
        }
        Some(Self {
            months: self.months.checked_neg()?,
            days: self.days.checked_neg()?,
            micros: self.micros.checked_neg()?,
        })
    }

    /// `timestamp + interval`; `None` out of range.
    pub(crate) fn after(self, timestamp: i64) -> Option<i64> {
        let infinite = match self {
            Self::INFINITE => Some(datetime::TIMESTAMP_MAX),
            Self::INFINITE_BACK => Some(datetime::TIMESTAMP_MIN),
            _ => None,
        };
        if matches!(timestamp, datetime::TIMESTAMP_MAX | datetime::TIMESTAMP_MIN) {
            return Some(timestamp).filter(|timestamp| infinite.is_none_or(|infinite| infinite == *timestamp));
        }
        if infinite.is_some() {
            return infinite;
        }
        let (mut days, time) = (timestamp.div_euclid(DAY_MICROS), timestamp.rem_euclid(DAY_MICROS));
        if self.months != 0 {
            let (year, month, day) = datetime::civil(days);
            let months = year * 12 + month - 1 + i64::from(self.months);
            let (year, month) = (months.div_euclid(12), months.rem_euclid(12) + 1);
            days = datetime::days(year, month, day.min(datetime::month_length(year, month)));
        }
        let micros =
            (days + i64::from(self.days)).checked_mul(DAY_MICROS)?.checked_add(time)?.checked_add(self.micros)?;
        is_timestamp(micros).then_some(micros)
    }

    /// Whole days become of hours: `timestamp - timestamp` does so.
    pub(crate) fn justify_hours(self) -> Option<Self> {
        if self.is_infinite() {
            return Some(self);
        }
        let whole = i32::try_from(self.micros / DAY_MICROS).ok()?;
        let (mut days, mut micros) = (self.days.checked_add(whole)?, self.micros % DAY_MICROS);
        if days > 0 && micros < 0 {
            (days, micros) = (days - 1, micros + DAY_MICROS);
        } else if days < 0 && micros > 0 {
            (days, micros) = (days + 1, micros - DAY_MICROS);
        }
        Some(Self { months: self.months, days, micros })
    }

    pub(crate) fn justify_days(self) -> Option<Self> {
        if self.is_infinite() {
            return Some(self);
        }
        let (mut months, mut days) = (self.months.checked_add(self.days / 30)?, self.days % 30);
        if months > 0 && days < 0 {
            (months, days) = (months - 1, days + 30);
        } else if months < 0 && days > 0 {
            (months, days) = (months + 1, days - 30);
        }
        Some(Self { months, days, micros: self.micros })
    }

    pub(crate) fn justify_interval(self) -> Option<Self> {
        if self.is_infinite() {
            return Some(self);
        }
        let mut it = self;
        // Days first if they would otherwise overflow with the hours.
        if it.days > 0 && it.micros > 0 || it.days < 0 && it.micros < 0 {
            it = it.justify_days_truncating()?;
        }
        let whole = i32::try_from(it.micros / DAY_MICROS).ok()?;
        it = Self { months: it.months, days: it.days.checked_add(whole)?, micros: it.micros % DAY_MICROS };
        it = it.justify_days_truncating()?;
        if it.months > 0 && (it.days < 0 || it.days == 0 && it.micros < 0) {
            (it.days, it.months) = (it.days + 30, it.months - 1);
        } else if it.months < 0 && (it.days > 0 || it.days == 0 && it.micros > 0) {
            (it.days, it.months) = (it.days - 30, it.months + 1);
        }
        if it.days > 0 && it.micros < 0 {
            (it.micros, it.days) = (it.micros + DAY_MICROS, it.days - 1);
        } else if it.days < 0 && it.micros > 0 {
            (it.micros, it.days) = (it.micros - DAY_MICROS, it.days + 1);
        }
        Some(it)
    }

    fn justify_days_truncating(self) -> Option<Self> {
        Some(Self { months: self.months.checked_add(self.days / 30)?, days: self.days % 30, micros: self.micros })
    }

    /// `IntervalStyle = iso_8601`: `P1Y2M3DT-4H-5M-6.7S`
    pub(crate) fn print(self) -> String {
        match self {
            Self::INFINITE => return "infinity".into(),
            Self::INFINITE_BACK => return "-infinity".into(),
            _ => {}
        }
        let mut text = String::from("P");
        let part = |text: &mut String, value: i64, unit: char| {
            if value != 0 {
                let _ = write!(text, "{value}{unit}");
            }
        };
        part(&mut text, i64::from(self.months / 12), 'Y');
        part(&mut text, i64::from(self.months % 12), 'M');
        part(&mut text, i64::from(self.days), 'D');
        if self.micros != 0 {
            text.push('T');
            let minutes = self.micros / 60_000_000;
            part(&mut text, minutes / 60, 'H');
            part(&mut text, minutes % 60, 'M');
            let micros = (self.micros % 60_000_000).unsigned_abs();
            if micros != 0 {
                let sign = if self.micros < 0 { "-" } else { "" };
                let seconds = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
                let _ = write!(text, "{sign}{}S", seconds.trim_end_matches('0').trim_end_matches('.'));
            }
        }
        if text == "P" {
            text.push_str("T0S");
        }
        text
    }

    /// `1 year 2 mons -3 days 04:05:06.7`, with the units that people write, or `P1Y2M3DT4H5M6S`.
    pub(crate) fn parse(text: &str) -> Result<Self, Fault> {
        let text = text.trim();
        match text.to_ascii_lowercase().as_str() {
            "infinity" | "+infinity" => return Ok(Self::INFINITE),
            "-infinity" => return Ok(Self::INFINITE_BACK),
            _ => {}
        }
        let mut sum = Sum::default();
        if let Some(iso) = text.strip_prefix('P') {
            sum.read_iso(iso)?;
        } else {
            sum.read(text)?;
        }
        sum.finish()
    }
}

/// An interval while it is read.
#[derive(Default)]
struct Sum {
    months: i128,
    days: i128,
    micros: i128,
    any: bool,
}

/// A number, as its whole part and millionths.
#[derive(Clone, Copy)]
struct Amount {
    whole: i128,
    millionths: i128,
}

fn amount(text: &str) -> Result<Amount, Fault> {
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.len() + fraction.len() == 0 || !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit()) {
        return Err(Fault::Syntax);
    }
    if whole.len() > 18 {
        return Err(Fault::Range);
    }
    let sign = if negative { -1 } else { 1 };
    let number = if whole.is_empty() { 0 } else { whole.parse::<i128>().map_err(|_| Fault::Syntax)? };
    Ok(Amount { whole: sign * number, millionths: sign * i128::from(datetime::fraction(fraction)) })
}

impl Sum {
    fn add_time(&mut self, amount: Amount, unit_micros: i128) {
        self.micros += amount.whole * unit_micros + amount.millionths * unit_micros / 1_000_000;
    }

    fn add_days(&mut self, amount: Amount, unit_days: i128) {
        // A part of a week or month is first whole days, then hours.
        let millionths = amount.millionths * unit_days;
        self.days += amount.whole * unit_days + millionths / 1_000_000;
        self.micros += millionths % 1_000_000 * i128::from(DAY_MICROS) / 1_000_000;
    }

    fn add_months(&mut self, amount: Amount, unit_months: i128) {
        if unit_months == 1 {
            self.months += amount.whole;
            self.add_days(Amount { whole: 0, millionths: amount.millionths }, MONTH_DAYS.into());
        } else {
            let millionths = amount.millionths * unit_months;
            let rounded = (millionths.abs() + 500_000) / 1_000_000 * millionths.signum();
            self.months += amount.whole * unit_months + rounded;
        }
    }

    fn add(&mut self, amount: Amount, unit: &str) -> Result<(), Fault> {
        let unit = unit.to_ascii_lowercase();
        self.any = true;
        match unit.as_str() {
            "us" | "usec" | "usecs" | "microsecond" | "microseconds" => {
                self.micros += amount.whole + (amount.millionths + 500_000).div_euclid(1_000_000)
            }
            "ms" | "msec" | "msecs" | "millisecond" | "milliseconds" => self.add_time(amount, 1000),
            "s" | "sec" | "secs" | "second" | "seconds" => self.add_time(amount, 1_000_000),
            "m" | "min" | "mins" | "minute" | "minutes" => self.add_time(amount, 60_000_000),
            "h" | "hr" | "hrs" | "hour" | "hours" => self.add_time(amount, 3_600_000_000),
            "d" | "day" | "days" => self.add_days(amount, 1),
            "w" | "week" | "weeks" => self.add_days(amount, 7),
            "mon" | "mons" | "month" | "months" => self.add_months(amount, 1),
            "y" | "yr" | "yrs" | "year" | "years" => self.add_months(amount, 12),
            "decade" | "decades" => self.add_months(amount, 120),
            "c" | "cent" | "century" | "centuries" => self.add_months(amount, 1200),
            _ => return Err(Fault::Syntax),
        }
        Ok(())
    }

    fn read(&mut self, text: &str) -> Result<(), Fault> {
        let mut ago = false;
        let mut words = text.split_ascii_whitespace().peekable();
        while let Some(word) = words.next() {
            if ago {
                return Err(Fault::Syntax);
            }
            if word == "@" {
                continue;
            }
            if word.eq_ignore_ascii_case("ago") {
                ago = true;
                continue;
            }
            if word.contains(':') {
                self.read_clock(word)?;
                continue;
            }
            let number = word.bytes().take_while(|b| b.is_ascii_digit() || b"+-.".contains(b)).count();
            let (number, unit) = word.split_at(number);
            let amount = amount(number)?;
            match (unit, words.peek()) {
                ("", Some(next))
                    if next.starts_with(|c: char| c.is_ascii_alphabetic()) && !next.eq_ignore_ascii_case("ago") =>
                {
                    self.add(amount, words.next().unwrap_or_default())?;
                }
                // A number alone, at the end, is of seconds.
                ("", None) => self.add(amount, "s")?,
                ("", Some(_)) => return Err(Fault::Syntax),
                (unit, _) => self.add(amount, unit)?,
            }
        }
        if ago {
            (self.months, self.days, self.micros) = (-self.months, -self.days, -self.micros);
        }
        Ok(())
    }

    fn read_clock(&mut self, word: &str) -> Result<(), Fault> {
        let (sign, digits) = match word.as_bytes().first() {
            Some(b'-') => (-1, &word[1..]),
            Some(b'+') => (1, &word[1..]),
            _ => (1, word),
        };
        let parts: Vec<&str> = digits.split(':').collect();
        let whole = |text: &str| {
            amount(text).and_then(|a| if text.contains(['.', '-', '+']) { Err(Fault::Syntax) } else { Ok(a.whole) })
        };
        let (hours, minutes, seconds) = match parts[..] {
            // `1:02.5` is minutes and seconds.
            [minutes, seconds] if seconds.contains('.') => (0, whole(minutes)?, amount(seconds)?),
            [hours, minutes] => (whole(hours)?, whole(minutes)?, Amount { whole: 0, millionths: 0 }),
            [hours, minutes, seconds] => (whole(hours)?, whole(minutes)?, amount(seconds)?),
            _ => return Err(Fault::Syntax),
        };
        if minutes > 59 || !(0..=60).contains(&seconds.whole) {
            return Err(Fault::Range);
        }
        self.any = true;
        self.micros += sign * (((hours * 60 + minutes) * 60 + seconds.whole) * 1_000_000 + seconds.millionths);
        Ok(())
    }

    fn read_iso(&mut self, text: &str) -> Result<(), Fault> {
        let (date, time) = text.split_once('T').unwrap_or((text, ""));
        for (mut part, units) in [
            (date, [('Y', "y"), ('M', "mon"), ('W', "w"), ('D', "d")]),
            (time, [('H', "h"), ('M', "m"), ('S', "s"), ('S', "s")]),
        ] {
            while !part.is_empty() {
                let at = part.find(|c: char| c.is_ascii_alphabetic()).ok_or(Fault::Syntax)?;
                let letter = part[at..].chars().next();
                let unit = units.iter().find(|(c, _)| Some(*c) == letter).ok_or(Fault::Syntax)?.1;
                self.add(amount(&part[..at])?, unit)?;
                part = &part[at + 1..];
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Interval, Fault> {
        if !self.any {
            return Err(Fault::Syntax);
        }
        let range = |_| Fault::Range;
        Ok(Interval {
            months: i32::try_from(self.months).map_err(range)?,
            days: i32::try_from(self.days).map_err(range)?,
            micros: i64::try_from(self.micros).map_err(range)?,
        })
    }
}

//! Durations and sizes with units.

use std::time::Duration;

/// Parses "30s", "5m", "1h", "500ms" or "2d".
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    let span = |seconds: u64| Some(Duration::from_secs(number.checked_mul(seconds)?));
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => span(1),
        "m" => span(60),
        "h" => span(60 * 60),
        "d" => span(24 * 60 * 60),
        _ => None,
    }
}

/// Parses a number of seconds, such as `30` or `1.5`.
pub(crate) fn seconds(number: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(number.parse().ok()?).ok()
}

/// Parses "2GiB", "32MiB", "512KiB" or "100B". MB and GB are powers of ten.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let factor = match unit.to_ascii_lowercase().as_str() {
        "b" => 1,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        _ => return None,
    };
    number.checked_mul(factor)
}

/// Splits into number and unit.
fn split(text: &str) -> Option<(u64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    Some((text[..end].parse().ok()?, text[end..].trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_needs_a_unit() {
        assert_eq!(duration("30s"), Some(Duration::from_secs(30)));
        assert_eq!(duration(" 5 m "), Some(Duration::from_secs(300)));
        assert_eq!(duration("1h"), Some(Duration::from_secs(3_600)));
        assert_eq!(duration("2d"), Some(Duration::from_secs(172_800)));
        assert_eq!(duration("500ms"), Some(Duration::from_millis(500)));
        for text in ["", "s", "5", "5 minutes", "-1s", "1.5h", "99999999999999999999s", "9e9s"] {
            assert_eq!(duration(text), None, "{text}");
        }
        assert_eq!(duration(&format!("{}d", u64::MAX)), None);
    }

    #[test]
    fn number_is_read_as_seconds() {
        assert_eq!(seconds("30"), Some(Duration::from_secs(30)));
        assert_eq!(seconds("0.5"), Some(Duration::from_millis(500)));
        for number in ["-1", "1e300", "x"] {
            assert_eq!(seconds(number), None, "{number}");
        }
    }

    #[test]
    fn size_needs_a_unit() {
        assert_eq!(bytes("2GiB"), Some(2 << 30));
        assert_eq!(bytes("32 mib"), Some(32 << 20));
        assert_eq!(bytes("1MB"), Some(1_000_000));
        for text in ["", "2", "2G", "99999999999GiB", "-1B"] {
            assert_eq!(bytes(text), None, "{text}");
        }
    }
}

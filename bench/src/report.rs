//! Output of results.

use std::time::{Duration, Instant};

/// Prints the heading of a group of results.
pub(crate) fn head(title: &str) {
    println!("\n{title}");
}

/// Prints one result, and whether it meets its target.
pub(crate) fn line(what: &str, value: &str, target: Option<(&str, bool)>) {
    match target {
        None => println!("  {what:<58} {value:>16}"),
        Some((target, met)) => {
            let verdict = if met { "met" } else { "MISSED" };
            println!("  {what:<58} {value:>16}   target {target}: {verdict}");
        }
    }
}

/// Returns the shortest of several runs: the cost without disturbances.
pub(crate) fn best(runs: usize, mut run: impl FnMut()) -> Duration {
    let once = |_| {
        let start = Instant::now();
        run();
        start.elapsed()
    };
    (0..runs).map(once).min().unwrap_or_default()
}

/// Returns the median.
pub(crate) fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Returns the nanoseconds for each of `count`.
pub(crate) fn nanos_each(time: Duration, count: usize) -> f64 {
    time.as_secs_f64() * 1e9 / count as f64
}

//! Output of results.

use std::{
    process::ExitCode,
    sync::Mutex,
    time::{Duration, Instant},
};

/// Results of this run that do not meet their target.
static MISSED: Mutex<Vec<String>> = Mutex::new(Vec::new());

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
            if !met {
                MISSED.lock().unwrap().push(format!("{what}: {value}, target {target}"));
            }
            println!("  {what:<58} {value:>16}   target {target}: {verdict}");
        }
    }
}

/// Prints the targets that were missed, if there are any. Returns the exit code of the run: 1 if one was missed.
pub(crate) fn end() -> ExitCode {
    let missed = MISSED.lock().unwrap();
    if missed.is_empty() {
        return ExitCode::SUCCESS;
    }
    head(&format!("Targets that were missed: {}", missed.len()));
    for one in missed.iter() {
        println!("  {one}");
    }
    ExitCode::FAILURE
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_target_fails_the_run() {
        line("without a target", "1", None);
        line("met", "1", Some(("≤ 1", true)));
        assert_eq!(end(), ExitCode::SUCCESS);
        line("missed", "2", Some(("≤ 1", false)));
        assert_eq!(end(), ExitCode::FAILURE);
    }
}

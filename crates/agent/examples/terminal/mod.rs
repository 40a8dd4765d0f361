//! Command line and output of the examples.

use stayput::Stdio;

/// Server from the command line; defaults to `stayput demo-server`.
pub(crate) fn server() -> Stdio {
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_else(|| "stayput".to_owned());
    let rest: Vec<String> = words.collect();
    let args = if rest.is_empty() { vec!["demo-server".to_owned()] } else { rest };
    Stdio::new(command).args(args)
}

/// Prints the lines of an example.
pub(crate) fn show(lines: Vec<String>) {
    for line in lines {
        println!("{line}");
    }
}

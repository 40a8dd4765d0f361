//! What the examples share: the server they use, and where their lines go.

use stayput::Stdio;

/// A server of your own, from the command line, or the one that comes with the gateway.
pub(crate) fn server() -> Stdio {
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_else(|| "stayput".to_owned());
    let rest: Vec<String> = words.collect();
    let args = if rest.is_empty() { vec!["demo-server".to_owned()] } else { rest };
    Stdio::new(command).args(args)
}

/// Prints what an example tells.
pub(crate) fn show(lines: Vec<String>) {
    for line in lines {
        println!("{line}");
    }
}

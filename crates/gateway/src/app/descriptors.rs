//! Limit of open files, of which the sockets of clients get a half.

use rustix::process::{Resource, getrlimit};

/// Share of the open files that the sockets of clients get. The other half is for servers: a call may need one more
/// socket, and a child process has its pipes.
const SHARE: u64 = 2;

/// Returns the number of sockets of clients that the limit of open files allows.
pub(super) fn socket_budget() -> usize {
    budget(getrlimit(Resource::Nofile).current)
}

fn budget(open_files: Option<u64>) -> usize {
    let budget = open_files.map(|open_files| open_files / SHARE);
    budget.and_then(|budget| usize::try_from(budget).ok()).unwrap_or(usize::MAX).max(1)
}

/// Describes that there are fewer sockets than configured.
pub(super) fn describe(configured: usize, budget: usize) -> String {
    format!(
        "up to {budget} connections of clients at once, half of the open files that this process may have, though \
         `limits.sockets` is {configured}; raise the limit of open files (`ulimit -n`) for more"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_get_half_of_the_open_files() {
        assert_eq!([Some(1024), Some(1), None].map(budget), [512, 1, usize::MAX]);
    }
}

//! Load of a client, and its cost.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Calls of one tool, with this concurrency.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) tool: Tool,
    pub(crate) at_once: usize,
    /// Number of sequential calls of each caller.
    pub(crate) each: usize,
}

/// Called tool.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tool {
    Small,
    Large,
}

impl Tool {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Large => "large",
        }
    }

    /// Returns the parameters of a call as text, as a proxy has them.
    pub(crate) fn params(self) -> String {
        format!(
            r#"{{"name":"{}","arguments":{{"path":"notes/today.md","limit":10}}}}"#,
            self.name()
        )
    }

    /// Returns whether an answer has the size of this tool's, so that a client cannot be fast by not answering.
    pub(crate) fn fits(self, result: usize) -> bool {
        (result > crate::counter::LARGE / 2) == (self == Self::Large)
    }
}

impl Load {
    pub(crate) fn calls(self) -> usize {
        self.at_once * self.each
    }
}

/// Cost of a load.
#[derive(Clone, Copy)]
pub(crate) struct Took {
    /// Microseconds of processor time of this process for each call.
    pub(crate) cpu: f64,
    /// Calls per second.
    pub(crate) rate: f64,
}

impl Took {
    /// Initial value for `best`, worse than any measurement.
    pub(crate) const WORST: Self = Self { cpu: f64::INFINITY, rate: 0.0 };

    /// Returns the better of both, each number by itself: the cost without disturbances.
    pub(crate) fn best(self, other: Self) -> Self {
        Self { cpu: self.cpu.min(other.cpu), rate: self.rate.max(other.rate) }
    }
}

/// Measures one run.
pub(crate) async fn measure<T>(load: Load, run: impl Future<Output = T>) -> (T, Took) {
    let (start, cpu) = (Instant::now(), cpu_time());
    let given = run.await;
    let (cpu, wall) = (cpu_time() - cpu, start.elapsed());
    let calls = load.calls() as f64;
    (given, Took { cpu: cpu.as_secs_f64() * 1e6 / calls, rate: calls / wall.as_secs_f64() })
}

/// Returns the processor time of this process, including that of the kernel for it. Children are not counted.
fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
}

/// Runs `one` this many times concurrently, each in its own task, like callers.
pub(crate) async fn at_once<F>(count: usize, one: impl Fn() -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let tasks: Vec<_> = (0..count).map(|_| tokio::spawn(one())).collect();
    for task in tasks {
        task.await.unwrap();
    }
}

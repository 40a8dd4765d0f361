//! Concurrent callers, and the costs of their calls.

use std::{
    io,
    time::{Duration, Instant},
};

use super::{
    client::Client,
    running::Running,
    session::{Session, Target},
};

/// Number of concurrent openers of sessions. They wait for the disk most of the time, so there are many.
pub(super) const OPENERS: usize = 100;

/// Connection, and the sessions that are called over it in turn.
pub(super) struct Caller {
    client: Client,
    sessions: Vec<Session>,
    next: usize,
}

impl Caller {
    /// Connects without a session.
    pub(super) async fn connect(target: &Target) -> io::Result<Self> {
        let client = Client::connect(target.address).await?;
        Ok(Self { client, sessions: Vec::new(), next: 0 })
    }

    pub(super) async fn open(target: &Target) -> io::Result<Self> {
        let mut caller = Self::connect(target).await?;
        caller.sessions.push(Session::open(&mut caller.client, target).await?);
        Ok(caller)
    }

    /// Connects with a session that is named in each call, as `how` defines.
    pub(super) async fn naming(
        target: &Target,
        how: impl AsyncFnOnce(&mut Client, Session) -> io::Result<Session>,
    ) -> io::Result<Self> {
        let mut caller = Self::connect(target).await?;
        let session = Session::open(&mut caller.client, target).await?;
        caller.sessions.push(how(&mut caller.client, session).await?);
        Ok(caller)
    }

    /// Opens a new connection, because some servers close one that was idle during the turns of others.
    pub(super) async fn reconnect(&mut self, target: &Target) -> io::Result<()> {
        self.client = Client::connect(target.address).await?;
        Ok(())
    }

    pub(super) fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Takes over the sessions of another caller.
    pub(super) fn take_over(&mut self, other: Self) {
        self.sessions.extend(other.sessions);
    }

    /// Opens sessions until it has `count`, and calls each of the new ones once.
    pub(super) async fn grow(&mut self, target: &Target, count: usize) -> io::Result<()> {
        while self.sessions.len() < count {
            let mut session = Session::open(&mut self.client, target).await?;
            session.count(&mut self.client).await?;
            self.sessions.push(session);
        }
        Ok(())
    }

    pub(super) async fn call(&mut self) -> io::Result<()> {
        let count = self.sessions.len();
        let session = &mut self.sessions[self.next];
        self.next = (self.next + 1) % count;
        session.count(&mut self.client).await
    }

    /// Returns whether each session had its own counter.
    pub(super) fn is_alone(&self) -> bool {
        self.sessions.iter().all(|session| session.alone)
    }

    pub(super) async fn end(mut self, target: &Target) {
        for session in self.sessions {
            let _ = session.end(&mut self.client, target).await;
        }
    }
}

/// Opens this many callers with a session each.
pub(super) async fn callers(running: &Running, count: usize) -> io::Result<Vec<Caller>> {
    let mut callers = Vec::with_capacity(count);
    for _ in 0..count {
        callers.push(Caller::open(&running.target).await?);
    }
    Ok(callers)
}

/// Opens sessions until there are `count`, and distributes them among the callers.
pub(super) async fn grow(
    running: &Running,
    mut callers: Vec<Caller>,
    count: usize,
) -> io::Result<Vec<Caller>> {
    let there: usize = callers.iter().map(Caller::sessions).sum();
    let each = (count - there).div_ceil(OPENERS);
    let tasks: Vec<_> = (0..OPENERS)
        .map(|_| {
            let target = running.target.clone();
            tokio::spawn(async move {
                let mut opener = Caller::connect(&target).await?;
                opener.grow(&target, each).await?;
                io::Result::Ok(opener)
            })
        })
        .collect();
    let places = (0..callers.len()).cycle();
    for (task, at) in tasks.into_iter().zip(places) {
        callers[at].take_over(task.await??);
    }
    Ok(callers)
}

/// Costs of calls.
#[derive(Clone, Copy)]
pub(super) struct Took {
    /// Calls per second.
    pub(super) rate: f64,
    /// Microseconds of processor time of the measured program per call.
    pub(super) cpu: f64,
}

impl Took {
    /// Initial value for `best`, worse than any measurement.
    pub(super) const WORST: Self = Self { rate: 0.0, cpu: f64::INFINITY };

    /// Returns the microseconds of processor time per call over all these turns, which were equally long.
    pub(super) fn cpu_of_all(turns: &[Self]) -> f64 {
        let calls: f64 = turns.iter().map(|turn| turn.rate).sum();
        turns.iter().map(|turn| turn.cpu * turn.rate).sum::<f64>() / calls
    }

    /// Returns the better of both, each number by itself: the cost without disturbances.
    pub(super) fn best(self, other: Self) -> Self {
        Self { rate: self.rate.max(other.rate), cpu: self.cpu.min(other.cpu) }
    }
}

/// Lets all callers call for this time, each sequentially.
pub(super) async fn run(
    running: &Running,
    mut callers: Vec<Caller>,
    time: Duration,
) -> io::Result<(Vec<Caller>, Took)> {
    for caller in &mut callers {
        caller.reconnect(&running.target).await?;
    }
    let cpu = running.cpu();
    let start = Instant::now();
    let one = |mut caller: Caller| async move {
        let mut calls = 0_u32;
        while start.elapsed() < time {
            caller.call().await?;
            calls += 1;
        }
        io::Result::Ok((caller, calls))
    };
    let tasks: Vec<_> = callers.into_iter().map(|caller| tokio::spawn(one(caller))).collect();
    let (mut callers, mut calls) = (Vec::with_capacity(tasks.len()), 0.0);
    for task in tasks {
        let (caller, made) = task.await??;
        callers.push(caller);
        calls += f64::from(made);
    }
    let (wall, cpu) = (start.elapsed(), running.cpu().saturating_sub(cpu));
    Ok((callers, Took { rate: calls / wall.as_secs_f64(), cpu: cpu.as_secs_f64() * 1e6 / calls }))
}

/// Returns the median duration of sequential calls in microseconds.
pub(super) async fn median(caller: &mut Caller, calls: usize) -> io::Result<f64> {
    let mut times = Vec::with_capacity(calls);
    for _ in 0..calls {
        let start = Instant::now();
        caller.call().await?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    Ok(times[calls / 2].as_secs_f64() * 1e6)
}

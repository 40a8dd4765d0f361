//! Accounting of permits and waiting requests, without async code.

use std::collections::{BTreeMap, HashMap, VecDeque};

use stayput_core::Owner;

use super::limits::{BudgetUsage, Cost, Limits, Obstacle};

/// Owner that a permit counts for. `None` stands for links without an owner: they have no limit of their own,
/// and one turn in the queue like an owner.
pub(super) type PermitOwner = Option<Owner>;

/// All permits, taken and requested. `W` notifies a waiting request.
///
/// Invariant: after each change no request waits that could be served. So a new request that finds a free
/// permit overtakes none: every waiting request is blocked by a limit that does not apply to the new one.
pub(super) struct Ledger<W> {
    limits: Limits,
    total: PermitCounts,
    accounts: HashMap<PermitOwner, OwnerAccount<W>>,
    /// Payers with waiting requests, in the order in which they are served.
    turns: VecDeque<PermitOwner>,
    memory: MemoryEstimate,
    tickets: u64,
}

/// Memory of a process of which no sample exists, until the first sample: that of a small server in Node or Python.
const ASSUMED_PROCESS_BYTES: u64 = 32 << 20;

/// Memory of all processes: the last sample, and an estimate for the processes that were started since.
struct MemoryEstimate {
    sampled: u64,
    /// Average of a process in the last sample that had one.
    each: u64,
    /// Processes that the sample does not include.
    started: usize,
}

impl Default for MemoryEstimate {
    fn default() -> Self {
        Self { sampled: 0, each: ASSUMED_PROCESS_BYTES, started: 0 }
    }
}

impl MemoryEstimate {
    /// Returns the estimate for this number of processes. Those that ended since may be among the new ones.
    fn bytes(&self, processes: usize) -> u64 {
        let started = u64::try_from(self.started.min(processes)).unwrap_or(u64::MAX);
        self.sampled.saturating_add(self.each.saturating_mul(started))
    }

    fn sample(&mut self, memory: u64, sampled: usize, all: usize) {
        self.sampled = memory;
        self.started = all.saturating_sub(sampled);
        let count = u64::try_from(sampled).unwrap_or(u64::MAX);
        self.each = memory.checked_div(count).unwrap_or(self.each);
    }
}

/// Permits and waiting requests of one payer.
struct OwnerAccount<W> {
    tally: PermitCounts,
    /// Waiting requests by ticket number. Processes and other links have separate queues, so that an HTTP
    /// link does not wait behind a process.
    lines: [BTreeMap<u64, Waiter<W>>; 2],
}

struct Waiter<W> {
    to: W,
    /// Limit for which the last recycle request found no idle link. Only a link that becomes idle can change that.
    refused: Option<Obstacle>,
}

/// Position in the queue.
pub(super) struct Ticket {
    pub(super) payer: PermitOwner,
    pub(super) cost: Cost,
    number: u64,
}

impl<W> Default for OwnerAccount<W> {
    fn default() -> Self {
        Self { tally: PermitCounts::default(), lines: [BTreeMap::new(), BTreeMap::new()] }
    }
}

/// Counts of one payer, or of all together.
#[derive(Clone, Copy, Default)]
struct PermitCounts {
    taken: Count,
    /// Taken permits that are about to be freed.
    leaving: Count,
    waiting: Count,
    /// Recycle requests in progress: for links of this payer, or for any link.
    asking: Count,
}

impl PermitCounts {
    fn is_empty(&self) -> bool {
        [self.taken, self.waiting, self.asking].iter().all(|count| count.links == 0)
    }
}

#[derive(Clone, Copy, Default)]
struct Count {
    processes: usize,
    links: usize,
}

impl Count {
    fn get(self, process: bool) -> usize {
        if process { self.processes } else { self.links }
    }

    fn add(&mut self, cost: Cost) {
        self.links += 1;
        self.processes += usize::from(cost.process);
    }

    fn sub(&mut self, cost: Cost) {
        self.links = self.links.saturating_sub(1);
        self.processes = self.processes.saturating_sub(usize::from(cost.process));
    }
}

/// Permit for a request that waited.
pub(super) struct Grant<W> {
    pub(super) payer: PermitOwner,
    pub(super) cost: Cost,
    pub(super) to: W,
}

impl<W> Ledger<W> {
    pub(super) fn new(limits: Limits) -> Self {
        let (accounts, turns) = (HashMap::new(), VecDeque::new());
        Self {
            limits,
            total: PermitCounts::default(),
            accounts,
            turns,
            memory: MemoryEstimate::default(),
            tickets: 0,
        }
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(super) fn used(&self) -> BudgetUsage {
        let Count { processes, links } = self.total.taken;
        BudgetUsage { processes, links, waiting: self.total.waiting.links }
    }

    /// Returns the limit that blocks one more link. With `swap`, a process has just ended and the memory was
    /// not measured again yet.
    pub(super) fn obstacle(&self, payer: &PermitOwner, cost: Cost, swap: bool) -> Option<Obstacle> {
        let limits = &self.limits;
        let own = self.tally(payer).taken;
        let (all, process) = (self.total.taken, cost.process);
        if payer.is_some() && process && own.processes >= limits.per_owner.processes {
            return Some(Obstacle::OwnerProcesses(limits.per_owner.processes));
        }
        if payer.is_some() && own.links >= limits.per_owner.links {
            return Some(Obstacle::OwnerLinks(limits.per_owner.links));
        }
        if process && all.processes >= limits.processes {
            return Some(Obstacle::Processes(limits.processes));
        }
        if all.links >= limits.links {
            return Some(Obstacle::Links(limits.links));
        }
        // Without any process the measurement is outdated and would never be renewed.
        let over = limits.memory.filter(|limit| self.memory.bytes(all.processes) > *limit);
        let gated = process && !swap && all.processes > 0;
        over.filter(|_| gated).map(Obstacle::Memory)
    }

    /// Takes a free permit.
    pub(super) fn take(&mut self, payer: &PermitOwner, cost: Cost) {
        self.memory.started += usize::from(cost.process);
        self.change(payer, |tally| tally.taken.add(cost));
    }

    /// Frees a permit. Returns the requests that are served by it.
    pub(super) fn give_back(
        &mut self,
        payer: &PermitOwner,
        cost: Cost,
        leaving: bool,
    ) -> Vec<Grant<W>> {
        self.release(payer, cost, leaving);
        self.serve(cost.process)
    }

    fn release(&mut self, payer: &PermitOwner, cost: Cost, leaving: bool) {
        self.change(payer, |tally| {
            tally.taken.sub(cost);
            if leaving {
                tally.leaving.sub(cost);
            }
        });
    }

    /// Marks a permit as about to be freed.
    pub(super) fn leave_soon(&mut self, payer: &PermitOwner, cost: Cost) {
        self.change(payer, |tally| tally.leaving.add(cost));
    }

    /// Moves a permit to another payer, if its limit allows it. That may free capacity of the first payer for
    /// a waiting request.
    pub(super) fn assign(
        &mut self,
        from: &PermitOwner,
        to: &PermitOwner,
        cost: Cost,
        leaving: bool,
    ) -> Result<Vec<Grant<W>>, Obstacle> {
        let obstacle = self.obstacle(to, cost, true).filter(|obstacle| obstacle.is_of_owner());
        if let Some(obstacle) = obstacle {
            return Err(obstacle);
        }
        self.change(to, |tally| {
            tally.taken.add(cost);
            if leaving {
                tally.leaving.add(cost);
            }
        });
        self.release(from, cost, leaving);
        Ok(self.serve(false))
    }

    /// Adds a request to the queue.
    pub(super) fn join(&mut self, payer: PermitOwner, cost: Cost, to: W) -> Ticket {
        self.tickets += 1;
        let number = self.tickets;
        if !self.waits(&payer) {
            self.turns.push_back(payer.clone());
        }
        let line = &mut self.account(&payer).lines[usize::from(cost.process)];
        line.insert(number, Waiter { to, refused: None });
        self.change(&payer, |tally| tally.waiting.add(cost));
        Ticket { payer, cost, number }
    }

    /// Removes a request from the queue, if it was not served meanwhile.
    pub(super) fn quit(&mut self, Ticket { payer, cost, number }: &Ticket) {
        let Some(account) = self.accounts.get_mut(payer) else { return };
        if account.lines[usize::from(cost.process)].remove(number).is_none() {
            return;
        }
        self.change(payer, |tally| tally.waiting.sub(*cost));
        if !self.waits(payer) {
            self.turns.retain(|turn| turn != payer);
        }
    }

    /// Returns the limit that blocks this request, if it still waits and too few permits are about to be
    /// freed. The request then counts as asking until [`Ledger::end_to_ask`].
    pub(super) fn begin_to_ask(&mut self, ticket: &Ticket) -> Option<Obstacle> {
        // Woken because a link may have become idle: an earlier refusal is void, even if another limit blocks
        // the request now.
        self.waiter(ticket)?.refused = None;
        let obstacle = self.obstacle(&ticket.payer, ticket.cost, false)?;
        if !self.is_short(&ticket.payer, obstacle) {
            return None;
        }
        self.asking(&ticket.payer, obstacle).add(ticket.cost);
        Some(obstacle)
    }

    pub(super) fn end_to_ask(&mut self, ticket: &Ticket, obstacle: Obstacle, found: bool) {
        self.asking(&ticket.payer, obstacle).sub(ticket.cost);
        if let Some(waiter) = self.waiter(ticket) {
            waiter.refused = (!found).then_some(obstacle);
        }
        self.remove_if_empty(&ticket.payer);
    }

    /// Whether a waiting request should ask for an idle link again: a freed permit lifted one limit and
    /// another one remains, or it went to a different request than expected.
    pub(super) fn should_ask(&self) -> bool {
        self.turns.iter().any(|payer| {
            [false, true].into_iter().any(|process| {
                let lines = self.accounts.get(payer).map(|account| &account.lines);
                let line = lines.and_then(|lines| lines[usize::from(process)].first_key_value());
                let Some((_, waiter)) = line else { return false };
                let obstacle = self.obstacle(payer, Cost { process }, false);
                obstacle.is_some_and(|it| waiter.refused != obstacle && self.is_short(payer, it))
            })
        })
    }

    /// Whether fewer permits are about to be freed than are waited for.
    fn is_short(&self, payer: &PermitOwner, obstacle: Obstacle) -> bool {
        let (own, process) = (self.tally(payer), obstacle.is_of_processes());
        let (tally, wanted) = if obstacle.is_of_owner() {
            (own, own.waiting.get(process))
        } else {
            (self.total, self.wanted(process))
        };
        tally.leaving.get(process) + tally.asking.get(process) < wanted
    }

    fn waiter(&mut self, Ticket { payer, cost, number }: &Ticket) -> Option<&mut Waiter<W>> {
        self.accounts.get_mut(payer)?.lines[usize::from(cost.process)].get_mut(number)
    }

    fn asking(&mut self, payer: &PermitOwner, obstacle: Obstacle) -> &mut Count {
        if obstacle.is_of_owner() {
            &mut self.account(payer).tally.asking
        } else {
            &mut self.total.asking
        }
    }

    /// Number of waiting requests that would be served without the global limits. The others wait for their
    /// own owner's limit; links of other owners are not ended for them.
    fn wanted(&self, process: bool) -> usize {
        let caps = self.limits.per_owner;
        let served = |payer: &PermitOwner| {
            let own = self.tally(payer);
            let waiting = own.waiting.get(process);
            let room = |cap: usize, process| {
                (cap + own.leaving.get(process)).saturating_sub(own.taken.get(process))
            };
            match payer {
                None => waiting,
                Some(_) if process => {
                    waiting.min(room(caps.processes, true)).min(room(caps.links, false))
                }
                Some(_) => waiting.min(room(caps.links, false)),
            }
        };
        self.turns.iter().map(served).sum()
    }

    /// Replaces the limits.
    pub(super) fn limit(&mut self, limits: Limits) -> Vec<Grant<W>> {
        self.limits = limits;
        self.serve(false)
    }

    /// Stores a sample: the memory of so many processes. Those that it leaves out are estimated.
    pub(super) fn measured(&mut self, memory: u64, processes: usize) -> Vec<Grant<W>> {
        self.memory.sample(memory, processes, self.total.taken.processes);
        self.serve(false)
    }

    /// Serves all requests that can be served, one per payer in turn. With `swap`, one process is admitted
    /// for the one that ended, whatever the memory is.
    fn serve(&mut self, mut swap: bool) -> Vec<Grant<W>> {
        let mut grants = Vec::new();
        let mut at = 0;
        while at < self.turns.len() && self.total.taken.links < self.limits.links {
            let payer = self.turns[at].clone();
            let Some((number, cost)) = self.next(&payer, swap) else {
                // Blocked by its own limit: the payer keeps its turn.
                at += 1;
                continue;
            };
            let line = &mut self.account(&payer).lines[usize::from(cost.process)];
            let Some(Waiter { to, .. }) = line.remove(&number) else { break };
            swap &= !cost.process;
            self.take(&payer, cost);
            self.change(&payer, |tally| tally.waiting.sub(cost));
            self.turns.remove(at);
            if self.waits(&payer) {
                self.turns.push_back(payer.clone());
            }
            grants.push(Grant { payer, cost, to });
        }
        grants
    }

    /// Returns the first waiting request of a payer that no limit blocks.
    fn next(&self, payer: &PermitOwner, swap: bool) -> Option<(u64, Cost)> {
        let account = self.accounts.get(payer)?;
        let fitting = [false, true].into_iter().filter_map(|process| {
            let (number, _) = account.lines[usize::from(process)].first_key_value()?;
            let cost = Cost { process };
            self.obstacle(payer, cost, swap).is_none().then_some((*number, cost))
        });
        fitting.min_by_key(|(number, _)| *number)
    }

    fn waits(&self, payer: &PermitOwner) -> bool {
        self.tally(payer).waiting.links > 0
    }

    fn account(&mut self, payer: &PermitOwner) -> &mut OwnerAccount<W> {
        self.accounts.entry(payer.clone()).or_default()
    }

    fn tally(&self, payer: &PermitOwner) -> PermitCounts {
        self.accounts.get(payer).map(|account| account.tally).unwrap_or_default()
    }

    /// Applies a change to the counts of the payer and to the total.
    fn change(&mut self, payer: &PermitOwner, change: impl Fn(&mut PermitCounts)) {
        change(&mut self.total);
        change(&mut self.account(payer).tally);
        self.remove_if_empty(payer);
    }

    /// Removes the account of a payer without permits and requests.
    fn remove_if_empty(&mut self, payer: &PermitOwner) {
        if self.accounts.get(payer).is_some_and(|account| account.tally.is_empty()) {
            self.accounts.remove(payer);
        }
    }

    #[cfg(test)]
    pub(super) fn payers(&self) -> usize {
        self.accounts.len()
    }
}

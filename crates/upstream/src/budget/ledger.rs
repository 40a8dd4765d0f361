//! Who has what, and who is next: the part without waiting.

use std::collections::{BTreeMap, HashMap, VecDeque};

use stayput_core::Owner;

use super::limits::{Cost, Limits, Obstacle, Used};

/// Nobody stands for links that belong to all. They have no cap of their own, and one turn in the
/// line like an owner.
pub(super) type Payer = Option<Owner>;

/// All places, taken and wanted. `W` is how one who waits is told.
///
/// After each change nobody waits who could be served. So whoever comes new and finds a place
/// overtakes nobody: all who wait are held up by something that is not in the way of the new one.
pub(super) struct Ledger<W> {
    limits: Limits,
    total: Tally,
    accounts: HashMap<Payer, Account<W>>,
    /// Payers with somebody in line, the next to be served first.
    turns: VecDeque<Payer>,
    memory: u64,
    tickets: u64,
}

/// What one payer has and waits for.
struct Account<W> {
    tally: Tally,
    /// Those in line, by ticket. One for processes and one for other links: a link over HTTP must
    /// not wait behind a process.
    lines: [BTreeMap<u64, Waiter<W>>; 2],
}

struct Waiter<W> {
    to: W,
    /// In the way of what nothing idle was found when it asked last. Only something that becomes
    /// idle can change that.
    refused: Option<Obstacle>,
}

/// A place in the line.
pub(super) struct Ticket {
    pub(super) payer: Payer,
    pub(super) cost: Cost,
    number: u64,
}

impl<W> Default for Account<W> {
    fn default() -> Self {
        Self { tally: Tally::default(), lines: [BTreeMap::new(), BTreeMap::new()] }
    }
}

/// Numbers of one payer, or of all together.
#[derive(Clone, Copy, Default)]
struct Tally {
    taken: Count,
    /// Of those taken, the ones that come back soon.
    leaving: Count,
    waiting: Count,
    /// How many are just asking for something to be recycled: of this payer, or of anybody.
    asking: Count,
}

impl Tally {
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
    fn of(self, process: bool) -> usize {
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

/// A place that was given to somebody who waited.
pub(super) struct Grant<W> {
    pub(super) payer: Payer,
    pub(super) cost: Cost,
    pub(super) to: W,
}

impl<W> Ledger<W> {
    pub(super) fn new(limits: Limits) -> Self {
        let (accounts, turns) = (HashMap::new(), VecDeque::new());
        Self { limits, total: Tally::default(), accounts, turns, memory: 0, tickets: 0 }
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(super) fn used(&self) -> Used {
        let Count { processes, links } = self.total.taken;
        Used { processes, links, waiting: self.total.waiting.links }
    }

    /// What is in the way of one more link. With `swap` a process has just gone, and the memory that
    /// it had is not measured anew yet.
    pub(super) fn obstacle(&self, payer: &Payer, cost: Cost, swap: bool) -> Option<Obstacle> {
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
        // Without any process the measure is old or wrong, and would never change.
        let over = limits.memory.filter(|limit| self.memory > *limit);
        let gated = process && !swap && all.processes > 0;
        over.filter(|_| gated).map(Obstacle::Memory)
    }

    /// Takes a place that is free.
    pub(super) fn take(&mut self, payer: &Payer, cost: Cost) {
        self.change(payer, |tally| tally.taken.add(cost));
    }

    /// Gives a place back, and says who got it.
    pub(super) fn give_back(&mut self, payer: &Payer, cost: Cost, leaving: bool) -> Vec<Grant<W>> {
        self.release(payer, cost, leaving);
        self.serve(cost.process)
    }

    fn release(&mut self, payer: &Payer, cost: Cost, leaving: bool) {
        self.change(payer, |tally| {
            tally.taken.sub(cost);
            if leaving {
                tally.leaving.sub(cost);
            }
        });
    }

    /// A place comes back soon.
    pub(super) fn leave_soon(&mut self, payer: &Payer, cost: Cost) {
        self.change(payer, |tally| tally.leaving.add(cost));
    }

    /// Moves a place from one payer to another, if that one may have it. What the first one had too
    /// much may let somebody in.
    pub(super) fn assign(
        &mut self,
        from: &Payer,
        to: &Payer,
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

    /// Joins the line.
    pub(super) fn join(&mut self, payer: Payer, cost: Cost, to: W) -> Ticket {
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

    /// Leaves the line, if it was not served meanwhile.
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

    /// What is in the way of the one with this ticket, if it is still in line and too little is on its
    /// way back. It then counts as asking until [`Ledger::end_to_ask`].
    pub(super) fn begin_to_ask(&mut self, ticket: &Ticket) -> Option<Obstacle> {
        // It is woken because something may have become idle, so an earlier no is void: also if it
        // now wants something else, and comes back to that later.
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
        self.tidy(&ticket.payer);
    }

    /// Whether somebody in line should ask again: a place that came back took one thing out of the
    /// way and left another, or went to somebody else than to whom it was meant for.
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

    /// Whether less is on its way back than is waited for.
    fn is_short(&self, payer: &Payer, obstacle: Obstacle) -> bool {
        let (own, process) = (self.tally(payer), obstacle.is_of_processes());
        let (tally, wanted) = if obstacle.is_of_owner() {
            (own, own.waiting.of(process))
        } else {
            (self.total, self.wanted(process))
        };
        tally.leaving.of(process) + tally.asking.of(process) < wanted
    }

    fn waiter(&mut self, Ticket { payer, cost, number }: &Ticket) -> Option<&mut Waiter<W>> {
        self.accounts.get_mut(payer)?.lines[usize::from(cost.process)].get_mut(number)
    }

    fn asking(&mut self, payer: &Payer, obstacle: Obstacle) -> &mut Count {
        if obstacle.is_of_owner() {
            &mut self.account(payer).tally.asking
        } else {
            &mut self.total.asking
        }
    }

    /// How many of those in line would be served if there were no limit on all together. The others
    /// wait for places of their own owner, and nobody else's link has to end for them.
    fn wanted(&self, process: bool) -> usize {
        let caps = self.limits.per_owner;
        let served = |payer: &Payer| {
            let own = self.tally(payer);
            let waiting = own.waiting.of(process);
            let room = |cap: usize, process| {
                (cap + own.leaving.of(process)).saturating_sub(own.taken.of(process))
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

    /// Other limits hold.
    pub(super) fn limit(&mut self, limits: Limits) -> Vec<Grant<W>> {
        self.limits = limits;
        self.serve(false)
    }

    pub(super) fn measured(&mut self, memory: u64) -> Vec<Grant<W>> {
        self.memory = memory;
        self.serve(false)
    }

    /// Serves all who can be served, one of each payer in turn. With `swap` one process may come for
    /// the one that went, whatever the memory is.
    fn serve(&mut self, mut swap: bool) -> Vec<Grant<W>> {
        let mut grants = Vec::new();
        let mut at = 0;
        while at < self.turns.len() && self.total.taken.links < self.limits.links {
            let payer = self.turns[at].clone();
            let Some((number, cost)) = self.next(&payer, swap) else {
                // Held up by its own cap, or by what it needs: it keeps its turn.
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

    /// The first in line of a payer that there is a place for.
    fn next(&self, payer: &Payer, swap: bool) -> Option<(u64, Cost)> {
        let account = self.accounts.get(payer)?;
        let fitting = [false, true].into_iter().filter_map(|process| {
            let (number, _) = account.lines[usize::from(process)].first_key_value()?;
            let cost = Cost { process };
            self.obstacle(payer, cost, swap).is_none().then_some((*number, cost))
        });
        fitting.min_by_key(|(number, _)| *number)
    }

    fn waits(&self, payer: &Payer) -> bool {
        self.tally(payer).waiting.links > 0
    }

    fn account(&mut self, payer: &Payer) -> &mut Account<W> {
        self.accounts.entry(payer.clone()).or_default()
    }

    fn tally(&self, payer: &Payer) -> Tally {
        self.accounts.get(payer).map(|account| account.tally).unwrap_or_default()
    }

    /// The same change for the payer and for all together.
    fn change(&mut self, payer: &Payer, change: impl Fn(&mut Tally)) {
        change(&mut self.total);
        change(&mut self.account(payer).tally);
        self.tidy(payer);
    }

    /// Forgets a payer who has nothing and wants nothing.
    fn tidy(&mut self, payer: &Payer) {
        if self.accounts.get(payer).is_some_and(|account| account.tally.is_empty()) {
            self.accounts.remove(payer);
        }
    }

    #[cfg(test)]
    pub(super) fn payers(&self) -> usize {
        self.accounts.len()
    }
}

//! Learning how servers are spoken to, each once.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::{
    Cost, EraChoice, Expansion, Hello, Identity, Isolation, LossReason, OpenError, Profile, Scope,
    Server, Way,
    backoff::Backoff,
    handshake::Refusal,
    lock::lock,
    opener::{Opener, Plan},
};
use tokio::{sync::Mutex as AsyncMutex, time::Instant};

/// The profiles of all servers, by configuration and credentials, and by what is wanted of them: a
/// server that speaks both eras is known in two ways.
#[derive(Debug, Default)]
pub(crate) struct Profiles(Mutex<HashMap<Key, Arc<Learned>>>);

type Key = (Identity, &'static [Way]);

/// One profile, or the place for it. Who comes while it is learned waits for it.
#[derive(Debug, Default)]
struct Learned {
    known: Mutex<Option<Arc<Profile>>>,
    learning: AsyncMutex<Rest>,
}

/// The rest that a server is given after it could not be asked.
#[derive(Debug)]
struct Rest {
    backoff: Backoff,
    until: Option<(Instant, String)>,
}

impl Default for Rest {
    fn default() -> Self {
        let backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(30));
        Self { backoff, until: None }
    }
}

impl Rest {
    fn check(&self, server: &Server) -> Result<(), OpenError> {
        let Some((until, last)) = &self.until else { return Ok(()) };
        let Some(pause) = until.checked_duration_since(Instant::now()) else { return Ok(()) };
        let (server, last) = (server.name().to_owned(), last.clone());
        Err(OpenError::Resting { server, pause, last })
    }

    fn begin(&mut self, error: &OpenError) {
        if error.is_of_server() {
            self.until = Some((Instant::now() + self.backoff.next(), error.to_string()));
        }
    }
}

impl Profiles {
    fn place(&self, server: &Server, expansion: &Expansion) -> Arc<Learned> {
        let key = (server.profile_identity(expansion), ways(server));
        lock(&self.0).entry(key).or_default().clone()
    }

    /// What is known.
    pub(crate) fn known(&self, server: &Server, expansion: &Expansion) -> Option<Arc<Profile>> {
        lock(&self.place(server, expansion).known).clone()
    }

    /// What was learned elsewhere, or earlier, unless it is not wanted any more.
    pub(crate) fn set(&self, server: &Server, expansion: &Expansion, profile: Profile) {
        let way = profile.way();
        if ways(server).contains(&way) && fits(server, way) {
            *lock(&self.place(server, expansion).known) = Some(Arc::new(profile));
        }
    }

    /// What is known, or else what a link tells that is opened and thrown away.
    pub(crate) async fn get(
        &self,
        opener: &Opener,
        server: &Server,
        scope: &Scope,
        recycle: &dyn crate::Recycle,
    ) -> Result<Arc<Profile>, OpenError> {
        let expansion = opener.folders.expansion(server, scope).await?;
        let place = self.place(server, &expansion);
        if let Some(known) = lock(&place.known).clone() {
            return Ok(known);
        }
        let mut rest = place.learning.lock().await;
        if let Some(known) = lock(&place.known).clone() {
            return Ok(known);
        }
        rest.check(server)?;
        let learned = learn(opener, server, scope, recycle).await;
        let profile = Arc::new(learned.inspect_err(|error| rest.begin(error))?);
        *lock(&place.known) = Some(profile.clone());
        Ok(profile)
    }
}

/// The ways to try, in order.
///
/// A server that speaks both eras is spoken to as legacy when its state is to be kept, and some lock
/// themselves to the era of the first word they hear: so the era that is wanted is tried first. What
/// did not understand the first word gets a fresh link for the second.
fn ways(server: &Server) -> &'static [Way] {
    match (server.options().era, server.options().isolation) {
        (EraChoice::Legacy, _) => &[Way::Legacy, Way::Sse],
        (EraChoice::Modern, _) => &[Way::Modern],
        (EraChoice::Auto, Some(Isolation::Shared)) => &[Way::Modern, Way::Legacy, Way::Sse],
        (EraChoice::Auto, _) => &[Way::Legacy, Way::Modern, Way::Sse],
    }
}

async fn learn(
    opener: &Opener,
    server: &Server,
    scope: &Scope,
    recycle: &dyn crate::Recycle,
) -> Result<Profile, OpenError> {
    let hello = Hello::default();
    let plan = Plan { server, scope, hello: &hello };
    let mut first = None;
    let mut ways = ways(server).iter().copied().filter(|way| fits(server, *way)).peekable();
    while let Some(way) = ways.next() {
        let cost = Cost { process: server.is_process() };
        let permit = opener.budget.admit(scope.owner(), cost, recycle).await?;
        let timeouts = server.options().timeouts;
        // Where nothing else can be tried, who is slow to start is waited for.
        let other = way == Way::Modern && ways.peek().is_some();
        let limit = if other { timeouts.probe } else { timeouts.open };
        match opener.discover(plan, way, permit, limit).await {
            Ok(link) => {
                let mut profile = Profile::new(way, link.greeting().clone());
                profile.learn_lists(&link).await;
                // Thrown away for good: its session on the server, too.
                link.close(LossReason::Ended);
                link.gone().await;
                return Ok(profile);
            }
            // The first refusal is the one that says most.
            Err(Refusal::OtherEra(error)) => {
                first.get_or_insert(error);
            }
            Err(Refusal::Failed(error)) => return Err(first.unwrap_or(error)),
        }
    }
    Err(first.unwrap_or_else(|| OpenError::Ended { server: server.name().to_owned() }))
}

fn fits(server: &Server, way: Way) -> bool {
    match way {
        Way::Sse => !server.is_process(),
        Way::Legacy | Way::Modern => !server.is_sse(),
    }
}

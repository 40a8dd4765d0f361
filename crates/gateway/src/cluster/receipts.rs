//! Receipts for answers that another replica passes on.
//!
//! A loss of state counts as acknowledged when its report was written to the client. The holder of a session does not write
//! to the client of a forwarded request, so it keeps what follows from the report until the other replica says that the
//! report was written.

use std::{
    collections::HashMap,
    sync::{Arc, MutexGuard},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response};
use stayput_core::{Holder, SessionId};
use stayput_sync::Mutex;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use super::{Cluster, ForwardOutcome, ForwardedRequest};
use crate::{
    auth::Principal,
    reply::{AfterWrite, AfterWriteSink, Reply},
};

/// Header of an answer with the id of the receipt that the holder waits for.
pub(super) const RECEIPT: HeaderName = HeaderName::from_static("stayput-receipt");

/// Path of receipts. The id follows. POST says that the answer was written, DELETE that it was not.
pub(crate) const RECEIPTS: &str = "/cluster/receipts/";

/// Time after which a receipt is not expected any more. The client then gets the report again.
const MAX_AGE: Duration = Duration::from_secs(60);

/// Longest time that a call waits until it is known whether its client got the report of a loss.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// Longest time to send a receipt, and the pause between two attempts.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
const SEND_INTERVAL: Duration = Duration::from_millis(100);

/// Actions of answers whose receipts have not come yet.
#[derive(Default)]
pub(crate) struct PendingReceipts {
    all: Mutex<HashMap<u64, PendingReceipt>>,
    settled: Notify,
}

struct PendingReceipt {
    since: Instant,
    /// Sessions whose losses the answer reports.
    sessions: Vec<SessionId>,
    actions: Vec<AfterWrite>,
}

impl PendingReceipts {
    fn all(&self) -> MutexGuard<'_, HashMap<u64, PendingReceipt>> {
        self.all.lock()
    }

    /// Makes the actions of an answer to another replica wait for its receipt.
    pub(crate) fn expect(self: &Arc<Self>, response: &mut Response<Reply>) {
        let mut bytes = [0; 8];
        // Without randomness, the loss counts as reported when it is written to the other replica.
        if getrandom::fill(&mut bytes).is_err() {
            return;
        }
        let (id, pending) = (u64::from_be_bytes(bytes), self.clone());
        let sink: AfterWriteSink = Arc::new(move |action| pending.add(id, action));
        if response.body_mut().defer(sink)
            && let Ok(value) = HeaderValue::from_str(&format!("{id:016x}"))
        {
            response.headers_mut().insert(RECEIPT, value);
        }
    }

    fn add(&self, id: u64, action: AfterWrite) {
        let mut all = self.all();
        all.retain(|_, pending| pending.since.elapsed() < MAX_AGE);
        let pending = all.entry(id).or_insert_with(|| PendingReceipt {
            since: Instant::now(),
            sessions: Vec::new(),
            actions: Vec::new(),
        });
        pending.sessions.extend(action.session);
        pending.actions.push(action);
    }

    /// Takes a receipt: runs the actions of the answer if it was written, or drops them.
    pub(crate) fn settle(&self, id: &str, is_written: bool) {
        let Ok(id) = u64::from_str_radix(id, 16) else { return };
        let actions = self.all().get_mut(&id).map(|it| std::mem::take(&mut it.actions));
        if is_written {
            actions.into_iter().flatten().for_each(AfterWrite::run);
        }
        // Removed after the actions have run: a call that waits finds the loss acknowledged.
        self.all().remove(&id);
        self.settled.notify_waiters();
    }

    /// Waits until no report of a loss of this session is under way to its client, for a limited time.
    pub(crate) async fn wait_for(&self, session: SessionId) {
        let concerns = |it: &PendingReceipt| it.sessions.contains(&session);
        self.wait(Instant::now() + MAX_WAIT, concerns).await;
    }

    /// Waits until all receipts have come, at most until `until`.
    pub(crate) async fn all_settled(&self, until: Instant) {
        self.wait(until, |_| true).await;
    }

    async fn wait(&self, until: Instant, which: impl Fn(&PendingReceipt) -> bool) {
        let settled = async {
            loop {
                let settled = self.settled.notified();
                tokio::pin!(settled);
                settled.as_mut().enable();
                if !self.all().values().any(&which) {
                    return;
                }
                settled.await;
            }
        };
        let _ = tokio::time::timeout_at(until, settled).await;
    }
}

/// Number of receipts that this replica is sending.
pub(super) struct ReceiptsInFlight(watch::Sender<usize>);

impl Default for ReceiptsInFlight {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl ReceiptsInFlight {
    /// Waits until all are sent, at most until `until`.
    pub(super) async fn all_sent(&self, until: Instant) {
        let mut count = self.0.subscribe();
        let _ = tokio::time::timeout_at(until, count.wait_for(|count| *count == 0)).await;
    }
}

/// Receipt that this replica owes to the holder of a session. Dropping it says that the answer was not written.
pub(super) struct Receipt {
    cluster: Arc<Cluster>,
    to: Holder,
    id: String,
    principal: Principal,
    is_written: bool,
}

impl Receipt {
    /// Reads from the headers of an answer whether its sender waits for a receipt.
    pub(super) fn owed(
        cluster: &Arc<Cluster>,
        to: &Holder,
        principal: &Principal,
        answer: &HeaderMap,
    ) -> Option<Self> {
        let id = answer.get(RECEIPT)?.to_str().ok()?.to_owned();
        let (cluster, to, principal) = (cluster.clone(), to.clone(), principal.clone());
        Some(Self { cluster, to, id, principal, is_written: false })
    }

    /// Says that the answer was written to the client.
    pub(super) fn answer_was_written(mut self) {
        self.is_written = true;
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (cluster, to) = (self.cluster.clone(), self.to.clone());
        let (path, principal) = (format!("{RECEIPTS}{}", self.id), self.principal.clone());
        let method = if self.is_written { Method::POST } else { Method::DELETE };
        cluster.receipts_in_flight.0.send_modify(|count| *count += 1);
        runtime.spawn(async move {
            let sent = send(&cluster, &to, (&method, &path), &principal);
            if tokio::time::timeout(SEND_TIMEOUT, sent).await.is_err() {
                tracing::debug!(replica = %to.id, "a receipt was not sent; the loss is reported again");
            }
            cluster.receipts_in_flight.0.send_modify(|count| *count -= 1);
        });
    }
}

/// Sends a receipt until it has arrived or the holder is gone.
async fn send(
    cluster: &Arc<Cluster>,
    to: &Holder,
    (method, path): (&Method, &str),
    principal: &Principal,
) {
    let headers = HeaderMap::new();
    loop {
        let request =
            ForwardedRequest { method, path, headers: &headers, body: Bytes::new(), principal };
        match cluster.forward(to, request).await {
            ForwardOutcome::Answered(answer) if answer.status().is_success() => return,
            _ if !cluster.live_peers().contains(to) => return,
            _ => tokio::time::sleep(SEND_INTERVAL).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures_util::FutureExt as _;
    use http_body_util::BodyExt as _;
    use stayput_core::Timestamp;

    use super::*;
    use crate::reply;

    /// Returns an answer that reports a loss, the flag of its acknowledgement, and the id of the receipt.
    fn report(
        pending: &Arc<PendingReceipts>,
        session: SessionId,
    ) -> (Response<Reply>, Arc<AtomicBool>, String) {
        let acknowledged = Arc::new(AtomicBool::new(false));
        let flag = acknowledged.clone();
        let then = AfterWrite::new(Some(session), move || flag.store(true, Ordering::Relaxed));
        let mut response = reply::message_then("{}", Some(then));
        pending.expect(&mut response);
        let id = response.headers()[RECEIPT].to_str().unwrap().to_owned();
        (response, acknowledged, id)
    }

    /// Invariant 3: a report counts when the receipt says that it was written, not before, and not without that.
    #[tokio::test]
    async fn loss_is_acknowledged_by_the_receipt_of_its_report() {
        let pending = Arc::new(PendingReceipts::default());
        let session = SessionId::generate(Timestamp::from_millis(1));
        let other = SessionId::generate(Timestamp::from_millis(2));
        for is_written in [true, false] {
            let (response, acknowledged, id) = report(&pending, session);
            assert!(pending.wait_for(session).now_or_never().is_some(), "nothing was written yet");
            response.into_body().collect().await.unwrap();
            assert!(!acknowledged.load(Ordering::Relaxed));
            assert!(pending.wait_for(other).now_or_never().is_some());
            let waiting = pending.wait_for(session);
            tokio::pin!(waiting);
            assert!(waiting.as_mut().now_or_never().is_none());
            pending.settle(&id, is_written);
            assert_eq!(acknowledged.load(Ordering::Relaxed), is_written);
            assert!(waiting.now_or_never().is_some());
        }
    }

    /// An answer that was never written has nothing to wait for.
    #[tokio::test]
    async fn unwritten_report_is_not_pending() {
        let pending = Arc::new(PendingReceipts::default());
        let (response, acknowledged, id) =
            report(&pending, SessionId::generate(Timestamp::from_millis(1)));
        drop(response);
        assert!(pending.all_settled(Instant::now() + MAX_WAIT).now_or_never().is_some());
        pending.settle(&id, true);
        assert!(!acknowledged.load(Ordering::Relaxed));
    }
}

//! Spans of calls, sent to a trace collector.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use http::{HeaderName, HeaderValue};
use stayput_http::{Client, ClientError, ClientSettings, Target};
use tokio::{
    runtime::Handle,
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::otlp::Exporter;
use crate::observe::{
    call_observation::{CallEnd, CallObservation},
    traceparent::Trace,
};

/// Maximum number of queued spans. More are dropped, so that a slow collector stops no call.
const WAITING: usize = 4_096;

/// Number of spans per batch, and the time that the first of them waits for more.
const BATCH: usize = 512;
const BATCH_DELAY: Duration = Duration::from_secs(1);

/// Trace collector.
#[derive(Clone, PartialEq)]
pub(crate) struct SpansRules {
    pub(crate) url: Target,
    /// Headers of the requests. They may hold credentials.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
}

/// Span of one call.
#[derive(Debug)]
pub(super) struct Span {
    pub(super) trace: Trace,
    pub(super) name: String,
    /// Milliseconds since 1970.
    pub(super) at: u64,
    pub(super) took: Duration,
    pub(super) outcome: CallEnd,
    pub(super) attributes: Vec<(&'static str, String)>,
}

impl Span {
    pub(super) fn new(
        noted: &CallObservation,
        trace: Trace,
        outcome: CallEnd,
        took: Duration,
    ) -> Self {
        let CallObservation { method, tool, server, session, at, .. } = noted;
        let name = match tool {
            Some(tool) => format!("{method} {tool}"),
            None => method.clone(),
        };
        let mut attributes = vec![
            ("mcp.method.name", method.clone()),
            ("stayput.outcome", outcome.as_str().to_owned()),
        ];
        attributes.extend(server.iter().map(|server| ("stayput.server", server.to_string())));
        attributes.extend(tool.iter().map(|tool| ("gen_ai.tool.name", tool.clone())));
        attributes.extend(session.iter().map(|id| ("stayput.session", id.to_string())));
        Self { trace, name, at: at.as_millis(), took, outcome, attributes }
    }
}

/// Queues spans for the task that sends them. Never blocks.
#[derive(Debug)]
pub(crate) struct Spans {
    orders: mpsc::Sender<ExporterCommand>,
    dropped: Arc<AtomicU64>,
}

#[derive(Debug)]
enum ExporterCommand {
    Span(Box<Span>),
    Flush(oneshot::Sender<()>),
}

impl Spans {
    pub(super) fn start(rules: SpansRules) -> Result<Self, ClientError> {
        let client = Client::new(&ClientSettings::default())?;
        let exporter = Exporter::new(client, rules);
        let (orders, received) = mpsc::channel(WAITING);
        let dropped = Arc::<AtomicU64>::default();
        Handle::current().spawn(send(received, exporter, dropped.clone()));
        Ok(Self { orders, dropped })
    }

    /// Queues a span if its trace is sampled. Drops it if the queue is full.
    pub(super) fn add(&self, span: Span) {
        if span.trace.sampled
            && self.orders.try_send(ExporterCommand::Span(Box::new(span))).is_err()
        {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Waits until all queued spans are sent or have failed.
    pub(super) async fn flush(&self) {
        let (tell, sent) = oneshot::channel();
        if self.orders.send(ExporterCommand::Flush(tell)).await.is_ok() {
            let _ = sent.await;
        }
    }
}

async fn send(
    mut orders: mpsc::Receiver<ExporterCommand>,
    mut exporter: Exporter,
    dropped: Arc<AtomicU64>,
) {
    while let Some(first) = orders.recv().await {
        let (mut batch, mut flushed, mut next) = (Vec::new(), None, Some(first));
        let until = Instant::now() + BATCH_DELAY;
        while let Some(order) = next.take() {
            match order {
                ExporterCommand::Span(span) => batch.push(*span),
                ExporterCommand::Flush(tell) => flushed = Some(tell),
            }
            if batch.len() < BATCH && flushed.is_none() {
                next = tokio::time::timeout_at(until, orders.recv()).await.ok().flatten();
            }
        }
        if !batch.is_empty() && !exporter.send(&batch, flushed.is_some()).await {
            let lost = u64::try_from(batch.len()).unwrap_or(u64::MAX);
            dropped.fetch_add(lost, Ordering::Relaxed);
        }
        if let Some(tell) = flushed {
            let _ = tell.send(());
        }
    }
}

impl fmt::Debug for SpansRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("SpansRules").field("url", &self.url).field("headers", &headers).finish()
    }
}

//! Trace context of callers, for the `_meta` of their requests.

use std::{fmt, sync::Arc};

use serde_json::{Map, Value};

/// Callback that returns the trace context of its caller, see [`Builder::trace_context`](crate::Builder::trace_context).
#[derive(Clone)]
pub(crate) struct TraceContext(Arc<dyn Fn() -> Vec<(String, String)> + Send + Sync>);

impl TraceContext {
    pub(crate) fn new(
        callback: impl Fn() -> Vec<(String, String)> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(callback))
    }

    /// Returns the members of `_meta` for a request of the current task.
    pub(crate) fn current(&self) -> Map<String, Value> {
        self.0().into_iter().map(|(name, value)| (name, Value::String(value))).collect()
    }
}

impl fmt::Debug for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TraceContext(…)")
    }
}

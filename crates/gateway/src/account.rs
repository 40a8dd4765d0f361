//! One call, as it is told to whoever runs the gateway.

use std::sync::Arc;

use stayput_core::Session;
use stayput_upstream::{Answer, CallError, Held, Server};
use stayput_wire::Message;

use crate::{house::House, metrics::Timing, usage::Usage};

/// What is told of a call when it is over.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// From when it is sent.
    timing: Option<Timing>,
}

/// A call that is about to be made.
#[derive(Clone, Copy)]
pub(crate) struct Begun<'a> {
    /// Whose it is, if it is a session's.
    pub(crate) session: Option<&'a Session>,
    pub(crate) server: &'a Server,
    pub(crate) message: &'a Message<'a>,
}

impl Begun<'_> {
    /// The tool that it is for, if it is for one.
    fn tool(&self) -> Option<std::borrow::Cow<'_, str>> {
        let call = self.message.method() == Some("tools/call");
        let params = self.message.params().filter(|_| call)?;
        params.find(&["name"])?.text()
    }
}

impl Account {
    /// Notes that a call begins.
    pub(crate) fn begin(begun: Begun<'_>) -> Self {
        if let Some(usage) = begun.session.and_then(Usage::of) {
            usage.called(begun.server.shared_name(), begun.tool().as_deref());
        }
        Self::default()
    }

    /// It is sent now: from here on its server is waited for.
    pub(crate) fn sent(&mut self, house: &House, server: &str) {
        self.timing = house.metrics.call(server);
    }

    /// It came to this.
    pub(crate) fn ended(
        &self,
        session: Option<&Session>,
        link: &Held,
        end: &Result<Answer, CallError>,
    ) {
        let failure = match end {
            Ok(answer) if answer.error().is_none() => return,
            Ok(answer) => answer.error_message().unwrap_or_default(),
            Err(CallError::Cancelled) => return,
            Err(error) => error.to_string(),
        };
        let Some(usage) = session.and_then(Usage::of) else { return };
        let loss = end.as_ref().err().and_then(CallError::loss);
        let words = match loss {
            Some(loss) => loss.detail().to_owned(),
            None => link.last_words(),
        };
        usage.failed(Arc::from(link.key().server()), failure, &words);
    }
}

//! The hub, as Python holds it.

use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use pyo3::prelude::*;
use serde_json::value::RawValue;
use stayput::{
    Automatic, Error, Expiry, Handlers, Limits, Ticket,
    by_hand::{self, List},
};

use crate::{
    error::raised,
    event::Events,
    keep::{Here, Keep, Last, seconds},
    message::{CALLER, What},
    op::Op,
    question::handlers,
    scope::{Around, Run, Scope},
    session::{On, Opened, Session},
    value::Value,
};

/// The servers that are configured, and the sessions on them, for one agent.
#[pyclass(frozen, module = "stayput._core")]
pub(crate) struct Hub {
    hub: Here<stayput::Hub>,
    // Last: what is above belongs to it.
    keep: Arc<Keep>,
}

/// What a hub is made from, beside its servers.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Settings {
    store: Option<String>,
    folders: Option<PathBuf>,
    idle: Option<f64>,
    lifetime: Option<f64>,
    processes: Option<usize>,
    links: Option<usize>,
    patience: Option<f64>,
    handlers: Vec<String>,
}

impl Settings {
    fn apply(self, builder: stayput::Builder) -> PyResult<stayput::Builder> {
        let mut builder = builder;
        if let Some(store) = &self.store {
            builder = builder.store(store);
        }
        if let Some(folders) = self.folders {
            builder = builder.folders(folders);
        }
        if self.idle.is_some() || self.lifetime.is_some() {
            let usual = Expiry::default();
            let idle = self.idle.map(seconds).transpose()?.or(usual.idle);
            let absolute = self.lifetime.map(seconds).transpose()?.or(usual.absolute);
            builder = builder.expiry(Expiry { idle, absolute });
        }
        let mut limits = Limits::default();
        limits.processes = self.processes.unwrap_or(limits.processes);
        limits.links = self.links.unwrap_or(limits.links);
        limits.wait = self.patience.map_or(Ok(limits.wait), seconds)?;
        // Everything here is one owner's.
        limits.per_owner.processes = limits.processes;
        limits.per_owner.links = limits.links;
        Ok(builder.limits(limits))
    }
}

impl Hub {
    fn of(keep: &Arc<Keep>, hub: stayput::Hub) -> Self {
        Self { hub: Here::new(hub), keep: keep.clone() }
    }

    fn inner(&self) -> PyResult<stayput::Hub> {
        self.hub.get().cloned().map_err(|error| raised(&error))
    }

    /// Something that is asked of it.
    fn op<T, F>(&self, ask: impl FnOnce(stayput::Hub) -> F) -> PyResult<Op>
    where
        T: Value,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        Ok(Op::new(&self.keep, None, ask(self.inner()?)))
    }

    /// A session that is asked for.
    fn opening<F>(&self, ask: impl FnOnce(stayput::Hub) -> F) -> PyResult<Op>
    where
        F: Future<Output = Result<stayput::Session, Error>> + Send + 'static,
    {
        let (keep, opening) = (self.keep.clone(), ask(self.inner()?));
        Ok(Op::new(&self.keep, None, async move { Ok(Opened(keep, opening.await?)) }))
    }

    /// Something that is asked in the scope of the caller, on a session if one is named.
    fn asking<T, F>(
        &self,
        around: Around<'_>,
        on: On<'_>,
        ask: impl FnOnce(stayput::Hub, Option<stayput::Session>) -> F,
    ) -> PyResult<Op>
    where
        T: Value,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let hub = self.inner()?;
        let made = || {
            let session = on.map(|session| session.get().inner()).transpose()?;
            let scope = Scope::of(around)?;
            Ok(Op::new(&self.keep, scope, ask(hub, session)))
        };
        made().map_err(|error: Error| raised(&error))
    }
}

#[pymethods]
impl Hub {
    /// A hub with the servers of a file, or of a text that could stand in one.
    #[staticmethod]
    fn build(
        py: Python<'_>,
        path: Option<PathBuf>,
        text: Option<(String, PathBuf)>,
        settings: Settings,
    ) -> PyResult<Self> {
        let mut builder = stayput::Hub::builder();
        if let Some(path) = path {
            builder = builder.config(path);
        }
        if let Some((text, origin)) = text {
            builder = builder.config_text(&text, origin);
        }
        let (number, last) = (Keep::number(), Last::new(Mutex::new(None)));
        let handlers: Result<Handlers, Error> = handlers(&settings.handlers, number, &last);
        let handlers = handlers.map_err(|error| raised(&error))?;
        let builder = settings.apply(builder)?.handlers(handlers);
        // It can wait for a store.
        let hub = py.detach(|| builder.build()).map_err(|error| raised(&error))?;
        let keep = Keep::new(number, hub.clone(), last);
        Ok(Self::of(&keep, hub))
    }

    /// The same hub for an agent.
    fn agent(&self, name: &str) -> PyResult<Self> {
        let hub = self.inner()?.agent(name).map_err(|error| raised(&error))?;
        Ok(Self::of(&self.keep, hub))
    }

    /// The number of the hub, which all its agents share.
    #[getter]
    fn id(&self) -> u64 {
        self.keep.id
    }

    /// What was passed over in the configuration.
    fn warnings(&self) -> PyResult<Vec<String>> {
        Ok(self.inner()?.warnings().to_vec())
    }

    /// The names of all servers.
    fn server_names(&self) -> PyResult<Vec<String>> {
        Ok(self.inner()?.server_names())
    }

    /// Adds a server, or replaces one, by a text that could stand in a file.
    fn add_server(&self, name: String, text: String, origin: PathBuf) -> PyResult<Op> {
        self.op(|hub| async move {
            let server = RawValue::from_string(text)
                .map_err(|error| Error::Invalid(format!("the server is no JSON: {error}")))?;
            hub.add_configured(&name, server, origin).await
        })
    }

    /// Removes a server; whether there was one.
    fn remove_server(&self, name: String) -> PyResult<Op> {
        self.op(|hub| async move { Ok(hub.remove_server(&name).await) })
    }

    /// Waits until a server can be used, for at most so many seconds.
    fn wait_ready(&self, server: String, limit: f64) -> PyResult<Op> {
        let limit = seconds(limit)?;
        self.op(|hub| async move { hub.wait_ready(&server, limit).await })
    }

    /// The session of this name, found or made.
    fn session(&self, name: String) -> PyResult<Op> {
        self.opening(|hub| async move { hub.session(&name).await })
    }

    /// A session without a name.
    fn ephemeral(&self) -> PyResult<Session> {
        Ok(Session::new(&self.keep, self.inner()?.ephemeral()))
    }

    /// The session of this name, if there is one.
    fn find(&self, name: String) -> PyResult<Op> {
        self.opening(|hub| async move { hub.find(&name).await })
    }

    /// Makes a session under a name that every agent can find.
    fn global_session(&self, name: String) -> PyResult<Op> {
        self.opening(|hub| async move { hub.global_session(&name).await })
    }

    /// The session that some agent made under this name for all.
    fn find_global(&self, name: String) -> PyResult<Op> {
        self.opening(|hub| async move { hub.find_global(&name).await })
    }

    /// Goes on with a session of another process.
    fn resume(&self, ticket: String) -> PyResult<Op> {
        self.opening(|hub| async move { hub.resume(&Ticket::from_secret(ticket)).await })
    }

    /// Calls that belong to no session belong to an automatic one from now on.
    fn automatic(&self, idle: f64, cleanup: bool, prefix: String) -> PyResult<Op> {
        let automatic = Automatic { idle: seconds(idle)?, cleanup, prefix };
        self.opening(|hub| async move { hub.automatic(automatic).await })
    }

    /// Calls that belong to no session are errors again.
    fn manual(&self) -> PyResult<Op> {
        self.op(|hub| async move { hub.manual().await })
    }

    /// The session that is current in a scope, if any is.
    #[pyo3(signature = (around))]
    fn current(&self, around: Around<'_>) -> PyResult<Option<Session>> {
        let hub = self.inner()?;
        let found = Scope::within(around, || by_hand::session(&hub));
        let found = found.map_err(|error| raised(&error))?;
        Ok(found.map(|session| Session::new(&self.keep, session)))
    }

    /// Begins a run, or joins the one around.
    #[pyo3(signature = (around))]
    fn begin(&self, around: Around<'_>) -> PyResult<Run> {
        let hub = self.inner()?;
        let run = Scope::within(around, || by_hand::begin(&hub));
        Ok(Run::new(&self.keep, run.map_err(|error| raised(&error))?))
    }

    /// Calls a tool of a server with arguments, which are JSON. The options are a time limit in seconds, whether to begin anew after a loss, and whether
    /// somebody listens to what the server says meanwhile.
    fn call(
        &self,
        around: Around<'_>,
        on: On<'_>,
        called: (String, String, String),
        options: (Option<f64>, bool, bool),
    ) -> PyResult<Op> {
        let ((server, tool, arguments), (limit, again, heard)) = (called, options);
        let limit = limit.map(seconds).transpose()?;
        self.asking(around, on, |hub, session| async move {
            let arguments = RawValue::from_string(arguments)
                .map_err(|error| Error::Invalid(format!("the arguments are no JSON: {error}")))?;
            let mut call = match session {
                Some(session) => session.call(&server, &tool, &arguments),
                None => hub.call(&server, &tool, &arguments),
            };
            if let Some(limit) = limit {
                call = call.timeout(limit);
            }
            if again {
                call = call.restart_on_loss();
            }
            if heard {
                call = call.on_notification(hear);
            }
            call.await
        })
    }

    /// A list of a server: `tools`, `prompts`, `resources` or `templates`, each piece as JSON.
    fn list(&self, around: Around<'_>, on: On<'_>, server: String, what: &str) -> PyResult<Op> {
        let what = match what {
            "tools" => List::Tools,
            "prompts" => List::Prompts,
            "resources" => List::Resources,
            _ => List::Templates,
        };
        self.asking(around, on, |hub, session| async move {
            by_hand::list(&hub, session.as_ref(), &server, what).await
        })
    }

    /// Gets a prompt, as JSON.
    fn prompt(
        &self,
        around: Around<'_>,
        on: On<'_>,
        called: (String, String),
        arguments: String,
    ) -> PyResult<Op> {
        let (server, name) = called;
        self.asking(around, on, |hub, session| async move {
            let arguments = RawValue::from_string(arguments)
                .map_err(|error| Error::Invalid(error.to_string()))?;
            match session {
                Some(session) => session.prompt(&server, &name, &arguments).await,
                None => hub.prompt(&server, &name, &arguments).await,
            }
        })
    }

    /// Reads a resource, as JSON.
    fn read(&self, around: Around<'_>, on: On<'_>, server: String, uri: String) -> PyResult<Op> {
        self.asking(around, on, |hub, session| async move {
            match session {
                Some(session) => session.read(&server, &uri).await,
                None => hub.read(&server, &uri).await,
            }
        })
    }

    /// What is known of a server, as text.
    fn profile(&self, server: String) -> PyResult<Op> {
        self.op(|hub| async move { hub.profile(&server).await })
    }

    /// Believes what `profile` said.
    fn remember(&self, server: String, profile: String) -> PyResult<Op> {
        self.op(|hub| async move { hub.remember(&server, &profile).await })
    }

    /// What happens to sessions from now on.
    fn events(&self) -> PyResult<Events> {
        Ok(Events::new(&self.keep, self.inner()?.events()))
    }

    /// Closes it under one deadline, in seconds.
    fn close(&self, limit: f64) -> PyResult<Op> {
        let (limit, keep): (Duration, _) = (seconds(limit)?, self.keep.clone());
        self.op(|hub| async move {
            let report = hub.close(limit).await;
            keep.over.send_replace(true);
            Ok(report)
        })
    }
}

/// Tells whoever made the call of what the server says meanwhile.
fn hear(text: &str) {
    let _ = CALLER.try_with(|caller| caller.tell(What::Heard(text.to_owned())));
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hub")
    }
}
